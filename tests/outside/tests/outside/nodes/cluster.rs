//! Example servers or gateways on one Redis, with a balancer in front of them.

use crate::server::{EXAMPLE, GATEWAY, NPM_GATEWAY, Program, ServerProcess};
use rethread_testkit::balancer::Balancer;
use rethread_testkit::client::{Client, Session};
use rethread_testkit::redis_server::RedisServer;
use std::net::SocketAddr;
use std::time::Duration;

/// The revision of the session era with all its features.
pub(crate) const V2025_11_25: &str = "2025-11-25";

const NODES: usize = 3;

/// The lease of the nodes in seconds.
pub(crate) const LEASE_SECONDS: f64 = 2.0;

/// A client that waits for a dead node is notified within this time: the lease, a quarter of it until the next renewal of
/// another node, and a second.
pub(crate) fn death_bound() -> Duration {
    Duration::from_secs_f64(LEASE_SECONDS * 1.25 + 1.0)
}

/// The nodes of a cluster. A node that was killed is `None`.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Option<ServerProcess>>,
    pub(crate) redis: RedisServer,
    pub(crate) balancer: Balancer,
}

impl Cluster {
    /// Starts three nodes. `None` if there is no Redis on this machine, which CI does not allow.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(&[]).await
    }

    /// Like `start`, with more options.
    pub(crate) async fn start_with(options: &[&str]) -> Option<Self> {
        Self::launch(options, |options| EXAMPLE.start_with(options)).await
    }

    /// Starts three gateways, each with the example behind it.
    pub(crate) async fn start_gateways() -> Option<Self> {
        Self::launch(&[], |options| GATEWAY.start_with(options)).await
    }

    /// Starts three gateways, each with the server of npm behind it.
    pub(crate) async fn start_npm_gateways() -> Option<Self> {
        Self::launch(&[], |options| NPM_GATEWAY.start_with(options)).await
    }

    /// Starts three nodes that have the same addresses after a restart. `example` are options of the example.
    pub(crate) async fn start_at_fixed_ports(program: &'static Program, example: &[&str]) -> Option<Self> {
        let retry = ["--retry-ms", "100"];
        Self::launch(&retry, |options| program.start_node(options, example)).await
    }

    async fn launch(options: &[&str], start: impl Fn(&[&str]) -> ServerProcess) -> Option<Self> {
        let redis = RedisServer::start()?;
        let (url, lease) = (redis.url(), LEASE_SECONDS.to_string());
        let options = [&["--store", &url, "--lease", &lease], options].concat();
        let nodes: Vec<_> = (0..NODES).map(|_| Some(start(&options))).collect();
        let balancer = Balancer::start([]).await.expect("a free port");
        let cluster = Cluster { nodes, redis, balancer };
        cluster.update_backends();
        Some(cluster)
    }

    /// The URL of the balancer.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.balancer.address())
    }

    /// Makes the balancer know the nodes that run.
    pub(crate) fn update_backends(&self) {
        let running = self.nodes.iter().flatten();
        self.balancer.set_backends(running.map(ServerProcess::addr));
    }

    pub(crate) fn node(&self, number: usize) -> &ServerProcess {
        self.nodes[number].as_ref().expect("a node that runs")
    }

    pub(crate) fn addr(&self, number: usize) -> SocketAddr {
        self.node(number).addr()
    }

    /// A client of one node.
    pub(crate) fn client(&self, number: usize) -> Client {
        Client::connect(self.addr(number))
    }

    /// A client of the balancer.
    pub(crate) fn balanced(&self) -> Client {
        Client::connect(self.balancer.address())
    }

    /// A session as one node sees it.
    pub(crate) fn at(&self, session: &Session, number: usize) -> Session {
        session.with_client(&self.client(number))
    }

    /// Kills a node. The balancer still knows it.
    pub(crate) fn kill(&mut self, number: usize) {
        self.nodes[number].take().expect("a node that runs").kill();
    }
}
