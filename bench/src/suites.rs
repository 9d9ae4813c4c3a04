//! The suites. A suite has cases, and each round of a case measures several servers in turn.

mod call;
mod fan_out;
mod forward;
mod gateway;
mod growth;
mod nodes;
mod streams;

use crate::load::{Dialect, Target};
use crate::machine::Cores;
use crate::measure::{Metric, Sample};
use crate::process::Server;
use crate::redis_use::RedisUse;
use crate::servers::TokenKind;
use anyhow::{Context as _, Result, bail};
use rethread_testkit::redis_server::RedisServer;
use std::time::Duration;
use tempfile::TempDir;

/// A measurement that takes longer has failed.
const MEASUREMENT_TIMEOUT: Duration = Duration::from_secs(180);

/// A server counts as idle if it uses almost no CPU for this time.
const IDLE_WINDOW: Duration = Duration::from_millis(200);

/// Suites that measure only rates run this many times as many rounds.
pub(crate) const RATE_ROUNDS_FACTOR: usize = 2;

/// A server or gateway under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ServerKind {
    /// hyper with canned responses: the reference.
    BareHyper,
    /// This library with the memory store.
    Rethread,
    /// This library with the embedded store.
    RethreadEmbedded,
    /// This library with the Redis store: a node by itself.
    RethreadRedis,
    /// Two nodes on one Redis.
    TwoNodes,
    /// Three nodes on one Redis.
    ThreeNodes,
    /// A node that owns the session of its calls, beside another one.
    OwnerNode,
    /// A node that forwards its calls to the owner of their session.
    ForwardingNode,
    /// This library with the memory store, and a caller with a static token.
    RethreadStaticToken,
    /// This library with the memory store, and a caller with a JWT.
    RethreadJwt,
    /// An rmcp server behind this library.
    RethreadRmcp,
    /// The official SDK with its own transport.
    Rmcp,
    /// The official SDK with an event store.
    RmcpStore,
    /// Our gateway with the memory store.
    Gateway,
    /// Our gateway with its default, the embedded store.
    GatewayEmbedded,
    /// Our gateway with metrics, the log at its default and the audit log.
    GatewayObserved,
    /// Our gateway with the memory store, in front of a server of 2026-07-28.
    GatewayStateless,
    /// From npm.
    Supergateway,
    /// From PyPI.
    McpProxy,
    /// Another program of the same name, from npm.
    McpProxyNpm,
}

impl ServerKind {
    /// A failure of a server of this repository ends the bench. A failure of another one is a result.
    pub(crate) fn is_own_server(self) -> bool {
        !matches!(
            self,
            ServerKind::Rmcp
                | ServerKind::RmcpStore
                | ServerKind::Supergateway
                | ServerKind::McpProxy
                | ServerKind::McpProxyNpm
        )
    }

    /// The token of its callers.
    fn token(self) -> Option<TokenKind> {
        match self {
            ServerKind::RethreadStaticToken => Some(TokenKind::Static),
            ServerKind::RethreadJwt => Some(TokenKind::Jwt),
            _ => None,
        }
    }

    /// Whether it needs a `redis-server` on this machine.
    pub(crate) fn uses_redis(self) -> bool {
        matches!(
            self,
            ServerKind::RethreadRedis
                | ServerKind::TwoNodes
                | ServerKind::ThreeNodes
                | ServerKind::OwnerNode
                | ServerKind::ForwardingNode
        )
    }

    pub(crate) const ALL: [ServerKind; 20] = [
        ServerKind::BareHyper,
        ServerKind::Rethread,
        ServerKind::RethreadEmbedded,
        ServerKind::RethreadRedis,
        ServerKind::TwoNodes,
        ServerKind::ThreeNodes,
        ServerKind::OwnerNode,
        ServerKind::ForwardingNode,
        ServerKind::RethreadStaticToken,
        ServerKind::RethreadJwt,
        ServerKind::RethreadRmcp,
        ServerKind::Rmcp,
        ServerKind::RmcpStore,
        ServerKind::Gateway,
        ServerKind::GatewayEmbedded,
        ServerKind::GatewayObserved,
        ServerKind::GatewayStateless,
        ServerKind::Supergateway,
        ServerKind::McpProxy,
        ServerKind::McpProxyNpm,
    ];

