//! Parses a file to layers. Every value keeps its line; an unknown key of TOML is a problem.

use super::admin_options::ADMIN_KEY;
use super::layer::{ConfigValue, Layer, Source, SourcedValue};
use super::option::Scope;
use super::options::OPTIONS;
use super::problem::Problem;
use super::suggest::suggest;
use super::{Environment, client_file, toml_error};
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// The table of the servers.
pub(super) const SERVERS_KEY: &str = "servers";

/// The table of authentication. It stays in the layer as a sign that it is there; its keys become `auth.KEY`.
pub(super) const AUTH_KEY: &str = "auth";

/// Tables at the top of a file whose keys are options with the table in their name.
const GROUPS: &[&str] = &[
    AUTH_KEY, //
    ADMIN_KEY, "tls", "audit", "metrics",
];

/// The content of a configuration file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ParsedFile {
    pub(super) layer: Layer,
    /// Entries that are not served, or not under their name. For people.
    pub(super) notes: Vec<String>,
}

/// Parses the text of a file: TOML, or the JSON of a client. `name` is its name in messages.
pub(super) fn parse(name: &str, text: &str, environment: &Environment) -> Result<ParsedFile, Vec<Problem>> {
    if client_file::is_json(text) {
        let file = client_file::parse(name, text)?;
        return Ok(ParsedFile {
            layer: file.layer(environment)?,
            notes: file.notes,
        });
    }
    let layer = parse_toml(name, text)?;
    Ok(ParsedFile {
        layer,
        notes: Vec::new(),
    })
}

/// Parses TOML.
pub(super) fn parse_toml(name: &str, text: &str) -> Result<Layer, Vec<Problem>> {
    let parser = FileParser {
        name: name.into(),
        text,
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        // The second line of the parser's message only repeats the first.
        let message = error.message().lines().next().unwrap_or("invalid TOML");
        vec![toml_error::explain(text, at, message).at(&parser.source(at))]
    })?;
    let mut layer = parser.layer(table.get_ref());
    let mut problems = flatten_groups(&mut layer);
    problems.extend(unknown_keys(&layer, &top_keys(), ""));
    match layer.get(SERVERS_KEY) {
        Some(SourcedValue {
            value: ConfigValue::Table(servers),
            ..
        }) => {
            for (name, server) in servers {
                match &server.value {
                    ConfigValue::Table(server) => {
                        problems.extend(unknown_keys(server, &server_keys(), &format!("servers.{name}.")));
                    }
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

/// Replaces the keys of each group by keys of the top: `tokens` below `[auth]` by `auth.tokens`.
fn flatten_groups(layer: &mut Layer) -> Vec<Problem> {
    let mut problems = Vec::new();
    for &group in GROUPS {
        let Some(found) = layer.get_mut(group) else { continue };
        let ConfigValue::Table(table) = &mut found.value else {
            let problem = Problem::new(format!("`{group}` is not a table")).at(&found.source);
            problems.push(problem.hint(format!("[{group}] and its settings below")));
            continue;
        };
        let entries = std::mem::take(table);
        layer.extend(
            entries
                .into_iter()
                .map(|(key, found)| (format!("{group}.{key}"), found)),
        );
    }
    problems
}

fn keys(in_scope: fn(Scope) -> bool) -> Vec<&'static str> {
    let options = OPTIONS.iter().filter(|option| in_scope(option.scope));
    options.map(|option| option.key).collect()
}

/// The keys at the top of a file.
fn top_keys() -> Vec<&'static str> {
    let mut keys = keys(Scope::is_file_top);
    keys.push(SERVERS_KEY);
    keys.extend(GROUPS);
    keys
}

/// The keys below `[servers.NAME]`.
fn server_keys() -> Vec<&'static str> {
    keys(Scope::is_file_server)
}

fn unknown_keys(layer: &Layer, known: &[&str], path: &str) -> Vec<Problem> {
    let unknown = layer.iter().filter(|(key, _)| !known.contains(&key.as_str()));
    let problems = unknown.map(|(key, found)| {
        let hint = match suggest(key, known.iter().copied()) {
            Some(similar) => format!("`{path}{similar}`"),
            // A known key in the wrong place.
            None if path.is_empty() && server_keys().contains(&key.as_str()) => {
                format!("`{key}` below [servers.NAME]")
            }
            None if top_keys().contains(&key.as_str()) => {
                format!("`{key}` at the top of the file, before any [table]")
            }
            None => format!("one of {}", known.join(", ")),
        };
        Problem::new(format!("unknown key `{path}{key}`"))
            .at(&found.source)
            .hint(hint)
    });
    problems.collect()
}

struct FileParser<'a> {
    name: Arc<str>,
    text: &'a str,
}

