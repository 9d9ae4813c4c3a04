//! One server with its endpoints, its store and its children.

use crate::audit::AuditLog;
use crate::auth::{self, Providers};
use crate::child::{ChildPool, ChildSpawner, Guardian};
use crate::config::secret::display_command;
use crate::exit::Failure;
use crate::metrics::{self, ChildCounts};
use crate::observers::{AuditObserver, Observers};
use crate::probe::{self, ProbeMemory, ServerProfile, StartTimeout};
use crate::relay::Relay;
use crate::settings::{RestoreSetting, ServerSettings, SessionlessSetting, Settings, StoreSettings};
use crate::shared_store::{self, JOIN_TIMEOUT};
use crate::store_registry::StoreRegistry;
use crate::task;
use crate::trace::{ResumeTracer, Tracer};
use anyhow::anyhow;
use rethread::{AccessHints, HttpSse, McpService, Principal, Restore, Revisions, Timing, UnusedSessions};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Servers that are probed at the same time.
const MAX_PROBES: usize = 8;

/// The options that allow a refused host or origin.
const ACCESS_HINTS: AccessHints = AccessHints::new(
    "add it with --allow-origin (`allow_origins` in the file)",
    "add it with --allow-host or --public-url (`allow_hosts` or `public_url` in the file)",
);

/// How long the questions of one call are collected. They come from a child, line by line.
const COLLECT_QUESTIONS: Duration = Duration::from_millis(25);

/// A server that is being served.
pub(crate) struct Mount {
    pub(crate) server: Arc<ServerSettings>,
    pub(crate) mcp: McpService,
    pub(crate) sse: HttpSse,
    /// The eras of the server, for people.
    pub(crate) eras: Arc<str>,
    relay: Relay,
}

/// A server that cannot be started, with advice.
#[derive(Debug, thiserror::Error)]
#[error("the server {server} cannot be served: {reason}\n  command: {command}")]
pub(crate) struct ServerStartError {
    server: String,
    reason: String,
    command: String,
    pub(crate) hint: String,
}

impl ServerStartError {
    fn new(server: &ServerSettings, error: &anyhow::Error) -> Self {
        let command = display_command(&server.command.display().to_string(), &server.shown_args);
        let by_hand = "run the command by hand; its stderr is above";
        let hint = match error.downcast_ref::<StartTimeout>() {
            Some(StartTimeout(limit)) => {
                let longer = (limit.as_secs() * 4).max(60);
                let option = if server.at_root {
                    format!("--start-timeout {longer}s")
                } else {
                    format!("start_timeout = \"{longer}s\" below [servers.{}]", server.name)
                };
                format!("{option} if it only needs more time, for example to download itself; otherwise {by_hand}")
            }
            None => by_hand.to_owned(),
        };
        ServerStartError {
            server: server.name.clone(),
            reason: format!("{error:#}"),
            command,
            hint,
        }
    }
}

/// Failures of several servers, reported together.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n"))]
pub(crate) struct ServerStartErrors(pub(crate) Vec<ServerStartError>);

/// A server whose eras are known.
pub(crate) struct ProbedServer {
    server: Arc<ServerSettings>,
    pool: ChildPool,
    profile: ServerProfile,
    memory: Option<ProbeMemory>,
    /// The time until the next probe.
    probe_interval: Duration,
}

impl ProbedServer {
    /// Uses the stored result of an earlier probe, or probes the server.
    async fn probe(
        server: ServerSettings,
        store: StoreSettings,
        guardian: Guardian,
    ) -> Result<ProbedServer, ServerStartError> {
        let server = Arc::new(server);
        let pool = ChildPool::new(ChildSpawner::new(Arc::clone(&server), guardian));
        let memory = ProbeMemory::new(&store, &server);
        let stored = memory.as_ref().and_then(ProbeMemory::load);
        let probe_interval = probe::first_interval(memory.as_ref(), stored.is_some());
        let profile = match stored {
            Some(profile) => profile,
            None => {
                let profile = probe::probe(&pool).await;
                let profile = profile.map_err(|error| ServerStartError::new(&server, &error))?;
                if let Some(memory) = &memory {
                    memory.save(&profile);
                }
                profile
            }
        };
        Ok(ProbedServer {
            server,
            pool,
            profile,
            memory,
            probe_interval,
        })
    }