    /// Name on the command line and in the results file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ServerKind::BareHyper => "bare-hyper",
            ServerKind::Rethread => "rethread",
            ServerKind::RethreadEmbedded => "rethread-embedded",
            ServerKind::RethreadRedis => "rethread-redis",
            ServerKind::TwoNodes => "two-nodes",
            ServerKind::ThreeNodes => "three-nodes",
            ServerKind::RethreadStaticToken => "rethread-static-token",
            ServerKind::RethreadJwt => "rethread-jwt",
            ServerKind::OwnerNode => "owner-node",
            ServerKind::ForwardingNode => "forwarding-node",
            ServerKind::RethreadRmcp => "rethread-rmcp",
            ServerKind::Rmcp => "rmcp",
            ServerKind::RmcpStore => "rmcp-store",
            ServerKind::Gateway => "rethread-gateway",
            ServerKind::GatewayEmbedded => "rethread-gateway-embedded",
            ServerKind::GatewayObserved => "rethread-gateway-observed",
            ServerKind::GatewayStateless => "rethread-gateway-stateless",
            ServerKind::Supergateway => "supergateway",
            ServerKind::McpProxy => "mcp-proxy",
            ServerKind::McpProxyNpm => "mcp-proxy-npm",
        }
    }

    /// Description in the report.
    pub(crate) fn description(self) -> &'static str {
        match self {
            ServerKind::BareHyper => "hyper with canned responses of the same size",
            ServerKind::Rethread => "this library with the memory store",
            ServerKind::RethreadEmbedded => "this library with the embedded store on disk",
            ServerKind::RethreadRedis => "this library with the Redis store, one node",
            ServerKind::TwoNodes => "two nodes with the Redis store on one core",
            ServerKind::ThreeNodes => "three nodes with the Redis store on one core",
            ServerKind::OwnerNode => "two nodes; the node that is called owns the session",
            ServerKind::ForwardingNode => "two nodes; the node that is called forwards to the owner of the session",
            ServerKind::RethreadStaticToken => "this library with the memory store; the caller has a static token",
            ServerKind::RethreadJwt => "this library with the memory store; the caller has a JWT of 600 bytes",
            ServerKind::RethreadRmcp => "an rmcp server behind this library",
            ServerKind::Rmcp => "the official Rust SDK with its own transport",
            ServerKind::RmcpStore => "the official Rust SDK with an event store in memory",
            ServerKind::Gateway => "the gateway of this project with the memory store",
            ServerKind::GatewayEmbedded => "the gateway of this project with the embedded store, its default",
            ServerKind::GatewayObserved => {
                "this gateway with the memory store, metrics, the log at its default and the audit log"
            }
            ServerKind::GatewayStateless => "this gateway with the memory store, in front of a server of 2026-07-28",
            ServerKind::Supergateway => "supergateway from npm",
            ServerKind::McpProxy => "mcp-proxy from PyPI",
            ServerKind::McpProxyNpm => "mcp-proxy from npm",
        }
    }

    /// Name in the report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            ServerKind::BareHyper => "bare hyper",
            ServerKind::Rethread => "rethread",
            ServerKind::RethreadEmbedded => "rethread, embedded store",
            ServerKind::RethreadRedis => "rethread, Redis store",
            ServerKind::TwoNodes => "rethread, two nodes",
            ServerKind::ThreeNodes => "rethread, three nodes",
            ServerKind::OwnerNode => "rethread, owner",
            ServerKind::ForwardingNode => "rethread, forwarded",
            ServerKind::RethreadStaticToken => "rethread, static token",
            ServerKind::RethreadJwt => "rethread, JWT",
            ServerKind::RethreadRmcp => "rethread + rmcp",
            ServerKind::Rmcp => "rmcp",
            ServerKind::RmcpStore => "rmcp, event store",
            ServerKind::Gateway => "rethread gateway",
            ServerKind::GatewayEmbedded => "rethread gateway, embedded store",
            ServerKind::GatewayObserved => "rethread gateway, observed",
            ServerKind::GatewayStateless => "rethread gateway, stateless server",
            ServerKind::Supergateway => "supergateway",
            ServerKind::McpProxy => "mcp-proxy",
            ServerKind::McpProxyNpm => "mcp-proxy (npm)",
        }
    }
}

