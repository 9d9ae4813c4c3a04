//! Values before they are settled: what was written, and where.

use crate::exit::{Exit, Failure};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What one place says: the command line with its environment, the top of a file, or one server of it.
pub(crate) type Layer = BTreeMap<String, Found>;

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) raw: Raw,
    pub(crate) source: Source,
}

/// A value as it was written. A flag is text where a file may have a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Raw {
    Text(String),
    Number(i64),
    Bool(bool),
    List(Vec<String>),
    Table(Layer),
    /// Something that no setting is: a date, a list of lists. Its TOML type, in words.
    Other(&'static str),
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `--listen`.
    Flag(&'static str),
    /// `RETHREAD_LISTEN`.
    Env(&'static str),
    /// The words after `--`.
    CommandLine,
    /// A line of a file.
    File { file: Arc<str>, line: usize },
    /// It follows from something else.
    Derived(&'static str),
    /// Nobody said anything.
    Default,
}

impl Source {
    /// Whether it was given when the program was started, rather than in a file.
    pub(crate) fn is_environment(&self) -> bool {
        matches!(self, Source::Env(_))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag(flag) => write!(f, "flag {flag}"),
            Source::Env(name) => write!(f, "env {name}"),
            Source::CommandLine => f.write_str("command line"),
            Source::File { file, line } => write!(f, "{file}:{line}"),
            Source::Derived(from) => write!(f, "from {from}"),
            Source::Default => f.write_str("default"),
        }
    }
}

impl Raw {
    /// How it was written, more or less, for a person to recognise.
    pub(crate) fn shown(&self) -> String {
        match self {
            Raw::Text(text) => text.clone(),
            Raw::Number(number) => number.to_string(),
            Raw::Bool(on) => on.to_string(),
            Raw::List(list) => format!("{list:?}"),
            Raw::Table(_) => "a table".to_owned(),
            Raw::Other(kind) => (*kind).to_owned(),
        }
    }
}

/// Something wrong with the configuration: where, what, and what to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// `rethread.toml:3`, `flag --listen`, or nothing if there is no one place.
    pub(crate) place: Option<String>,
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
    /// The code to end with because of it.
    pub(crate) exit: Exit,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Problem {
            place: None,
            what: what.into(),
            hint: None,
            exit: Exit::Usage,
        }
    }

    #[must_use]
    pub(crate) fn at(mut self, place: &Source) -> Self {
        self.place = Some(place.to_string());
        self
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Problem {
            place: None,
            what: failure.message,
            hint: failure.hint,
            exit: failure.exit,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}