impl FileParser<'_> {
    fn source(&self, at: usize) -> Source {
        Source::in_file(&self.name, self.text, at)
    }

    fn layer(&self, table: &DeTable<'_>) -> Layer {
        let entries = table.iter().map(|(key, value)| {
            let found = SourcedValue {
                value: self.value(value.get_ref()),
                source: self.source(key.span().start),
            };
            (key.get_ref().to_string(), found)
        });
        entries.collect()
    }

    fn value(&self, value: &DeValue<'_>) -> ConfigValue {
        match value {
            DeValue::String(text) => ConfigValue::Text(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => ConfigValue::Number(number),
                Err(_) => ConfigValue::Unsupported("a very large number"),
            },
            DeValue::Boolean(on) => ConfigValue::Bool(*on),
            DeValue::Array(list) => {
                let texts = list.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
                match texts.collect() {
                    Some(texts) => ConfigValue::List(texts),
                    None => ConfigValue::Unsupported("a list with values other than strings"),
                }
            }
            DeValue::Table(table) => ConfigValue::Table(self.layer(table)),
            DeValue::Float(_) => ConfigValue::Unsupported("a fraction"),
            DeValue::Datetime(_) => ConfigValue::Unsupported("a date"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_lines() {
        let text = "listen = \"a\"\n\n[servers.x]\ncommand = [\"b\",\n \"c\"]\nmax_children = 0x10\n";
        let layer = parse_toml("r.toml", text).unwrap();
        assert_eq!(layer["listen"].source.to_string(), "r.toml:1");
        let ConfigValue::Table(servers) = &layer["servers"].value else {
            panic!()
        };
        let ConfigValue::Table(x) = &servers["x"].value else {
            panic!()
        };
        assert_eq!(x["command"].source.to_string(), "r.toml:4");
        assert_eq!(
            x["command"].value,
            ConfigValue::List(vec!["b".to_owned(), "c".to_owned()])
        );
        assert_eq!(x["max_children"].value, ConfigValue::Number(16));
        assert_eq!(x["max_children"].source.to_string(), "r.toml:6");
    }

    #[test]
    fn unknown_keys_are_reported_with_line_and_suggestion() {
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
            let problems = parse_toml("r.toml", text).unwrap_err();
            assert_eq!(problems[0].to_string(), what);
            assert_eq!(problems[0].hint.as_deref(), Some(hint), "{what}");
        }
    }

    #[test]
    fn invalid_toml_is_reported_with_its_line() {
        for text in ["a = 1\nb = ", "a = 1\na = 2", "a = 1\n[x", "a = 1\n= 2"] {
            let problems = parse_toml("r.toml", text).unwrap_err();
            let shown = problems[0].to_string();
            assert!(shown.starts_with("r.toml:2: "), "{text:?}: {shown}");
            assert_eq!(shown.lines().count(), 1, "{shown}");
        }
    }

    #[test]
    fn file_accepts_every_option_in_its_scope_only() {
        for option in OPTIONS {
            let (key, scope) = (option.key, option.scope);
            let top = parse_toml("r.toml", &format!("{key} = 'x'"));
            assert_eq!(top.is_ok(), scope.is_file_top(), "{key}");
            let server = parse_toml("r.toml", &format!("[servers.a]\n{key} = 'x'"));
            assert_eq!(server.is_ok(), scope.is_file_server(), "{key}");
        }
    }
}
