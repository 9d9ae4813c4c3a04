//! What the program tells people while it runs: on stderr, short, in colour only on a terminal.

use crate::exit;
use clap::{ColorChoice, ValueEnum};
use serde_json::json;
use std::io::{self, IsTerminal as _};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line, for machines.
    Json,
}

/// How the program talks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Talk {
    /// How much more than usual.
    pub(crate) verbose: u8,
    /// Only what went wrong.
    pub(crate) quiet: bool,
    /// Whether to use colours.
    pub(crate) color: ColorChoice,
    /// The form of the log.
    pub(crate) format: Format,
}

impl Talk {
    /// Whether stderr gets colours.
    pub(crate) fn colour_on_stderr(&self) -> bool {
        self.colour(io::stderr().is_terminal())
    }

    /// Whether stdout gets colours.
    pub(crate) fn colour_on_stdout(&self) -> bool {
        self.colour(io::stdout().is_terminal())
    }

    fn colour(&self, on_terminal: bool) -> bool {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => on_terminal && var("NO_COLOR").is_none() && var("TERM").is_none_or(|t| t != "dumb"),
        }
    }

    /// Begins to log. RUST_LOG counts unless a flag says how much.
    pub(crate) fn start_log(&self) {
        let filter = self.filter(std::env::var("RUST_LOG").ok().as_deref());
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .with_ansi(self.colour_on_stderr());
        if self.format == Format::Json {
            // A panic too is a line that a machine can read.
            std::panic::set_hook(Box::new(|panic| {
                eprintln!("{}", json_line("ERROR", &panic.to_string(), None));
            }));
        }
        // Fails only if there is a log already, which is as good.
        let _ = match self.format {
            Format::Json => log.json().flatten_event(true).try_init(),
            // Whoever watches a terminal knows the time; a file does not.
            Format::Text if io::stderr().is_terminal() => log.without_time().with_target(self.verbose > 0).try_init(),
            Format::Text => log.with_target(self.verbose > 0).try_init(),
        };
    }

    /// Says why the program ends, whatever the log's filter is.
    pub(crate) fn error(&self, what: &str, hint: Option<&str>) {
        match self.format {
            Format::Text => eprint!("{}", exit::report(what, hint, self.colour_on_stderr())),
            Format::Json => eprintln!("{}", json_line("ERROR", what, hint)),
        }
    }

    /// Says what is allowed but probably not meant.
    pub(crate) fn warning(&self, what: &str) {
        match self.format {
            Format::Text => eprintln!("warning: {what}"),
            Format::Json => eprintln!("{}", json_line("WARN", what, None)),
        }
    }

    fn filter(&self, rust_log: Option<&str>) -> EnvFilter {
        let directives = match (self.quiet, self.verbose, rust_log) {
            (true, ..) => "error",
            (_, 0, Some(directives)) if !directives.is_empty() => directives,
            // The store's engine says much that only its makers understand.
            (_, 0, _) => "info,fjall=warn,lsm_tree=warn",
            (_, 1, _) => "info,rethread=debug,rethread_store_embedded=debug,fjall=warn,lsm_tree=warn",
            _ => "debug,rethread=trace",
        };
        EnvFilter::new(directives)
    }
}

/// A line in the form of the JSON log.
fn json_line(level: &str, message: &str, hint: Option<&str>) -> String {
    let mut timestamp = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp)); // a string takes everything
    let (timestamp, level, message) = (json!(timestamp), json!(level), json!(message));
    let hint = hint.map_or_else(String::new, |hint| format!(r#","hint":{}"#, json!(hint)));
    format!(r#"{{"timestamp":{timestamp},"level":{level},"message":{message}{hint}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_beat_rust_log_and_the_engine_is_quiet() {
        let talk = |verbose, quiet| Talk {
            verbose,
            quiet,
            ..Talk::default()
        };
        let shown = |talk: Talk, rust_log| talk.filter(rust_log).to_string();
        assert_eq!(shown(talk(0, true), Some("trace")), "error");
        assert_eq!(shown(talk(0, false), Some("hyper=debug")), "hyper=debug");
        assert!(shown(talk(0, false), None).contains("fjall=warn"));
        assert!(shown(talk(0, false), Some("")).contains("info"));
        assert!(shown(talk(1, false), Some("off")).contains("rethread=debug"));
    }

    #[test]
    fn colours_can_be_forced_both_ways() {
        let talk = |color| Talk {
            color,
            ..Talk::default()
        };
        assert!(talk(ColorChoice::Always).colour(false));
        assert!(!talk(ColorChoice::Never).colour(true));
        assert!(!talk(ColorChoice::Auto).colour(false));
    }
}
