//! Problems of a configuration.

use super::layer::Source;
use crate::exit::{Exit, Failure};
use std::fmt;

/// One problem of the configuration, with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// `rethread.toml:3` or `flag --listen`. None if there is no single location.
    pub(crate) location: Option<String>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// The exit code for this problem.
    pub(crate) exit: Exit,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Problem {
            location: None,
            message: message.into(),
            hint: None,
            exit: Exit::Usage,
        }
    }

    #[must_use]
    pub(crate) fn at(mut self, source: &Source) -> Self {
        self.location = Some(source.to_string());
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
            location: None,
            message: failure.message,
            hint: failure.hint,
            exit: failure.exit,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Some(location) => write!(f, "{location}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// All problems of a configuration, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl Problems {
    /// The exit code of the first problem, which is the first one that `serve` meets.
    pub(crate) fn exit(&self) -> Exit {
        self.0.first().map_or(Exit::Usage, |problem| problem.exit)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&all.join("; "))
    }
}

impl std::error::Error for Problems {}
