//! Applies a new configuration to the running gateway (SIGHUP).
//!
//! Unchanged servers keep their sessions and children. A changed server starts with its new settings first. Then the old
//! one drains and closes, and the new one takes over its path, store and sessions. A server that cannot start changes
//! nothing: the old one continues.
//!
//! With a shared store, other gateways serve the requests for the old server while it drains. The new server joins when it
//! has drained, and the old one leaves after that. So this gateway is a member all the time.

use crate::auth::{self, Providers};
use crate::config::options::OPTIONS;
use crate::config::{Environment, Problem, Problems, Reload, own_host};
use crate::gateway::{Gateway, name_providers};
use crate::mount::{Front, Mount, path_prefix};
use crate::preflight;
use crate::settings::{ServerSettings, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
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
        let (wanted, refused) = keep_protection(&current, wanted);
        let (mut settings, mut outcome) = merge(&current, wanted);
        for (part, problem) in refused {
            outcome.failed.push((part.to_owned(), Problems(vec![problem]).into()));
        }
        if let Err(problem) = self.tls.reload(settings.tls.as_ref()) {
            settings.tls.clone_from(&current.tls); // URLs name the certificate in force
            outcome.failed.push(("tls".to_owned(), Problems(vec![problem]).into()));
        }
        let settings = Arc::new(settings);
        *self.settings.write() = Arc::clone(&settings);
        self.peers.set_limit(settings.max_connections_per_peer);
        self.peers.set_trusted(settings.trusted_proxies.clone());
        self.reload_providers(&settings, &mut outcome);
        name_providers(&settings, self.audit.as_deref());
        self.apply_front(&settings, &mut outcome);
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

    /// Reads tokens again. A file that cannot be read changes nothing: the providers in force go on.
    fn reload_providers(&self, settings: &Settings, outcome: &mut ReloadOutcome) {
        let current = self.providers.read().clone();
        let reloaded = match (&current, &settings.auth) {
            (Some(current), Some(_)) if current.are_those_of(settings) => {
                current.reload().map(|revoked| (Some(Arc::clone(current)), revoked))
            }
            (current, Some(wanted)) => Providers::open(settings, wanted, current.as_deref()).map(|newer| {
                let revoked = current.as_ref().map(|current| current.revoked_in(&newer));
                (Some(newer), revoked.unwrap_or_default())
            }),
            (_, None) => Ok((None, BTreeSet::new())),
        };
        match reloaded {
            Ok((providers, revoked)) => {
                *self.providers.write() = providers;
                *self.metadata.write() = Arc::new(auth::documents(settings, self.bound));
                for mount in self.mounts() {
                    for principal in &revoked {
                        mount.revoke(principal);
                    }
                }
                if !revoked.is_empty() {
                    tracing::info!(principals = revoked.len(), "tokens revoked");
                }
            }
            Err(problem) => outcome.failed.push(("auth".to_owned(), Problems(vec![problem]).into())),
        }
    }

    /// Applies hosts, origins, public URL, providers and limits to all servers. Nothing ends.
    fn apply_front(&self, settings: &Settings, outcome: &mut ReloadOutcome) {
        let providers = self.providers.read().clone();
        let front = Front {
            settings,
            bound: self.bound,
            providers: providers.as_ref(),
            audit: self.audit.as_ref(),
            tracer: self.tracer.as_ref(),
        };
        for mount in self.mounts.write().values_mut() {
            match mount.with_front(&front) {
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
            let problems = preflight::server_problems(server, &Environment::current());
            if !problems.is_empty() {
                return Err((server.name.clone(), Problems(problems).into()));
            }
            let providers = self.providers.read().clone();
            let front = Front {
                settings,
                bound: self.bound,
                providers: providers.as_ref(),
                audit: self.audit.as_ref(),
                tracer: self.tracer.as_ref(),
            };
            let opened = Mount::open(&front, server, &self.guardian, &self.stores, STORE_LOCK_TIMEOUT).await;
            new = Some(Arc::new(opened.map_err(|error| (server.name.clone(), error))?));
        }
        let deadline = Instant::now() + settings.drain;
        if let Some(old) = &change.old {
            tracing::info!(server = old.server.name, "server closing");
            old.drain(settings.drain).await;
            old.stop_children().await;
        }
        if let Some(new) = &new
            && let Err(failure) = new.join(settings).await
        {
            // It goes on trying, and requests of sessions get 503 until then.
            tracing::warn!(server = new.server.name, %failure, "server not joined yet");
        }
        match new {
            Some(mount) => {
                tracing::info!(server = mount.server.name, eras = &*mount.eras, "server added");
                self.mounts.write().insert(prefix, mount);
            }
            None => {
                self.mounts.write().remove(&prefix);
            }
        }
        if let Some(old) = change.old {
            old.finish_forwards(deadline.saturating_duration_since(Instant::now()))
                .await;
            old.leave().await;
        }
        Ok(())
    }
}

/// The change of one path.
struct MountChange {
    old: Option<Arc<Mount>>,
    new: Option<ServerSettings>,
}

/// The new settings, with the protection that is in force. A file that has lost `[tls]` or `[auth]` is more often cut off than meant:
/// a reload never turns HTTPS off, and authentication only with `no_auth`. Returns the refused parts.
fn keep_protection(current: &Settings, mut wanted: Settings) -> (Settings, Vec<(&'static str, Problem)>) {
    let mut refused = Vec::new();
    if current.tls.is_some() && wanted.tls.is_none() {
        wanted.tls.clone_from(&current.tls);
        let problem = Problem::new("the configuration has no certificate any more; HTTPS stays on");
        refused.push(("tls", problem.hint("restart the gateway to serve plain HTTP")));
    }
    if current.auth.is_some() && wanted.auth.is_none() && !wanted.no_auth {
        wanted.auth.clone_from(&current.auth);
        let problem = Problem::new("the configuration has no [auth] any more; callers still need a token");
        refused.push((
            "auth",
            problem.hint("`no_auth = true` confirms that everybody may call"),
        ));
    }
    (wanted, refused)
}

/// The new settings, with the old values of options that need a restart.
fn merge(current: &Settings, wanted: Settings) -> (Settings, ReloadOutcome) {
    let mut settings = wanted;
    let mut outcome = ReloadOutcome::default();
    for option in OPTIONS {
        if let Reload::NeedsRestart { differs, .. } = option.reload
            && differs(current, &settings)
        {
            outcome.need_restart.push(option.key);
        }
    }
    for option in OPTIONS {
        if let Reload::NeedsRestart { keep, .. } = option.reload {
            keep(current, &mut settings);
        }
    }
    // Clients still connect to the current address.
    if let Some(host) = own_host(current.listen).filter(|host| !settings.allow_hosts.contains(host)) {
        settings.allow_hosts.push(host);
    }
    for option in OPTIONS {
        if let Reload::Applied { differs } = option.reload
            && differs(current, &settings)
        {
            outcome.applied.push(option.key);
        }
    }
    (settings, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Scope;
    use crate::settings::{
        AdminSettings, AuthSettings, OperationSettings, RedisSettings, SessionlessSetting, StoreSettings, SyncMode,
    };
    use crate::tls::TlsFiles;
    use rethread::Limits;
    use rethread_proto::auth::{self as scopes, ImpliedScopes, Rate, Scopes};
    use rethread_store_redis::RedisUrl;

    fn settings() -> Settings {
        Settings {
            listen: ([192, 0, 2, 1], 80).into(),
            public_url: None,
            allow_hosts: vec!["192.0.2.1".to_owned()],
            allow_origins: vec![],
            tls: None,
            store: StoreSettings::Memory,
            drain: Duration::from_secs(1),
            retry: Duration::from_secs(1),
            session_idle: Duration::from_secs(1),
            session_unused: Duration::from_secs(1),
            sessionless: SessionlessSetting::Serve,
            max_connections_per_peer: 1,
            limits: Limits::default(),
            auth: None,
            no_auth: false,
            trusted_proxies: vec![],
            admin: None,
            operation: OperationSettings::default(),
            servers: vec![],
            notes: vec![],
        }
    }

    fn admin(port: u16, public_url: Option<&str>, is_open: bool) -> AdminSettings {
        AdminSettings {
            listen: ([127, 0, 0, 1], port).into(),
            public_url: public_url.map(str::to_owned),
            token_file: format!("{port}.token").into(),
            actions: is_open,
            insecure: is_open,
        }
    }

    fn embedded(data: &str, sync: SyncMode) -> StoreSettings {
        StoreSettings::Embedded {
            data: data.into(),
            sync,
        }
    }

    #[test]
    fn merge_applies_or_names_every_gateway_option() {
        let current = Settings {
            store: embedded("/data", SyncMode::Os),
            admin: Some(admin(9465, None, false)),
            ..settings()
        };
        let wanted = Settings {
            listen: ([192, 0, 2, 2], 80).into(),
            public_url: Some("https://mcp.example".to_owned()),
            allow_hosts: vec!["192.0.2.2".to_owned()],
            allow_origins: vec!["https://app.example".to_owned()],
            tls: Some(TlsFiles {
                cert: "cert.pem".into(),
                key: "key.pem".into(),
            }),
            store: embedded("/other", SyncMode::Always),
            drain: Duration::from_secs(2),
            retry: Duration::from_secs(2),
            session_idle: Duration::from_secs(2),
            session_unused: Duration::from_secs(2),
            sessionless: SessionlessSetting::Refuse,
            max_connections_per_peer: 2,
            limits: Limits::default().with(|limits| limits.calls = 1),
            auth: Some(AuthSettings {
                tokens: Some("tokens.toml".into()),
                scopes: Scopes::from_words("mcp"),
                leeway: Duration::ZERO,
                implies: {
                    let mut implies = ImpliedScopes::default();
                    implies.insert(scopes::Scope::parse("a").unwrap(), &Scopes::from_words("b"));
                    implies
                },
                failures: Rate::new(1, Duration::from_secs(1)).unwrap(),
                jwt: vec![],
            }),
            no_auth: true,
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()],
            admin: Some(admin(9466, Some("https://console.example"), true)),
            operation: OperationSettings {
                metrics: Some(([127, 0, 0, 1], 9464).into()),
                label_tools: true,
                audit: Some("audit.jsonl".into()),
                audit_params: true,
                otlp: Some("http://collector".to_owned()),
                tape: Some("/tapes".into()),
                tape_payloads: true,
            },
            servers: vec![],
            notes: vec![],
        };
        let (merged, outcome) = merge(&current, wanted.clone());
        let need_restart = [
            "listen",
            "data",
            "sync",
            "retry_ms",
            "session_idle",
            "session_unused",
            "sessionless",
            "admin.listen",
            "metrics.listen",
            "metrics.tools",
            "audit.file",
            "audit.params",
            "otlp",
            "tape",
            "tape_payloads",
        ];
        assert_eq!(outcome.need_restart, need_restart);
        let applied = [
            "public_url",
            "allow_hosts",
            "allow_origins",
            "tls.cert",
            "tls.key",
            "drain",
            "max_connections_per_peer",
            "limits",
            "auth.tokens",
            "auth.scopes",
            "auth.leeway",
            "auth.implies",
            "auth.failures",
            "auth.jwt",
            "issuer",
            "jwks_url",
            "jwks_file",
            "audience",
            "algorithms",
            "refresh",
            "cooldown",
            "max_stale",
            "no_auth",
            "trusted_proxies",
            "admin.public_url",
            "admin.token_file",
            "admin.actions",
            "admin.insecure",
        ];
        assert_eq!(outcome.applied, applied);
        let gateway_options = OPTIONS.iter().filter(|option| option.scope == Scope::Gateway);
        let missing: Vec<_> = gateway_options
            .map(|option| option.key)
            .filter(|key| !need_restart.contains(key) && !applied.contains(key))
            .collect();
        assert_eq!(
            missing,
            ["memory", "store", "node_id", "lease", "secret_file"],
            "those of other stores"
        );
        assert_eq!((merged.listen, &merged.store), (current.listen, &current.store));
        assert_eq!(
            merged.allow_hosts,
            ["192.0.2.2", "192.0.2.1"],
            "the address in use stays reachable"
        );
        let (_, again) = merge(&merged, wanted);
        assert_eq!(again.need_restart, need_restart, "it is named until the restart");
        assert!(again.applied.is_empty(), "{again:?}");
    }

    #[test]
    fn ops_21_reload_never_turns_protection_off_silently() {
        let pair = TlsFiles {
            cert: "cert.pem".into(),
            key: "key.pem".into(),
        };
        let auth = AuthSettings {
            tokens: Some("tokens.toml".into()),
            scopes: Scopes::new(),
            leeway: Duration::ZERO,
            implies: ImpliedScopes::default(),
            failures: Rate::new(1, Duration::from_secs(1)).unwrap(),
            jwt: vec![],
        };
        let protected = Settings {
            tls: Some(pair),
            auth: Some(auth),
            ..settings()
        };
        let refused = |current: &Settings, wanted: &Settings| {
            let (kept, refused) = keep_protection(current, wanted.clone());
            (kept, refused.into_iter().map(|(part, _)| part).collect::<Vec<_>>())
        };
        assert_eq!(
            refused(&protected, &settings()),
            (protected.clone(), vec!["tls", "auth"])
        );
        let open = Settings {
            no_auth: true,
            tls: protected.tls.clone(),
            ..settings()
        };
        assert_eq!(
            refused(&protected, &open),
            (open.clone(), vec![]),
            "the operator confirms it"
        );
        assert_eq!(refused(&settings(), &protected), (protected.clone(), vec![]));
        assert_eq!(refused(&protected, &protected), (protected.clone(), vec![]));
        assert_eq!(refused(&settings(), &settings()), (settings(), vec![]));
    }

    #[test]
    fn merge_names_every_option_of_a_shared_store() {
        let shared = |url: &str, node: &str, lease: u64, secret: &str| Settings {
            store: StoreSettings::Redis(Box::new(RedisSettings {
                url: RedisUrl::parse(url).unwrap(),
                node_id: Some(node.to_owned()),
                lease: Duration::from_secs(lease),
                secret_file: Some(secret.into()),
            })),
            ..settings()
        };
        let current = shared("redis://a", "1", 10, "/a");
        let (merged, outcome) = merge(&current, shared("redis://b", "2", 5, "/b"));
        assert_eq!(outcome.need_restart, ["store", "node_id", "lease", "secret_file"]);
        assert_eq!(merged, current);
        let (_, outcome) = merge(&current, settings());
        assert_eq!(outcome.need_restart, ["memory", "store"]);
    }

    #[test]
    fn merge_names_memory_when_the_kind_of_store_differs() {
        let wanted = Settings {
            store: embedded("/data", SyncMode::Os),
            ..settings()
        };
        let (merged, outcome) = merge(&settings(), wanted);
        assert_eq!(outcome.need_restart, ["memory"]);
        assert_eq!(merged, settings());
    }
}
