//! Resolves the servers: the command after `--`, or the servers of the file.

use super::expand::{ExpandError, expand};
use super::layer::{ConfigValue, Layer, Source, SourcedValue};
use super::option::Scope;
use super::options::{self, OPTIONS};
use super::problem::Problem;
use super::resolver::Resolver;
use super::value::{self, ParseResult};
use super::{file, secret, server_name};
use crate::settings::ServerSettings;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const COMMAND_HINT: &str = r#"command = ["npx", "-y", "some-server"]"#;

/// The command of a server.
struct ServerCommand {
    /// As written.
    program: String,
    args: Vec<String>,
    /// `args` for people.
    shown_args: Vec<String>,
    source: Source,
}

impl ServerCommand {
    /// The first word is the program.
    fn new(words: Vec<String>, source: Source) -> Self {
        let mut words = words.into_iter();
        let (program, args) = (words.next().unwrap_or_default(), words.collect::<Vec<_>>());
        ServerCommand {
            shown_args: secret::mask_args(args.iter().map(String::as_str)),
            program,
            args,
            source,
        }
    }
}

impl Resolver<'_> {
    pub(super) fn servers(&mut self, providers: &[&str]) -> Vec<ServerSettings> {
        let file_servers = match self.file.get(file::SERVERS_KEY).map(|found| &found.value) {
            Some(ConfigValue::Table(servers)) => servers.clone(),
            _ => Layer::new(),
        };
        match (self.input.command.is_empty(), file_servers.is_empty()) {
            (false, true) => vec![self.command_server(providers)],
            (true, false) => {
                self.refuse_command_flags();
                let servers = file_servers.iter();
                servers
                    .map(|(name, table)| self.file_server(name, table, providers))
                    .collect()
            }
            (false, false) => {
                self.problems.push(self.both_problem());
                Vec::new()
            }
            (true, true) => {
                self.problems.push(self.no_server_problem());
                Vec::new()
            }
        }
    }

    fn both_problem(&self) -> Problem {
        let problem = Problem::new("there are servers in the file and a command after `--`")
            .hint("one of the two; to serve both, write the command into the file as [servers.NAME]");
        match &self.input.config_file {
            Some((_, source)) => problem.at(source),
            None => problem,
        }
    }

    fn no_server_problem(&self) -> Problem {
        let problem = Problem::new("there is no server to serve");
        if !self.notes.is_empty() {
            return Problem::new(format!("{}: {}", problem.message, self.notes.join("; ")))
                .hint("an entry with a `command`, or a command after `--`");
        }
        match &self.input.config_file {
            Some((path, _)) => problem.hint(format!(
                "[servers.NAME] with {COMMAND_HINT} in {}, or a command after `--`",
                path.display()
            )),
            None => problem.hint(
                "`rethread serve -- npx -y some-server`, `rethread serve --config rethread.toml`, or `rethread demo`",
            ),
        }
    }

    /// A flag for one server is ambiguous with the servers of a file.
    fn refuse_command_flags(&mut self) {
        for option in OPTIONS {
            let hint = match option.scope {
                Scope::Command => "[servers.NAME] in the file".to_owned(),
                Scope::OneServer => format!("`{}` below [servers.NAME] in the file", option.key),
                _ => continue,
            };
            if let Some(found) = self.input.layer.get(option.key) {
                let problem = Problem::new("this is for a command after `--`, not for the servers of a file");
                self.problems.push(problem.at(&found.source).hint(hint));
            }
        }
    }

    fn command_server(&mut self, providers: &[&str]) -> ServerSettings {
        let layer = self.input.layer.clone();
        let command = ServerCommand::new(self.input.command.clone(), Source::CommandLine);
        let named = layer.get(options::NAME.def.key);
        let derived_name = server_name::derive_name(&command.program, &command.args);
        let (name, name_source) = match named {
            Some(found) => (self.parse(&options::NAME, found), found.source.clone()),
            None => (Some(derived_name), Source::Derived("the command")),
        };
        let name = name.unwrap_or_else(|| server_name::FALLBACK.to_owned());
        self.add_row(Some(&name), options::NAME.def.key, name.clone(), &name_source);
        // An explicit name identifies the server whatever its arguments.
        let (program, args) = (command.program.clone(), command.args.clone());
        let mut server = self.server(&name, command, &layer, providers);
        server.at_root = true;
        let mut folder_source = Source::Derived("the name");
        if named.is_none() {
            let cwd = server.cwd.as_deref().unwrap_or(&self.environment.cwd);
            server.folder = server_name::derive_folder(&name, &program, &args, cwd);
            folder_source = Source::Derived("the command, its arguments and its directory");
        }
        self.add_row(Some(&name), "folder", server.folder.clone(), &folder_source);
        server
    }

    fn file_server(&mut self, name: &str, table: &SourcedValue, providers: &[&str]) -> ServerSettings {
        let empty = Layer::new();
        let section = match &table.value {
            ConfigValue::Table(section) => section,
            _ => &empty,
        };
        self.record(server_name::validate(name), &table.source);
        let (mut words, source) = match section.get(options::COMMAND.def.key) {
            Some(found) => {
                let words = self.parse(&options::COMMAND, found).unwrap_or_default();
                if words.first().is_none_or(String::is_empty) {
                    let problem = Problem::new(format!("the command of `{name}` is empty")).at(&found.source);
                    self.problems.push(problem.hint(COMMAND_HINT));
                }
                (words, found.source.clone())
            }
            None => {
                let problem = Problem::new(format!("the server `{name}` has no command")).at(&table.source);
                self.problems.push(problem.hint(COMMAND_HINT));
                (Vec::new(), table.source.clone())
            }
        };
        if let Some(found) = section.get(options::ARGS.def.key) {
            words.extend(self.parse(&options::ARGS, found).unwrap_or_default());
        }
        let mut command = ServerCommand::new(words, source);
        if let Some(ConfigValue::Masked { shown, .. }) = section.get(options::COMMAND.def.key).map(|found| &found.value)
        {
            command.shown_args = shown.iter().skip(1).cloned().collect();
        }
        self.server(name, command, section, providers)
    }

    /// Resolves the options that both kinds of servers have. `section` holds the values of this server.
    fn server(&mut self, name: &str, command: ServerCommand, section: &Layer, providers: &[&str]) -> ServerSettings {
        let ServerCommand {
            program,
            args,
            shown_args,
            source,
        } = command;
        let shown = secret::display_command(&program, &shown_args);
        self.add_row(Some(name), options::COMMAND.def.key, shown, &source);
        let restore = self.server_value(name, section, &options::RESTORE);
        let identity = self.server_value(name, section, &super::auth_options::IDENTITY);
        let children = self.children(name, section, restore, identity);
        ServerSettings {
            name: name.to_owned(),
            folder: name.to_owned(),
            at_root: false,
            command: self.program_path(&source, &program),
            args,
            shown_args,
            cwd: self.cwd(name, section),
            env: self.variables(name, section),
            inherit_env: self.server_value(name, section, &options::INHERIT_ENV),
            era: self.server_value(name, section, &options::ERA),
            restore,
            start_timeout: self.server_value(name, section, &options::START_TIMEOUT),
            max_children: children.max_children,
            child_idle: children.child_idle,
            spare: children.spare,
            access: self.server_access(name, section, providers),
            identity,
            bridge: self.bridge(name, section),
        }
    }

    /// A program with a slash is a path, relative to its source. Without a slash it is searched on PATH.
    fn program_path(&self, source: &Source, program: &str) -> PathBuf {
        // `npx -y @scope/server` in one string is a mistake, but not a path.
        let first_word = program.split_whitespace().next().unwrap_or(program);
        if first_word.contains('/') || (cfg!(windows) && program.contains('\\')) {
            self.path(source, program)
        } else {
            Path::new(program).to_owned()
        }
    }

    fn cwd(&mut self, server: &str, section: &Layer) -> Option<PathBuf> {
        let cwd = section.get(options::CWD.def.key).and_then(|found| {
            let text = self.parse(&options::CWD, found)?;
            Some((self.path(&found.source, &text), &found.source))
        });
        let (shown, source) = match &cwd {
            Some((path, source)) => (path.display().to_string(), *source),
            None => (value::none(), &Source::Default),
        };
        self.add_row(Some(server), options::CWD.def.key, shown, source);
        cwd.map(|(path, _)| path)
    }

    fn variables(&mut self, server: &str, section: &Layer) -> BTreeMap<String, String> {
        let Some(found) = section.get(options::ENV.key) else {
            return BTreeMap::new();
        };
        let mut variables = BTreeMap::new();
        for (name, found) in self.variable_entries(found) {
            let expanded = self.expand_variable(&name, &found);
            if let Some((value, was_expanded)) = self.record(expanded, &found.source) {
                let shown = secret::mask_variable(&name, &value, was_expanded);
                let key = format!("{}.{name}", options::ENV.key);
                self.add_row(Some(server), key, shown, &found.source);
                variables.insert(name, value);
            }
        }
        variables
    }

    /// The entries of a table in a file, or the `KEY=VALUE` pairs of a flag.
    fn variable_entries(&mut self, found: &SourcedValue) -> Vec<(String, SourcedValue)> {
        match &found.value {
            ConfigValue::Table(table) => table.clone().into_iter().collect(),
            ConfigValue::List(pairs) => {
                let entries = pairs.iter().filter_map(|pair| {
                    let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
                        // The message does not repeat the text: it may be a secret.
                        let problem = Problem::new("a variable has no `=`").at(&found.source);
                        self.problems.push(problem.hint("KEY=VALUE"));
                        return None;
                    };
                    let value = SourcedValue {
                        value: ConfigValue::Text(value.to_owned()),
                        source: found.source.clone(),
                    };
                    Some((name.to_owned(), value))
                });
                entries.collect()
            }
            _ => {
                let problem = Problem::new("`env` is not a table").at(&found.source);
                self.problems.push(problem.hint(r#"env = { NAME = "value" }"#));
                Vec::new()
            }
        }
    }

    /// The value of a variable, and whether it must be masked because it may come from the environment. Only values of a file are expanded: the shell
    /// has expanded flags.
    fn expand_variable(&self, name: &str, found: &SourcedValue) -> ParseResult<(String, bool)> {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(Problem::new(format!(
                "`{}` cannot be the name of a variable",
                name.escape_debug()
            )));
        }
        let text = match &found.value {
            ConfigValue::Text(text) | ConfigValue::Secret(text) if text.contains('\0') => {
                return Err(Problem::new(format!("the value of `{name}` has a zero byte in it")));
            }
            // Expanded already, in the syntax of its file.
            ConfigValue::Secret(text) => return Ok((text.clone(), true)),
            ConfigValue::Text(text) => text.clone(),
            ConfigValue::Number(_) | ConfigValue::Bool(_) => found.value.to_string(),
            _ => {
                let problem = Problem::new(format!("the value of `{name}` is not a string"));
                return Err(problem.hint("put it in quotes"));
            }
        };
        if !matches!(found.source, Source::File { .. }) {
            return Ok((text, false));
        }
        // An empty variable counts as set.
        expand(&text, |var| self.environment.vars.get(var).cloned()).map_err(|error| match error {
            ExpandError::NotSet(var) => Problem::new(format!("`{name}` needs the variable {var}, which is not set"))
                .hint(format!("export {var}=… before you start rethread")),
            ExpandError::Malformed => {
                Problem::new(format!("the value of `{name}` has a `${{` without a name and a `}}`"))
                    .hint("${NAME}, or $${ for the characters themselves")
            }
        })
    }
}
