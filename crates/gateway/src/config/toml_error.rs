//! Explains likely mistakes in an invalid file, such as a duplicate server.

use super::problem::Problem;
use toml_writer::ToTomlKey as _;

/// The problem for the parser's `error` at byte `at`.
pub(super) fn explain(text: &str, at: usize, error: &str) -> Problem {
    if error.starts_with("duplicate key") {
        let before = text.get(..at).unwrap_or_default();
        let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = text[begin..].lines().next().unwrap_or_default().trim();
        return match server_of_header(line) {
            Some(name) => {
                let first = text.lines().position(|other| server_of_header(other) == Some(name));
                let first = first.map_or(0, |index| index + 1);
                let message = format!("the server `{name}` is in this file twice; line {first} has it too");
                Problem::new(message).hint(format!(
                    "another name for one of them, such as [servers.{}]",
                    format!("{name}-2").to_toml_key()
                ))
            }
            None => {
                let key = line.split('=').next().unwrap_or_default().trim();
                Problem::new(format!("duplicate key: `{key}` has a value already")).hint("remove one of the two")
            }
        };
    }
    Problem::new(error)
}

/// The server of a table header such as `[servers.name]` or `[servers."name"] # comment`.
fn server_of_header(line: &str) -> Option<&str> {
    let rest = line.trim().strip_prefix("[servers.")?;
    let (name, after) = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once("\"]")?,
        None => rest.split_once(']')?,
    };
    let after = after.trim();
    (after.is_empty() || after.starts_with('#')).then_some(name)
}

#[cfg(test)]
mod tests {
    #[test]
    fn duplicate_server_is_reported_with_its_first_line() {
        let text = "[servers.a]\ncommand = 'x'\n[servers.a]\n";
        let problem = super::super::file::parse_toml("r.toml", text).unwrap_err().remove(0);
        assert_eq!(
            problem.to_string(),
            "r.toml:3: the server `a` is in this file twice; line 1 has it too"
        );
        assert!(problem.hint.unwrap().contains("[servers.a-2]"));
        let spelled = "[servers.a] # the first\ncommand = 'x'\n[servers.\"a\"] # again\n";
        let problem = super::super::file::parse_toml("r.toml", spelled).unwrap_err().remove(0);
        assert_eq!(
            problem.to_string(),
            "r.toml:3: the server `a` is in this file twice; line 1 has it too"
        );
        let key = super::super::file::parse_toml("r.toml", "drain = '1s'\ndrain = '2s'")
            .unwrap_err()
            .remove(0);
        assert_eq!(key.to_string(), "r.toml:2: duplicate key: `drain` has a value already");
    }
}
