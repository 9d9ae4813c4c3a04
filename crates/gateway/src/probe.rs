//! Detects the protocol eras of a server before the gateway serves it (GW-03).

mod memory;

pub(crate) use memory::ProbeMemory;

use crate::child::{ChildKind, ChildPool, ChildStart, OverflowPolicy, StartedChild};
use crate::relay::{Relay, WeakRelay};
use crate::settings::EraSetting;
use crate::upstream::Upstream;
use crate::upstream::codec::{gateway_client_info, gateway_request_meta};
use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use rethread::{Principal, Revisions, ServerInfo, Version};
use rethread_proto::Era;
use rethread_proto::jsonrpc::code;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the probe waits for `server/discover` before it also sends `initialize`. Some servers never answer unknown
/// methods (T-31).
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(3);

/// The outcome of a probe.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerProfile {
    /// The revisions that are spoken to the server.
    pub(crate) revisions: Revisions,
    /// The newest revision with sessions that the server speaks, if it was asked.
    pub(crate) legacy_version: Option<Version>,
    pub(crate) info: ServerInfo,
}

/// The eras that are spoken to a server, and those of its clients, for people.
pub(crate) fn describe_eras(spoken: Revisions, legacy: Option<Version>) -> String {
    let (legacy, modern) = (legacy.unwrap_or(Version::V2025_11_25), Version::V2026_07_28);
    let upstream = match (spoken.serves_era(Era::Legacy), spoken.serves_era(Era::Modern)) {
        (true, true) => format!("{legacy} and {modern}"),
        (true, false) => legacy.to_string(),
        _ => modern.to_string(),
    };
    let (oldest, newest) = (Version::ALL[0], Version::ALL[Version::ALL.len() - 1]);
    format!("{upstream} upstream, served as {oldest} to {newest}")
}

/// A server that does not answer within `start_timeout`.
#[derive(Debug, thiserror::Error)]
#[error("it answered neither `server/discover` nor `initialize` within {} seconds", .0.as_secs_f32())]
pub(crate) struct StartTimeout(pub(crate) Duration);

/// Starts a child, probes it, and ends it.
pub(crate) async fn probe(pool: &ChildPool) -> anyhow::Result<ServerProfile> {
    let limit = pool.spawner().server.start_timeout;
    let profile = tokio::time::timeout(limit, probe_eras(pool, pool.spawner().server.era)).await;
    profile.map_err(|_| StartTimeout(limit))?
}

/// A result is used at most this long without another probe.
const PROBE_INTERVAL: Duration = Duration::from_secs(3600);
/// A server that has just been started with a stored result is busy with its first clients.
const PROBE_DELAY: Duration = Duration::from_secs(5);
/// The least pause between two probes, also if every start of a child fails.
const PROBE_PAUSE: Duration = Duration::from_secs(60);

/// The time until a server with a stored result is probed again.
pub(crate) fn first_interval(memory: Option<&ProbeMemory>, is_stored: bool) -> Duration {
    let age = memory.filter(|_| is_stored).and_then(ProbeMemory::age);
    age.map_or(PROBE_INTERVAL, |age| {
        PROBE_INTERVAL.saturating_sub(age).max(PROBE_DELAY)
    })
}

/// Probes a served server again: hourly, and when a child did not answer its first request. A new result is stored, and
/// applies to new sessions and to requests without one (GW-25). Ends with the relay.
pub(crate) async fn keep_current(relay: WeakRelay, memory: Option<ProbeMemory>, first: Duration) {
    let mut interval = first;
    loop {
        let Some(failed) = relay.upgrade().map(|relay| relay.pool().initialize_failed()) else {
            return;
        };
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = failed.notified() => {}
        }
        let Some(served) = relay.upgrade() else { return };
        probe_again(&served, memory.as_ref()).await;
        drop(served);
        tokio::time::sleep(PROBE_PAUSE).await;
        interval = PROBE_INTERVAL - PROBE_PAUSE;
    }
}

