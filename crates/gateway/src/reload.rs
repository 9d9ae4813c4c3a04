//! A configuration that is read again while clients are served (SIGHUP).
//!
//! Servers that did not change go on undisturbed, sessions and all. A changed one is started with its new settings
//! first; only when that works does the old one close, and its store and sessions pass on. A server that cannot be
//! started leaves everything else alone, the server in whose place it would be included.

use crate::check::server_obstacles;
use crate::config::{Problems, World, own_host};
use crate::mount::{Mount, path_prefix};
use crate::serve::Gateway;
use crate::settings::{Server, Settings};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long a server waits for a store that is about to be closed.
const HANDOVER: Duration = Duration::from_secs(10);

/// What came of a reload.
#[derive(Debug, Default)]
pub(crate) struct Reloaded {
    /// Top-level keys whose new values are in force.
    pub(crate) applied: Vec<&'static str>,
    /// Top-level keys whose new values wait for a restart.
    pub(crate) need_restart: Vec<&'static str>,
    /// Servers that could not be started, and why.
    pub(crate) failed: Vec<(String, anyhow::Error)>,
}

impl Gateway {
    /// Applies a new configuration as far as a running gateway can.
    pub(crate) async fn reload(self: &Arc<Self>, wanted: Settings) -> Reloaded {
        let current = self.settings();
        let (settings, mut reloaded) = merged(&current, wanted);
        let settings = Arc::new(settings);
        *self.settings.write() = Arc::clone(&settings);
        self.peers.set_limit(settings.max_connections_per_peer);
        self.apply_access(&settings, &mut reloaded);
        let mut changing = JoinSet::new();
        for (prefix, change) in self.changes(&settings) {
            let (gateway, settings) = (Arc::clone(self), Arc::clone(&settings));
            changing.spawn(async move { gateway.change(&settings, prefix, change).await });
        }
        while let Some(changed) = changing.join_next().await {
            match changed {
                Ok(Ok(())) => {}
                Ok(Err(failed)) => reloaded.failed.push(failed),
                Err(panic) => reloaded.failed.push(("?".to_owned(), panic.into())),
            }
        }
        reloaded
    }

    /// Lets the clients of every server in as `settings` say.
    fn apply_access(&self, settings: &Settings, reloaded: &mut Reloaded) {
        for mount in self.mounts.write().values_mut() {
            match mount.with_settings(settings) {
                Ok(changed) => *mount = Arc::new(changed),
                Err(error) => reloaded.failed.push((mount.server.name.clone(), error)),
            }
        }
    }

    fn changes(&self, settings: &Settings) -> Vec<(String, Change)> {
        let mut wanted: BTreeMap<String, &Server> = settings.servers.iter().map(|s| (path_prefix(s), s)).collect();
        let mut changes = Vec::new();
        for (prefix, mount) in &*self.mounts.read() {
            let old = Some(Arc::clone(mount));
            match wanted.remove(prefix) {
                Some(same) if *same == *mount.server => {}
                new => changes.push((prefix.clone(), Change { old, new: new.cloned() })),
            }
        }
        let joining = wanted.into_iter().map(|(prefix, server)| {
            let new = Some(server.clone());
            (prefix, Change { old: None, new })
        });
        changes.extend(joining);
        changes
    }

    async fn change(&self, settings: &Settings, prefix: String, change: Change) -> Result<(), (String, anyhow::Error)> {
        let mut new = None;
        if let Some(server) = &change.new {
            let obstacles = server_obstacles(server, &World::here());
            if !obstacles.is_empty() {
                return Err((server.name.clone(), Problems(obstacles).into()));
            }
            let opened = Mount::open(settings, server, &self.guardian, &self.stores, HANDOVER).await;
            new = Some(Arc::new(opened.map_err(|error| (server.name.clone(), error))?));
        }
        if let Some(old) = change.old {
            tracing::info!(server = old.server.name, "server leaves");
            old.close(settings.drain).await;
        }
        match new {
            Some(mount) => {
                tracing::info!(server = mount.server.name, eras = mount.eras, "server joins");
                self.mounts.write().insert(prefix, mount);
            }
            None => {
                self.mounts.write().remove(&prefix);
            }
        }
        Ok(())
    }
}

