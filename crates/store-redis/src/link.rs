//! Connects to one server, to the primary that sentinels name, or to a cluster.

use crate::ConnectError;
use crate::options::{Mode, RedisUrl};
use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, Pipeline,
    RedisConnectionInfo, RedisFuture, RedisResult, TlsMode, Value,
};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// A multiplexed connection.
#[derive(Clone)]
pub(crate) enum Wire {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl ConnectionLike for Wire {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Wire::Single(connection) => connection.req_packed_command(cmd),
            Wire::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Wire::Single(connection) => connection.req_packed_commands(cmd, offset, count),
            Wire::Cluster(connection) => connection.req_packed_commands(cmd, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Wire::Single(connection) => connection.get_db(),
            Wire::Cluster(connection) => connection.get_db(),
        }
    }
}

/// Makes connections.
pub(crate) struct Connector {
    kind: Kind,
    /// Limit of the wait for a connection and for a reply.
    timeout: Duration,
}

enum Kind {
    Single(Box<Client>),
    Sentinel {
        client: Box<Mutex<SentinelClient>>,
        /// The primary of the last connection.
        primary: parking_lot::Mutex<Option<ConnectionAddr>>,
    },
    Cluster {
        client: Box<ClusterClient>,
        /// Subscriptions use any node: each node of a cluster forwards published messages to all others.
        seeds: Vec<Client>,
        next_seed: AtomicUsize,
    },
}

impl Kind {
    fn new(url: &RedisUrl, timeout: Duration) -> RedisResult<Self> {
        let server = |at| Client::open(server_info(url, at)?);
        Ok(match &url.mode {
            Mode::Single => Kind::Single(Box::new(server(0)?)),
            Mode::Sentinel { primary } => Kind::Sentinel {
                client: Box::new(Mutex::new(sentinel_client(url, primary)?)),
                primary: parking_lot::Mutex::default(),
            },
            Mode::Cluster => Kind::Cluster {
                client: Box::new(cluster_client(url, timeout)?),
                seeds: (0..url.hosts.len()).map(server).collect::<RedisResult<_>>()?,
                next_seed: AtomicUsize::new(0),
            },
        })
    }
}

/// Attempts of the cluster client to follow a moved slot. They must end within the timeout of a command.
const CLUSTER_RETRIES: u32 = 4;

impl Connector {
    pub(crate) fn new(url: &RedisUrl, timeout: Duration) -> Result<Self, ConnectError> {
        if url.tls {
            prepare_tls()?;
        }
        let kind = Kind::new(url, timeout).map_err(ConnectError::unreachable)?;
        Ok(Connector { kind, timeout })
    }

    /// A connection for commands.
    pub(crate) async fn commands(&self) -> RedisResult<Wire> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let connecting = async {
            match &self.kind {
                Kind::Single(client) => {
                    let connection = client.get_multiplexed_async_connection_with_config(&config);
                    connection.await.map(Wire::Single)
                }
                Kind::Sentinel { client, primary } => {
                    let found = client.lock().await.async_get_client().await?;
                    *primary.lock() = Some(found.get_connection_info().addr().clone());
                    let connection = found.get_multiplexed_async_connection_with_config(&config);
                    connection.await.map(Wire::Single)
                }
                Kind::Cluster { client, .. } => client.get_async_connection().await.map(Wire::Cluster),
            }
        };
        in_time(self.timeout, connecting).await
    }

    /// A connection for subscriptions.
    pub(crate) async fn pub_sub(&self) -> RedisResult<PubSub> {
        let connecting = async {
            match &self.kind {
                Kind::Single(client) => client.get_async_pubsub().await,
                Kind::Sentinel { client, .. } => {
                    let primary = client.lock().await.async_get_client().await?;
                    primary.get_async_pubsub().await
                }
                Kind::Cluster { seeds, next_seed, .. } => {
                    let next = next_seed.fetch_add(1, Ordering::Relaxed);
                    seeds[next % seeds.len()].get_async_pubsub().await
                }
            }
        };
        in_time(self.timeout, connecting).await
    }
}

impl Connector {
    /// Whether the sentinels name another primary than that of the last connection. After a failover the old primary
    /// accepts writes until a sentinel reaches it. These writes are lost.
    pub(crate) async fn has_moved(&self) -> bool {
        let Kind::Sentinel { client, primary } = &self.kind else {
            return false;
        };
        let finding = async { client.lock().await.async_get_client().await };
        let found = in_time(self.timeout, finding).await;
        // Without an answer, assume that the primary has not changed.
        found.is_ok_and(|found| primary.lock().as_ref() != Some(found.get_connection_info().addr()))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

/// Limits the time of an operation.
pub(crate) async fn in_time<T>(timeout: Duration, work: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    match tokio::time::timeout(timeout, work).await {
        Ok(result) => result,
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    }
}

fn credentials(url: &RedisUrl) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default().set_db(url.db);
    if let Some(user) = &url.user {
        info = info.set_username(user);
    }
    if let Some(password) = &url.password {
        info = info.set_password(password);
    }
    info
}

fn address(url: &RedisUrl, at: usize) -> ConnectionAddr {
    let (host, port) = url.hosts[at].clone();
    if url.tls {
        ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

fn server_info(url: &RedisUrl, at: usize) -> RedisResult<ConnectionInfo> {
    Ok(address(url, at)
        .into_connection_info()?
        .set_redis_settings(credentials(url)))
}

fn sentinel_client(url: &RedisUrl, primary: &str) -> RedisResult<SentinelClient> {
    let sentinels = (0..url.hosts.len()).map(|at| address(url, at));
    let mut builder = SentinelClientBuilder::new(sentinels, primary, SentinelServerType::Master)?;
    builder = builder.set_client_to_redis_db(url.db);
    if url.tls {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    if let Some(user) = &url.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = &url.password {
        builder = builder.set_client_to_redis_password(password);
    }
    builder.build()
}

fn cluster_client(url: &RedisUrl, timeout: Duration) -> RedisResult<ClusterClient> {
    let nodes = (0..url.hosts.len()).map(|at| server_info(url, at));
    let nodes = nodes.collect::<RedisResult<Vec<_>>>()?;
    let builder = ClusterClient::builder(nodes).retries(CLUSTER_RETRIES);
    builder.connection_timeout(timeout).response_timeout(timeout).build()
}

#[cfg(feature = "tls")]
fn prepare_tls() -> Result<(), ConnectError> {
    // The client uses the default provider of the process. It must be installed if several crates bring providers.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default(); // fails if another thread installed one
    }
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn prepare_tls() -> Result<(), ConnectError> {
    Err(ConnectError::Url("this build has no TLS".into()))
}
