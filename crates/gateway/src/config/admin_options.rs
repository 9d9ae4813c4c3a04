//! The options of `[admin]`: the listener for operators, and its console page.

use super::layer::Source;
use super::option::{DefaultValue, Flag, FlagKind, Heading, OptionDef, Reload, Scope, TypedOption};
use super::problem::Problem;
use super::resolver::Resolver;
use super::value;
use crate::settings::{AdminSettings, Settings, StoreSettings};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The table in a file.
pub(super) const ADMIN_KEY: &str = "admin";

/// The address if `[admin]` names none.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9465);

/// The name of the token file in the data directory.
const TOKEN_FILE_NAME: &str = "admin.token";

pub(crate) static ADMIN: TypedOption<SocketAddr> = TypedOption {
    def: OptionDef {
        key: "admin.listen",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--admin", FlagKind::Text("ADDR")).heading(Heading::Operation)),
        env: Some("RETHREAD_ADMIN"),
        default: DefaultValue::Unset,
        help: "Serve the console page and the admin API at this address",
        reload: Reload::NeedsRestart {
            differs: |old, new| listen(old) != listen(new),
            keep: |old, new| match (&old.admin, &mut new.admin) {
                (Some(old), Some(new)) => new.listen = old.listen,
                (old, new) => new.clone_from(old),
            },
        },
    },
    parse: value::address,
    show: SocketAddr::to_string,
};

pub(crate) static ADMIN_PUBLIC_URL: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "admin.public_url",
        scope: Scope::Gateway,
        flag: None,
        env: None,
        default: DefaultValue::Unset,
        help: "Public URL of the admin listener when it runs behind a reverse proxy",
        reload: Reload::Applied {
            differs: |old, new| of(old, |admin| admin.public_url.clone()) != of(new, |admin| admin.public_url.clone()),
        },
    },
    parse: value::public_url,
    show: String::clone,
};

pub(crate) static ADMIN_TOKEN_FILE: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "admin.token_file",
        scope: Scope::Gateway,
        flag: None,
        env: None,
        default: DefaultValue::Computed("admin.token in the data directory"),
        help: "File with the admin token; created with mode 0600",
        reload: Reload::Applied {
            differs: |old, new| of(old, |admin| admin.token_file.clone()) != of(new, |admin| admin.token_file.clone()),
        },
    },
    parse: value::text,
    show: String::clone,
};

pub(crate) static ADMIN_ACTIONS: TypedOption<bool> = TypedOption {
    def: OptionDef {
        key: "admin.actions",
        scope: Scope::Gateway,
        flag: None,
        env: None,
        default: DefaultValue::Bool(false),
        help: "The admin API may end sessions and children, drain and reload",
        reload: Reload::Applied {
            differs: |old, new| of(old, |admin| admin.actions) != of(new, |admin| admin.actions),
        },
    },
    parse: value::boolean,
    show: bool::to_string,
};

pub(crate) static ADMIN_INSECURE: TypedOption<bool> = TypedOption {
    def: OptionDef {
        key: "admin.insecure",
        scope: Scope::Gateway,
        flag: None,
        env: None,
        default: DefaultValue::Bool(false),
        help: "The admin listener may be open to the network without TLS",
        reload: Reload::Applied {
            differs: |old, new| of(old, |admin| admin.insecure) != of(new, |admin| admin.insecure),
        },
    },
    parse: value::boolean,
    show: bool::to_string,
};

fn listen(settings: &Settings) -> Option<SocketAddr> {
    of(settings, |admin| admin.listen)
}

fn of<T>(settings: &Settings, value: impl FnOnce(&AdminSettings) -> T) -> Option<T> {
    settings.admin.as_ref().map(value)
}

impl Resolver<'_> {
    /// `[admin]`, or `--admin`.
    pub(super) fn admin(&mut self, store: &StoreSettings) -> Option<AdminSettings> {
        let table = self.file.get(ADMIN_KEY).map(|found| found.source.clone());
        let listen = self.optional(&ADMIN);
        let source = self.find(None, ADMIN.def.key).map(|found| found.source).or(table)?;
        let listen = listen.unwrap_or(DEFAULT_LISTEN);
        let admin = AdminSettings {
            listen,
            public_url: self.optional(&ADMIN_PUBLIC_URL),
            token_file: self.admin_token_file(store, &source),
            actions: self.value(&ADMIN_ACTIONS),
            insecure: self.value(&ADMIN_INSECURE),
        };
        if !listen.ip().is_loopback() && !admin.insecure && !self.has_tls() {
            let problem = Problem::new(format!(
                "the admin address {listen} is open to the network, without TLS"
            ));
            self.problems.push(
                problem
                    .at(&source)
                    .hint("127.0.0.1:9465 behind a proxy or an SSH tunnel, [tls], or `insecure = true` below [admin]"),
            );
        }
        Some(admin)
    }

    fn has_tls(&self) -> bool {
        self.find(None, "tls.cert").is_some()
    }

    fn admin_token_file(&mut self, store: &StoreSettings, needed_by: &Source) -> PathBuf {
        let key = ADMIN_TOKEN_FILE.def.key;
        if let Some(found) = self.find(None, key) {
            let text = self.parse(&ADMIN_TOKEN_FILE, &found).unwrap_or_default();
            let path = self.path(&found.source, &text);
            self.add_row(None, key, path.display().to_string(), &found.source);
            return path;
        }
        let dir = match store {
            StoreSettings::Embedded { data, .. } => Some(data.clone()),
            StoreSettings::Memory | StoreSettings::Redis(_) => self.environment.state_dir(),
        };
        if dir.is_none() {
            let problem = Problem::new("there is no place for the token of the admin listener").at(needed_by);
            self.problems
                .push(problem.hint("token_file = \"admin.token\" below [admin], or set HOME"));
        }
        let path = dir.unwrap_or_default().join(TOKEN_FILE_NAME);
        self.add_row(None, key, path.display().to_string(), &Source::Default);
        path
    }
}
