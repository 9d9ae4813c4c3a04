//! `xtask prose`: phrases to avoid in Markdown and in comments.
//!
//! A ratchet: the baseline lists the allowed number of findings per file. A file that is not listed may have none.

mod blocks;
mod phrases;

use crate::{files, run};
use phrases::Finding;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const BASELINE: &str = "xtask/prose-baseline.txt";

const BASELINE_HEADER: &str = "\
# Phrases to avoid that are left, by file. `cargo xtask prose --write` makes this file.
";

/// Generated files.
const GENERATED: [&str; 2] = ["docs/requirements-trace.md", "docs/benchmarks/README.md"];

/// Findings by file, for files that have any.
type Findings = BTreeMap<String, Vec<Finding>>;

/// Allowed findings by file.
type Baseline = BTreeMap<String, usize>;

/// `[--list] [--write]`: fails if a file has more findings than the baseline allows, or writes the baseline.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    if let Some(unknown) = options.iter().find(|option| !["--list", "--write"].contains(option)) {
        return Err(format!("prose: unknown option {unknown}"));
    }
    let root = run::root();
    let findings = collect(&root)?;
    if options.contains(&"--list") {
        for (file, findings) in &findings {
            print!("{}", list(file, findings));
        }
    }
    if options.contains(&"--write") {
        let path = root.join(BASELINE);
        return fs::write(&path, write_baseline(&findings))
            .map_err(|error| format!("cannot write {BASELINE}: {error}"));
    }
    compare_with_baseline(&root, &findings)
}

fn compare_with_baseline(root: &Path, findings: &Findings) -> Result<(), String> {
    let baseline = read_baseline(&files::text(&root.join(BASELINE))?)?;
    let above = above(findings, &baseline);
    for (file, findings) in &above {
        print!("{}", list(file, findings));
    }
    let found: usize = findings.values().map(Vec::len).sum();
    let allowed: usize = baseline.values().sum();
    println!("{found} phrases to avoid, {allowed} in the baseline");
    match above.len() {
        0 => Ok(()),
        files => Err(format!(
            "{files} files have more phrases to avoid than {BASELINE} allows; rewrite the sentences listed above"
        )),
    }
}

fn collect(root: &Path) -> Result<Findings, String> {
    let mut all = Findings::new();
    for file in files::below(root) {
        let name = files::name(root, &file);
        let read = match name.rsplit_once('.') {
            Some((_, "rs")) => blocks::of_rust,
            Some((_, "md")) if !GENERATED.contains(&name.as_str()) => blocks::of_markdown,
            _ => continue,
        };
        let findings: Vec<Finding> = read(&files::text(&file)?).iter().flat_map(phrases::find).collect();
        if !findings.is_empty() {
            all.insert(name, findings);
        }
    }
    Ok(all)
}

/// The files with more findings than allowed.
fn above<'a>(findings: &'a Findings, baseline: &Baseline) -> Vec<(&'a String, &'a Vec<Finding>)> {
    let files = findings.iter();
    files
        .filter(|(file, findings)| findings.len() > baseline.get(*file).copied().unwrap_or(0))
        .collect()
}

fn list(file: &str, findings: &[Finding]) -> String {
    let lines = findings.iter().map(|finding| {
        let Finding { line, phrase, instead } = finding;
        format!("{file}:{line}: avoid \"{phrase}\": {instead}\n")
    });
    lines.collect()
}

fn write_baseline(findings: &Findings) -> String {
    let lines = findings
        .iter()
        .map(|(file, findings)| format!("{} {file}\n", findings.len()));
    BASELINE_HEADER.to_owned() + &lines.collect::<String>()
}

fn read_baseline(text: &str) -> Result<Baseline, String> {
    let mut baseline = Baseline::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let entry = line
            .split_once(' ')
            .and_then(|(count, file)| Some((count.parse().ok()?, file)));
        let (count, file) = entry.ok_or_else(|| format!("{BASELINE}: `{line}` is not `COUNT FILE`"))?;
        baseline.insert(file.to_owned(), count);
    }
    Ok(baseline)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(counts: &[(&str, usize)]) -> Findings {
        let finding = || Finding {
            line: 3,
            phrase: "What",
            instead: "name the subject",
        };
        let files = counts
            .iter()
            .map(|(file, count)| ((*file).to_owned(), (0..*count).map(|_| finding()).collect()));
        files.collect()
    }

    #[test]
    fn baseline_round_trips() {
        let text = write_baseline(&findings(&[("a.md", 2), ("b c.rs", 1)]));
        let baseline = read_baseline(&text).unwrap();
        assert_eq!(baseline, [("a.md".to_owned(), 2), ("b c.rs".to_owned(), 1)].into());
        assert!(read_baseline("a.md 2").is_err());
    }

    #[test]
    fn only_more_than_the_baseline_fails() {
        let baseline = read_baseline("2 a.md\n1 b.md").unwrap();
        for (counts, expected) in [
            (&[("a.md", 2), ("b.md", 1)][..], 0),
            (&[("a.md", 1)], 0),
            (&[("a.md", 3), ("b.md", 1)], 1),
            (&[("new.md", 1)], 1),
        ] {
            assert_eq!(above(&findings(counts), &baseline).len(), expected, "{counts:?}");
        }
    }

    #[test]
    fn findings_have_file_line_and_advice() {
        let all = findings(&[("a.md", 1)]);
        assert_eq!(list("a.md", &all["a.md"]), "a.md:3: avoid \"What\": name the subject\n");
    }
}
