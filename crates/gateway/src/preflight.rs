//! Conditions that must hold before a server starts. `serve`, `check` and reload test the same ones.

use crate::auth;
use crate::config::{Environment, Problem, secret};
use crate::exit::{Exit, store_failure};
use crate::settings::{ServerSettings, Settings, StoreSettings};
use rethread_store_embedded::EmbeddedStore;
use std::path::{Path, PathBuf};

/// The problems that would keep `serve` from starting, in the order in which it would meet them. Does not test the
/// listening address.
pub(crate) fn problems(settings: &Settings, environment: &Environment) -> Vec<Problem> {
    let servers = settings.servers.iter();
    let mut problems: Vec<_> = servers
        .flat_map(|server| server_problems(server, environment))
        .collect();
    if let Some(tls) = &settings.tls {
        problems.extend(tls.server_config().err());
    }
    if let Some(auth) = &settings.auth {
        problems.extend(auth::read_tokens(auth).err());
    }
    if let StoreSettings::Embedded { data, .. } = &settings.store {
        problems.extend(store_problems(data, &settings.servers));
    }
    problems
}

fn store_problems(data: &Path, servers: &[ServerSettings]) -> Vec<Problem> {
    if let Err(reason) = test_writable(data) {
        let mut problem = Problem::new(format!(
            "cannot write to the data directory {}: {reason}",
            data.display()
        ));
        problem.exit = Exit::Store;
        return vec![problem.hint("--data DIR with a writable directory, or --memory to keep sessions in memory")];
    }
    let folders = servers.iter().map(|server| data.join(&server.folder));
    let errors = folders.filter_map(|folder| EmbeddedStore::inspect(folder).err());
    errors.map(|error| store_failure(&error).into()).collect()
}

/// The problems that would keep one server from starting.
pub(crate) fn server_problems(server: &ServerSettings, environment: &Environment) -> Vec<Problem> {
    let missing_cwd = server.cwd.as_deref().filter(|cwd| !cwd.is_dir()).map(|cwd| {
        Problem::new(format!("{}: there is no directory {}", server.name, cwd.display()))
            .hint("create it, or set cwd to a directory that exists")
    });
    missing_cwd
        .into_iter()
        .chain(program_problem(server, environment))
        .collect()
}

fn program_problem(server: &ServerSettings, environment: &Environment) -> Option<Problem> {
    let command = &server.command;
    let shown = secret::shell_quote(&command.to_string_lossy());
    if command.components().count() > 1 || command.is_absolute() {
        if !command.exists() {
            let problem = Problem::new(format!("{}: there is no program {shown}", server.name));
            let path =
                || "its path, relative to the file or the working directory, or its name if it is on PATH".to_owned();
            return Some(problem.hint(split_command_hint(server).unwrap_or_else(path)));
        }
        let problem = || Problem::new(format!("{}: {shown} cannot be executed", server.name));
        return (!is_executable(command)).then(|| problem().hint(format!("chmod +x {shown}")));
    }
    // The lookup uses the PATH of the child.
    let inherits = server.inherit_env.includes("PATH".as_ref());
    let path = server.env.get("PATH").map(String::as_str);
    let path = path.or_else(|| environment.var("PATH").filter(|_| inherits));
    // Without PATH the system uses this default.
    let found = std::env::split_paths(path.unwrap_or("/bin:/usr/bin")).any(|dir| contains_program(&dir, command));
    if found {
        return None;
    }
    let problem = Problem::new(format!("{}: the program {shown} is not on PATH", server.name));
    let hint = if path.is_none() && !inherits {
        "PATH in inherit_env, or its full path as the command"
    } else {
        "install it, or write its full path"
    };
    Some(problem.hint(split_command_hint(server).unwrap_or_else(|| hint.to_owned())))
}

/// Advice for a command line in one string, which is a likely mistake.
fn split_command_hint(server: &ServerSettings) -> Option<String> {
    let line = server.command.to_str()?;
    let words: Vec<_> = line
        .split_whitespace()
        .chain(server.shown_args.iter().map(String::as_str))
        .collect();
    let words = secret::mask_args(words);
    if !line.contains(char::is_whitespace) {
        return None;
    }
    Some(if server.at_root {
        let command = secret::display_command(&words[0], &words[1..]);
        format!("separate words, without quotes around them: rethread serve -- {command}")
    } else {
        format!("a list: command = {words:?}")
    })
}

fn contains_program(dir: &Path, program: &Path) -> bool {
    let endings: &[&str] = if cfg!(windows) {
        &["", ".exe", ".cmd", ".bat"]
    } else {
        &[""]
    };
    endings.iter().any(|ending| {
        let mut name = program.as_os_str().to_owned();
        name.push(ending);
        is_executable(&dir.join(name))
    })
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// Creates and removes a file in the directory, or in its nearest existing ancestor. File permissions alone are not conclusive.
fn test_writable(dir: &Path) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_below_a_writable_one_is_writable() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(test_writable(&dir.path().join("a/b")), Ok(()));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(test_writable(&file.join("a")).is_err());
        let entries = std::fs::read_dir(dir.path()).unwrap();
        assert_eq!(entries.count(), 1, "the test file is removed");
    }
}
