//! A server where clients find it: its endpoints, its store, its children.

use crate::child::{Ground, Guardian};
use crate::config::secret::shown_command;
use crate::probe::{self, Found};
use crate::relay::Relay;
use crate::settings::{RestoreSetting, Server, Settings, StoreSettings, SyncMode};
use anyhow::anyhow;
use rethread::{HttpSse, McpService, Restore, Timing};
use rethread_store_embedded::{EmbeddedStore, OpenError, Sync};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a store that is in use is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// One server, ready to be asked.
#[derive(Clone)]
pub(crate) struct Mount {
    pub(crate) server: Arc<Server>,
    pub(crate) mcp: McpService<Relay>,
    pub(crate) sse: HttpSse<Relay>,
    pub(crate) found: Found,
    relay: Relay,
}

impl Mount {
    /// Finds out what the server is, opens its store, and makes its endpoints.
    /// A store that is still in use is waited for with `patience`.
    pub(crate) async fn open(
        settings: &Settings,
        server: &Server,
        guardian: &Guardian,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let server = Arc::new(server.clone());
        let ground = Ground::new(Arc::clone(&server), guardian.clone());
        let found = probe::probe(&ground).await.map_err(|error| {
            let command = shown_command(&server.command.display().to_string(), &server.args);
            anyhow!(
                "the server {} cannot be served: {error:#}\n  command: {command}\n  try: the command by hand; what it wrote to \
                 stderr stands above",
                server.name
            )
        })?;
        let relay = Relay::new(ground, found.info.clone(), settings.session_idle);
        let mut builder = McpService::builder(relay.clone())
            .revisions(found.revisions)
            .restore(match server.restore {
                RestoreSetting::Replay => Restore::Resume,
                RestoreSetting::Expire => Restore::Expire,
            })
            .timing(Timing {
                retry: settings.retry,
                session_idle: settings.session_idle,
                ..Timing::default()
            });
        for host in &settings.allow_hosts {
            builder = builder.allow_host(host);
        }
        for origin in &settings.allow_origins {
            builder = builder.allow_origin(origin);
        }
        if settings.public_url.is_some() {
            builder = builder.unbuffered(); // a proxy stands before us (SSE-03)
        }
        if let StoreSettings::Embedded { data, sync } = &settings.store {
            let sync = match sync {
                SyncMode::Always => Sync::Always,
                SyncMode::Interval => Sync::default(),
                SyncMode::Os => Sync::Os,
            };
            builder = builder.store(open_store(&data.join(&server.folder), sync, patience).await?);
        }
        let mcp = builder.try_build().map_err(|wrong| anyhow!("{wrong}"))?;
        let sse = mcp.http_sse(format!("{}{}/messages", public_prefix(settings), path_prefix(&server)));
        Ok(Mount {
            server,
            mcp,
            sse,
            found,
            relay,
        })
    }

    /// Lets calls finish until `deadline`, then ends every child.
    pub(crate) async fn close(&self, deadline: Duration) {
        self.relay.drain();
        self.mcp.shutdown(deadline).await;
        self.relay.stop().await;
    }
}

async fn open_store(dir: &Path, sync: Sync, patience: Duration) -> anyhow::Result<EmbeddedStore> {
    let deadline = Instant::now() + patience;
    loop {
        let dir = dir.to_owned();
        let opening = tokio::task::spawn_blocking(move || EmbeddedStore::builder().sync(sync).open(dir));
        match opening.await? {
            Err(OpenError::InUse { .. }) if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
            opened => return Ok(opened?),
        }
    }
}

/// Where a server's paths begin.
pub(crate) fn path_prefix(server: &Server) -> String {
    if server.at_root {
        String::new()
    } else {
        format!("/servers/{}", server.name)
    }
}

/// The path under which a proxy offers us.
fn public_prefix(settings: &Settings) -> &str {
    let url = settings.public_url.as_deref().unwrap_or_default();
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    after_scheme
        .find('/')
        .map_or("", |at| after_scheme[at..].trim_end_matches('/'))
}