/// Duration and size of the measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Time before the measurement.
    pub(crate) warmup: Duration,
    /// Time of the measurement.
    pub(crate) window: Duration,
    /// Fewer and smaller cases.
    pub(crate) quick: bool,
}

/// Where and how long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Environment {
    pub(crate) cores: Cores,
    pub(crate) scale: Scale,
}

pub(crate) struct Suite {
    /// Name on the command line and in the results file.
    pub(crate) name: &'static str,
    /// Name in the report.
    pub(crate) title: &'static str,
    /// One operation.
    pub(crate) unit: &'static str,
    pub(crate) about: &'static str,
    /// Columns of its table.
    pub(crate) metrics: &'static [Metric],
    pub(crate) cases: Vec<Case>,
}

impl Suite {
    /// Rates are quick to measure but sensitive to noise, so they get more rounds.
    pub(crate) fn rounds_factor(&self) -> usize {
        if self.metrics.contains(&Metric::WireBytes) {
            RATE_ROUNDS_FACTOR
        } else {
            1
        }
    }
}

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) servers: Vec<ServerKind>,
    pub(crate) run: MeasureFn,
}

type MeasureFn = Box<dyn Fn(&Environment, ServerKind) -> Result<Sample>>;

/// All suites in report order.
pub(crate) fn all(scale: Scale) -> Vec<Suite> {
    vec![
        call::json(),
        call::sse(),
        call::modern(),
        call::auth(),
        streams::stream(),
        streams::durable(),
        streams::stores(),
        streams::replay(),
        streams::resume(),
        fan_out::push(scale),
        fan_out::listen(scale),
        fan_out::storm(scale),
        growth::suite(scale),
        gateway::suite(),
        gateway::bridge(),
        nodes::suite(),
        forward::suite(),
    ]
}

/// How to start a server and send requests to it.
pub(crate) struct Setup {
    /// Path of the canned response of bare hyper.
    pub(crate) canned_path: String,
    pub(crate) dialect: Dialect,
    /// Whether Rethread answers calls with a stream at once.
    pub(crate) stream_at_once: bool,
    /// Whether rmcp runs without sessions and answers in JSON.
    pub(crate) rmcp_json: bool,
}

/// A started server and its temporary files.
pub(crate) struct RunningServer {
    pub(crate) server: Server,
    pub(crate) target: Target,
    /// Nodes beside `server`, each with its target.
    pub(crate) nodes: Vec<(Server, Target)>,
    redis: Option<RedisServer>,
    _files: Option<TempDir>,
}

