//! A server where clients find it: its endpoints, its store, its children.

use crate::child::{ChildSpawner, Guardian};
use crate::config::secret::shown_command;
use crate::probe::{self, ServerProfile, StartTimeout};
use crate::relay::Relay;
use crate::settings::{RestoreSetting, Server, Settings};
use crate::stores::Stores;
use anyhow::anyhow;
use rethread::{AccessHints, HttpSse, McpService, Restore, Timing};
use std::sync::Arc;
use std::time::Duration;

/// How a refused host or origin is allowed here.
const ACCESS_HINTS: AccessHints = AccessHints::new(
    "add it with --allow-origin (`allow_origins` in the file)",
    "add it with --allow-host or --public-url (`allow_hosts` or `public_url` in the file)",
);

/// One server, ready to be asked.
pub(crate) struct Mount {
    pub(crate) server: Arc<Server>,
    pub(crate) mcp: McpService<Relay>,
    pub(crate) sse: HttpSse<Relay>,
    /// Which eras the server speaks, in words.
    pub(crate) eras: &'static str,
    relay: Relay,
}

/// A server that could not be started, with what to try.
#[derive(Debug, thiserror::Error)]
#[error("the server {server} cannot be served: {what}\n  command: {command}")]
pub(crate) struct NotServed {
    server: String,
    what: String,
    command: String,
    pub(crate) hint: String,
}

impl NotServed {
    fn new(server: &Server, error: &anyhow::Error) -> Self {
        let command = shown_command(&server.command.display().to_string(), &server.args);
        let by_hand = "run the command by hand; what it wrote to stderr is above";
        let hint = match error.downcast_ref::<StartTimeout>() {
            Some(StartTimeout(limit)) => {
                let longer = (limit.as_secs() * 4).max(60);
                let option = if server.at_root {
                    format!("--start-timeout {longer}s")
                } else {
                    format!("start_timeout = \"{longer}s\" below [servers.{}]", server.name)
                };
                format!("{option} if it only needs longer, such as to download itself; else {by_hand}")
            }
            None => by_hand.to_owned(),
        };
        NotServed {
            server: server.name.clone(),
            what: format!("{error:#}"),
            command,
            hint,
        }
    }
}

impl Mount {
    /// Finds out what the server is, opens its store, and makes its endpoints.
    /// A store that is in use elsewhere is waited for with `patience`.
    pub(crate) async fn open(
        settings: &Settings,
        server: &Server,
        guardian: &Guardian,
        stores: &Stores,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let server = Arc::new(server.clone());
        let spawner = ChildSpawner::new(Arc::clone(&server), guardian.clone());
        let profile = probe::probe(&spawner).await;
        let ServerProfile { revisions, info } = profile.map_err(|error| NotServed::new(&server, &error))?;
        let relay = Relay::new(spawner, info, settings.session_idle);
        let builder = McpService::builder(relay.clone())
            .revisions(revisions)
            .restore(match server.restore {
                RestoreSetting::Replay => Restore::Resume,
                RestoreSetting::Expire => Restore::Expire,
            })
            .timing(Timing {
                retry: settings.retry,
                session_idle: settings.session_idle,
                ..Timing::default()
            })
            .access_hints(ACCESS_HINTS)
            .shared_store(stores.open(&settings.store, &server.folder, patience).await?);
        let (mcp, sse) = endpoints(&builder.build(), settings, &server)?;
        Ok(Mount {
            server,
            mcp,
            sse,
            eras: probe::describe_eras(revisions),
            relay,
        })
    }

    /// The same server, its sessions and its children, for clients that `settings` let in.
    pub(crate) fn with_settings(&self, settings: &Settings) -> anyhow::Result<Self> {
        let (mcp, sse) = endpoints(&self.mcp, settings, &self.server)?;
        Ok(Mount {
            server: Arc::clone(&self.server),
            mcp,
            sse,
            eras: self.eras,
            relay: self.relay.clone(),
        })
    }

    /// Lets calls finish until `deadline`, then ends every child.
    pub(crate) async fn close(&self, deadline: Duration) {
        self.relay.end_subscriptions();
        self.mcp.shutdown(deadline).await;
        self.relay.stop_children().await;
    }
}

/// The endpoints of a service, for the hosts and origins of `settings`.
fn endpoints(
    service: &McpService<Relay>,
    settings: &Settings,
    server: &Server,
) -> anyhow::Result<(McpService<Relay>, HttpSse<Relay>)> {
    let hosts = settings.allow_hosts.iter().map(String::as_str);
    let origins = settings.allow_origins.iter().map(String::as_str);
    let mcp = service
        .with_access(hosts, origins)
        .map_err(|wrong| anyhow!("{wrong}"))?;
    mcp.set_proxy_buffering_disabled(settings.public_url.is_some()); // a proxy is in front of us (SSE-03)
    let sse = mcp.http_sse(format!("{}{}/messages", public_prefix(settings), path_prefix(server)));
    Ok((mcp, sse))
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
