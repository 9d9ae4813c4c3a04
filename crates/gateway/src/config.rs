//! From flags, environment, file and defaults to one settled [`Settings`]. Every value remembers where it came from.
//!
//! [`load`] may be called again with the same [`CliInput`]: it reads the file and the environment anew.

mod expand;
mod file;
mod layer;
mod name;
mod nearest;
pub(crate) mod secret;
mod servers;
mod settle;
mod slip;
mod value;

#[cfg(test)]
mod tests;

pub(crate) use layer::{Found, Layer, Problem, Raw, Source};
pub(crate) use settle::{LISTEN, own_host};

use crate::exit::Exit;
use crate::settings::Settings;
use settle::settle;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What was given when the program was started.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CliInput {
    /// The file, if there is one.
    pub(crate) config: Option<(PathBuf, Source)>,
    /// Flags, and variables of the environment that stand for them.
    pub(crate) layer: Layer,
    /// The words after `--`.
    pub(crate) command: Vec<String>,
}

/// What the program finds around it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// The directory it was started in.
    pub(crate) cwd: PathBuf,
    /// Its environment.
    pub(crate) vars: BTreeMap<String, String>,
}

impl Environment {
    /// The world of this process.
    pub(crate) fn current() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Environment {
            cwd: std::env::current_dir().unwrap_or_default(),
            vars: std::env::vars_os().filter_map(text).collect(),
        }
    }

    /// A variable that is set to something.
    pub(crate) fn var(&self, name: &str) -> Option<&str> {
        self.vars
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Where state is kept unless somebody says otherwise.
    pub(crate) fn state_dir(&self) -> Option<PathBuf> {
        // The XDG rules say that a relative path here is to be ignored.
        let xdg = self
            .var("XDG_STATE_HOME")
            .map(Path::new)
            .filter(|path| path.is_absolute());
        let xdg = xdg.map(Path::to_owned);
        let windows = || self.var("LOCALAPPDATA").filter(|_| cfg!(windows)).map(PathBuf::from);
        let home = || self.var("HOME").map(|home| Path::new(home).join(".local/state"));
        Some(xdg.or_else(windows).or_else(home)?.join("rethread"))
    }

    /// A path as it was written in a file or a flag, made absolute.
    pub(crate) fn path(&self, base: &Path, written: &str) -> PathBuf {
        let home = written.strip_prefix("~/").zip(self.var("HOME"));
        match home {
            Some((rest, home)) => Path::new(home).join(rest),
            None => base.join(written.strip_prefix("./").unwrap_or(written)),
        }
    }
}

/// One line of `check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The server it belongs to, if it belongs to one.
    pub(crate) server: Option<String>,
    pub(crate) key: String,
    /// For a person: secrets are masked.
    pub(crate) value: String,
    pub(crate) source: String,
}

/// Everything that came out of settling, right or wrong.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    /// Complete, but only to be used if there are no problems.
    pub(crate) settings: Settings,
    pub(crate) rows: Vec<Row>,
    pub(crate) problems: Vec<Problem>,
}

/// All that is wrong, at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl Problems {
    /// The code to end with: that of the first problem, which is the one that `serve` would meet first.
    pub(crate) fn exit(&self) -> Exit {
        self.0.first().map_or(Exit::Usage, |problem| problem.exit)
    }
}

impl std::fmt::Display for Problems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<_> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&all.join("; "))
    }
}

impl std::error::Error for Problems {}

/// The settings, or everything that is wrong with them.
pub(crate) fn load(given: &CliInput) -> Result<Settings, Problems> {
    let settled = examine(given, &Environment::current());
    if settled.problems.is_empty() {
        Ok(settled.settings)
    } else {
        Err(Problems(settled.problems))
    }
}

/// The settings and everything that is wrong with them.
pub(crate) fn examine(given: &CliInput, world: &Environment) -> Settled {
    let Some((path, source)) = &given.config else {
        return settle(given, &Layer::new(), &world.cwd, world);
    };
    let name = path.to_string_lossy();
    let base = world.cwd.join(path);
    let base = base.parent().unwrap_or(&world.cwd);
    let read = std::fs::read_to_string(world.cwd.join(path)).map_err(|error| {
        let problem = Problem::new(format!("cannot read {name}: {error}")).at(source);
        vec![problem.hint("the path of a TOML file with [servers.NAME] tables")]
    });
    match read.and_then(|text| file::parse(&name, &text)) {
        Ok(file) => settle(given, &file, base, world),
        Err(problems) => {
            // What the rest would lack is in the file, so only the file's own problems are told.
            let mut settled = settle(given, &Layer::new(), base, world);
            settled.rows.clear();
            settled.problems = problems;
            settled
        }
    }
}
