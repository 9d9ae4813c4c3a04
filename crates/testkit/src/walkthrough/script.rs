//! Parses a header into steps.

/// One step of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Types a command.
    Type { terminal: usize, command: String },
    /// Expects output.
    Expect { terminal: usize, lines: Vec<String> },
}

/// The steps of the header: the `//!` lines at the top of `source`.
pub(super) fn parse(source: &str) -> Result<Vec<Step>, String> {
    let header = source.lines().map_while(|line| line.strip_prefix("//!"));
    let header = header.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let mut steps = Vec::new();
    let mut terminal = 0;
    let mut block: Option<(String, Vec<String>)> = None;
    for (number, line) in header.enumerate() {
        let line_number = number + 1;
        match (line.strip_prefix("```"), &mut block) {
            (Some(""), Some(_)) => {
                let (kind, lines) = block.take().unwrap_or_default();
                steps.push(match kind.as_str() {
                    "sh" => Step::Type {
                        terminal,
                        command: lines.join("\n"),
                    },
                    _ => Step::Expect { terminal, lines },
                });
            }
            (Some(kind @ ("sh" | "text")), None) => block = Some((kind.to_owned(), Vec::new())),
            (Some(other), _) => return Err(format!("line {line_number}: unknown block `{other}`")),
            (None, Some((_, lines))) => lines.push(line.to_owned()),
            (None, None) => terminal = terminal_in(line).unwrap_or(terminal),
        }
    }
    match block {
        Some(_) => Err("unterminated block".to_owned()),
        None => Ok(steps),
    }
}

/// The terminal that a line of prose selects.
fn terminal_in(prose: &str) -> Option<usize> {
    let phrases = [("first terminal", 0), ("another terminal", 1), ("other terminal", 1)];
    let found = phrases.iter().filter_map(|(words, n)| Some((prose.rfind(words)?, *n)));
    found.max().map(|(_, n)| n)
}

/// Whether `line` matches `pattern`, in which `...` matches any text.
pub(super) fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            let Some((_, after)) = rest.split_once(middle) else {
                return false;
            };
            rest = after;
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_parsed_into_steps() {
        let source = "\
//! A title.
//!
//! ```sh
//! cargo run
//! ```
//!
//! In another terminal:
//! ```sh
//! A=1
//!   echo $A
//! ```
//! ```text
//! 1
//! ```
//! In the first terminal, and not in the\n//! kitchen:
//! ```text
//! ^C
//! ```

fn main() {}
//! ```no
";
        let typed = |terminal, command: &str| Step::Type {
            terminal,
            command: command.to_owned(),
        };
        let expect = |terminal, line: &str| Step::Expect {
            terminal,
            lines: vec![line.to_owned()],
        };
        let expected = [
            typed(0, "cargo run"),
            typed(1, "A=1\n  echo $A"),
            expect(1, "1"),
            expect(0, "^C"),
        ];
        assert_eq!(parse(source).as_deref(), Ok(expected.as_slice()));
        assert!(parse("//! ```rust\n").is_err());
        assert!(parse("//! ```sh\n//! a\n").is_err());
    }

    #[test]
    fn dots_match_any_text() {
        for (pattern, line, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a...", "abc", true),
            ("...c", "abc", true),
            ("a...c", "abc", true),
            ("a...c", "abd", false),
            ("a...b...c", "a1b2c", true),
            ("a...b...c", "a1c2b", false),
            ("a...b", "a", false),
            ("...", "", true),
        ] {
            assert_eq!(matches(pattern, line), expected, "{pattern} {line}");
        }
    }
}
