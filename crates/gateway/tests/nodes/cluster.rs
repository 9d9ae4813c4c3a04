//! Gateways with one store behind a balancer.

use crate::client::{Client, Session};
use crate::gateway::{Gateway, GatewayBuilder, gateway_with};
use rethread_testkit::balancer::Balancer;
use rethread_testkit::prometheus::Scrape;
use rethread_testkit::redis_server::RedisServer;
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// The lease of the gateways.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// The longest wait of a client for the sessions of a dead gateway, plus `work`.
pub(crate) fn after_a_death(work: Duration) -> Duration {
    LEASE * 5 / 4 + SECOND + work
}

/// Three gateways. Every request goes to the next one.
pub(crate) struct Cluster {
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) balancer: Balancer,
    _redis: RedisServer,
}

impl Cluster {
    /// Gateways in front of a fake child. `None` without a store.
    pub(crate) async fn start(behavior: &str) -> Option<Self> {
        Self::start_with(behavior, |gateway| gateway).await
    }

    /// Gateways with more options.
    pub(crate) async fn start_with(behavior: &str, add: impl Fn(GatewayBuilder) -> GatewayBuilder) -> Option<Self> {
        let redis = RedisServer::start()?;
        let starting: Vec<_> = (0..3)
            .map(|_| add(node(behavior, &redis)).option("--metrics 127.0.0.1:0").spawn())
            .collect();
        let gateways: Vec<_> = starting.into_iter().map(Gateway::when_ready).collect();
        let balancer = Balancer::start(gateways.iter().map(|gateway| gateway.addr))
            .await
            .unwrap();
        Some(Cluster {
            gateways,
            balancer,
            _redis: redis,
        })
    }

    /// A client of the balancer.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.balancer.address(), "")
    }

    /// The gateway whose child has this pid.
    pub(crate) fn owner(&self, pid: u64) -> usize {
        let of = |gateway: &Gateway| gateway.children().iter().any(|child| u64::from(child.pid) == pid);
        let owner = self.gateways.iter().position(of);
        owner.unwrap_or_else(|| panic!("no gateway has the child {pid}"))
    }

    /// The gateways that do not have this child.
    pub(crate) fn others(&self, pid: u64) -> [usize; 2] {
        let owner = self.owner(pid);
        [(owner + 1) % 3, (owner + 2) % 3]
    }

    /// The same session at one gateway.
    pub(crate) fn at(&self, session: &Session, gateway: usize) -> Session {
        session.at_address(self.gateways[gateway].addr)
    }

    /// A counter, summed over the gateways in `of` and over its labels.
    pub(crate) async fn counter(&self, of: &[usize], name: &str) -> f64 {
        let mut sum = 0.0;
        for gateway in of {
            let log = self.gateways[*gateway].log();
            let line = log.lines().find(|line| line.contains("metrics and health")).unwrap();
            let address = line.split("address=").nth(1).unwrap();
            let address = address.split_whitespace().next().unwrap().parse().unwrap();
            let text = Client::new(address, "").get("/metrics").await.text().await;
            sum += Scrape::parse(&text).unwrap().sum(name, &[]);
        }
        sum
    }

    /// The number of children of all gateways.
    pub(crate) fn children(&self) -> usize {
        self.gateways.iter().map(|gateway| gateway.children().len()).sum()
    }
}

/// One gateway of several.
pub(crate) fn node(behavior: &str, redis: &RedisServer) -> GatewayBuilder {
    let store = format!("--store {} --lease {} --name fake", redis.url(), LEASE.as_secs());
    gateway_with(behavior)
        .without("--memory")
        .option(&store)
        .record_messages()
}
