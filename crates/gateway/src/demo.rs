//! `rethread demo`: see it work with no other program. The gateway in front of a built-in stdio server.

mod server;
mod tour;

pub(crate) use server::serve;
pub(crate) use tour::tour;

use crate::cli::DemoOptions;
use crate::exit::{Exit, Failure};
use crate::settings::{
    DEFAULT_CONNECTIONS_PER_PEER, EraSetting, InheritedEnv, RestoreSetting, Server, Settings, StoreSettings, SyncMode,
};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Where it listens if nobody says otherwise and the port is free.
const USUAL: ([u8; 4], u16) = ([127, 0, 0, 1], 8080);

/// What `rethread demo` serves: this very program, as the built-in server.
pub(crate) fn settings(options: &DemoOptions) -> Result<Settings, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Exit::Failure, format!("cannot find my own program: {error}"))
            .hint("rethread serve -- COMMAND, with a server of yours")
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
        retry: Duration::from_secs(1),
        session_idle: Duration::from_secs(30 * 60),
        max_connections_per_peer: DEFAULT_CONNECTIONS_PER_PEER.into(),
        servers: vec![Server {
            name: "demo".to_owned(),
            folder: "demo".to_owned(),
            at_root: true,
            command: program,
            args: vec!["demo-server".to_owned()],
            env: BTreeMap::new(),
            inherit_env: InheritedEnv::default(),
            cwd: None,
            era: EraSetting::default(),
            restore: RestoreSetting::default(),
            start_timeout: Duration::from_secs(10),
            max_children: 20,
        }],
    })
}

/// The usual port, or any if it is taken: a demo should not fail over that.
fn free_address() -> SocketAddr {
    let usual = SocketAddr::from(USUAL);
    match TcpListener::bind(usual) {
        Ok(_) => usual,
        Err(_) => SocketAddr::from((USUAL.0, 0)),
    }
}
