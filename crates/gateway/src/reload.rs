//! Applies a new configuration to the running gateway (SIGHUP).
//!
//! Unchanged servers keep their sessions and children. A changed server starts with its new settings first. Then the old
//! one drains and closes, and the new one takes over its path, store and sessions. A server that cannot start changes
//! nothing: the old one continues.

use crate::check::server_obstacles;
use crate::config::{Environment, Problems, own_host};
use crate::gateway::Gateway;
use crate::mount::{Mount, path_prefix};
use crate::settings::{ServerSettings, Settings};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long a new server waits for a store that is in use. Beyond: the change of this server fails.
const STORE_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The outcome of a reload.
#[derive(Debug, Default)]
pub(crate) struct ReloadOutcome {
    /// Top-level keys whose new values are in force.
    pub(crate) applied: Vec<&'static str>,
    /// Top-level keys whose new values wait for a restart.
    pub(crate) need_restart: Vec<&'static str>,
    /// Servers that could not be started, with the error.
    pub(crate) failed: Vec<(String, anyhow::Error)>,
}

impl Gateway {
    /// Applies `wanted` as far as possible without a restart.
    pub(crate) async fn reload(self: &Arc<Self>, wanted: Settings) -> ReloadOutcome {
        let current = self.settings();
        let (settings, mut outcome) = merge(&current, wanted);
        let settings = Arc::new(settings);
        *self.settings.write() = Arc::clone(&settings);
        self.peers.set_limit(settings.max_connections_per_peer);
        self.apply_access(&settings, &mut outcome);
        let mut changing = JoinSet::new();
        for (prefix, change) in self.changes(&settings) {
            let (gateway, settings) = (Arc::clone(self), Arc::clone(&settings));
            changing.spawn(async move { gateway.apply_change(&settings, prefix, change).await });
        }
        while let Some(changed) = changing.join_next().await {
            match changed {
                Ok(Ok(())) => {}
                Ok(Err(failed)) => outcome.failed.push(failed),
                Err(panic) => outcome.failed.push(("?".to_owned(), panic.into())),
            }
        }
        outcome
    }

    /// Applies hosts, origins and public URL to all servers.
    fn apply_access(&self, settings: &Settings, outcome: &mut ReloadOutcome) {
        for mount in self.mounts.write().values_mut() {
            match mount.with_access(settings) {
                Ok(changed) => *mount = Arc::new(changed),
                Err(error) => outcome.failed.push((mount.server.name.clone(), error)),
            }
        }
    }

    fn changes(&self, settings: &Settings) -> Vec<(String, MountChange)> {
        let mut wanted: BTreeMap<String, &ServerSettings> =
            settings.servers.iter().map(|s| (path_prefix(s), s)).collect();
        let mut changes = Vec::new();
        for (prefix, mount) in &*self.mounts.read() {
            let old = Some(Arc::clone(mount));
            match wanted.remove(prefix) {
                Some(same) if *same == *mount.server => {}
                new => changes.push((prefix.clone(), MountChange { old, new: new.cloned() })),
            }
        }
        let added = wanted.into_iter().map(|(prefix, server)| {
            let new = Some(server.clone());
            (prefix, MountChange { old: None, new })
        });
        changes.extend(added);
        changes
    }

    async fn apply_change(
        &self,
        settings: &Settings,
        prefix: String,
        change: MountChange,
    ) -> Result<(), (String, anyhow::Error)> {
        let mut new = None;
        if let Some(server) = &change.new {
            let obstacles = server_obstacles(server, &Environment::current());
            if !obstacles.is_empty() {
                return Err((server.name.clone(), Problems(obstacles).into()));
            }
            let opened = Mount::open(settings, server, &self.guardian, &self.stores, STORE_LOCK_TIMEOUT).await;
            new = Some(Arc::new(opened.map_err(|error| (server.name.clone(), error))?));
        }
        if let Some(old) = change.old {
            tracing::info!(server = old.server.name, "server closing");
            old.close(settings.drain).await;
        }
        match new {
            Some(mount) => {
                tracing::info!(server = mount.server.name, eras = mount.eras, "server added");
                self.mounts.write().insert(prefix, mount);
            }
            None => {
                self.mounts.write().remove(&prefix);
            }
        }
        Ok(())
    }
}

/// The change of one path.
struct MountChange {
    old: Option<Arc<Mount>>,
    new: Option<ServerSettings>,
}

/// The settings to go on with: the new ones, except for what only a restart can change.
fn merge(current: &Settings, wanted: Settings) -> (Settings, ReloadOutcome) {
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
    let reloaded = ReloadOutcome {
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
        let (merged, reloaded) = merge(&settings(), wanted.clone());
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
        assert_eq!(merged.listen, settings().listen);
        assert_eq!(
            merged.allow_hosts,
            ["192.0.2.2", "192.0.2.1"],
            "the address in use stays reachable"
        );
        let (_, again) = merge(&merged, wanted);
        assert_eq!(again.need_restart, restart, "it is named until the restart");
        assert!(again.applied.is_empty(), "{again:?}");
    }
}
