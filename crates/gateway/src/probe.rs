//! Which era a server speaks: asked once, before anybody is served (GW-03).

use crate::child::{Ground, Link};
use crate::settings::EraSetting;
use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use rethread::{Revisions, ServerInfo, Version};
use rethread_proto::jsonrpc::code;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

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

impl Found {
    /// The eras in words.
    pub(crate) fn eras(&self) -> &'static str {
        match self.revisions {
            Revisions::LEGACY => "sessions (2024-11-05 to 2025-11-25)",
            Revisions::MODERN => "stateless (2026-07-28)",
            _ => "sessions (2024-11-05 to 2025-11-25) and stateless (2026-07-28)",
        }
    }
}

/// Starts a child, asks it, and ends it.
pub(crate) async fn probe(ground: &Ground) -> anyhow::Result<Found> {
    let setting = ground.server.era;
    let limit = ground.server.start_timeout;
    let found = tokio::time::timeout(limit, ask(ground, setting)).await;
    let late = || {
        anyhow!(
            "it answered neither `server/discover` nor `initialize` within {} seconds",
            limit.as_secs_f32()
        )
    };
    found.map_err(|_| late())?
}

async fn ask(ground: &Ground, setting: EraSetting) -> anyhow::Result<Found> {
    let start = || Link::start(ground, false);
    if setting != EraSetting::Legacy {
        let (link, _asides) = start()?;
        match discovered(&link, setting == EraSetting::Probe).await {
            Discovered::Modern(result) => return Ok(modern(&result, setting)),
            Discovered::Legacy(result) => return legacy(&result),
            Discovered::No(why) if setting != EraSetting::Probe => {
                bail!("it does not answer `server/discover`, so it does not speak 2026-07-28: {why}")
            }
            Discovered::No(_) if link.is_alive() => return legacy(&initialized(&link).await?),
            Discovered::No(_) => {} // it could not bear the question: another is asked what it knows
        }
    }
    let (link, _asides) = start()?;
    legacy(&initialized(&link).await?)
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
    let asking = async { link.call("server/discover", &params).await?.answered().await };
    tokio::pin!(asking);
    let answer = if impatient {
        // A slow start and a server that is silent look alike, so that both questions may be out at a time.
        tokio::select! {
            answer = &mut asking => answer,
            hello = async {
                tokio::time::sleep(PATIENCE).await;
                initialized(link).await
            } => match hello {
                Ok(result) => return Discovered::Legacy(result),
                Err(error) => return Discovered::No(error.to_string()),
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
    let answered = async {
        link.call("initialize", &params.to_string().into())
            .await?
            .answered()
            .await
    };
    let result = answered
        .await
        .map_err(|error| anyhow!("it refuses `initialize`: {error}"))?;
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