    /// Probes all servers, several at a time. All failures are reported together.
    pub(crate) async fn probe_all(
        servers: &[ServerSettings],
        store: &StoreSettings,
        guardian: &Guardian,
    ) -> anyhow::Result<Vec<ProbedServer>> {
        let permits = Arc::new(Semaphore::new(MAX_PROBES));
        let probes: Vec<_> = servers
            .iter()
            .map(|server| {
                let (server, store, guardian) = (server.clone(), store.clone(), guardian.clone());
                let permits = Arc::clone(&permits);
                task::spawn(async move {
                    let _permit = permits.acquire_owned().await;
                    ProbedServer::probe(server, store, guardian).await
                })
            })
            .collect();
        let (mut probed, mut failures) = (Vec::new(), Vec::new());
        for probe in probes {
            match probe.await? {
                Ok(server) => probed.push(server),
                Err(failure) => failures.push(failure),
            }
        }
        match failures.len() {
            0 => Ok(probed),
            1 => Err(failures.remove(0).into()),
            _ => Err(ServerStartErrors(failures).into()),
        }
    }

    pub(crate) fn settings(&self) -> &ServerSettings {
        &self.server
    }
}

impl Mount {
    /// Probes the server, opens its store, and creates its endpoints. `lock_timeout` bounds the wait for a store that is
    /// in use.
    pub(crate) async fn open(
        front: &Front<'_>,
        server: &ServerSettings,
        guardian: &Guardian,
        stores: &StoreRegistry,
        lock_timeout: Duration,
    ) -> anyhow::Result<Self> {
        let probed = ProbedServer::probe(server.clone(), front.settings.store.clone(), guardian.clone()).await?;
        Self::serve(front, probed, stores, lock_timeout).await
    }

    /// Opens the store of a server that was probed, and creates its endpoints.
    pub(crate) async fn serve(
        front: &Front<'_>,
        probed: ProbedServer,
        stores: &StoreRegistry,
        lock_timeout: Duration,
    ) -> anyhow::Result<Self> {
        let settings = front.settings;
        let ProbedServer {
            server,
            pool,
            profile,
            memory,
            probe_interval,
        } = probed;
        let eras = probe::describe_eras(profile.revisions, profile.legacy_version).into();
        pool.start_spares();
        // Everybody who reaches a loopback listener is the same person.
        let is_local = settings.auth.is_none() && front.bound.ip().is_loopback();
        let shares_anonymous = server.bridge.share.unwrap_or(is_local);
        let relay = Relay::new(
            pool,
            profile,
            settings.session_idle,
            shares_anonymous,
            front.tracer.cloned(),
        );
        task::spawn(probe::keep_current(relay.downgrade(), memory, probe_interval));
        let builder = McpService::builder(relay.clone())
            .revisions(Revisions::BOTH) // GW-15: the eras of the server decide what is spoken to it
            .restore(match server.restore {
                RestoreSetting::Replay => Restore::Resume,
                RestoreSetting::Expire => Restore::Expire,
            })
            .timing(Timing::default().with(|timing| {
                timing.retry = settings.retry;
                timing.session_idle = settings.session_idle;
                timing.question = server.bridge.question_timeout;
                timing.collect_questions = COLLECT_QUESTIONS;
            }))
            .limits(settings.limits.clone())
            .unused_sessions(match (server.restore, server.child_idle) {
                (RestoreSetting::Replay, Some(_)) => UnusedSessions::Unload(settings.session_unused),
                // The state of the process would be lost without notice.
                _ => UnusedSessions::End(settings.session_unused),
            })
            .serve_without_session(settings.sessionless == SessionlessSetting::Serve)
            .access_hints(ACCESS_HINTS)
            .server_label(&server.name)
            .shared_store(stores.open(&settings.store, &server.folder, lock_timeout).await?);
        metrics::register_server(&server.name);
        let builder = match settings.operation.label_tools {
            true => builder.label_tools(),
            false => builder,
        };
        let builder = match observers(front, &server).into_observer() {
            Some(observer) => builder.observe(observer),
            None => builder,
        };
        let (mcp, sse) = endpoints(&builder.build(), front, &server)?;
        Ok(Mount {
            server,
            mcp,
            sse,
            eras,
            relay,
        })
    }

