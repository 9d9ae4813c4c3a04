//! Flag, then environment, then file, then default: pure.

use super::layer::{Found, Layer, Problem, Raw, Source};
use super::servers;
use super::value::{self, Read};
use super::{CliInput, Environment, Row, Settled};
use crate::output::LogFormat;
use crate::settings::{DEFAULT_CONNECTIONS_PER_PEER, Settings, StoreSettings, SyncMode};
use clap::ColorChoice;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where to listen unless somebody says otherwise.
pub(crate) const LISTEN: &str = "127.0.0.1:8080";

/// Settles what was `given` and what the `file` says, which lies in the folder `base`.
pub(crate) fn settle(given: &CliInput, file: &Layer, base: &Path, world: &Environment) -> Settled {
    let mut draft = Draft {
        given,
        file,
        base,
        world,
        rows: Vec::new(),
        problems: Vec::new(),
    };
    draft.show_file();
    draft.show_talk();
    let settings = draft.settings();
    Settled {
        settings,
        rows: draft.rows,
        problems: draft.problems,
    }
}

/// What is settled so far.
pub(super) struct Draft<'a> {
    pub(super) given: &'a CliInput,
    pub(super) file: &'a Layer,
    pub(super) base: &'a Path,
    pub(super) world: &'a Environment,
    pub(super) rows: Vec<Row>,
    pub(super) problems: Vec<Problem>,
}

