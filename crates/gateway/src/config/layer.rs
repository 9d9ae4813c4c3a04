//! Unresolved values with their sources.

use super::secret::MASK;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The values of one source, by key: the command line with its environment, the top of a file, or one server of it.
pub(crate) type Layer = BTreeMap<String, SourcedValue>;

/// A value and its source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SourcedValue {
    pub(crate) value: ConfigValue,
    pub(crate) source: Source,
}

/// An unparsed value. A flag is text where a file may have a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConfigValue {
    Text(String),
    Number(i64),
    Bool(bool),
    List(Vec<String>),
    /// Words with values of the environment in them, and the same words for people.
    Masked {
        list: Vec<String>,
        shown: Vec<String>,
    },
    /// A text that no message may show.
    Secret(String),
    Table(Layer),
    /// A TOML value that no option takes, described for people.
    Unsupported(&'static str),
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
    File {
        file: Arc<str>,
        line: usize,
    },
    /// Computed from another value.
    Derived(&'static str),
    Default,
}

impl Source {
    /// The line of byte `at` of a file with this text.
    pub(super) fn in_file(file: &Arc<str>, text: &str, at: usize) -> Self {
        let before = &text.as_bytes()[..at.min(text.len())];
        Source::File {
            file: Arc::clone(file),
            line: before.iter().filter(|&&byte| byte == b'\n').count() + 1,
        }
    }

    pub(super) fn is_env(&self) -> bool {
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

/// For messages: close to the text that the user wrote.
impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigValue::Text(text) => f.write_str(text),
            ConfigValue::Number(number) => number.fmt(f),
            ConfigValue::Bool(on) => on.fmt(f),
            ConfigValue::List(list) | ConfigValue::Masked { shown: list, .. } => write!(f, "{list:?}"),
            ConfigValue::Secret(_) => f.write_str(MASK),
            ConfigValue::Table(_) => f.write_str("a table"),
            ConfigValue::Unsupported(kind) => f.write_str(kind),
        }
    }
}
