//! The rows of `spec/requirements.md`.

/// How binding a row is. The first word counts: `MUST + CHOICE` is a MUST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Must,
    MustNot,
    Should,
    ShouldNot,
    May,
    Choice,
    /// A row of the list of ambiguities, which has no level.
    Trap,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        let levels = [
            Level::MustNot,
            Level::Must,
            Level::ShouldNot,
            Level::Should,
            Level::May,
            Level::Choice,
        ];
        let found = levels
            .into_iter()
            .filter_map(|level| Some((text.find(level.name())?, level)));
        // The longer name comes first in the list, so it is preferred where both match.
        found.min_by_key(|(at, _)| *at).map(|(_, level)| level)
    }

    /// The word in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Must => "MUST",
            Level::MustNot => "MUST NOT",
            Level::Should => "SHOULD",
            Level::ShouldNot => "SHOULD NOT",
            Level::May => "MAY",
            Level::Choice => "CHOICE",
            Level::Trap => "trap",
        }
    }

    /// Whether a row of this level needs a test.
    pub(crate) fn binds(self) -> bool {
        matches!(self, Level::Must | Level::MustNot)
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub(crate) id: String,
    pub(crate) level: Level,
    /// The letters of its revisions. Empty if it names none.
    pub(crate) revisions: String,
    /// The first sentence.
    pub(crate) rule: String,
}

impl Requirement {
    /// Every row of the list, in its order.
    pub(crate) fn read_all(text: &str) -> Result<Vec<Self>, String> {
        let mut rows: Vec<Requirement> = Vec::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("- **")) {
            let row = Requirement::read(line).ok_or_else(|| format!("not a requirement: - **{line}"))?;
            if rows.iter().any(|other| other.id == row.id) {
                return Err(format!("{} stands twice in the list", row.id));
            }
            rows.push(row);
        }
        if rows.is_empty() {
            return Err("the list of requirements is empty".to_owned());
        }
        Ok(rows)
    }

    /// Reads `ID** [revisions · level] rule`, or `ID title.** text` of a trap.
    fn read(line: &str) -> Option<Self> {
        let (head, text) = line.split_once("**")?;
        let (id, title) = head.split_once(' ').unwrap_or((head, ""));
        is_id(id).then_some(())?;
        let id = id.to_owned();
        if !title.is_empty() {
            let rule = title.trim_end_matches('.').to_owned();
            let (level, revisions) = (Level::Trap, String::new());
            return Some(Requirement {
                id,
                level,
                revisions,
                rule,
            });
        }
        let (bracket, rule) = text.trim_start().strip_prefix('[')?.split_once(']')?;
        Some(Requirement {
            id,
            level: Level::parse(bracket)?,
            revisions: revisions(bracket),
            rule: first_sentence(rule),
        })
    }
}

/// `RES-07`, `S2C-01`: capitals and digits, a dash, two digits.
pub(crate) fn is_id(text: &str) -> bool {
    let Some((family, number)) = text.split_once('-') else {
        return false;
    };
    family.starts_with(|c: char| c.is_ascii_uppercase())
        && family.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
        && number.len() == 2
        && number.bytes().all(|b| b.is_ascii_digit())
}

/// The letters meant by `B–D`, `A, C, D`, `all`, `D · SHOULD, B, C · CHOICE`.
fn revisions(bracket: &str) -> String {
    let mut letters: Vec<char> = Vec::new();
    for word in bracket.split(|c: char| c == ',' || c.is_whitespace()) {
        let ends: Vec<char> = word.split('–').filter_map(single_letter).collect();
        match ends.as_slice() {
            _ if word == "all" => letters.extend('A'..='E'),
            [only] if word.len() == 1 => letters.push(*only),
            [first, last] => letters.extend(*first..=*last),
            _ => {}
        }
    }
    letters.sort_unstable();
    letters.dedup();
    letters.into_iter().collect()
}

fn single_letter(text: &str) -> Option<char> {
    let letter = text.chars().next()?;
    (text.len() == 1 && ('A'..='E').contains(&letter)).then_some(letter)
}

/// The text up to the first full stop before a capital, so that `e.g. this` does not end it.
fn first_sentence(rule: &str) -> String {
    let rule = rule.split("*Test:*").next().unwrap_or(rule).trim();
    let ends = |at: usize| rule[at + 2..].starts_with(|c: char| c.is_uppercase());
    let end = rule.match_indices(". ").map(|(at, _)| at).find(|at| ends(*at));
    rule[..end.unwrap_or(rule.len())]
        .trim_end_matches(['.', ':'])
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: &str) -> Requirement {
        Requirement::read(line).unwrap()
    }

    #[test]
    fn reads_a_row() {
        let row = row("HTTP-10** [A, C, D, E · MUST NOT] Arrays are rejected: 400. Gate on it. *Test:* same array.");
        assert_eq!(row.id, "HTTP-10");
        assert_eq!(row.level, Level::MustNot);
        assert_eq!(row.revisions, "ACDE");
        assert_eq!(row.rule, "Arrays are rejected: 400");
    }

    #[test]
    fn reads_every_kind_of_bracket() {
        for (bracket, level, revisions) in [
            ("B–E · MUST", Level::Must, "BCDE"),
            ("all · MUST NOT", Level::MustNot, "ABCDE"),
            ("D · SHOULD, B, C · CHOICE", Level::Should, "BCD"),
            ("E · MUST + CHOICE", Level::Must, "E"),
            (
                "E · MUST; the null/absent-with-header rejection is CHOICE",
                Level::Must,
                "E",
            ),
            ("B–E · MUST when auth is on", Level::Must, "BCDE"),
            ("E ext · MUST", Level::Must, "E"),
            ("A–C, E · MUST NOT", Level::MustNot, "ABCE"),
            ("B, C · SHOULD NOT", Level::ShouldNot, "BC"),
            ("E client, legacy child · CHOICE", Level::Choice, "E"),
            ("B–D · MAY", Level::May, "BCD"),
            ("CHOICE", Level::Choice, ""),
        ] {
            let row = row(&format!("X-01** [{bracket}] Rule."));
            assert_eq!((row.level, row.revisions.as_str()), (level, revisions), "{bracket}");
        }
    }

    #[test]
    fn a_sentence_ends_before_a_capital() {
        assert_eq!(
            row("X-01** [B · MUST] One path (e.g. `/mcp`) for all. More.").rule,
            "One path (e.g. `/mcp`) for all"
        );
    }

    #[test]
    fn reads_a_trap() {
        let row = row("T-02 Empty `data:` is dispatched.** Under the SSE standard.");
        assert_eq!((row.id.as_str(), row.level), ("T-02", Level::Trap));
        assert_eq!(row.rule, "Empty `data:` is dispatched");
    }

    #[test]
    fn invalid_row_is_an_error() {
        for bad in [
            "- **RES-7** [B · MUST] x",
            "- **RES-07** B · MUST x",
            "- **RES-07** [B · SOMETIMES] x",
            "",
        ] {
            assert!(Requirement::read_all(bad).is_err(), "{bad}");
        }
        assert!(Requirement::read_all("- **A-01** [B · MUST] x\n- **A-01** [B · MUST] y").is_err());
        assert_eq!(
            Requirement::read_all("- not bold\n- **A-01** [B · MUST] x")
                .unwrap()
                .len(),
            1
        );
    }
}
