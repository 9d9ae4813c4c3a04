//! Reads the JSON file in which an MCP client lists its servers: Claude Desktop, Claude Code, Cursor, VS Code.
//!
//! The file belongs to another program, so unknown keys are ignored. Entries that the gateway does not serve become notes.

mod template;

#[cfg(test)]
mod tests;

pub(crate) use template::Template;

use super::layer::{ConfigValue, Layer, Source, SourcedValue};
use super::options;
use super::problem::Problem;
use super::{Environment, file, secret, server_name};
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The keys below which clients list servers. VS Code has the second one.
const SERVER_KEYS: [&str; 2] = ["mcpServers", "servers"];
/// Keys whose value is the URL of an HTTP server.
const URL_KEYS: [&str; 3] = ["url", "serverUrl", "httpUrl"];

/// The servers of a client's file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClientFile {
    pub(crate) servers: Vec<ClientServer>,
    /// Entries that are not served, or served under another name. For people.
    pub(crate) notes: Vec<String>,
}

/// A stdio server of a client's file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientServer {
    /// Valid as a name of the gateway.
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) command: Template,
    pub(crate) args: Vec<Template>,
    pub(crate) env: Vec<ClientVariable>,
    pub(crate) cwd: Option<Template>,
}

/// A variable of a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientVariable {
    pub(crate) name: String,
    pub(crate) value: Template,
    source: Source,
}

/// Whether a file is JSON. TOML starts with neither a brace nor a slash.
pub(crate) fn is_json(text: &str) -> bool {
    without_mark(text).trim_start().starts_with(['{', '/'])
}

/// Editors on Windows write a byte order mark.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Parses the text of a file. `name` is its name in messages.
pub(crate) fn parse(name: &str, text: &str) -> Result<ClientFile, Vec<Problem>> {
    let mut parser = ClientFileParser {
        name: name.into(),
        text: without_mark(text),
        found: ClientFile::default(),
        names: BTreeSet::new(),
        problems: Vec::new(),
    };
    parser.file();
    if parser.problems.is_empty() {
        Ok(parser.found)
    } else {
        Err(parser.problems)
    }
}

impl ClientFile {
    /// The same layer as that of a TOML file, with the values of the environment in it.
    pub(super) fn layer(&self, environment: &Environment) -> Result<Layer, Vec<Problem>> {
        let (mut servers, mut problems) = (Layer::new(), Vec::new());
        for server in &self.servers {
            match server.layer(environment) {
                Ok(layer) => {
                    let value = ConfigValue::Table(layer);
                    let source = server.source.clone();
                    servers.insert(server.name.clone(), SourcedValue { value, source });
                }
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let source = self
            .servers
            .first()
            .map_or(Source::Default, |first| first.source.clone());
        let value = ConfigValue::Table(servers);
        Ok(Layer::from([(
            file::SERVERS_KEY.to_owned(),
            SourcedValue { value, source },
        )]))
    }
}

impl ClientServer {
    /// The text below `key` with the values of the environment.
    pub(crate) fn expand(&self, key: &str, text: &Template, environment: &Environment) -> Result<String, Problem> {
        let expanded = text.expand(|name| environment.vars.get(name).cloned());
        expanded.map_err(|missing| {
            let text = format!("`{}.{key}` needs the variable {missing}, which is not set", self.name);
            let hint = format!("export {missing}=… before you start rethread");
            Problem::new(text).at(&self.source).hint(hint)
        })
    }

    fn layer(&self, environment: &Environment) -> Result<Layer, Problem> {
        let mut list = vec![self.expand("command", &self.command, environment)?];
        for arg in &self.args {
            list.push(self.expand("args", arg, environment)?);
        }
        let shown: Vec<_> = std::iter::once(&self.command)
            .chain(&self.args)
            .map(Template::masked)
            .collect();
        let shown = secret::mask_args(shown.iter().map(String::as_str));
        let sourced = |value| SourcedValue {
            value,
            source: self.source.clone(),
        };
        let command = sourced(ConfigValue::Masked { list, shown });
        let mut layer = Layer::from([(options::COMMAND.def.key.to_owned(), command)]);
        let mut variables = Layer::new();
        for ClientVariable { name, value, source } in &self.env {
            let value = ConfigValue::Secret(self.expand(&format!("env.{name}"), value, environment)?);
            let source = source.clone();
            variables.insert(name.clone(), SourcedValue { value, source });
        }
        if !variables.is_empty() {
            layer.insert(options::ENV.key.to_owned(), sourced(ConfigValue::Table(variables)));
        }
        if let Some(cwd) = &self.cwd {
            let cwd = ConfigValue::Text(self.expand("cwd", cwd, environment)?);
            layer.insert(options::CWD.def.key.to_owned(), sourced(cwd));
        }
        Ok(layer)
    }
}

/// Collects servers, notes and all problems while it reads.
struct ClientFileParser<'a> {
    name: Arc<str>,
    text: &'a str,
    found: ClientFile,
    /// The names so far.
    names: BTreeSet<String>,
    problems: Vec<Problem>,
}

impl ClientFileParser<'_> {
    fn source(&self, at: usize) -> Source {
        Source::in_file(&self.name, self.text, at)
    }

