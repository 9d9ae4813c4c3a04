//! The servers: one from the command line, or those of the file.

use super::expand::{Unexpanded, expand};
use super::layer::{Found, Layer, Problem, Raw, Source};
use super::settle::{Draft, none, show_list};
use super::value::{self, Read};
use super::{name, secret};
use crate::settings::{EraSetting, InheritedEnv, RestoreSetting, ServerSettings, is_gateway_variable};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub(super) fn settle(draft: &mut Draft<'_>) -> Vec<ServerSettings> {
    let of_file = match draft.file.get("servers").map(|found| &found.raw) {
        Some(Raw::Table(servers)) => servers.clone(),
        _ => Layer::new(),
    };
    let (command, file) = (!draft.given.command.is_empty(), !of_file.is_empty());
    match (command, file) {
        (true, false) => vec![from_command(draft)],
        (false, true) => {
            refuse_flags_of_a_command(draft);
            let servers = of_file.iter();
            servers.map(|(name, found)| from_file(draft, name, found)).collect()
        }
        (true, true) => {
            let problem = Problem::new("there are servers in the file and a command after `--`");
            let problem = match &draft.given.config {
                Some((_, source)) => problem.at(source),
                None => problem,
            };
            let hint = "one of the two; to serve both, write the command into the file as [servers.NAME]";
            draft.problems.push(problem.hint(hint));
            Vec::new()
        }
        (false, false) => {
            let problem = Problem::new("there is no server to serve");
            draft.problems.push(match &draft.given.config {
                Some((path, _)) => problem.hint(format!(
                    "[servers.NAME] with command = [\"npx\", \"-y\", \"some-server\"] in {}, or a command after `--`",
                    path.display()
                )),
                None => problem.hint(
                    "`rethread serve -- npx -y some-server`, `rethread serve --config rethread.toml`, or `rethread demo`",
                ),
            });
            Vec::new()
        }
    }
}

/// Flags that mean one server would silently mean all or none of the file's.
fn refuse_flags_of_a_command(draft: &mut Draft<'_>) {
    for key in ["name", "env", "cwd"] {
        if let Some(found) = draft.given.layer.get(key) {
            let problem = Problem::new("this is for a command after `--`, not for the servers of a file");
            let hint = match key {
                "name" => "[servers.NAME] in the file".to_owned(),
                key => format!("`{key}` below [servers.NAME] in the file"),
            };
            draft.problems.push(problem.at(&found.source).hint(hint));
        }
    }
}

fn from_command(draft: &mut Draft<'_>) -> ServerSettings {
    let (program, args) = (draft.given.command[0].clone(), draft.given.command[1..].to_vec());
    let (name, named) = match draft.given.layer.get("name").cloned() {
        Some(found) => {
            let name = draft.check(&found, fit_name(&found.raw));
            (name.unwrap_or_else(|| "server".to_owned()), Some(found.source))
        }
        None => (name::derived(&program, &args), None),
    };
    let source = named.clone().unwrap_or(Source::Derived("the command"));
    draft.row(Some(&name), "name", name.clone(), &source);
    let layer = draft.given.layer.clone();
    let command = program_path(draft, &Source::CommandLine, &program);
    let mut server = rest(
        draft,
        &name,
        (&program, command, args),
        &Source::CommandLine,
        &layer,
        &Layer::new(),
    );
    server.at_root = true;
    // Somebody who names a server says that it is the same one whatever its arguments.
    if named.is_none() {
        let cwd = server.cwd.as_deref().unwrap_or(&draft.world.cwd);
        server.folder = name::folder(&name, &program, &server.args, cwd);
    }
    let source = named.map_or(Source::Derived("the command, its arguments and its directory"), |_| {
        Source::Derived("the name")
    });
    draft.row(Some(&name), "folder", server.folder.clone(), &source);
    server
}

