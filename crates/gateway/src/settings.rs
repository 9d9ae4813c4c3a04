//! What the gateway is told to do, settled: every value is there, whatever it came from.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Connections of one peer unless somebody says otherwise.
pub(crate) const DEFAULT_CONNECTIONS_PER_PEER: u16 = 1024;

/// One run of the gateway.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Where to listen.
    pub(crate) listen: SocketAddr,
    /// Public URL of the gateway when it runs behind a reverse proxy: every stream then asks not to be buffered.
    pub(crate) public_url: Option<String>,
    /// More `Host` names to answer to.
    pub(crate) allow_hosts: Vec<String>,
    /// More `Origin`s to accept.
    pub(crate) allow_origins: Vec<String>,
    /// Where sessions and streams are kept.
    pub(crate) store: StoreSettings,
    /// How long running calls may take to finish when the gateway stops.
    pub(crate) drain: Duration,
    /// The reconnection delay that clients are asked to keep.
    pub(crate) retry: Duration,
    /// A session that nobody uses expires after this.
    pub(crate) session_idle: Duration,
    /// Open connections of one peer address; zero for no limit. Beyond: 429, and the connection is closed.
    pub(crate) max_connections_per_peer: usize,
    /// The servers, by name. One that was given on the command line is mounted at `/mcp` and `/sse`.
    pub(crate) servers: Vec<Server>,
}

/// Where sessions and streams are kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoreSettings {
    /// In this process.
    Memory,
    /// In files, one folder per server under this one.
    Embedded {
        /// The folder.
        data: PathBuf,
        /// When something counts as written.
        sync: SyncMode,
    },
}

/// When something counts as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SyncMode {
    /// When it is on the disk: survives a power cut.
    Always,
    /// When the operating system has it; synced every 50 ms. Survives kill -9.
    #[default]
    Interval,
    /// When the operating system has it, which writes it when it likes.
    Os,
}

/// One server behind the gateway.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Server {
    /// Its name, in URLs and in the log.
    pub(crate) name: String,
    /// Its folder below the data directory. Not the name if nobody gave one: then other arguments are another folder.
    pub(crate) folder: String,
    /// Whether it is the only one, mounted at `/mcp` rather than `/servers/NAME/mcp`.
    pub(crate) at_root: bool,
    /// The program.
    pub(crate) command: PathBuf,
    /// Its arguments.
    pub(crate) args: Vec<String>,
    /// Variables set for it, besides those that it inherits.
    pub(crate) env: BTreeMap<String, String>,
    /// Which variables of the gateway's environment it inherits.
    pub(crate) inherit_env: InheritedEnv,
    /// Its working directory, if not the gateway's.
    pub(crate) cwd: Option<PathBuf>,
    /// Which protocol era it speaks.
    pub(crate) era: EraSetting,
    /// What becomes of a session whose child is gone.
    pub(crate) restore: RestoreSetting,
    /// A child must answer `initialize` by then.
    pub(crate) start_timeout: Duration,
    /// How many children at a time. Beyond: `initialize` gets 503.
    pub(crate) max_children: usize,
}

/// Which variables of the gateway's environment a server inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum InheritedEnv {
    /// All but the gateway's own.
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
        !is_own_variable(name) && named()
    }
}

/// Whether a variable configures the gateway itself. Such variables may hold secrets, and are passed to no server.
pub(crate) fn is_own_variable(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let is_telemetry_secret = name.starts_with(b"OTEL_EXPORTER_OTLP_") && name.ends_with(b"HEADERS");
    name.starts_with(b"RETHREAD_") || is_telemetry_secret
}

/// Which protocol era a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EraSetting {
    /// Ask it.
    #[default]
    Probe,
    /// Sessions: up to 2025-11-25.
    Legacy,
    /// Stateless: 2026-07-28.
    Modern,
    /// Both.
    Dual,
}

/// What becomes of a session whose child is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RestoreSetting {
    /// The child is started again and `initialize` is replayed to it.
    #[default]
    Replay,
    /// The session ends: its client gets 404 and begins a new one.
    Expire,
}
