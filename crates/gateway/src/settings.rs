//! The resolved settings of the gateway. Every value is present, whatever its source.

mod admin;
mod auth;
mod bridge;
mod operation;

pub(crate) use operation::OperationSettings;

pub(crate) use admin::AdminSettings;
pub(crate) use auth::{AuthSettings, IdentitySetting, JwtSettings, KeyLocation, ServerAccess};
pub(crate) use bridge::{AskingTools, BridgeSettings};

use crate::auth::Network;
use crate::tls::TlsFiles;
use rethread::{Limits, Revisions};
use rethread_store_redis::RedisUrl;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the whole gateway.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    /// Public URL of the gateway when it runs behind a reverse proxy. Streams then carry `X-Accel-Buffering: no`.
    pub(crate) public_url: Option<String>,
    /// Accepted `Host` values besides the loopback names.
    pub(crate) allow_hosts: Vec<String>,
    /// Accepted `Origin` values besides the loopback ones.
    pub(crate) allow_origins: Vec<String>,
    /// The certificate of the listener. `None`: plain HTTP.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) store: StoreSettings,
    /// How long running calls may take when the gateway stops. Beyond: they end with an error.
    pub(crate) drain: Duration,
    /// The reconnection delay sent to clients as `retry:`.
    pub(crate) retry: Duration,
    /// How long a session may be unused. Beyond: it expires.
    pub(crate) session_idle: Duration,
    /// A session that nobody used for this time leaves the memory.
    pub(crate) session_unused: Duration,
    pub(crate) sessionless: SessionlessSetting,
    /// Open connections of one peer address; zero for no limit. Beyond: 429, and the connection closes.
    pub(crate) max_connections_per_peer: usize,
    /// The limits of every server.
    pub(crate) limits: Limits,
    /// The authentication of callers. `None`: everybody may call.
    pub(crate) auth: Option<AuthSettings>,
    /// Proxies whose `X-Forwarded-For` names the client.
    pub(crate) trusted_proxies: Vec<Network>,
    /// The operator has confirmed that everybody may call.
    pub(crate) no_auth: bool,
    /// The listener for operators. `None`: there is none.
    pub(crate) admin: Option<AdminSettings>,
    pub(crate) operation: OperationSettings,
    pub(crate) servers: Vec<ServerSettings>,
    /// Entries of the file that are not served, or not under their name. For people.
    pub(crate) notes: Vec<String>,
}

/// The store of sessions and streams.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoreSettings {
    /// In the memory of this process.
    Memory,
    /// On the local disk.
    Embedded {
        /// The directory. Each server has a folder in it.
        data: PathBuf,
        sync: SyncMode,
    },
    /// On a server that several gateways share.
    Redis(Box<RedisSettings>),
}

impl StoreSettings {
    /// The settings of a store that several gateways share.
    pub(crate) fn redis(&self) -> Option<&RedisSettings> {
        match self {
            StoreSettings::Redis(redis) => Some(redis),
            StoreSettings::Memory | StoreSettings::Embedded { .. } => None,
        }
    }
}

/// A store on Redis or Valkey, and this gateway as one of its nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RedisSettings {
    pub(crate) url: RedisUrl,
    /// A name that no other process uses.
    pub(crate) node_id: Option<String>,
    /// Other nodes act for this one when it has not renewed its lease for so long.
    pub(crate) lease: Duration,
    /// A file with a secret that all nodes have. Without it, the store has a random one.
    pub(crate) secret_file: Option<PathBuf>,
}

/// When an event counts as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SyncMode {
    /// After an fsync. Survives a power cut.
    Always,
    /// After the write, with an fsync every 50 ms. Survives kill -9.
    #[default]
    Interval,
    /// After the write. The operating system decides when to flush. Survives kill -9.
    Os,
}

/// Settings of one server behind the gateway.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerSettings {
    /// The name in URLs and in the log.
    pub(crate) name: String,
    /// The folder below the data directory. Without an explicit name it also depends on the arguments.
    pub(crate) folder: String,
    /// Mounted at `/mcp` instead of `/servers/NAME/mcp`: the only server, from the command line.
    pub(crate) at_root: bool,
    pub(crate) command: PathBuf,
    pub(crate) args: Vec<String>,
    /// The arguments for people, with secrets masked.
    pub(crate) shown_args: Vec<String>,
    /// Variables set besides the inherited ones.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) inherit_env: InheritedEnv,
    /// The working directory, if not the gateway's.
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) era: EraSetting,
    pub(crate) restore: RestoreSetting,
    /// How long a child may take to answer `initialize`. Beyond: it is ended.
    pub(crate) start_timeout: Duration,
    /// Children that may run at the same time. Beyond: one that nobody needs makes room, or `initialize` gets 503.
    pub(crate) max_children: usize,
    /// A child that nobody needs for so long is stopped, and its session lives on. `None`: never.
    pub(crate) child_idle: Option<Duration>,
    /// Processes that are started before a client needs them.
    pub(crate) spare: usize,
    pub(crate) access: ServerAccess,
    pub(crate) identity: IdentitySetting,
    pub(crate) bridge: BridgeSettings,
}

/// The variables of the gateway's environment that a server inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum InheritedEnv {
    /// All except the gateway's own.
    #[default]
    All,
    /// These, if they are set.
    Names(Vec<String>),
}

impl InheritedEnv {
    /// Whether a server inherits the variable `name`.
    pub(crate) fn includes(&self, name: &OsStr) -> bool {
        let named = || match self {
            InheritedEnv::All => true,
            InheritedEnv::Names(names) => names.iter().any(|named| name == named.as_str()),
        };
        !is_gateway_variable(name) && named()
    }
}

/// Whether a variable configures the gateway itself. No server inherits it, since it may hold a secret (GW-10).
pub(crate) fn is_gateway_variable(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let is_telemetry_secret = name.starts_with(b"OTEL_EXPORTER_OTLP_") && name.ends_with(b"HEADERS");
    name.starts_with(b"RETHREAD_") || is_telemetry_secret
}

/// The protocol era that is spoken to a server. Clients of every era are served (GW-15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum EraSetting {
    /// Ask the server at startup.
    #[default]
    Probe,
    /// Sessions, up to 2025-11-25.
    Legacy,
    /// Stateless, 2026-07-28.
    Modern,
    /// Both eras.
    Dual,
}

impl EraSetting {
    /// The revisions that the setting fixes. `None`: the server is asked.
    pub(crate) fn revisions(self) -> Option<Revisions> {
        match self {
            EraSetting::Probe => None,
            EraSetting::Legacy => Some(Revisions::LEGACY),
            EraSetting::Modern => Some(Revisions::MODERN),
            EraSetting::Dual => Some(Revisions::BOTH),
        }
    }
}

/// The treatment of session-era requests without a session id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SessionlessSetting {
    /// Serve them without a session.
    #[default]
    Serve,
    /// Refuse them with 400.
    Refuse,
}

/// The policy for a session whose child has exited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RestoreSetting {
    /// Start a new child and replay `initialize`.
    #[default]
    Replay,
    /// End the session. Its client gets 404 and opens a new one.
    Expire,
}
