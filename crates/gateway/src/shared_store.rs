//! The store that several gateways share, and the membership of this one.

use crate::exit::{Exit, Failure};
use crate::settings::RedisSettings;
use rethread_store_redis::{ConnectError, Persistence, Promises, RedisCluster, RedisOptions};
use sha2::{Digest as _, Sha256};
use std::error::Error as _;
use std::path::Path;
use std::time::Duration;

/// How long a gateway may take to join. Beyond: it does not start.
pub(crate) const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter secrets can be guessed.
const MIN_SECRET_BYTES: usize = 16;

/// Connects to the store. Does not join yet.
pub(crate) async fn connect(settings: &RedisSettings) -> Result<RedisCluster, Failure> {
    let mut options = RedisOptions::new(settings.url.clone()).with_lease(settings.lease);
    if let Some(name) = &settings.node_id {
        options = options.with_node_id(name.as_str());
    }
    if let Some(file) = &settings.secret_file {
        options = options.with_secret(read_secret(file)?);
    }
    let connected = RedisCluster::connect(options).await;
    connected.map_err(|error| connect_failure(settings, &error))
}

/// Connects to the store and reads what it promises. The connections are closed again.
pub(crate) fn test_connection(settings: &RedisSettings) -> Result<Promises, Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let connected = runtime.block_on(connect(settings));
    connected.map(|cluster| cluster.promises().clone())
}

/// A weakness of the store that its operator may not intend.
pub(crate) fn warning(promises: &Promises) -> Option<String> {
    let is_lost = promises.persistence == Persistence::None;
    is_lost.then(|| {
        "persistence of the store is off, so a restart of its server loses every session; set appendonly yes".to_owned()
    })
}

/// All nodes derive the same key from the same file.
fn read_secret(file: &Path) -> Result<[u8; 32], Failure> {
    let failure = |message: String| {
        let failure = Failure::new(Exit::Usage, message);
        failure.hint("head -c 32 /dev/urandom | base64 > FILE, and the same file for every gateway")
    };
    let shown = file.display();
    let content =
        std::fs::read(file).map_err(|error| failure(format!("cannot read the secret in {shown}: {error}")))?;
    let secret = content.trim_ascii();
    if secret.len() < MIN_SECRET_BYTES {
        return Err(failure(format!(
            "the secret in {shown} has fewer than {MIN_SECRET_BYTES} bytes"
        )));
    }
    Ok(Sha256::digest(secret).into())
}

/// The error and its causes. None of them contains the password.
pub(crate) fn connect_failure(settings: &RedisSettings, error: &ConnectError) -> Failure {
    let (mut reason, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        let text = error.to_string();
        if !reason.ends_with(&text) {
            reason.push_str(&format!(": {text}"));
        }
        cause = error.source();
    }
    let failure = Failure::new(Exit::Store, format!("cannot use the store {}: {reason}", settings.url));
    match error {
        ConnectError::Unreachable(_) => failure
            .hint("start the server, check the host, the port and the password, or use --data DIR for one gateway"),
        _ => failure,
    }
}

/// This gateway did not become a member in time.
pub(crate) fn join_failure(settings: &RedisSettings) -> Failure {
    let seconds = JOIN_TIMEOUT.as_secs();
    let message = format!(
        "this gateway could not join the store {} within {seconds} s",
        settings.url
    );
    Failure::new(Exit::Store, message).hint("the log of the gateway and of the store")
}

/// A newer process has the name of this node.
pub(crate) fn replaced_failure(settings: &RedisSettings) -> Failure {
    let name = settings.node_id.as_deref().unwrap_or_default();
    Failure::new(
        Exit::Failure,
        format!("a newer gateway uses the node id {name}, so this one ends"),
    )
    .hint("another --node-id for each gateway")
}
