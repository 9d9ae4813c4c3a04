//! Settings of the era bridge of one server.

use rethread::LogLevel;
use std::time::Duration;

/// How clients of one era use a server of the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BridgeSettings {
    /// Whether anonymous clients share processes. `None`: if only this machine can call.
    pub(crate) share: Option<bool>,
    pub(crate) asks: AskingTools,
    /// Processes of one lease. Beyond: a call waits for `lease_wait`.
    pub(crate) lease_children: usize,
    /// How long a lease may be unused. Beyond: its processes are stopped.
    pub(crate) lease_idle: Duration,
    /// How long a call waits for a process of its lease. Beyond: -32603.
    pub(crate) lease_wait: Duration,
    /// How long a call waits for the answer of its client. Beyond: a parked call ends, and its process is free.
    pub(crate) question_timeout: Duration,
    /// The log level of sessions that have set none. `None`: no log messages.
    pub(crate) log_default: Option<LogLevel>,
    /// Roots for a server that asks outside of a call.
    pub(crate) roots: Vec<String>,
}

impl Default for BridgeSettings {
    fn default() -> Self {
        BridgeSettings {
            share: None,
            asks: AskingTools::All,
            lease_children: 4,
            lease_idle: Duration::from_secs(300),
            lease_wait: Duration::from_secs(10),
            question_timeout: Duration::from_secs(600),
            log_default: Some(LogLevel::Info),
            roots: Vec::new(),
        }
    }
}

/// The tools that may ask their client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskingTools {
    All,
    None,
    /// Tools that match one of these patterns. `*` matches any text.
    Named(Vec<String>),
}

impl AskingTools {
    /// Whether a request of `method` for the tool `name` may ask.
    pub(crate) fn may_ask(&self, method: &str, name: &str) -> bool {
        match self {
            AskingTools::All => true,
            AskingTools::None => false,
            AskingTools::Named(patterns) => {
                method == "tools/call" && patterns.iter().any(|pattern| matches(pattern, name))
            }
        }
    }
}

/// Whether `text` matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => {
            let Some(rest) = text.strip_prefix(before) else {
                return false;
            };
            let mut starts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            starts.any(|at| matches(after, &rest[at..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_13_patterns_name_the_tools_that_ask() {
        let named = |patterns: &[&str]| AskingTools::Named(patterns.iter().map(|p| (*p).to_owned()).collect());
        for (asks, method, name, expected) in [
            (AskingTools::All, "prompts/get", "x", true),
            (AskingTools::None, "tools/call", "x", false),
            (named(&["book_*"]), "tools/call", "book_seat", true),
            (named(&["book_*"]), "tools/call", "rebook_seat", false),
            (named(&["*_seat"]), "tools/call", "rebook_seat", true),
            (named(&["a*b*c"]), "tools/call", "axxbyyc", true),
            (named(&["a*b*c"]), "tools/call", "axxc", false),
            (named(&["é*"]), "tools/call", "éa", true),
            (named(&["x", "y"]), "tools/call", "y", true),
            (named(&["*"]), "prompts/get", "y", false),
        ] {
            assert_eq!(asks.may_ask(method, name), expected, "{asks:?} {method} {name}");
        }
    }
}
