//! The report: one table, one summary.

use super::mentions::Mentions;
use super::not_yet::NotYet;
use super::requirements::Requirement;
use std::fmt;

/// Limit of the names in one cell.
const NAMES: usize = 6;

/// Limit of the characters of a rule.
const RULE: usize = 110;

/// The whole list, each row with its code and its tests.
pub(crate) struct Report {
    rows: Vec<Row>,
    unknown: Vec<String>,
}

struct Row {
    requirement: Requirement,
    code: Vec<String>,
    tests: Vec<String>,
    not_yet: Option<String>,
}

impl Row {
    fn is_bare(&self) -> bool {
        self.requirement.level.binds() && self.tests.is_empty() && self.not_yet.is_none()
    }
}

impl Report {
    pub(crate) fn new(requirements: Vec<Requirement>, not_yet: &NotYet, mentions: &Mentions) -> Self {
        let row = |requirement: Requirement| {
            let mention = mentions.of(&requirement.id);
            Row {
                code: mention.map(|m| m.code.iter().cloned().collect()).unwrap_or_default(),
                tests: mention.map(|m| m.tests.iter().cloned().collect()).unwrap_or_default(),
                not_yet: not_yet.reason(&requirement.id).map(str::to_owned),
                requirement,
            }
        };
        Report {
            rows: requirements.into_iter().map(row).collect(),
            unknown: mentions.unknown().iter().cloned().collect(),
        }
    }

    /// One line.
    pub(crate) fn summary(&self) -> String {
        let musts: Vec<&Row> = self.rows.iter().filter(|row| row.requirement.level.binds()).collect();
        let tested = musts.iter().filter(|row| !row.tests.is_empty()).count();
        let bare = musts.iter().filter(|row| row.is_bare()).count();
        let not_yet = musts.len() - tested - bare;
        format!(
            "{} MUST rows: {tested} with a test, {not_yet} not yet, {bare} bare",
            musts.len()
        )
    }

    /// Fails on a MUST without a test, and on a citation of a row that does not exist.
    pub(crate) fn check(&self) -> Result<(), String> {
        let bare: Vec<&str> = self
            .rows
            .iter()
            .filter(|row| row.is_bare())
            .map(|row| row.requirement.id.as_str())
            .collect();
        let mut complaints = Vec::new();
        if !bare.is_empty() {
            complaints.push(format!("no test covers {}", bare.join(", ")));
        }
        if !self.unknown.is_empty() {
            complaints.push(format!("not in spec/requirements.md: {}", self.unknown.join(", ")));
        }
        if complaints.is_empty() {
            Ok(())
        } else {
            Err(complaints.join("; "))
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Requirements, code and tests\n")?;
        writeln!(
            f,
            "Made by `cargo xtask trace --write docs/requirements-trace.md` from [the list](../spec/requirements.md)."
        )?;
        writeln!(
            f,
            "A: 2024-11-05, B: 2025-03-26, C: 2025-06-18, D: 2025-11-25, E: 2026-07-28.\n"
        )?;
        writeln!(f, "{}\n", self.summary())?;
        writeln!(f, "| id | level | revisions | rule | code | tests |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let Requirement {
                id,
                level,
                revisions,
                rule,
            } = &row.requirement;
            let code = cell(row.code.iter().map(|file| short(file)));
            let tests = match (&row.not_yet, row.tests.is_empty()) {
                (Some(reason), true) => format!("not yet: {reason}"),
                (None, true) if row.is_bare() => "**none**".to_owned(),
                _ => cell(row.tests.iter().map(String::as_str)),
            };
            writeln!(
                f,
                "| {id} | {} | {revisions} | {} | {code} | {tests} |",
                level.name(),
                rule_cell(rule)
            )?;
        }
        Ok(())
    }
}

fn cell<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let total = names.len();
    let mut shown: Vec<String> = names.take(NAMES).map(|name| format!("`{name}`")).collect();
    if total > NAMES {
        shown.push(format!("and {} more", total - NAMES));
    }
    shown.join(", ")
}

/// `proto/sse.rs` for `crates/proto/src/sse.rs`.
fn short(file: &str) -> &str {
    file.strip_prefix("crates/").unwrap_or(file)
}

fn rule_cell(rule: &str) -> String {
    let mut text: String = rule.chars().take(RULE).collect();
    if text.len() < rule.len() {
        let end = text.rfind(' ').unwrap_or(text.len());
        text.truncate(end);
        // An unclosed code span would extend over the rest of the row.
        if text.matches('`').count() % 2 == 1 {
            let open = text.rfind('`').unwrap_or(end);
            text.truncate(open);
        }
        text = format!("{} …", text.trim_end());
    }
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(tests: &[(&str, bool)], not_yet: &str) -> Report {
        let list = tests
            .iter()
            .map(|(id, _)| format!("- **{id}** [B–D · MUST] A rule | of {id}. *Test:* x.\n"));
        let rows = Requirement::read_all(&list.collect::<String>()).unwrap();
        let not_yet = NotYet::read(not_yet, &rows).unwrap();
        let mut report = Report::new(rows, &not_yet, &Mentions::default());
        for (row, (id, tested)) in report.rows.iter_mut().zip(tests) {
            row.tests.extend(tested.then(|| format!("test_of_{id}")));
        }
        report
    }

    #[test]
    fn must_without_a_test_is_bare_unless_it_is_not_due() {
        let report = report(
            &[("A-01", true), ("A-02", false), ("A-03", false), ("A-04", true)],
            "# later\nA-03 A-04",
        );
        assert_eq!(report.summary(), "4 MUST rows: 2 with a test, 1 not yet, 1 bare");
        assert_eq!(report.check(), Err("no test covers A-02".to_owned()));
        let text = report.to_string();
        assert!(
            text.contains("| A-01 | MUST | BCD | A rule \\| of A-01 |  | `test_of_A-01` |"),
            "{text}"
        );
        assert!(text.contains("**none**") && text.contains("not yet: later") && text.contains("`test_of_A-04`"));
    }

    #[test]
    fn long_cells_are_cut() {
        let many: Vec<String> = (0..9).map(|n| format!("t{n}")).collect();
        assert_eq!(
            cell(many.iter().map(String::as_str)),
            "`t0`, `t1`, `t2`, `t3`, `t4`, `t5`, and 3 more"
        );
        let rule = format!("{} `a b", "x".repeat(RULE - 4));
        assert_eq!(
            rule_cell(&format!("{rule} c d` e")),
            format!("{} …", "x".repeat(RULE - 4))
        );
    }
}
