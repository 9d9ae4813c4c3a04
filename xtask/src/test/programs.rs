//! The programs that the tests run. Missing ones are installed or reported before the first build.

use crate::run;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A program of the table below.
#[derive(Debug)]
pub(super) struct Program {
    /// Any one of these names is enough.
    pub(super) names: &'static [&'static str],
    /// Arguments of a test run of the program. Without any, its presence is enough.
    probe: &'static [&'static str],
    /// Debian packages that contain it.
    packages: &'static [&'static str],
    needed_by: &'static str,
    /// The part of a run that needs it.
    part: Part,
}

/// A part of a run that needs programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    /// Checks and the tests of the workspace. A fast run skips tests without their programs.
    Workspace,
    /// The suites with third-party programs.
    Outside,
}

/// Succeeds if Python can create virtual environments in one of the ways of `tests/outside/clients/setup.sh`.
const HAS_VENV: &str = "\
import importlib.util, shutil, sys
has = importlib.util.find_spec
sys.exit(not (has('venv') and has('ensurepip') or has('virtualenv') or shutil.which('virtualenv')))";

/// The program that creates virtual environments, for the spelling check.
pub(super) const VENV: &Program = &Program {
    names: &["python3"],
    probe: &["-c", HAS_VENV],
    packages: &["python3", "python3-venv"],
    needed_by: "the spelling check and the official Python clients; with `venv` or `virtualenv`",
    part: Part::Workspace,
};

const PROGRAMS: &[Program] = &[
    Program {
        names: &["bash"],
        probe: &[],
        packages: &["bash"],
        needed_by: "the tests of the examples",
        part: Part::Workspace,
    },
    Program {
        names: &["curl"],
        probe: &[],
        packages: &["curl"],
        needed_by: "the tests of the examples",
        part: Part::Workspace,
    },
    Program {
        names: &["script"],
        probe: &[],
        packages: &["bsdutils"],
        needed_by: "the test of the demo in a terminal",
        part: Part::Workspace,
    },
    Program {
        names: &["fish"],
        probe: &[],
        packages: &["fish"],
        needed_by: "the test of the demo's commands",
        part: Part::Workspace,
    },
    Program {
        names: &["zsh"],
        probe: &[],
        packages: &["zsh"],
        needed_by: "the test of the demo's commands",
        part: Part::Workspace,
    },
    Program {
        names: &["python3"],
        probe: &["-c", "import sys; sys.exit(sys.version_info < (3, 10))"],
        packages: &["python3"],
        needed_by: "the gateway tests; 3.10 or newer",
        part: Part::Workspace,
    },
    Program { ..*VENV },
    Program {
        names: &["nginx"],
        probe: &[],
        packages: &["nginx-light"],
        needed_by: "the tests of docs/deploy",
        part: Part::Workspace,
    },
    Program {
        names: &["redis-server", "valkey-server"],
        probe: &["--version"],
        packages: &["redis-server"],
        needed_by: "the tests of the store on Redis and of several nodes",
        part: Part::Workspace,
    },
    // npm installs a newer Node for the official clients. Debian 12 has Node 18.
    Program {
        names: &["node"],
        probe: &["-e", "process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)"],
        packages: &["nodejs"],
        needed_by: "npm and the npm package; 18 or newer",
        part: Part::Outside,
    },
    Program {
        names: &["npm"],
        probe: &["--version"],
        packages: &["npm"],
        needed_by: "the official TypeScript clients",
        part: Part::Outside,
    },
    // The package of Ubuntu is a script that only refers to the snap and fails.
    Program {
        names: &["chromium", "chromium-browser", "google-chrome"],
        probe: &["--version"],
        packages: &["chromium"],
        needed_by: "the browser test; on Ubuntu install Google Chrome, or Chromium as a snap",
        part: Part::Outside,
    },
];

/// The action before the first test.
#[derive(Debug, PartialEq)]
enum Decision {
    /// Nothing is missing.
    Go,
    /// These Debian packages can be installed now.
    Install(Vec<&'static str>),
    /// The user must install programs. The text has the command.
    Stop(String),
}

/// The machine that runs the tests.
#[derive(Clone, Copy)]
struct Machine {
    is_root: bool,
    has_apt: bool,
}

/// Installs missing programs, or fails with the command that installs them.
pub(super) fn prepare(parts: &[Part]) -> Result<(), String> {
    let machine = Machine {
        is_root: is_root(),
        has_apt: find("apt-get").is_some(),
    };
    match decide(&missing(parts, is_installed), machine) {
        Decision::Go => return Ok(()),
        Decision::Stop(text) => return Err(text),
        Decision::Install(packages) => install(&packages)?,
    }
    // A package can be too old. Installing it again does not help.
    let missing = missing(parts, is_installed);
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "the packages of this system do not bring these programs:\n{}",
            list(&missing)
        )),
    }
}