impl Draft<'_> {
    fn show_file(&mut self) {
        let (value, source) = match &self.given.config {
            Some((path, source)) => (path.display().to_string(), source.clone()),
            None => (none(), Source::Default),
        };
        self.row(None, "config", value, &source);
    }

    /// How the program talks is settled by the command line alone; it is only shown here.
    fn show_talk(&mut self) {
        let text = |text: &str| Raw::Text(text.to_owned());
        self.value::<ColorChoice>("color", value::choice, &text("auto"), value::show_choice);
        self.value::<LogFormat>("log_format", value::choice, &text("text"), value::show_choice);
    }

    fn settings(&mut self) -> Settings {
        let loopback = || Raw::Text(LISTEN.to_owned());
        let listen = self.value("listen", value::address, &loopback(), ToString::to_string);
        let public_url = self.optional("public_url", value::public_url);
        let mut allow_hosts = self.value("allow_hosts", value::hosts, &Raw::List(vec![]), |list| show_list(list));
        // A page cannot be rebound to a name that is an address, nor to one that its owner gave to this gateway.
        let by_address = own_host(listen);
        let by_url = public_url.as_deref().and_then(value::public_host).map(str::to_owned);
        for (host, source) in [(by_address, "listen"), (by_url, "public_url")] {
            if let Some(host) = host.filter(|host| !allow_hosts.contains(host)) {
                self.row(None, "allow_hosts +", host.clone(), &Source::Derived(source));
                allow_hosts.push(host);
            }
        }
        let allow_origins = self.value("allow_origins", value::origins, &Raw::List(vec![]), |list| {
            show_list(list)
        });
        Settings {
            listen,
            public_url,
            allow_hosts,
            allow_origins,
            store: self.store(),
            drain: self.duration("drain", value::duration, Duration::from_secs(10)),
            retry: self.retry(),
            session_idle: self.duration("session_idle", value::some_time, Duration::from_secs(30 * 60)),
            max_connections_per_peer: self.value(
                "max_connections_per_peer",
                |raw| value::size(raw, 0),
                &Raw::Number(DEFAULT_CONNECTIONS_PER_PEER.into()),
                usize::to_string,
            ),
            servers: servers::settle(self),
        }
    }

    fn retry(&mut self) -> Duration {
        let ms = |raw: &Raw| value::count(raw, 0);
        Duration::from_millis(self.value("retry_ms", ms, &Raw::Number(1000), u64::to_string))
    }

    fn duration(&mut self, key: &'static str, read: fn(&Raw) -> Read<Duration>, default: Duration) -> Duration {
        let default = Raw::Text(value::show_duration(&default));
        self.value(key, read, &default, value::show_duration)
    }

    /// The layer that says most decides, so `--data` beats `memory = true` in a file.
    fn store(&mut self) -> StoreSettings {
        let (given, file) = (&self.given.layer, self.file);
        let by = |layer: &Layer, of: fn(&Source) -> bool| {
            let pick = |key: &str| layer.get(key).filter(|found| of(&found.source)).cloned();
            (pick("memory"), pick("data"))
        };
        let layers = [
            by(given, |source| !source.is_environment()),
            by(given, Source::is_environment),
            by(file, |_| true),
        ];
        let (memory, data) = layers
            .into_iter()
            .find(|(memory, data)| memory.is_some() || data.is_some())
            .unwrap_or_default();
        let wants_memory = match &memory {
            Some(found) => self.check(found, value::yes_or_no(&found.raw)).unwrap_or(false),
            None => false,
        };
        let source = memory.as_ref().map_or(Source::Default, |found| found.source.clone());
        self.row(None, "memory", wants_memory.to_string(), &source);
        if wants_memory {
            if let Some(data) = data {
                let problem = Problem::new("a data directory and memory exclude each other").at(&data.source);
                self.problems.push(problem.hint("one of the two"));
            }
            return StoreSettings::Memory;
        }
        let data = self.data(data);
        let sync = Raw::Text(value::show_choice(&SyncMode::default()));
        let sync = self.value("sync", value::choice, &sync, value::show_choice);
        StoreSettings::Embedded { data, sync }
    }

    fn data(&mut self, found: Option<Found>) -> PathBuf {
        let (path, source) = match found {
            Some(found) => {
                let text = self.check(&found, value::text(&found.raw)).unwrap_or_default();
                (self.path(&found.source, &text), found.source)
            }
            None => match self.world.state_dir() {
                Some(path) => (path, Source::Default),
                None => {
                    let problem = Problem::new("there is no home directory to keep sessions in");
                    self.problems
                        .push(problem.hint("--data DIR, or --memory to keep nothing"));
                    (PathBuf::new(), Source::Default)
                }
            },
        };
        self.row(None, "data", path.display().to_string(), &source);
        path
    }

    /// A path is relative to where it was written: to the file's folder, or to where the program was started.
    pub(super) fn path(&self, source: &Source, written: &str) -> PathBuf {
        let base = match source {
            Source::File { .. } => self.base,
            _ => &self.world.cwd,
        };
        self.world.path(base, written)
    }

    fn optional<T: ToString>(&mut self, key: &'static str, read: fn(&Raw) -> Read<T>) -> Option<T> {
        let Some(found) = self.find(&[], key) else {
            self.row(None, key, none(), &Source::Default);
            return None;
        };
        let value = self.check(&found, read(&found.raw));
        let shown = value.as_ref().map_or_else(|| found.raw.shown(), T::to_string);
        self.row(None, key, shown, &found.source);
        value
    }

    fn value<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&Raw) -> Read<T>,
        default: &Raw,
        show: impl Fn(&T) -> String,
    ) -> T {
        self.value_of(None, &[], key, read, default, show)
    }

    /// The value of `key`: as it was given, else as the `sections` of a file say, else as its top says, else `default`.
    pub(super) fn value_of<T>(
        &mut self,
        server: Option<&str>,
        sections: &[&Layer],
        key: &'static str,
        read: impl Fn(&Raw) -> Read<T>,
        default: &Raw,
        show: impl Fn(&T) -> String,
    ) -> T {
        let found = self.find(sections, key);
        let read_found = found.as_ref().and_then(|found| self.check(found, read(&found.raw)));
        let (shown, source) = match (&read_found, &found) {
            (Some(value), Some(found)) => (show(value), &found.source),
            (None, Some(found)) => (found.raw.shown(), &found.source),
            _ => (
                read(default).map_or_else(|_| none(), |value| show(&value)),
                &Source::Default,
            ),
        };
        self.row(server, key, shown, source);
        read_found.unwrap_or_else(|| read(default).expect("a default is valid"))
    }

    fn find(&self, sections: &[&Layer], key: &str) -> Option<Found> {
        let below = sections.iter().copied().chain([self.file]);
        let mut layers = [&self.given.layer].into_iter().chain(below);
        layers.find_map(|layer| layer.get(key)).cloned()
    }

    /// Keeps what is wrong for later: all of it is told at once.
    pub(super) fn check<T>(&mut self, found: &Found, read: Read<T>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(problem) => {
                self.problems.push(problem.at(&found.source));
                None
            }
        }
    }

    pub(super) fn row(&mut self, server: Option<&str>, key: impl Into<String>, value: String, source: &Source) {
        self.rows.push(Row {
            server: server.map(str::to_owned),
            key: key.into(),
            value,
            source: source.to_string(),
        });
    }
}

/// The host of the address that is listened on, if it is one that others can call.
pub(crate) fn own_host(listen: SocketAddr) -> Option<String> {
    match listen.ip() {
        ip if ip.is_loopback() || ip.is_unspecified() => None,
        ip if ip.is_ipv6() => Some(format!("[{ip}]")),
        ip => Some(ip.to_string()),
    }
}

/// What is shown where there is nothing.
pub(super) fn none() -> String {
    "(none)".to_owned()
}

pub(super) fn show_list(list: &[String]) -> String {
    if list.is_empty() { none() } else { list.join(", ") }
}
