//! Explains likely mistakes in an invalid file: JSON of another program, or a duplicate server.

use super::problem::Problem;
use serde_json::Value;

/// The problem for the parser's `error` at byte `at`.
pub(super) fn explain(text: &str, at: usize, error: &str) -> Problem {
    if text.trim_start().starts_with('{') {
        let hint = to_toml(text)
            .unwrap_or_else(|| "[servers.NAME] and command = [\"npx\", \"-y\", \"some-server\"]".to_owned());
        return Problem::new("this file is JSON; rethread reads TOML").hint(hint);
    }
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
                    toml_key(&format!("{name}-2"))
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

/// A name as a TOML key: bare if that is allowed, quoted otherwise.
fn toml_key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) {
        name.to_owned()
    } else {
        format!("{name:?}")
    }
}

/// Converts the `mcpServers` of a JSON file to TOML, without the values of variables, which may be secret.
fn to_toml(text: &str) -> Option<String> {
    let json: Value = serde_json::from_str(text).ok()?;
    let servers = json.get("mcpServers").or_else(|| json.get("servers"))?.as_object()?;
    let tables = servers.iter().filter_map(|(name, server)| {
        let mut words = vec![server.get("command")?.as_str()?];
        let args = server.get("args").and_then(Value::as_array);
        words.extend(args.into_iter().flatten().filter_map(Value::as_str));
        let words = super::secret::mask_args(words);
        let mut table = format!("[servers.{}]\n       command = {words:?}", toml_key(name));
        let env = server
            .get("env")
            .and_then(Value::as_object)
            .filter(|env| !env.is_empty());
        if let Some(env) = env {
            let entries: Vec<_> = env.keys().map(|key| format!("{} = \"...\"", toml_key(key))).collect();
            table.push_str(&format!("\n       env = {{ {} }}", entries.join(", ")));
        }
        Some(table)
    });
    let tables: Vec<_> = tables.collect();
    (!tables.is_empty()).then(|| tables.join("\n       "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_file_is_converted_to_toml_without_secrets() {
        let json =
            r#"{ "mcpServers": { "files": { "command": "npx", "args": ["-y", "x"], "env": { "TOKEN": "hush" } } } }"#;
        let problem = explain(json, 0, "invalid key");
        assert!(problem.message.contains("JSON"), "{problem}");
        let hint = problem.hint.unwrap();
        let toml: String = hint.lines().map(|line| format!("{}\n", line.trim())).collect();
        assert_eq!(
            toml,
            "[servers.files]\ncommand = [\"npx\", \"-y\", \"x\"]\nenv = { TOKEN = \"...\" }\n"
        );
        assert!(super::super::file::parse("r.toml", &toml).is_ok());
        let spaced = explain(r#"{ "mcpServers": { "my files": { "command": "x" } } }"#, 0, "x");
        assert!(spaced.hint.unwrap().starts_with("[servers.\"my files\"]"));
        assert!(explain("{", 0, "x").hint.unwrap().contains("[servers.NAME]"));
    }

    #[test]
    fn duplicate_server_is_reported_with_its_first_line() {
        let text = "[servers.a]\ncommand = 'x'\n[servers.a]\n";
        let problem = super::super::file::parse("r.toml", text).unwrap_err().remove(0);
        assert_eq!(
            problem.to_string(),
            "r.toml:3: the server `a` is in this file twice; line 1 has it too"
        );
        assert!(problem.hint.unwrap().contains("[servers.a-2]"));
        let spelled = "[servers.a] # the first\ncommand = 'x'\n[servers.\"a\"] # again\n";
        let problem = super::super::file::parse("r.toml", spelled).unwrap_err().remove(0);
        assert_eq!(
            problem.to_string(),
            "r.toml:3: the server `a` is in this file twice; line 1 has it too"
        );
        let key = super::super::file::parse("r.toml", "drain = '1s'\ndrain = '2s'")
            .unwrap_err()
            .remove(0);
        assert_eq!(key.to_string(), "r.toml:2: duplicate key: `drain` has a value already");
    }
}
