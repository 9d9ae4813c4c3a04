//! Which era a server speaks: asked once, before anybody is served (GW-03).

use crate::child::{Aside, Ground, Link, bounded};
use crate::settings::EraSetting;
use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use rethread::{Revisions, ServerInfo, Version};
use rethread_proto::jsonrpc::code;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server that has not answered `server/discover` by then is asked to `initialize`. Some never answer what they do not
/// know (T-31).
const PATIENCE: Duration = Duration::from_secs(3);

/// What a server turned out to be.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The revisions that can be served with it.
    pub(crate) revisions: Revisions,
    /// Who it is and what it can do.
    pub(crate) info: ServerInfo,
}

/// Eras in words.
pub(crate) fn eras(revisions: Revisions) -> &'static str {
    match revisions {
        Revisions::LEGACY => "sessions (2024-11-05 to 2025-11-25)",
        Revisions::MODERN => "stateless (2026-07-28)",
        _ => "sessions (2024-11-05 to 2025-11-25) and stateless (2026-07-28)",
    }
}

/// A server that does not answer in time.
#[derive(Debug, thiserror::Error)]
#[error("it answered neither `server/discover` nor `initialize` within {} seconds", .0.as_secs_f32())]
pub(crate) struct StartTimeout(pub(crate) Duration);

/// Starts a child, asks it, and ends it.
pub(crate) async fn probe(ground: &Ground) -> anyhow::Result<Found> {
    let setting = ground.server.era;
    let limit = ground.server.start_timeout;
    let found = tokio::time::timeout(limit, ask(ground, setting)).await;
    found.map_err(|_| StartTimeout(limit))?
}

async fn ask(ground: &Ground, setting: EraSetting) -> anyhow::Result<Found> {
    let began = Instant::now();
    if setting != EraSetting::Legacy {
        let (link, asides) = Link::start(ground, ground.room().await?, false)?;
        let found = regardless_of(asides, async {
            match discovered(&link, setting == EraSetting::Probe).await {
                Discovered::Modern(result) => Ok(Some(modern(&result, setting))),
                Discovered::Legacy(result) => legacy(&result).map(Some),
                Discovered::No(why) if setting != EraSetting::Probe => {
                    bail!("it does not answer `server/discover`, so it does not speak 2026-07-28: {why}")
                }
                Discovered::No(_) if link.is_alive() => legacy(&initialized(&link).await?).map(Some),
                Discovered::No(_) => Ok(None), // it could not bear the question: another is asked what it knows
            }
        });
        match found.await? {
            // Some list the stateless revision only and speak both, each to a process that has not heard the other yet.
            Some(found) if setting == EraSetting::Probe && found.revisions == Revisions::MODERN => {
                drop(link);
                let dual = speaks_sessions(ground, began.elapsed()).await;
                let revisions = if dual { Revisions::BOTH } else { Revisions::MODERN };
                return Ok(Found { revisions, ..found });
            }
            Some(found) => return Ok(found),
            None => {}
        }
    }
    let (link, asides) = Link::start(ground, ground.room().await?, false)?;
    regardless_of(asides, async { legacy(&initialized(&link).await?) }).await
}

/// Whether a fresh child takes `initialize`; the one before took `usual` to start and answer.
async fn speaks_sessions(ground: &Ground, usual: Duration) -> bool {
    let Ok(room) = ground.room().await else { return false };
    let Ok((link, asides)) = Link::start(ground, room, false) else {
        return false;
    };
    let asked = regardless_of(asides, async { legacy(&initialized(&link).await?) });
    // It has shown that it can answer, and how fast; one that is silent now does not know the question.
    let left = ground.server.start_timeout.saturating_sub(usual);
    let patience = PATIENCE.max(usual * 4).min(left * 9 / 10);
    matches!(tokio::time::timeout(patience, asked).await, Ok(Ok(_)))
}

