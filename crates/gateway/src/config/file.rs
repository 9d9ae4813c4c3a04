//! The file, read into layers: every value keeps its line, and a key that nobody knows is an error.

use super::layer::{Found, Layer, Problem, Raw, Source};
use super::nearest::nearest;
use super::slip;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// What stands at the top. The last four are for every server that says nothing else.
const TOP: [&str; 16] = [
    "listen",
    "public_url",
    "allow_hosts",
    "allow_origins",
    "data",
    "memory",
    "sync",
    "drain",
    "retry_ms",
    "session_idle",
    "max_connections_per_peer",
    "servers",
    "era",
    "restore",
    "start_timeout",
    "max_children",
];

/// What a server may have.
const SERVER: [&str; 9] = [
    "command",
    "args",
    "env",
    "inherit_env",
    "cwd",
    "era",
    "restore",
    "start_timeout",
    "max_children",
];

/// Reads the text of a file. Its `name` is what people see in messages.
pub(crate) fn parse(name: &str, text: &str) -> Result<Layer, Vec<Problem>> {
    let file = Reader {
        name: name.into(),
        text,
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        // One line: the parser's second line repeats the first with other words.
        let what = error.message().lines().next().unwrap_or("this is not TOML");
        vec![slip::explain(text, at, what).at(&file.source(at))]
    })?;
    let layer = file.layer(table.get_ref());
    let mut problems = Vec::new();
    unknown(&layer, &TOP, "", &mut problems);
    match layer.get("servers") {
        Some(Found {
            raw: Raw::Table(servers),
            ..
        }) => {
            for (name, server) in servers {
                match &server.raw {
                    Raw::Table(server) => unknown(server, &SERVER, &format!("servers.{name}."), &mut problems),
                    _ => problems.push(
                        Problem::new(format!("`servers.{name}` is not a table"))
                            .at(&server.source)
                            .hint(format!("[servers.{name}] and its settings below")),
                    ),
                }
            }
        }
        Some(other) => problems.push(
            Problem::new("`servers` is not a table")
                .at(&other.source)
                .hint("[servers.NAME] and its settings below"),
        ),
        None => {}
    }
    if problems.is_empty() { Ok(layer) } else { Err(problems) }
}

fn unknown(layer: &Layer, known: &[&str], path: &str, problems: &mut Vec<Problem>) {
    for (key, found) in layer {
        if known.contains(&key.as_str()) {
            continue;
        }
        let problem = Problem::new(format!("unknown key `{path}{key}`")).at(&found.source);
        // A server's setting at the top, or the other way round, is right but in the wrong place.
        let hint = match nearest(key, known.iter().copied()) {
            Some(near) => format!("`{path}{near}`"),
            None if path.is_empty() && SERVER.contains(&key.as_str()) => format!("`{key}` below [servers.NAME]"),
            None if TOP.contains(&key.as_str()) => format!("`{key}` at the top of the file, before any [table]"),
            None => format!("one of {}", known.join(", ")),
        };
        problems.push(problem.hint(hint));
    }
}

struct Reader<'a> {
    name: Arc<str>,
    text: &'a str,
}

impl Reader<'_> {
    fn source(&self, at: usize) -> Source {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        Source::File {
            file: Arc::clone(&self.name),
            line: before.iter().filter(|&&byte| byte == b'\n').count() + 1,
        }
    }

    fn layer(&self, table: &DeTable<'_>) -> Layer {
        let entries = table.iter().map(|(key, value)| {
            let found = Found {
                raw: self.raw(value.get_ref()),
                source: self.source(key.span().start),
            };
            (key.get_ref().to_string(), found)
        });
        entries.collect()
    }

    fn raw(&self, value: &DeValue<'_>) -> Raw {
        match value {
            DeValue::String(text) => Raw::Text(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Raw::Number(number),
                Err(_) => Raw::Other("a very large number"),
            },
            DeValue::Boolean(on) => Raw::Bool(*on),
            DeValue::Array(list) => {
                let texts = list.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
                match texts.collect() {
                    Some(texts) => Raw::List(texts),
                    None => Raw::Other("a list with something else than texts"),
                }
            }
            DeValue::Table(table) => Raw::Table(self.layer(table)),
            DeValue::Float(_) => Raw::Other("a fraction"),
            DeValue::Datetime(_) => Raw::Other("a date"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_lines() {
        let text = "listen = \"a\"\n\n[servers.x]\ncommand = [\"b\",\n \"c\"]\nmax_children = 0x10\n";
        let layer = parse("r.toml", text).unwrap();
        assert_eq!(layer["listen"].source.to_string(), "r.toml:1");
        let Raw::Table(servers) = &layer["servers"].raw else {
            panic!()
        };
        let Raw::Table(x) = &servers["x"].raw else { panic!() };
        assert_eq!(x["command"].source.to_string(), "r.toml:4");
        assert_eq!(x["command"].raw, Raw::List(vec!["b".to_owned(), "c".to_owned()]));
        assert_eq!(x["max_children"].raw, Raw::Number(16));
        assert_eq!(x["max_children"].source.to_string(), "r.toml:6");
    }

    #[test]
    fn unknown_keys_are_named_with_their_line_and_the_nearest_known() {
        let table = [
            ("lisen = 1", "r.toml:1: unknown key `lisen`", "`listen`"),
            (
                "\n[servers.x]\ncomand = \"a\"",
                "r.toml:3: unknown key `servers.x.comand`",
                "`servers.x.command`",
            ),
            (
                "[server.x]\ncommand = \"a\"",
                "r.toml:1: unknown key `server`",
                "`servers`",
            ),
            (
                "command = \"a\"",
                "r.toml:1: unknown key `command`",
                "`command` below [servers.NAME]",
            ),
            (
                "[servers.x]\nlisten = \"a\"",
                "r.toml:2: unknown key `servers.x.listen`",
                "`listen` at the top of the file, before any [table]",
            ),
            (
                "[servers]\nx = 1",
                "r.toml:2: `servers.x` is not a table",
                "[servers.x] and its settings below",
            ),
        ];
        for (text, what, hint) in table {
            let problems = parse("r.toml", text).unwrap_err();
            assert_eq!(problems[0].to_string(), what);
            assert_eq!(problems[0].hint.as_deref(), Some(hint), "{what}");
        }
    }

    #[test]
    fn what_is_no_toml_is_an_error_with_its_line() {
        for text in ["a = 1\nb = ", "a = 1\na = 2", "a = 1\n[x", "a = 1\n= 2"] {
            let problems = parse("r.toml", text).unwrap_err();
            let shown = problems[0].to_string();
            assert!(shown.starts_with("r.toml:2: "), "{text:?}: {shown}");
            assert_eq!(shown.lines().count(), 1, "{shown}");
        }
    }
}
