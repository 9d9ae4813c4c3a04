//! `rethread demo`: the gateway in front of a built-in stdio server. Needs no other program.

mod server;
mod tour;

pub(crate) use server::serve;
pub(crate) use tour::tour;

use crate::cli::DemoOptions;
use crate::config::options;
use crate::exit::{Exit, Failure};
use crate::settings::{EraSetting, InheritedEnv, RestoreSetting, ServerSettings, Settings, StoreSettings, SyncMode};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// The settings of the demo. Its server is this program.
pub(crate) fn settings(options: &DemoOptions) -> Result<Settings, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Exit::Failure, format!("cannot find the path of this program: {error}"))
            .hint("rethread serve -- COMMAND, with your own server")
    })?;
    let store = match &options.data {
        Some(data) => StoreSettings::Embedded {
            data: data.clone(),
            sync: SyncMode::default(),
        },
        None => StoreSettings::Memory,
    };
    Ok(Settings {
        listen: options.listen.unwrap_or_else(free_address),
        public_url: None,
        allow_hosts: Vec::new(),
        allow_origins: Vec::new(),
        store,
        drain: Duration::from_secs(2),
        retry: options::RETRY_MS.default_value(),
        session_idle: options::SESSION_IDLE.default_value(),
        max_connections_per_peer: options::MAX_CONNECTIONS_PER_PEER.default_value(),
        servers: vec![ServerSettings {
            name: "demo".to_owned(),
            folder: "demo".to_owned(),
            at_root: true,
            command: program,
            args: vec!["demo-server".to_owned()],
            shown_args: vec!["demo-server".to_owned()],
            env: BTreeMap::new(),
            inherit_env: InheritedEnv::default(),
            cwd: None,
            era: EraSetting::default(),
            restore: RestoreSetting::default(),
            start_timeout: Duration::from_secs(10),
            max_children: 20,
        }],
        notes: Vec::new(),
    })
}

/// The default address, or a free port if it is in use: a demo should start in any case.
fn free_address() -> SocketAddr {
    let address = options::LISTEN.default_value();
    match TcpListener::bind(address) {
        Ok(_) => address,
        Err(_) => SocketAddr::new(address.ip(), 0),
    }
}
