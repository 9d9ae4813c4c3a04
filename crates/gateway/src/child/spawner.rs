//! Starts the children of one server, up to its limit.

use super::guardian::Guardian;
use super::process::{ChildPipes, ChildProcess};
use crate::metrics;
use crate::settings::{IdentitySetting, ServerSettings};
use rethread::{Principal, SessionId, Tag};
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a new child waits for a permit of one that is about to end. Beyond: [`TooManyChildren`].
const PERMIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Variables that tell a child its caller.
const ISSUER_VARIABLE: &str = "RETHREAD_ISSUER";
const SUBJECT_VARIABLE: &str = "RETHREAD_SUBJECT";

/// Starts the children of one server.
#[derive(Clone, Debug)]
pub(crate) struct ChildSpawner {
    pub(crate) server: Arc<ServerSettings>,
    guardian: Guardian,
    permits: Arc<Semaphore>,
    /// The one caller of the children, if they learn it from their environment.
    caller: Option<Principal>,
    /// The session of the children, for the log.
    pub(super) session: Option<Tag>,
}

/// The right to run one child. Returned when dropped.
#[derive(Debug)]
pub(crate) struct ChildPermit {
    _permit: OwnedSemaphorePermit,
}

/// `max_children` are running.
#[derive(Debug, thiserror::Error)]
#[error("{limit} children of {server} are running already; try again later")]
pub(crate) struct TooManyChildren {
    limit: usize,
    server: String,
}

impl ChildSpawner {
    pub(crate) fn new(server: Arc<ServerSettings>, guardian: Guardian) -> Self {
        let permits = Arc::new(Semaphore::new(server.max_children));
        ChildSpawner {
            server,
            guardian,
            permits,
            caller: None,
            session: None,
        }
    }

    /// How many children run.
    pub(crate) fn running(&self) -> usize {
        self.server
            .max_children
            .saturating_sub(self.permits.available_permits())
    }

    /// The same spawner for children that serve one caller. Only `identity = "env"` makes a difference (AUTH-23).
    pub(crate) fn for_caller(&self, caller: &Principal) -> Self {
        let is_told = self.server.identity == IdentitySetting::Env && !caller.is_anonymous();
        ChildSpawner {
            caller: is_told.then(|| caller.clone()),
            ..self.clone()
        }
    }

    /// The same spawner for the children of one session, as operators see it.
    pub(crate) fn for_session(self, session: &SessionId) -> Self {
        ChildSpawner {
            session: Some(Tag::of_session(session)),
            ..self
        }
    }

    /// Waits up to [`PERMIT_TIMEOUT`] for a permit.
    pub(crate) async fn acquire_permit(&self) -> Result<ChildPermit, TooManyChildren> {
        let acquired = timeout(PERMIT_TIMEOUT, Arc::clone(&self.permits).acquire_owned()).await;
        let permit = acquired.ok().and_then(Result::ok);
        permit.map(|permit| ChildPermit { _permit: permit }).ok_or_else(|| {
            let (server, limit) = (self.server.name.clone(), self.server.max_children);
            metrics::child_refused(&server);
            tracing::warn!(server, limit, "capacity reached: no more children");
            TooManyChildren { limit, server }
        })
    }

    /// Starts a child. Only the operator sets its command line, environment and working directory (GW-10). The identity of the
    /// caller is the exception that the operator asks for. A zero byte, which a variable cannot have, is an error here.
    pub(super) fn spawn(&self, permit: ChildPermit) -> io::Result<(ChildProcess, ChildPipes)> {
        let server = &*self.server;
        let inherited = std::env::vars_os().filter(|(name, _)| server.inherit_env.includes(name));
        let mut command = Command::new(&server.command);
        command
            .args(&server.args)
            .env_clear()
            .envs(inherited)
            .envs(&server.env)
            .env(rethread::BEHIND_GATEWAY, env!("CARGO_PKG_VERSION"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(caller) = &self.caller {
            command
                .env(ISSUER_VARIABLE, caller.issuer())
                .env(SUBJECT_VARIABLE, caller.subject());
        }
        if let Some(cwd) = &server.cwd {
            command.current_dir(cwd);
        }
        let child = command.spawn().map_err(|error| {
            let message = format!("cannot start {}: {error}", server.command.display());
            io::Error::new(error.kind(), message)
        })?;
        let (process, pipes) = ChildProcess::new(child, permit, &self.guardian)?;
        self.guardian.table.started(process.group, &server.name, self.session);
        Ok((process, pipes))
    }
}
