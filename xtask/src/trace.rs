//! `xtask trace`: lists the code and the tests of each requirement.
//!
//! The rows come from `spec/requirements.md`, the rows that are not yet due from `spec/not-yet.txt`. A row has a test
//! if the name of a test contains its id (`res_07_...`), or a comment on or in test code does (`RES-07`).

mod mentions;
mod not_yet;
mod report;
mod requirements;
mod source;

use crate::run;
use mentions::Mentions;
use not_yet::NotYet;
use report::Report;
use requirements::Requirement;
use std::fs;
use std::path::{Path, PathBuf};

/// The options of `xtask trace`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    write: Option<PathBuf>,
    check: bool,
}

impl Options {
    /// Reads `[--write FILE] [--check]`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut options = Options::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                "--check" => options.check = true,
                "--write" => {
                    let file = arguments.next().ok_or("--write needs a file")?;
                    options.write = Some(PathBuf::from(file));
                }
                other => return Err(format!("trace: unknown option {other}")),
            }
        }
        Ok(options)
    }
}

/// Prints or writes the report.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let root = run::root();
    let report = report(&root)?;
    match &options.write {
        Some(file) => {
            fs::write(root.join(file), report.to_string())
                .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
            println!("{}", report.summary());
        }
        None => print!("{report}"),
    }
    if options.check { report.check() } else { Ok(()) }
}

/// Prints the summary. Fails if a MUST has no test.
pub(crate) fn check() -> Result<(), String> {
    let report = report(&run::root())?;
    println!("{}", report.summary());
    report.check()
}

fn report(root: &Path) -> Result<Report, String> {
    let requirements = Requirement::read_all(&text(&root.join("spec/requirements.md"))?)?;
    let not_yet = NotYet::read(&text(&root.join("spec/not-yet.txt"))?, &requirements)?;
    let mentions = Mentions::collect(root, &requirements)?;
    Ok(Report::new(requirements, &not_yet, &mentions))
}

fn text(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        assert_eq!(Options::parse(&[]), Ok(Options::default()));
        let both = Options::parse(&["--check", "--write", "a.md"]).unwrap();
        assert!(both.check && both.write == Some("a.md".into()));
        assert!(Options::parse(&["--write"]).is_err());
        assert!(Options::parse(&["--fix"]).is_err());
    }
}