/// Whether the first program of this name is missing. Names that are not in the table are never missing.
pub(super) fn is_missing(name: &str) -> bool {
    let mut found = PROGRAMS.iter().filter(|program| program.names.contains(&name));
    found.next().is_some_and(|program| !is_installed(program))
}

fn missing(parts: &[Part], is_installed: impl Fn(&Program) -> bool) -> Vec<&'static Program> {
    let needed = PROGRAMS.iter().filter(|program| parts.contains(&program.part));
    needed.filter(|program| !is_installed(program)).collect()
}

fn decide(missing: &[&'static Program], machine: Machine) -> Decision {
    if missing.is_empty() {
        return Decision::Go;
    }
    let mut packages = vec!["ca-certificates"];
    for package in missing.iter().flat_map(|program| program.packages) {
        if !packages.contains(package) {
            packages.push(package);
        }
    }
    if machine.is_root && machine.has_apt {
        return Decision::Install(packages);
    }
    let packages = packages.join(" ");
    let sudo = if machine.is_root { "" } else { "sudo " };
    let advice = match machine.has_apt {
        true => format!(
            "install them, then try again:\n  \
             {sudo}apt-get update && {sudo}apt-get install -y --no-install-recommends {packages}"
        ),
        false => format!("install them with the package manager of this system; Debian calls them:\n  {packages}"),
    };
    Decision::Stop(format!(
        "these programs are missing or too old:\n{}{advice}\n`cargo xtask test --fast` needs none of them",
        list(missing)
    ))
}

fn list(missing: &[&Program]) -> String {
    let line = |program: &&Program| format!("  {:<9} for {}\n", program.names[0], program.needed_by);
    missing.iter().map(line).collect()
}

fn install(packages: &[&str]) -> Result<(), String> {
    println!("--- installing {}", packages.join(" "));
    let options = ["install", "-y", "-qq", "--no-install-recommends"];
    for arguments in [&["update", "-qq"][..], &[&options[..], packages].concat()] {
        let mut apt = Command::new("apt-get");
        apt.args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let status = apt.status().map_err(|error| format!("cannot start apt-get: {error}"))?;
        if !status.success() {
            return Err(format!("`apt-get {}` failed: {status}", arguments.join(" ")));
        }
    }
    Ok(())
}

pub(super) fn is_installed(program: &Program) -> bool {
    let works = |path: PathBuf| run::succeeds(Command::new(path).args(program.probe));
    let mut found = program.names.iter().filter_map(|name| find(name));
    found.any(|path| program.probe.is_empty() || works(path))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian installs nginx outside of the path of ordinary users.
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    places.map(|dir| dir.join(program)).find(|file| file.is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT_ON_DEBIAN: Machine = Machine {
        is_root: true,
        has_apt: true,
    };
    const USER_ON_DEBIAN: Machine = Machine {
        is_root: false,
        has_apt: true,
    };
    const ELSEWHERE: Machine = Machine {
        is_root: true,
        has_apt: false,
    };

    const ALL: &[Part] = &[Part::Workspace, Part::Outside];

    fn without(names: &'static [&'static str]) -> Vec<&'static Program> {
        missing(ALL, |program| !names.contains(&program.names[0]))
    }

    #[test]
    fn complete_machine_needs_nothing() {
        for machine in [ROOT_ON_DEBIAN, USER_ON_DEBIAN, ELSEWHERE] {
            assert_eq!(decide(&without(&[]), machine), Decision::Go);
        }
    }

    #[test]
    fn root_on_debian_installs_each_missing_package_once() {
        let decision = decide(&without(&["python3", "chromium"]), ROOT_ON_DEBIAN);
        let packages = vec!["ca-certificates", "python3", "python3-venv", "chromium"];
        assert_eq!(decision, Decision::Install(packages));
    }

    #[test]
    fn user_on_debian_gets_the_exact_command() {
        let Decision::Stop(text) = decide(&without(&["chromium", "nginx"]), USER_ON_DEBIAN) else {
            panic!("it does not stop");
        };
        let line = "sudo apt-get update && sudo apt-get install -y --no-install-recommends \
                    ca-certificates nginx-light chromium";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("chromium  for the browser test"), "{text}");
        assert!(text.contains("--fast"), "{text}");
    }

    #[test]
    fn other_systems_get_the_list_of_programs() {
        let Decision::Stop(text) = decide(&without(&["node"]), ELSEWHERE) else {
            panic!("it does not stop");
        };
        assert!(text.contains("node") && text.contains("18 or newer"), "{text}");
        assert!(!text.contains("apt-get"), "{text}");
    }

    #[test]
    fn parts_need_their_own_programs_only() {
        let nothing = |_: &Program| false;
        let names = |parts: &[Part]| {
            missing(parts, nothing)
                .iter()
                .map(|program| program.names[0])
                .collect::<Vec<_>>()
        };
        assert!(names(&[]).is_empty());
        assert_eq!(names(&[Part::Outside]), ["node", "npm", "chromium"]);
        assert!(!names(&[Part::Workspace]).contains(&"node"));
    }
}
