//! What is measured. A suite has cases; a case runs several servers, one after the other, in every round.

mod burst;
mod call;
mod gateway;
mod growth;
mod many;

use crate::load::{Dialect, Target};
use crate::machine::Cores;
use crate::measure::{Metric, Sample};
use crate::process::Server;
use anyhow::{Context as _, Result, bail};
use std::time::Duration;
use tempfile::TempDir;

/// No measurement takes longer; one that does has failed.
const PATIENCE: Duration = Duration::from_secs(180);

/// A server that does nothing for so long has nothing to do.
const SETTLE: Duration = Duration::from_millis(200);

/// How many times as many rounds the suites get that measure nothing but rates.
pub(crate) const OFTEN: usize = 2;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Contender {
    /// Bare hyper.
    Limit,
    /// This library, events in memory.
    Memory,
    /// This library, events on disk.
    Embedded,
    /// A server written with the official SDK, behind this library.
    Adapter,
    /// The official SDK.
    Rmcp,
    /// The official SDK with an event store.
    RmcpStore,
    /// Our gateway, `--memory`.
    Gateway,
    /// Our gateway as it comes.
    GatewayEmbedded,
    /// From npm.
    Supergateway,
    /// From PyPI.
    McpProxy,
}

impl Contender {
    /// One of ours must not fail; that another does is a result.
    pub(crate) fn is_ours(self) -> bool {
        matches!(
            self,
            Contender::Limit
                | Contender::Memory
                | Contender::Embedded
                | Contender::Adapter
                | Contender::Gateway
                | Contender::GatewayEmbedded
        )
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Limit => "limit",
            Contender::Memory => "rethread",
            Contender::Embedded => "rethread-embedded",
            Contender::Adapter => "rethread-rmcp",
            Contender::Rmcp => "rmcp",
            Contender::RmcpStore => "rmcp-store",
            Contender::Gateway => "rethread-gateway",
            Contender::GatewayEmbedded => "rethread-gateway-embedded",
            Contender::Supergateway => "supergateway",
            Contender::McpProxy => "mcp-proxy",
        }
    }
}

/// How long and how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Before anything is counted.
    pub(crate) warm: Duration,
    /// What is counted.
    pub(crate) window: Duration,
    /// A first impression: fewer cases, fewer streams.
    pub(crate) quick: bool,
}

/// The place of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bench {
    pub(crate) cores: Cores,
    pub(crate) scale: Scale,
}

/// Several cases of one question.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// What one operation is.
    pub(crate) unit: &'static str,
    pub(crate) about: &'static str,
    /// The figures that it gives.
    pub(crate) metrics: &'static [Metric],
    pub(crate) cases: Vec<Case>,
}

impl Suite {
    /// How many times as many rounds it gets. Rates are measured quickly, and hear most of what else the machine does.
    pub(crate) fn often(&self) -> usize {
        if self.metrics.contains(&Metric::Bytes) {
            OFTEN
        } else {
            1
        }
    }
}

/// One case: a name, who takes part, and what is done with each.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) run: Run,
}

type Run = Box<dyn Fn(&Bench, Contender) -> Result<Sample>>;

/// All suites, in the order of the report.
pub(crate) fn all(scale: Scale) -> Vec<Suite> {
    vec![
        call::json(),
        call::sse(),
        call::modern(),
        burst::stream(),
        burst::durable(),
        burst::replay(),
        burst::resume(),
        many::push(scale),
        many::listen(scale),
        many::storm(scale),
        growth::suite(scale),
        gateway::suite(),
    ]
}

/// How a contender is started and spoken to.
pub(crate) struct Setup {
    /// What the limit answers.
    pub(crate) limit: String,
    pub(crate) dialect: Dialect,
    /// Whether calls of ours are streams from their first byte.
    pub(crate) streams: bool,
    /// Whether rmcp keeps no sessions and answers in JSON.
    pub(crate) rmcp_json: bool,
}

/// A contender that runs, and its files.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) target: Target,
    _files: Option<TempDir>,
}

impl Setup {
    pub(crate) fn start(&self, bench: &Bench, contender: Contender) -> Result<Running> {
        let mut files = None;
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |more: &[&str]| arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        match contender {
            Contender::Limit => add(&["limit"]),
            Contender::Memory => add(&["ours"]),
            Contender::Embedded => {
                let dir = TempDir::new()?;
                add(&["ours", "--store", "embedded", "--data", &dir.path().to_string_lossy()]);
                files = Some(dir);
            }
            Contender::Adapter => add(&["ours", "--adapter"]),
            Contender::Rmcp => add(&["rmcp"]),
            Contender::RmcpStore => add(&["rmcp", "--store"]),
            other => bail!("{} is a gateway", other.name()),
        }
        match contender {
            Contender::Memory | Contender::Embedded | Contender::Adapter if self.streams => add(&["--streams"]),
            Contender::Rmcp | Contender::RmcpStore if self.rmcp_json => add(&["--json"]),
            _ => {}
        }
        let server = Server::start(bench.cores, &arguments)?;
        let canned = contender == Contender::Limit;
        let rmcp = matches!(contender, Contender::Rmcp | Contender::RmcpStore);
        let dialect = match self.dialect {
            Dialect::Legacy if rmcp && self.rmcp_json => Dialect::Sessionless,
            dialect => dialect,
        };
        let target = Target {
            address: server.address,
            path: if canned { self.limit.clone() } else { "/mcp".to_owned() },
            dialect,
            canned,
        };
        Ok(Running::new(server, target, files))
    }
}

impl Running {
    pub(crate) fn new(server: Server, target: Target, files: Option<TempDir>) -> Self {
        Running {
            server,
            target,
            _files: files,
        }
    }

    /// Waits until the server has nothing more to do; returns its memory.
    pub(crate) async fn settle(&self) -> Result<u64> {
        let mut cpu = self.server.cpu()?;
        loop {
            tokio::time::sleep(SETTLE).await;
            let now = self.server.cpu()?;
            if now - cpu < SETTLE / 40 {
                return self.server.resident();
            }
            cpu = now;
        }
    }
}

/// The runtime of the load: one thread.
pub(crate) fn load<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = async { tokio::time::timeout(PATIENCE, work).await.context("it took too long")? };
    tokio::task::LocalSet::new().block_on(&runtime, work)
}
