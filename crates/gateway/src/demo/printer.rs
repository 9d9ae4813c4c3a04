//! The lines of the demo on stderr: with colors on a terminal, or as JSON.

use crate::output::{LogFormat, OutputOptions, Styles, json_line};
use std::time::Duration;

/// Prints lines for people.
#[derive(Clone, Copy)]
pub(super) struct Printer {
    output: OutputOptions,
}

impl Printer {
    pub(super) fn new(output: OutputOptions) -> Self {
        Printer { output }
    }

    pub(super) fn is_quiet(self) -> bool {
        self.output.quiet
    }

    pub(super) fn styles(self) -> Styles {
        Styles::new(self.output.format == LogFormat::Text && self.output.color_on_stderr())
    }

    /// Prints a line.
    pub(super) fn line(self, line: &str) {
        match self.output.format {
            LogFormat::Text => eprintln!("{line}"),
            LogFormat::Json if line.trim().is_empty() => {}
            LogFormat::Json => eprintln!("{}", json_line("INFO", line.trim(), None)),
        }
    }

    /// Prints several lines.
    pub(super) fn text(self, text: &str) {
        text.lines().for_each(|line| self.line(line));
    }

    /// Prints the title of a part of the story.
    pub(super) fn title(self, number: usize, title: &str) {
        let Styles { bold, plain, .. } = self.styles();
        self.line("");
        self.line(&format!("{bold}{number}. {title}{plain}"));
    }

    /// Prints a line with the time since the beginning.
    pub(super) fn at(self, elapsed: Duration, line: &str) {
        let Styles { dim, plain, .. } = self.styles();
        self.line(&format!("{dim}{:>6.1} s{plain}  {line}", elapsed.as_secs_f64()));
    }
}