fn from_file(draft: &mut Draft<'_>, name: &str, found: &Found) -> ServerSettings {
    let empty = Layer::new();
    let section = match &found.raw {
        Raw::Table(section) => section,
        _ => &empty,
    };
    draft.check(found, fit_name(&Raw::Text(name.to_owned())));
    let (mut words, source) = match section.get("command") {
        Some(command) => {
            let words = draft.check(command, value::list(&command.raw)).unwrap_or_default();
            if words.first().is_none_or(String::is_empty) {
                let problem = Problem::new(format!("the command of `{name}` is empty")).at(&command.source);
                draft.problems.push(problem.hint(COMMAND));
            }
            (words, command.source.clone())
        }
        None => {
            let problem = Problem::new(format!("the server `{name}` has no command")).at(&found.source);
            draft.problems.push(problem.hint(COMMAND));
            (Vec::new(), found.source.clone())
        }
    };
    if let Some(args) = section.get("args") {
        words.extend(draft.check(args, list_of_args(&args.raw)).unwrap_or_default());
    }
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let command = program_path(draft, &source, &program);
    let words = (program.as_str(), command, words.collect());
    rest(draft, name, words, &source, section, section)
}

const COMMAND: &str = r#"command = ["npx", "-y", "some-server"]"#;

/// What every server has. `own` says what is its alone (`env`, `cwd`), `section` what the top of a file may say too.
fn rest(
    draft: &mut Draft<'_>,
    name: &str,
    (program, command, args): (&str, PathBuf, Vec<String>),
    source: &Source,
    own: &Layer,
    section: &Layer,
) -> ServerSettings {
    let at = Some(name);
    draft.row(at, "command", secret::display_command(program, &args), source);
    let cwd = own.get("cwd").and_then(|found| {
        let text = draft.check(found, value::text(&found.raw))?;
        let path = draft.path(&found.source, &text);
        Some((path, found.source.clone()))
    });
    let (shown, source) = match &cwd {
        Some((path, source)) => (path.display().to_string(), source),
        None => (none(), &Source::Default),
    };
    draft.row(at, "cwd", shown, source);
    let env = own
        .get("env")
        .map(|found| variables(draft, name, found))
        .unwrap_or_default();
    let sections = [section];
    let choices = Choices::default();
    ServerSettings {
        name: name.to_owned(),
        folder: name.to_owned(),
        at_root: false,
        command,
        args,
        env,
        cwd: cwd.map(|(path, _)| path),
        inherit_env: draft.value_of(
            at,
            &sections,
            "inherit_env",
            inherited_env,
            &Raw::Bool(true),
            show_inherited_env,
        ),
        era: draft.value_of(at, &sections, "era", value::choice, &choices.era, value::show_choice),
        restore: draft.value_of(
            at,
            &sections,
            "restore",
            value::choice,
            &choices.restore,
            value::show_choice,
        ),
        start_timeout: draft.value_of(
            at,
            &sections,
            "start_timeout",
            value::some_time,
            &Raw::Text("30s".to_owned()),
            value::show_duration,
        ),
        max_children: draft.value_of(
            at,
            &sections,
            "max_children",
            |raw| value::size(raw, 1),
            &Raw::Number(100),
            usize::to_string,
        ),
    }
}

struct Choices {
    era: Raw,
    restore: Raw,
}

impl Default for Choices {
    fn default() -> Self {
        Choices {
            era: Raw::Text(value::show_choice(&EraSetting::default())),
            restore: Raw::Text(value::show_choice(&RestoreSetting::default())),
        }
    }
}

/// A program with a slash is a path, and relative to where it was written. One without is searched on PATH.
fn program_path(draft: &Draft<'_>, source: &Source, program: &str) -> PathBuf {
    // `npx -y @scope/server` in one text is a mistake, but not a path.
    let first_word = program.split_whitespace().next().unwrap_or(program);
    if first_word.contains('/') || (cfg!(windows) && program.contains('\\')) {
        draft.path(source, program)
    } else {
        Path::new(program).to_owned()
    }
}

