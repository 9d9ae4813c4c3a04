//! `rethread check`: every effective value with its source, and what would keep `serve` from starting.

use crate::config::{self, CliInput, Environment, Problem, Problems, Row, secret};
use crate::exit::{Exit, listen_failure, store_failure};
use crate::settings::{ServerSettings, Settings, StoreSettings};
use crate::start_message;
use rethread_store_embedded::EmbeddedStore;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// What `check` found: the listing for stdout, words for stderr, and whether all is well.
pub(crate) struct Report {
    /// Every value.
    pub(crate) listing: String,
    /// What is wrong.
    pub(crate) problems: Option<Problems>,
    /// What is allowed but probably not meant.
    pub(crate) warnings: Vec<String>,
}

/// Checks what was given.
pub(crate) fn check(given: &CliInput, colour: bool) -> Report {
    let world = Environment::current();
    let mut settled = config::examine(given, &world);
    if settled.problems.is_empty() {
        settled.problems = obstacles(&settled.settings, &world);
        // Last, as in `serve`.
        if let Err(error) = TcpListener::bind(settled.settings.listen) {
            settled
                .problems
                .push(listen_failure(settled.settings.listen, &error).into());
        }
    }
    let problems = Some(settled.problems).filter(|problems| !problems.is_empty());
    Report {
        listing: listing(&settled.rows, &settled.settings.servers, colour),
        problems: problems.map(Problems),
        warnings: start_message::warnings(&settled.settings, settled.settings.listen),
    }
}

/// The settings for `serve`, unless they are wrong or something stands in their way.
pub(crate) fn startable_settings(given: &CliInput) -> Result<Settings, Problems> {
    let settings = config::load(given)?;
    let problems = obstacles(&settings, &Environment::current());
    if problems.is_empty() {
        Ok(settings)
    } else {
        Err(Problems(problems))
    }
}

/// What stands in the way of these settings, the listening address aside. `serve` looks at the same things first, in the
/// same order.
fn obstacles(settings: &Settings, world: &Environment) -> Vec<Problem> {
    let mut problems = Vec::new();
    for server in &settings.servers {
        problems.extend(server_obstacles(server, world));
    }
    if let StoreSettings::Embedded { data, .. } = &settings.store
        && let Err(why) = writable(data)
    {
        let mut problem = Problem::new(format!("cannot write to the data directory {}: {why}", data.display()));
        problem.exit = Exit::Store;
        problems.push(problem.hint("--data DIR with a directory of yours, or --memory to keep nothing"));
    } else if let StoreSettings::Embedded { data, .. } = &settings.store {
        let stores = settings.servers.iter().map(|server| data.join(&server.folder));
        let refused = stores.filter_map(|dir| EmbeddedStore::inspect(dir).err());
        problems.extend(refused.map(|error| store_failure(&error).into()));
    }
    problems
}

/// What a server lacks that must be there before it can be started.
pub(crate) fn server_obstacles(server: &ServerSettings, world: &Environment) -> Vec<Problem> {
    let missing_cwd = server.cwd.as_deref().filter(|cwd| !cwd.is_dir()).map(|cwd| {
        Problem::new(format!("{}: there is no directory {}", server.name, cwd.display()))
            .hint("create it, or set cwd to one that is there")
    });
    missing_cwd.into_iter().chain(missing_program(server, world)).collect()
}

fn missing_program(server: &ServerSettings, world: &Environment) -> Option<Problem> {
    let command = &server.command;
    let shown = secret::shell_quote(&command.to_string_lossy());
    if command.components().count() > 1 || command.is_absolute() {
        if !command.exists() {
            let problem = Problem::new(format!("{}: there is no program {shown}", server.name));
            let path = || "its path, relative to where it is written, or its name if it is on PATH".to_owned();
            return Some(problem.hint(several_words(server).unwrap_or_else(path)));
        }
        let problem = || Problem::new(format!("{}: {shown} cannot be executed", server.name));
        return (!executable(command)).then(|| problem().hint(format!("chmod +x {shown}")));
    }
    // A child is looked up on the PATH that it gets.
    let inherits = server.inherit_env.includes("PATH".as_ref());
    let path = server.env.get("PATH").map(String::as_str);
    let path = path.or_else(|| world.var("PATH").filter(|_| inherits));
    // Without a PATH the system has its own.
    let found = std::env::split_paths(path.unwrap_or("/bin:/usr/bin")).any(|dir| found_in(&dir, command));
    if found {
        return None;
    }
    let problem = Problem::new(format!("{}: the program {shown} is not on PATH", server.name));
    let remedy = if path.is_none() && !inherits {
        "PATH in inherit_env, or its full path as the command"
    } else {
        "install it, or write its full path"
    };
    Some(problem.hint(several_words(server).unwrap_or_else(|| remedy.to_owned())))
}