/// One path where something changes.
struct Change {
    old: Option<Arc<Mount>>,
    new: Option<Server>,
}

/// The settings to go on with: the new ones, except for what only a restart can change.
fn merged(current: &Settings, wanted: Settings) -> (Settings, Reloaded) {
    let need_restart = [
        ("listen", wanted.listen != current.listen),
        ("data, memory or sync", wanted.store != current.store),
        ("retry_ms", wanted.retry != current.retry),
        ("session_idle", wanted.session_idle != current.session_idle),
    ];
    let mut settings = Settings {
        listen: current.listen,
        store: current.store.clone(),
        retry: current.retry,
        session_idle: current.session_idle,
        ..wanted
    };
    // Clients still come to the address that is listened on.
    if let Some(host) = own_host(current.listen).filter(|host| !settings.allow_hosts.contains(host)) {
        settings.allow_hosts.push(host);
    }
    let applied = [
        ("public_url", settings.public_url != current.public_url),
        ("allow_hosts", settings.allow_hosts != current.allow_hosts),
        ("allow_origins", settings.allow_origins != current.allow_origins),
        ("drain", settings.drain != current.drain),
        (
            "max_connections_per_peer",
            settings.max_connections_per_peer != current.max_connections_per_peer,
        ),
    ];
    let changed = |keys: &[(&'static str, bool)]| keys.iter().filter(|(_, yes)| *yes).map(|(key, _)| *key).collect();
    let reloaded = Reloaded {
        applied: changed(&applied),
        need_restart: changed(&need_restart),
        failed: Vec::new(),
    };
    (settings, reloaded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::StoreSettings;

    fn settings() -> Settings {
        Settings {
            listen: ([192, 0, 2, 1], 80).into(),
            public_url: None,
            allow_hosts: vec!["192.0.2.1".to_owned()],
            allow_origins: vec![],
            store: StoreSettings::Memory,
            drain: Duration::from_secs(1),
            retry: Duration::from_secs(1),
            session_idle: Duration::from_secs(1),
            max_connections_per_peer: 1,
            servers: vec![],
        }
    }

    #[test]
    fn every_top_level_key_is_applied_or_named() {
        let wanted = Settings {
            listen: ([192, 0, 2, 2], 80).into(),
            public_url: Some("https://mcp.example".to_owned()),
            allow_hosts: vec!["192.0.2.2".to_owned()],
            allow_origins: vec!["https://app.example".to_owned()],
            store: StoreSettings::Embedded {
                data: "/data".into(),
                sync: Default::default(),
            },
            drain: Duration::from_secs(2),
            retry: Duration::from_secs(2),
            session_idle: Duration::from_secs(2),
            max_connections_per_peer: 2,
            servers: vec![],
        };
        let (merged_settings, reloaded) = merged(&settings(), wanted.clone());
        let restart = ["listen", "data, memory or sync", "retry_ms", "session_idle"];
        assert_eq!(reloaded.need_restart, restart);
        let applied = [
            "public_url",
            "allow_hosts",
            "allow_origins",
            "drain",
            "max_connections_per_peer",
        ];
        assert_eq!(reloaded.applied, applied);
        assert_eq!(merged_settings.listen, settings().listen);
        assert_eq!(
            merged_settings.allow_hosts,
            ["192.0.2.2", "192.0.2.1"],
            "the address in use stays reachable"
        );
        let (_, again) = merged(&merged_settings, wanted);
        assert_eq!(again.need_restart, restart, "it is named until the restart");
        assert!(again.applied.is_empty(), "{again:?}");
    }
}