    /// The same server, sessions and children with the hosts, origins, public URL, providers and limits of `front`.
    pub(crate) fn with_front(&self, front: &Front<'_>) -> anyhow::Result<Self> {
        let mcp = self.mcp.with_limits(&front.settings.limits);
        let (mcp, sse) = endpoints(&mcp, front, &self.server)?;
        Ok(Mount {
            server: Arc::clone(&self.server),
            mcp,
            sse,
            eras: Arc::clone(&self.eras),
            relay: self.relay.clone(),
        })
    }

    /// Joins the cluster of a shared store. Returns at once with any other store.
    pub(crate) async fn join(&self, settings: &Settings) -> Result<(), Failure> {
        let Some(redis) = settings.store.redis() else {
            return Ok(());
        };
        let joined = tokio::time::timeout(JOIN_TIMEOUT, self.mcp.join()).await;
        joined.map_err(|_| shared_store::join_failure(redis))
    }

    /// Waits up to `drain` for running calls. With a shared store, other gateways serve what still arrives here.
    pub(crate) async fn drain(&self, drain: Duration) {
        self.relay.end_subscriptions();
        self.mcp.drain(drain).await;
    }

    /// Waits up to `limit` for requests that other gateways serve for clients of this one.
    pub(crate) async fn finish_forwards(&self, limit: Duration) {
        self.mcp.finish_forwards(limit).await;
    }

    /// The tokens that `principal` has presented so far are no longer valid: its connections end.
    pub(crate) fn revoke(&self, principal: &Principal) {
        self.mcp.revoke(principal);
        self.relay.revoke(principal);
    }

    pub(crate) fn child_counts(&self) -> ChildCounts {
        self.relay.child_counts()
    }

    /// Ends every child.
    pub(crate) async fn stop_children(&self) {
        self.relay.stop_children().await;
    }

    /// Leaves the cluster of a shared store.
    pub(crate) async fn leave(&self) {
        self.mcp.leave().await;
    }
}

/// The front of all servers: the listener, and the providers of identities.
pub(crate) struct Front<'a> {
    pub(crate) settings: &'a Settings,
    /// The address of the listener.
    pub(crate) bound: SocketAddr,
    pub(crate) providers: Option<&'a Arc<Providers>>,
    pub(crate) audit: Option<&'a Arc<AuditLog>>,
    pub(crate) tracer: Option<&'a Arc<Tracer>>,
}

fn observers(front: &Front<'_>, server: &ServerSettings) -> Observers {
    let mut observers = Observers(Vec::new());
    if let Some(log) = front.audit {
        observers.0.push(Arc::new(AuditObserver {
            server: server.name.clone(),
            log: Arc::clone(log),
        }));
    }
    if let Some(tracer) = front.tracer {
        observers.0.push(Arc::new(ResumeTracer {
            server: server.name.clone(),
            tracer: Arc::clone(tracer),
        }));
    }
    observers
}

/// The endpoints of a service for the hosts, origins and callers of `front`.
fn endpoints(
    service: &McpService,
    front: &Front<'_>,
    server: &ServerSettings,
) -> anyhow::Result<(McpService, HttpSse)> {
    let settings = front.settings;
    let hosts = settings.allow_hosts.iter().map(String::as_str);
    let origins = settings.allow_origins.iter().map(String::as_str);
    let mcp = service
        .with_access(hosts, origins)
        .map_err(|error| anyhow!("{error}"))?;
    let authenticator = front.providers.map(|providers| {
        let policy = auth::policy(settings, providers.settings(), server, front.bound);
        providers.for_server(policy)
    });
    let mcp = mcp.with_authenticator(authenticator);
    mcp.set_proxy_buffering_disabled(settings.public_url.is_some()); // a proxy is in front of the gateway (SSE-03)
    let sse = mcp.http_sse(format!("{}{}/messages", public_prefix(settings), path_prefix(server)));
    Ok((mcp, sse))
}

/// The path of a server in front of `/mcp` and `/sse`.
pub(crate) fn path_prefix(server: &ServerSettings) -> String {
    if server.at_root {
        String::new()
    } else {
        format!("/servers/{}", server.name)
    }
}

/// The path of the public URL.
fn public_prefix(settings: &Settings) -> &str {
    let url = settings.public_url.as_deref().unwrap_or_default();
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    after_scheme
        .find('/')
        .map_or("", |at| after_scheme[at..].trim_end_matches('/'))
}