/// The whole command line in one text is a likely mistake: how to write it instead.
fn several_words(server: &ServerSettings) -> Option<String> {
    let line = server.command.to_str()?;
    let words: Vec<_> = line
        .split_whitespace()
        .chain(server.args.iter().map(String::as_str))
        .collect();
    let words = secret::mask_args(words);
    if !line.contains(char::is_whitespace) {
        return None;
    }
    Some(if server.at_root {
        let command = secret::display_command(&words[0], &words[1..]);
        format!("each word for itself, without quotes around them: rethread serve -- {command}")
    } else {
        format!("a list: command = {words:?}")
    })
}

fn found_in(dir: &Path, program: &Path) -> bool {
    let endings: &[&str] = if cfg!(windows) {
        &["", ".exe", ".cmd", ".bat"]
    } else {
        &[""]
    };
    endings.iter().any(|ending| {
        let mut name = program.as_os_str().to_owned();
        name.push(ending);
        executable(&dir.join(name))
    })
}

#[cfg(unix)]
fn executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn executable(path: &Path) -> bool {
    path.is_file()
}

/// Tries to make a file there, or in the nearest folder above that exists: only trying tells for sure.
fn writable(dir: &Path) -> Result<(), String> {
    let ancestors = dir.ancestors().map(|dir| {
        if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            dir
        }
    });
    let nearest = ancestors.into_iter().find(|dir| dir.exists());
    let nearest = nearest.ok_or("it has no parent")?;
    if !nearest.is_dir() {
        return Err(format!("{} is not a directory", nearest.display()));
    }
    let probe: PathBuf = nearest.join(format!(".rethread-check-{}", std::process::id()));
    std::fs::File::create_new(&probe).map_err(|error| error.to_string())?;
    std::fs::remove_file(&probe).map_err(|error| error.to_string())
}

/// The values as text: `key = value   (source)`, one server after the other.
fn listing(rows: &[Row], servers: &[ServerSettings], colour: bool) -> String {
    let (bold, dim, plain) = if colour {
        ("\x1b[1m", "\x1b[2m", "\x1b[0m")
    } else {
        ("", "", "")
    };
    let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (keys, values) = (width(|row| &row.key), width(|row| &row.value).min(48));
    let mut text = String::new();
    let mut section = None;
    for row in rows {
        if row.server != section {
            section.clone_from(&row.server);
            let name = row.server.as_deref().unwrap_or_default();
            let at = servers.iter().find(|server| server.name == name);
            let at = at
                .map(|server| start_message::server_url("", server))
                .unwrap_or_default();
            text.push_str(&format!(
                "\n{bold}[servers.{name}]{plain} {dim}at {at}/mcp and {at}/sse{plain}\n"
            ));
        }
        let Row { key, value, source, .. } = row;
        let value: String = value
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        text.push_str(&format!("{key:<keys$} = {value:<values$}  {dim}({source}){plain}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_aligned_and_grouped() {
        let row = |server: Option<&str>, key: &str, value: &str, source: &str| Row {
            server: server.map(str::to_owned),
            key: key.to_owned(),
            value: value.to_owned(),
            source: source.to_owned(),
        };
        let rows = [
            row(None, "listen", "127.0.0.1:8080", "default"),
            row(None, "retry_ms", "5", "r.toml:3"),
            row(Some("x"), "command", "a\x1bb", "r.toml:5"),
        ];
        let expected = "\
listen   = 127.0.0.1:8080  (default)
retry_ms = 5               (r.toml:3)

[servers.x] at /mcp and /sse
command  = a\u{fffd}b             (r.toml:5)
";
        assert_eq!(listing(&rows, &[], false), expected);
        assert!(listing(&rows, &[], true).contains("\x1b[2m(default)\x1b[0m"));
    }

    #[test]
    fn a_folder_that_can_be_made_is_writable() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(writable(&dir.path().join("a/b")), Ok(()));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(writable(&file.join("a")).is_err());
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }
}