impl Setup {
    pub(crate) fn start(&self, environment: &Environment, kind: ServerKind) -> Result<RunningServer> {
        let (mut files, mut redis) = (None, None);
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |more: &[&str]| arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        match kind {
            ServerKind::BareHyper => add(&["bare-hyper"]),
            ServerKind::Rethread => add(&["rethread"]),
            ServerKind::RethreadEmbedded => {
                let dir = TempDir::new()?;
                add(&[
                    "rethread",
                    "--store",
                    "embedded",
                    "--data",
                    &dir.path().to_string_lossy(),
                ]);
                files = Some(dir);
            }
            ServerKind::RethreadRedis => {
                let server = start_redis()?;
                add(&["rethread", "--store", "redis", "--redis", &server.url()]);
                redis = Some(server);
            }
            ServerKind::RethreadStaticToken => add(&["rethread", "--auth", "static"]),
            ServerKind::RethreadJwt => add(&["rethread", "--auth", "jwt"]),
            ServerKind::RethreadRmcp => add(&["rethread", "--rmcp"]),
            ServerKind::Rmcp => add(&["rmcp"]),
            ServerKind::RmcpStore => add(&["rmcp", "--store"]),
            other => bail!("{} is a gateway, or several nodes", other.name()),
        }
        match kind {
            ServerKind::Rethread
            | ServerKind::RethreadEmbedded
            | ServerKind::RethreadRedis
            | ServerKind::RethreadRmcp
                if self.stream_at_once =>
            {
                add(&["--streams"]);
            }
            ServerKind::Rmcp | ServerKind::RmcpStore if self.rmcp_json => add(&["--json"]),
            _ => {}
        }
        let server = Server::start(environment.cores, &arguments)?;
        let canned = kind == ServerKind::BareHyper;
        let rmcp = matches!(kind, ServerKind::Rmcp | ServerKind::RmcpStore);
        let dialect = match self.dialect {
            Dialect::Legacy if rmcp && self.rmcp_json => Dialect::Sessionless,
            dialect => dialect,
        };
        let target = Target {
            address: server.address,
            path: if canned {
                self.canned_path.clone()
            } else {
                "/mcp".to_owned()
            },
            dialect,
            canned,
            token: kind.token().map(TokenKind::token),
        };
        Ok(RunningServer {
            redis,
            ..RunningServer::new(server, target, files)
        })
    }
}

/// Starts `redis-server` on a free port. It shares the core of the load, which this process is pinned to.
pub(crate) fn start_redis() -> Result<RedisServer> {
    RedisServer::start().context("redis-server is not installed")
}

impl RunningServer {
    pub(crate) fn new(server: Server, target: Target, files: Option<TempDir>) -> Self {
        RunningServer {
            server,
            target,
            nodes: Vec::new(),
            redis: None,
            _files: files,
        }
    }

    /// Nodes with the Redis store that share the core of the server. With `owned`, sessions belong to the node that opened
    /// them.
    pub(crate) fn start_nodes(environment: &Environment, nodes: usize, owned: bool) -> Result<Self> {
        let redis = start_redis()?;
        let url = redis.url();
        let mut arguments = vec!["rethread", "--store", "redis", "--redis", &url];
        if owned {
            arguments.push("--owned");
        }
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let mut started = Vec::new();
        for _ in 0..nodes {
            let server = Server::start(environment.cores, &arguments)?;
            let target = Target {
                address: server.address,
                path: "/mcp".to_owned(),
                dialect: Dialect::Legacy,
                canned: false,
                token: None,
            };
            started.push((server, target));
        }
        let (server, target) = started.remove(0);
        Ok(RunningServer {
            nodes: started,
            redis: Some(redis),
            ..RunningServer::new(server, target, None)
        })
    }

    /// All processes of the server.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.server).chain(self.nodes.iter().map(|(server, _)| server))
    }

    /// The targets of all nodes.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Target> {
        std::iter::once(&self.target).chain(self.nodes.iter().map(|(_, target)| target))
    }

    /// The work of Redis so far. `None` without Redis.
    pub(crate) fn redis_use(&self) -> Result<Option<RedisUse>> {
        self.redis.as_ref().map(RedisUse::of).transpose()
    }

    /// Waits until the server is idle and returns its memory.
    pub(crate) async fn wait_until_idle(&self) -> Result<u64> {
        let mut cpu = self.server.cpu()?;
        loop {
            tokio::time::sleep(IDLE_WINDOW).await;
            let now = self.server.cpu()?;
            if now - cpu < IDLE_WINDOW / 40 {
                return self.server.memory();
            }
            cpu = now;
        }
    }
}

/// Runs the load on a single thread.
pub(crate) fn run_load<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = async {
        tokio::time::timeout(MEASUREMENT_TIMEOUT, work)
            .await
            .context("the measurement timed out")?
    };
    tokio::task::LocalSet::new().block_on(&runtime, work)
}