fn variables(draft: &mut Draft<'_>, server: &str, found: &Found) -> BTreeMap<String, String> {
    let entries: Vec<(String, Found)> = match &found.raw {
        Raw::Table(table) => table.clone().into_iter().collect(),
        Raw::List(pairs) => {
            let pairs = pairs.iter().filter_map(|pair| {
                let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
                    // What stands before a missing `=` may be a secret, so it is not repeated.
                    let problem = Problem::new("a variable has no `=`").at(&found.source);
                    draft.problems.push(problem.hint("KEY=VALUE"));
                    return None;
                };
                let value = Found {
                    raw: Raw::Text(value.to_owned()),
                    source: found.source.clone(),
                };
                Some((name.to_owned(), value))
            });
            pairs.collect()
        }
        _ => {
            let problem = Problem::new("`env` is not a table").at(&found.source);
            draft.problems.push(problem.hint(r#"env = { NAME = "value" }"#));
            Vec::new()
        }
    };
    let mut env = BTreeMap::new();
    for (name, found) in entries {
        if let Some((value, expanded)) = draft.check(&found, variable(draft, &name, &found)) {
            let shown = secret::mask_variable(&name, &value, expanded);
            draft.row(Some(server), format!("env.{name}"), shown, &found.source);
            env.insert(name, value);
        }
    }
    env
}

/// The value of a variable, and whether some of it comes from the environment. A shell has expanded what a flag says
/// already, so only a file is expanded here.
fn variable(draft: &Draft<'_>, name: &str, found: &Found) -> Read<(String, bool)> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(Problem::new(format!(
            "`{}` cannot be the name of a variable",
            name.escape_debug()
        )));
    }
    let text = match &found.raw {
        Raw::Text(text) if text.contains('\0') => {
            return Err(Problem::new(format!("the value of `{name}` has a zero byte in it")));
        }
        Raw::Text(text) => text.clone(),
        // PORT = 3000 can only mean one thing.
        Raw::Number(_) | Raw::Bool(_) => found.raw.shown(),
        _ => return Err(Problem::new(format!("the value of `{name}` is not text")).hint("put it in quotes")),
    };
    if !matches!(found.source, Source::File { .. }) {
        return Ok((text, false));
    }
    // An empty variable is set: somebody may mean it.
    expand(&text, |var| draft.world.vars.get(var).cloned()).map_err(|error| match error {
        Unexpanded::Missing(var) => Problem::new(format!("`{name}` needs the variable {var}, which is not set"))
            .hint(format!("export {var}=… before you start rethread")),
        Unexpanded::Malformed => Problem::new(format!("the value of `{name}` has a `${{` without a name and a `}}`"))
            .hint("${NAME}, or $${ for the characters themselves"),
    })
}

fn inherited_env(raw: &Raw) -> Read<InheritedEnv> {
    let names = match raw {
        Raw::Bool(true) => return Ok(InheritedEnv::All),
        Raw::List(names) => names.clone(),
        other => {
            let what = format!("{} is neither true nor a list of variables", other.shown());
            return Err(Problem::new(what).hint(r#"inherit_env = ["PATH", "HOME"], or [] for none"#));
        }
    };
    match names.iter().find(|name| is_gateway_variable(OsStr::new(name))) {
        Some(own) => Err(
            Problem::new(format!("`{own}` is the gateway's own: no server inherits it"))
                .hint(format!("env = {{ NAME = \"${{{own}}}\" }}")),
        ),
        None => Ok(InheritedEnv::Names(names)),
    }
}

fn show_inherited_env(inherited: &InheritedEnv) -> String {
    match inherited {
        InheritedEnv::All => "true".to_owned(),
        InheritedEnv::Names(names) => show_list(names),
    }
}

fn fit_name(raw: &Raw) -> Read<String> {
    let name = value::text(raw)?;
    if name::is_fit(&name) {
        return Ok(name);
    }
    let what = format!("`{}` cannot be a server's name", name.escape_debug());
    Err(Problem::new(what).hint("up to 64 of A-Z a-z 0-9 _ - . without a dot in front: it stands in URLs"))
}

fn list_of_args(raw: &Raw) -> Read<Vec<String>> {
    match raw {
        // One text could be one argument or several: better to ask.
        Raw::Text(_) => Err(Problem::new("`args` is not a list").hint(r#"args = ["--flag", "value"]"#)),
        raw => value::list(raw),
    }
}
