//! Resolves flags, environment, file and defaults to [`Settings`]. Every value keeps its source.
//!
//! `options.rs` defines every option once. [`load`] may be called again with the same [`CliInput`]: it reads the file and
//! the environment anew.

mod admin_options;
mod auth;
mod auth_options;
mod bridge_options;
mod child_options;
pub(crate) mod client_file;
mod expand;
mod file;
mod jwt;
mod jwt_options;
mod layer;
mod limits;
mod operation_options;
mod option;
pub(crate) mod options;
mod problem;
mod resolver;
pub(crate) mod secret;
mod server_name;
mod servers;
mod store;
mod store_options;
mod suggest;
mod tls_options;
mod toml_error;
mod value;

#[cfg(test)]
mod tests;

pub(crate) use layer::{ConfigValue, Layer, Source, SourcedValue};
pub(crate) use option::{FlagKind, Heading, OptionDef, Reload, Scope, TypedOption};
pub(crate) use problem::{Problem, Problems};
pub(crate) use resolver::own_host;

use crate::settings::Settings;
use file::ParsedFile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The command line, with the environment variables that stand for flags.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CliInput {
    pub(crate) config_file: Option<(PathBuf, Source)>,
    pub(crate) layer: Layer,
    /// The words after `--`.
    pub(crate) command: Vec<String>,
}

impl CliInput {
    /// Whether there is a command, or a file that may have servers.
    pub(crate) fn has_servers(&self) -> bool {
        !self.command.is_empty() || self.config_file.is_some()
    }

    /// The value of an option in the command line or the environment.
    pub(crate) fn value<T>(&self, option: &TypedOption<T>) -> Result<Option<T>, Problems> {
        let Some(found) = self.layer.get(option.def.key) else {
            return Ok(None);
        };
        let parsed = (option.parse)(&found.value);
        parsed
            .map(Some)
            .map_err(|problem| Problems(vec![problem.at(&found.source)]))
    }
}

/// The environment of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) cwd: PathBuf,
    pub(crate) vars: BTreeMap<String, String>,
}

impl Environment {
    pub(crate) fn current() -> Self {
        let utf8 = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Environment {
            cwd: std::env::current_dir().unwrap_or_default(),
            vars: std::env::vars_os().filter_map(utf8).collect(),
        }
    }

    /// A variable that is set and not empty.
    pub(crate) fn var(&self, name: &str) -> Option<&str> {
        self.vars
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The default of `data`.
    pub(super) fn state_dir(&self) -> Option<PathBuf> {
        // The XDG rules require to ignore a relative path.
        let xdg = self
            .var("XDG_STATE_HOME")
            .map(Path::new)
            .filter(|path| path.is_absolute());
        let xdg = xdg.map(Path::to_owned);
        let windows = || self.var("LOCALAPPDATA").filter(|_| cfg!(windows)).map(PathBuf::from);
        let home = || self.var("HOME").map(|home| Path::new(home).join(".local/state"));
        Some(xdg.or_else(windows).or_else(home)?.join("rethread"))
    }

    /// Makes a path of a file or a flag absolute. A relative one is relative to `base`.
    pub(crate) fn absolute(&self, base: &Path, path: &str) -> PathBuf {
        match path.strip_prefix("~/").zip(self.var("HOME")) {
            Some((rest, home)) => Path::new(home).join(rest),
            None => base.join(path.strip_prefix("./").unwrap_or(path)),
        }
    }
}

/// One line of `check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueRow {
    /// The server that the value belongs to.
    pub(crate) server: Option<String>,
    pub(crate) key: String,
    /// With secrets masked.
    pub(crate) value: String,
    pub(crate) source: String,
}

/// The outcome of resolving a configuration, valid or not.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedConfig {
    /// Complete, but usable only without problems.
    pub(crate) settings: Settings,
    pub(crate) rows: Vec<ValueRow>,
    pub(crate) problems: Vec<Problem>,
}

/// The settings, or all problems.
pub(crate) fn load(input: &CliInput) -> Result<Settings, Problems> {
    let resolved = resolve(input, &Environment::current());
    if resolved.problems.is_empty() {
        Ok(resolved.settings)
    } else {
        Err(Problems(resolved.problems))
    }
}

/// Reads the file and resolves all options.
pub(crate) fn resolve(input: &CliInput, environment: &Environment) -> ResolvedConfig {
    let Some((path, source)) = &input.config_file else {
        return resolver::resolve(input, &ParsedFile::default(), &environment.cwd, environment);
    };
    let name = path.to_string_lossy();
    let absolute = environment.cwd.join(path);
    let dir = absolute.parent().unwrap_or(&environment.cwd);
    let text = std::fs::read_to_string(&absolute).map_err(|error| {
        let problem = Problem::new(format!("cannot read {name}: {error}")).at(source);
        vec![problem.hint("the path of a TOML file with [servers.NAME] tables, or of the JSON file of a client")]
    });
    match text.and_then(|text| file::parse(&name, &text, environment)) {
        Ok(file) => resolver::resolve(input, &file, dir, environment),
        Err(problems) => {
            // Without the file the rest would only report missing values.
            let mut resolved = resolver::resolve(input, &ParsedFile::default(), dir, environment);
            resolved.rows.clear();
            resolved.problems = problems;
            resolved
        }
    }
}