/// Does something while a child says what it likes: one that nobody listens to would wait, and be ended.
async fn regardless_of<T>(mut asides: bounded::Receiver<Aside>, doing: impl Future<Output = T>) -> T {
    tokio::pin!(doing);
    let mut speaks = true;
    loop {
        tokio::select! {
            done = &mut doing => return done,
            aside = asides.recv(), if speaks => speaks = aside.is_some(),
        }
    }
}

enum Discovered {
    Modern(Value),
    Legacy(Value),
    No(String),
}

async fn discovered(link: &Arc<Link>, impatient: bool) -> Discovered {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": Version::V2026_07_28.as_str(),
        "io.modelcontextprotocol/clientInfo": client(),
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = Bytes::from(json!({ "_meta": meta }).to_string());
    let asking = link.ask("server/discover", &params);
    tokio::pin!(asking);
    let answer = if impatient {
        // A slow start and a server that is silent look alike, so that both questions may be out at a time.
        tokio::select! {
            biased;
            answer = &mut asking => answer,
            hello = async {
                tokio::time::sleep(PATIENCE).await;
                initialized(link).await
            } => match hello {
                Ok(result) => return Discovered::Legacy(result),
                // One that refuses may be of the other era, and about to say so.
                Err(error) => match tokio::time::timeout(PATIENCE, &mut asking).await {
                    Ok(answer) => answer,
                    Err(_) => return Discovered::No(error.to_string()),
                },
            },
        }
    } else {
        asking.await
    };
    match answer {
        Ok(result) => match serde_json::from_slice::<Value>(&result) {
            Ok(result) if result.get("supportedVersions").is_some() => Discovered::Modern(result),
            _ => Discovered::No("its answer is not a DiscoverResult".to_owned()),
        },
        Err(error) if error.code == code::UNSUPPORTED_VERSION => {
            let supported = error
                .data
                .as_ref()
                .map_or(Value::Null, |data| data["supported"].clone());
            Discovered::Modern(json!({ "supportedVersions": supported, "capabilities": {} }))
        }
        Err(error) => Discovered::No(error.message.into_owned()),
    }
}

async fn initialized(link: &Arc<Link>) -> anyhow::Result<Value> {
    let params = json!({
        "protocolVersion": Version::V2025_11_25.as_str(),
        "capabilities": {},
        "clientInfo": client(),
    });
    let params = params.to_string().into();
    let answered = link.ask("initialize", &params).await;
    let result = answered.map_err(|error| anyhow!("it refuses `initialize`: {error}"))?;
    serde_json::from_slice(&result).context("its answer to `initialize` is not JSON")
}

fn client() -> Value {
    json!({ "name": "rethread", "version": env!("CARGO_PKG_VERSION") })
}

fn legacy(result: &Value) -> anyhow::Result<Found> {
    let version = result["protocolVersion"].as_str().unwrap_or_default();
    if version.parse::<Version>().is_err() {
        bail!("it speaks protocol version {version:?}, which is not known here");
    }
    Ok(Found {
        revisions: Revisions::LEGACY,
        info: info(result, &result["serverInfo"]),
    })
}

fn modern(result: &Value, setting: EraSetting) -> Found {
    let versions = result["supportedVersions"].as_array().cloned().unwrap_or_default();
    let sessions = |version: &Value| {
        let version = version.as_str().and_then(|v| v.parse::<Version>().ok());
        version.is_some_and(Version::has_sessions)
    };
    let dual = setting == EraSetting::Dual || (setting == EraSetting::Probe && versions.iter().any(sessions));
    let about = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
    let about = if about.is_null() { &result["serverInfo"] } else { about };
    Found {
        revisions: if dual { Revisions::BOTH } else { Revisions::MODERN },
        info: info(result, about),
    }
}

fn info(result: &Value, about: &Value) -> ServerInfo {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    ServerInfo {
        title: text(&about["title"]),
        capabilities: result["capabilities"].clone(),
        instructions: text(&result["instructions"]),
        ..ServerInfo::new(
            text(&about["name"]).unwrap_or_else(|| "unnamed".to_owned()),
            text(&about["version"]).unwrap_or_default(),
        )
    }
}