async fn probe_again(relay: &Relay, memory: Option<&ProbeMemory>) {
    let server = &relay.pool().spawner().server.name;
    let profile = match probe(relay.pool()).await {
        Ok(profile) => profile,
        Err(error) => {
            let error = format!("{error:#}");
            return tracing::warn!(server, error, "the server cannot be probed again");
        }
    };
    let served = relay.profile();
    if profile != served {
        let describe = |profile: &ServerProfile| describe_eras(profile.revisions, profile.legacy_version);
        let (before, now) = (describe(&served), describe(&profile));
        tracing::warn!(
            server,
            before,
            now,
            "the server has changed; new sessions are served as it is now"
        );
        relay.set_profile(profile.clone());
    }
    if let Some(memory) = memory {
        memory.save(&profile);
    }
}

async fn probe_eras(pool: &ChildPool, setting: EraSetting) -> anyhow::Result<ServerProfile> {
    let started = Instant::now();
    if setting != EraSetting::Legacy {
        let child = ProbedChild::start(pool).await?;
        let connection = child.upstream();
        let profile = child.run(async {
            match discover(&connection, setting == EraSetting::Probe).await {
                DiscoverOutcome::Modern(result) => Ok(Some(modern_profile(&result, setting))),
                DiscoverOutcome::Legacy(result) => legacy_profile(&result).map(Some),
                DiscoverOutcome::Refused(reason) if setting != EraSetting::Probe => {
                    bail!("it does not answer `server/discover`, so it does not speak 2026-07-28: {reason}")
                }
                DiscoverOutcome::Refused(_) if connection.is_alive() => {
                    legacy_profile(&initialize(&connection).await?).map(Some)
                }
                DiscoverOutcome::Refused(_) => Ok(None), // it exited on the unknown method: a new child gets `initialize`
            }
        });
        match profile.await? {
            // Some servers list only the stateless revision but support both, each in a fresh process.
            Some(profile) if setting == EraSetting::Probe && profile.revisions == Revisions::MODERN => {
                let dual = accepts_initialize(pool, started.elapsed()).await;
                let revisions = if dual { Revisions::BOTH } else { Revisions::MODERN };
                return Ok(ServerProfile { revisions, ..profile });
            }
            Some(profile) => return Ok(profile),
            None => {}
        }
    }
    let child = ProbedChild::start(pool).await?;
    let connection = child.upstream();
    child
        .run(async { legacy_profile(&initialize(&connection).await?) })
        .await
}

/// Whether a fresh child answers `initialize`. The first child took `first_answer` to start and answer.
async fn accepts_initialize(pool: &ChildPool, first_answer: Duration) -> bool {
    let Ok(child) = ProbedChild::start(pool).await else {
        return false;
    };
    let connection = child.upstream();
    let profile = child.run(async { legacy_profile(&initialize(&connection).await?) });
    // A child that is silent for much longer than the first one does not know the method.
    let remaining = pool.spawner().server.start_timeout.saturating_sub(first_answer);
    let limit = DISCOVER_TIMEOUT.max(first_answer * 4).min(remaining * 9 / 10);
    matches!(tokio::time::timeout(limit, profile).await, Ok(Ok(_)))
}

/// A child that is started only for the probe.
struct ProbedChild(StartedChild);

impl ProbedChild {
    async fn start(pool: &ChildPool) -> anyhow::Result<Self> {
        let start = ChildStart {
            kind: ChildKind::Probe,
            principal: Principal::anonymous(),
            overflow: OverflowPolicy::Wait,
            idle_limit: None,
        };
        Ok(ProbedChild(pool.start(start).await?))
    }

    fn upstream(&self) -> Arc<dyn Upstream> {
        Arc::clone(&self.0.connection)
    }

    /// Runs `probing`, discards unsolicited messages meanwhile, and then ends the child.
    async fn run<T>(mut self, probing: impl Future<Output = T>) -> T {
        tokio::pin!(probing);
        let mut open = true;
        loop {
            tokio::select! {
                outcome = &mut probing => return outcome,
                message = self.0.messages.recv(), if open => open = message.is_some(),
            }
        }
    }
}

enum DiscoverOutcome {
    /// The result of `server/discover`.
    Modern(Value),
    /// The result of `initialize`.
    Legacy(Value),
    /// The reason.
    Refused(String),
}

