//! The parts of a test run that the user selects.

use super::suites::{SUITES, Suite};

/// The parts of a test run.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// Format, lints, documentation, dependencies and other checks.
    pub(crate) checks: bool,
    /// The tests of the workspace.
    pub(crate) tests: bool,
    pub(crate) suites: Vec<&'static Suite>,
    /// Skip tests whose programs are missing.
    pub(crate) fast: bool,
}

impl Selection {
    /// `[--fast] [NAME ...]`. Without a name, everything; with `--fast`, everything except the suites.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let (options, names): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|word| word.starts_with('-'));
        let mut selection = Selection::default();
        for option in options {
            match option {
                "--fast" => selection.fast = true,
                _ => return Err(format!("unknown option: {option}\n\n{}", help())),
            }
        }
        if names.is_empty() {
            (selection.checks, selection.tests) = (true, true);
            if !selection.fast {
                selection.suites = SUITES.iter().collect();
            }
        }
        for name in names {
            match (name, SUITES.iter().find(|suite| suite.name == name)) {
                ("checks", _) => selection.checks = true,
                ("tests", _) => selection.tests = true,
                (_, Some(suite)) if selection.fast => {
                    return Err(format!("the suite `{}` needs programs; leave --fast out", suite.name));
                }
                (_, Some(suite)) => selection.suites.push(suite),
                (_, None) => return Err(format!("unknown part: {name}\n\n{}", help())),
            }
        }
        Ok(selection)
    }
}

fn help() -> String {
    format!(
        "usage: cargo xtask test [--fast] [PART ...]\n\nparts:\n{}",
        list_parts(2)
    )
}

/// A line for each part, with its name and its purpose.
pub(crate) fn list_parts(indent: usize) -> String {
    let suites = SUITES.iter().map(|suite| (suite.name, suite.about));
    let own = [
        (
            "checks",
            "format, lints, layers, prose, spelling, dependencies, docs, oldest Rust",
        ),
        ("tests", "the tests of the workspace"),
    ];
    let lines = own.into_iter().chain(suites);
    lines
        .map(|(name, about)| format!("{:indent$}{name:<12} {about}\n", ""))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(arguments: &[&str]) -> (bool, bool, usize, bool) {
        let selection = Selection::parse(arguments).unwrap();
        (
            selection.checks,
            selection.tests,
            selection.suites.len(),
            selection.fast,
        )
    }

    #[test]
    fn no_name_selects_everything() {
        assert_eq!(parts(&[]), (true, true, SUITES.len(), false));
        assert_eq!(parts(&["--fast"]), (true, true, 0, true));
    }

    #[test]
    fn named_parts_run_alone() {
        assert_eq!(parts(&["checks"]), (true, false, 0, false));
        assert_eq!(parts(&["tests", "--fast"]), (false, true, 0, true));
        assert_eq!(parts(&["kills", "browser"]), (false, false, 2, false));
    }

    #[test]
    fn unknown_and_impossible_parts_are_refused() {
        for arguments in [&["--slow"][..], &["killz"], &["--fast", "kills"]] {
            assert!(Selection::parse(arguments).is_err(), "{arguments:?}");
        }
        assert!(Selection::parse(&["killz"]).unwrap_err().contains("browser"));
    }
}
