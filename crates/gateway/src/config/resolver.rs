//! Resolves the options: flag, then environment, then file, then default. Does no I/O.

use super::file::ParsedFile;
use super::layer::{Layer, Source, SourcedValue};
use super::option::TypedOption;
use super::options;
use super::problem::Problem;
use super::value::{self, ParseResult};
use super::{CliInput, Environment, ResolvedConfig, ValueRow};
use crate::settings::Settings;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Resolves `input` and a `file` in the directory `file_dir`.
pub(super) fn resolve(
    input: &CliInput,
    file: &ParsedFile,
    file_dir: &Path,
    environment: &Environment,
) -> ResolvedConfig {
    let mut resolver = Resolver {
        input,
        file: &file.layer,
        notes: &file.notes,
        file_dir,
        environment,
        rows: Vec::new(),
        problems: Vec::new(),
    };
    resolver.add_program_rows();
    let settings = resolver.settings();
    ResolvedConfig {
        settings,
        rows: resolver.rows,
        problems: resolver.problems,
    }
}

/// Collects the rows of `check` and all problems while it resolves.
pub(super) struct Resolver<'a> {
    pub(super) input: &'a CliInput,
    pub(super) file: &'a Layer,
    pub(super) notes: &'a [String],
    file_dir: &'a Path,
    pub(super) environment: &'a Environment,
    rows: Vec<ValueRow>,
    pub(super) problems: Vec<Problem>,
}

impl Resolver<'_> {
    /// Adds options of the program to `check`. `cli` has applied them.
    fn add_program_rows(&mut self) {
        let (value, source) = match &self.input.config_file {
            Some((path, source)) => (path.display().to_string(), source.clone()),
            None => (value::none(), Source::Default),
        };
        self.add_row(None, options::CONFIG.key, value, &source);
        self.value(&options::COLOR);
        self.value(&options::LOG_FORMAT);
    }

    fn settings(&mut self) -> Settings {
        let listen = self.value(&options::LISTEN);
        let public_url = self.optional(&options::PUBLIC_URL);
        let mut allow_hosts = self.value(&options::ALLOW_HOSTS);
        // Safe against DNS rebinding: an attacker can rebind neither an IP address nor the operator's own name.
        let listen_host = own_host(listen);
        let public_host = public_url.as_deref().and_then(value::public_host).map(str::to_owned);
        for (host, source) in [
            (listen_host, options::LISTEN.def.key),
            (public_host, options::PUBLIC_URL.def.key),
        ] {
            if let Some(host) = host.filter(|host| !allow_hosts.contains(host)) {
                let key = format!("{} +", options::ALLOW_HOSTS.def.key);
                self.add_row(None, key, host.clone(), &Source::Derived(source));
                allow_hosts.push(host);
            }
        }
        let (limits, max_connections_per_peer) = self.limits();
        let (auth, no_auth) = self.auth(listen);
        let servers = self.servers(&super::auth::providers(auth.as_ref()));
        let store = self.store();
        let admin = self.admin(&store);
        Settings {
            listen,
            public_url,
            allow_hosts,
            allow_origins: self.value(&options::ALLOW_ORIGINS),
            tls: self.tls(),
            store,
            drain: self.value(&options::DRAIN),
            retry: self.value(&options::RETRY_MS),
            session_idle: self.value(&options::SESSION_IDLE),
            max_connections_per_peer,
            limits,
            session_unused: self.value(&super::child_options::SESSION_UNUSED),
            sessionless: self.value(&super::child_options::SESSIONLESS),
            auth,
            no_auth,
            trusted_proxies: self.value(&super::auth_options::TRUSTED_PROXIES),
            admin,
            operation: self.operation(),
            servers,
            notes: self.notes.to_vec(),
        }
    }

    /// Makes a path absolute. It is relative to the file that has it, or to the working directory.
    pub(super) fn path(&self, source: &Source, path: &str) -> PathBuf {
        let base = match source {
            Source::File { .. } => self.file_dir,
            _ => &self.environment.cwd,
        };
        self.environment.absolute(base, path)
    }

    /// An option that names a file.
    pub(super) fn file_path(&mut self, option: &TypedOption<String>) -> Option<PathBuf> {
        let Some(found) = self.find(None, option.def.key) else {
            self.add_row(None, option.def.key, value::none(), &Source::Default);
            return None;
        };
        let text = self.parse(option, &found)?;
        let path = self.path(&found.source, &text);
        self.add_row(None, option.def.key, path.display().to_string(), &found.source);
        Some(path)
    }

    /// An option without a default.
    pub(super) fn optional<T>(&mut self, option: &TypedOption<T>) -> Option<T> {
        let Some(found) = self.find(None, option.def.key) else {
            self.add_row(None, option.def.key, value::none(), &Source::Default);
            return None;
        };
        let parsed = self.parse(option, &found);
        let shown = parsed.as_ref().map_or_else(|| found.value.to_string(), option.show);
        self.add_row(None, option.def.key, shown, &found.source);
        parsed
    }

    pub(super) fn value<T>(&mut self, option: &TypedOption<T>) -> T {
        self.value_in(None, None, option)
    }

    /// The value of an option for `server`, whose own values are in `section`.
    pub(super) fn server_value<T>(&mut self, server: &str, section: &Layer, option: &TypedOption<T>) -> T {
        self.value_in(Some(server), Some(section), option)
    }

    fn value_in<T>(&mut self, server: Option<&str>, section: Option<&Layer>, option: &TypedOption<T>) -> T {
        let found = self.find(section, option.def.key);
        let parsed = found.as_ref().and_then(|found| self.parse(option, found));
        let shown = match (&parsed, &found) {
            (None, Some(invalid)) => invalid.value.to_string(),
            (Some(value), _) => (option.show)(value),
            (None, None) => (option.show)(&option.default_value()),
        };
        let source = found.map_or(Source::Default, |found| found.source);
        self.add_row(server, option.def.key, shown, &source);
        parsed.unwrap_or_else(|| option.default_value())
    }

    /// Looks in the command line, then in `section`, then at the top of the file.
    pub(super) fn find(&self, section: Option<&Layer>, key: &str) -> Option<SourcedValue> {
        let layers = [Some(&self.input.layer), section, Some(self.file)];
        layers.into_iter().flatten().find_map(|layer| layer.get(key)).cloned()
    }

    pub(super) fn parse<T>(&mut self, option: &TypedOption<T>, found: &SourcedValue) -> Option<T> {
        self.record((option.parse)(&found.value), &found.source)
    }

    /// Collects a problem: all are reported at once.
    pub(super) fn record<T>(&mut self, parsed: ParseResult<T>, source: &Source) -> Option<T> {
        parsed.map_err(|problem| self.problems.push(problem.at(source))).ok()
    }

    pub(super) fn add_row(&mut self, server: Option<&str>, key: impl Into<String>, value: String, source: &Source) {
        self.rows.push(ValueRow {
            server: server.map(str::to_owned),
            key: key.into(),
            value,
            source: source.to_string(),
        });
    }
}

/// The host of the listening address, if clients can use it.
pub(crate) fn own_host(listen: SocketAddr) -> Option<String> {
    match listen.ip() {
        ip if ip.is_loopback() || ip.is_unspecified() => None,
        ip if ip.is_ipv6() => Some(format!("[{ip}]")),
        ip => Some(ip.to_string()),
    }
}