async fn discover(connection: &Arc<dyn Upstream>, try_initialize: bool) -> DiscoverOutcome {
    let params = Bytes::from(json!({ "_meta": gateway_request_meta() }).to_string());
    let discovering = connection.request("server/discover", &params);
    tokio::pin!(discovering);
    let response = if try_initialize {
        // A slow start looks like a server that ignores the method, so both requests may be in flight.
        tokio::select! {
            biased;
            response = &mut discovering => response,
            initialized = async {
                tokio::time::sleep(DISCOVER_TIMEOUT).await;
                initialize(connection).await
            } => match initialized {
                Ok(result) => return DiscoverOutcome::Legacy(result),
                // A modern server may refuse `initialize` and still answer `server/discover`.
                Err(error) => match tokio::time::timeout(DISCOVER_TIMEOUT, &mut discovering).await {
                    Ok(response) => response,
                    Err(_) => return DiscoverOutcome::Refused(error.to_string()),
                },
            },
        }
    } else {
        discovering.await
    };
    match response {
        Ok(result) => match serde_json::from_slice::<Value>(&result) {
            Ok(result) if result.get("supportedVersions").is_some() => DiscoverOutcome::Modern(result),
            _ => DiscoverOutcome::Refused("its answer is not a DiscoverResult".to_owned()),
        },
        Err(error) if error.code == code::UNSUPPORTED_VERSION => {
            let supported = error
                .data
                .as_ref()
                .map_or(Value::Null, |data| data["supported"].clone());
            // A session-era server may refuse with this code, too.
            let is_modern = |version: &Value| version == Version::V2026_07_28.as_str();
            match supported
                .as_array()
                .is_some_and(|versions| versions.iter().any(is_modern))
            {
                true => DiscoverOutcome::Modern(json!({ "supportedVersions": supported, "capabilities": {} })),
                false => DiscoverOutcome::Refused(error.message.into_owned()),
            }
        }
        Err(error) => DiscoverOutcome::Refused(error.message.into_owned()),
    }
}

async fn initialize(connection: &Arc<dyn Upstream>) -> anyhow::Result<Value> {
    let params = json!({
        "protocolVersion": Version::V2025_11_25.as_str(),
        "capabilities": {},
        "clientInfo": gateway_client_info(),
    });
    let response = connection.request("initialize", &params.to_string().into()).await;
    let result = response.map_err(|error| anyhow!("it refuses `initialize`: {error}"))?;
    serde_json::from_slice(&result).context("its answer to `initialize` is not JSON")
}

fn legacy_profile(result: &Value) -> anyhow::Result<ServerProfile> {
    let version = result["protocolVersion"].as_str().unwrap_or_default();
    let Ok(legacy_version) = version.parse::<Version>() else {
        bail!("it speaks protocol version {version:?}, which is not known here");
    };
    Ok(ServerProfile {
        revisions: Revisions::LEGACY,
        legacy_version: Some(legacy_version),
        info: server_info(result, &result["serverInfo"]),
    })
}

fn modern_profile(result: &Value, setting: EraSetting) -> ServerProfile {
    let versions = result["supportedVersions"].as_array().cloned().unwrap_or_default();
    let has_sessions = |version: &Value| {
        let version = version.as_str().and_then(|v| v.parse::<Version>().ok());
        version.is_some_and(Version::has_sessions)
    };
    let dual = setting == EraSetting::Dual || (setting == EraSetting::Probe && versions.iter().any(has_sessions));
    let implementation = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
    let implementation = if implementation.is_null() {
        &result["serverInfo"]
    } else {
        implementation
    };
    ServerProfile {
        revisions: if dual { Revisions::BOTH } else { Revisions::MODERN },
        legacy_version: None,
        info: server_info(result, implementation),
    }
}

fn server_info(result: &Value, implementation: &Value) -> ServerInfo {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut info = ServerInfo::new(
        text(&implementation["name"]).unwrap_or_else(|| "unnamed".to_owned()),
        text(&implementation["version"]).unwrap_or_default(),
    );
    info.title = text(&implementation["title"]);
    info.capabilities = result["capabilities"].clone();
    info.instructions = text(&result["instructions"]);
    info
}
