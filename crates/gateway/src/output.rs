//! Messages and logs on stderr. Colors only on a terminal.

use crate::exit;
use clap::{ColorChoice, ValueEnum};
use serde_json::json;
use std::io::{self, IsTerminal as _};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line, for machines.
    Json,
}

/// ANSI escape sequences, empty without colors.
pub(crate) struct Styles {
    pub(crate) bold: &'static str,
    pub(crate) dim: &'static str,
    pub(crate) red: &'static str,
    pub(crate) green: &'static str,
    pub(crate) plain: &'static str,
}

impl Styles {
    pub(crate) fn new(color: bool) -> Self {
        let style = |sequence| if color { sequence } else { "" };
        Styles {
            bold: style("\x1b[1m"),
            dim: style("\x1b[2m"),
            red: style("\x1b[1;31m"),
            green: style("\x1b[32m"),
            plain: style("\x1b[0m"),
        }
    }
}

/// The options for messages and logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputOptions {
    /// How often `-v` was given.
    pub(crate) verbose: u8,
    /// Only errors.
    pub(crate) quiet: bool,
    pub(crate) color: ColorChoice,
    pub(crate) format: LogFormat,
}

impl OutputOptions {
    pub(crate) fn color_on_stderr(&self) -> bool {
        self.use_color(io::stderr().is_terminal())
    }

    pub(crate) fn color_on_stdout(&self) -> bool {
        self.use_color(io::stdout().is_terminal())
    }

    fn use_color(&self, on_terminal: bool) -> bool {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => on_terminal && var("NO_COLOR").is_none() && var("TERM").is_none_or(|t| t != "dumb"),
        }
    }

    /// Starts logging. `-v` and `-q` override RUST_LOG.
    pub(crate) fn init_logging(&self) {
        let filter = self.filter(std::env::var("RUST_LOG").ok().as_deref());
        let log = tracing_subscriber::fmt::layer()
            .with_writer(io::stderr)
            .with_ansi(self.color_on_stderr());
        if self.format == LogFormat::Json {
            // Keeps stderr valid JSON lines when a task panics.
            std::panic::set_hook(Box::new(|panic| {
                eprintln!("{}", json_line("ERROR", &panic.to_string(), None));
            }));
        }
        let log = match self.format {
            LogFormat::Json => log.json().flatten_event(true).boxed(),
            // On a terminal the time is noise.
            LogFormat::Text if io::stderr().is_terminal() => log.without_time().with_target(self.verbose > 0).boxed(),
            LogFormat::Text => log.with_target(self.verbose > 0).boxed(),
        };
        // Fails only if logging was started before.
        let _ = tracing_subscriber::registry().with(log.with_filter(filter)).try_init();
    }

    /// Prints an error, whatever the log filter is.
    pub(crate) fn print_error(&self, message: &str, hint: Option<&str>) {
        match self.format {
            LogFormat::Text => eprint!("{}", exit::report(message, hint, self.color_on_stderr())),
            LogFormat::Json => eprintln!("{}", json_line("ERROR", message, hint)),
        }
    }

    /// Prints a warning, whatever the log filter is.
    pub(crate) fn print_warning(&self, message: &str) {
        match self.format {
            LogFormat::Text => eprintln!("warning: {message}"),
            LogFormat::Json => eprintln!("{}", json_line("WARN", message, None)),
        }
    }

    /// An invalid RUST_LOG counts as absent.
    fn filter(&self, rust_log: Option<&str>) -> Targets {
        let given = rust_log.filter(|directives| !directives.is_empty());
        let given = given.and_then(|directives| directives.parse().ok());
        match (self.quiet, self.verbose, given) {
            (true, ..) => targets("error"),
            (_, 0, Some(given)) => given,
            (_, 0, None) => targets("info"),
            (_, 1, _) => targets("info,rethread=debug,rethread_store_embedded=debug"),
            _ => targets("debug,rethread=trace"),
        }
    }
}

fn targets(directives: &str) -> Targets {
    directives.parse().expect("the directives of this program are valid")
}

/// The time in RFC 3339, as in the log.
pub(crate) fn timestamp() -> String {
    let mut timestamp = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp)); // writing to a string cannot fail
    timestamp
}

/// A line in the format of the JSON log.
pub(crate) fn json_line(level: &str, message: &str, hint: Option<&str>) -> String {
    let (timestamp, level, message) = (json!(timestamp()), json!(level), json!(message));
    let hint = hint.map_or_else(String::new, |hint| format!(r#","hint":{}"#, json!(hint)));
    format!(r#"{{"timestamp":{timestamp},"level":{level},"message":{message}{hint}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_rust_log() {
        let options = |verbose, quiet| OutputOptions {
            verbose,
            quiet,
            ..OutputOptions::default()
        };
        let filter = |options: OutputOptions, rust_log| options.filter(rust_log).to_string();
        assert_eq!(filter(options(0, true), Some("trace")), "error");
        assert_eq!(filter(options(0, false), Some("hyper=debug")), "hyper=debug");
        assert_eq!(filter(options(0, false), None), "info");
        assert!(filter(options(0, false), Some("")).contains("info"));
        assert!(filter(options(0, false), Some("hyper=loud")).contains("info"));
        assert!(filter(options(1, false), Some("off")).contains("rethread=debug"));
    }

    #[test]
    fn color_option_overrides_the_terminal() {
        let options = |color| OutputOptions {
            color,
            ..OutputOptions::default()
        };
        assert!(options(ColorChoice::Always).use_color(false));
        assert!(!options(ColorChoice::Never).use_color(true));
        assert!(!options(ColorChoice::Auto).use_color(false));
    }
}