    fn problem(&mut self, at: usize, message: String, hint: &str) {
        self.problems
            .push(Problem::new(message).at(&self.source(at)).hint(hint));
    }

    fn file(&mut self) {
        // As VS Code reads it: JSON with comments and trailing commas, and nothing else of JSON5.
        let options = ParseOptions {
            allow_comments: true,
            allow_trailing_commas: true,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        let root = match parse_to_ast(self.text, &CollectOptions::default(), &options) {
            Ok(parsed) => parsed.value,
            Err(error) => {
                let message = format!("invalid JSON: {}", error.kind());
                self.problem(
                    error.range().start,
                    message,
                    "the JSON of an MCP client, or TOML with [servers.NAME] tables",
                );
                return;
            }
        };
        let Some(root) = root.as_ref().and_then(Value::as_object) else {
            return self.problem(0, "the file has no servers".to_owned(), r#"{ "mcpServers": { … } }"#);
        };
        let mut lists = SERVER_KEYS.iter().filter_map(|key| root.get(key));
        match (lists.next(), lists.next()) {
            (Some(list), None) => match list.value.as_object() {
                Some(servers) => self.servers(servers),
                None => {
                    let message = format!("`{}` is not an object", list.name.as_str());
                    self.problem(list.start(), message, r#"{ "NAME": { "command": "npx", "args": [] } }"#);
                }
            },
            (Some(_), Some(second)) => {
                let message = "`mcpServers` and `servers` are both in this file".to_owned();
                self.problem(second.start(), message, "one of the two");
            }
            (None, _) => self.problem(
                0,
                "the file has neither `mcpServers` nor `servers`".to_owned(),
                r#"{ "mcpServers": { "NAME": { "command": "npx", "args": ["-y", "some-server"] } } }"#,
            ),
        }
    }

    fn servers(&mut self, servers: &Object<'_>) {
        for entry in &servers.properties {
            let (given, at) = (entry.name.as_str(), entry.start());
            let Some(server) = entry.value.as_object() else {
                let message = format!("`{}` is not an object", given.escape_debug());
                self.problem(at, message, r#"{ "command": "npx", "args": ["-y", "some-server"] }"#);
                continue;
            };
            if let Some(reason) = reason_to_skip(server) {
                let note = format!("`{}` of {} is not served: {reason}", given.escape_debug(), self.name);
                self.found.notes.push(note);
                continue;
            }
            let Some(name) = self.server_name(given, at) else {
                continue;
            };
            if let Some(server) = self.server(name, at, server) {
                self.found.servers.push(server);
            }
        }
    }

    /// The name for URLs. Other characters become dashes, since clients allow any name.
    fn server_name(&mut self, given: &str, at: usize) -> Option<String> {
        let name = match server_name::validate(given) {
            Ok(name) => name,
            Err(invalid) => {
                let name = server_name::sanitize(given);
                if name.is_empty() {
                    self.problems.push(invalid.at(&self.source(at)));
                    return None;
                }
                let given = given.escape_debug();
                let note = format!(
                    "`{given}` of {} is served as `{name}`: the name is part of URLs",
                    self.name
                );
                self.found.notes.push(note);
                name
            }
        };
        if !self.names.insert(name.clone()) {
            let message = format!("the server `{name}` is in this file twice");
            self.problem(at, message, "another name for one of them");
            return None;
        }
        Some(name)
    }

    fn server(&mut self, name: String, at: usize, server: &Object<'_>) -> Option<ClientServer> {
        let problems = self.problems.len();
        if let Some(file) = server.get("envFile") {
            let message = format!("`{name}.envFile` is not read");
            let hint = "put its variables into `env`, or export them before you start rethread";
            self.problem(file.start(), message, hint);
        }
        let command = match server.get("command") {
            Some(command) => self.text(&name, "command", &command.value),
            None => {
                let message = format!("`{name}` has no command");
                self.problem(at, message, r#""command": "npx", "args": ["-y", "some-server"]"#);
                None
            }
        };
        let args = server
            .get("args")
            .map_or_else(Vec::new, |args| self.args(&name, &args.value));
        let env = server
            .get("env")
            .map_or_else(Vec::new, |env| self.env(&name, &env.value));
        let cwd = server.get("cwd").and_then(|cwd| self.text(&name, "cwd", &cwd.value));
        let command = command.filter(|_| self.problems.len() == problems)?;
        Some(ClientServer {
            source: self.source(at),
            name,
            command,
            args,
            env,
            cwd,
        })
    }

    fn args(&mut self, name: &str, value: &Value<'_>) -> Vec<Template> {
        let Some(args) = value.as_array() else {
            self.problem(
                value.start(),
                format!("`{name}.args` is not a list"),
                r#"["-y", "some-server"]"#,
            );
            return Vec::new();
        };
        args.elements
            .iter()
            .filter_map(|arg| self.text(name, "args", arg))
            .collect()
    }

    fn env(&mut self, name: &str, value: &Value<'_>) -> Vec<ClientVariable> {
        let Some(env) = value.as_object() else {
            self.problem(
                value.start(),
                format!("`{name}.env` is not an object"),
                r#"{ "NAME": "value" }"#,
            );
            return Vec::new();
        };
        // Clients write `null` for a variable without a value.
        let set = env
            .properties
            .iter()
            .filter(|entry| entry.value.as_null_keyword().is_none());
        let variables = set.filter_map(|entry| {
            let variable = entry.name.as_str();
            Some(ClientVariable {
                value: self.text(name, &format!("env.{variable}"), &entry.value)?,
                name: variable.to_owned(),
                source: self.source(entry.start()),
            })
        });
        variables.collect()
    }

    /// A text with variables. No message repeats it: it may be a secret.
    fn text(&mut self, name: &str, key: &str, value: &Value<'_>) -> Option<Template> {
        let text = match value {
            Value::StringLit(text) => text.value.as_ref(),
            Value::NumberLit(number) => number.value,
            Value::BooleanLit(on) if on.value => "true",
            Value::BooleanLit(_) => "false",
            _ => {
                self.problem(
                    value.start(),
                    format!("`{name}.{key}` is not a string"),
                    "put it in quotes",
                );
                return None;
            }
        };
        match Template::parse(text) {
            Ok(template) => Some(template),
            Err(unknown) => {
                let message = format!("`{name}.{key}` has {unknown}, which only the client can replace");
                self.problem(value.start(), message, unknown.hint());
                None
            }
        }
    }
}

/// Why an entry is not served, if it is not.
fn reason_to_skip(server: &Object<'_>) -> Option<&'static str> {
    let is = |key: &str, value: bool| server.get_boolean(key).is_some_and(|found| found.value == value);
    if is("disabled", true) || is("enabled", false) {
        Some("the file disables it")
    } else if server.get("command").is_none() && URL_KEYS.iter().any(|key| server.get(key).is_some()) {
        Some(
            "it is an HTTP server, and the gateway serves stdio servers only; the command `npx -y mcp-remote URL` turns it into one",
        )
    } else {
        None
    }
}
