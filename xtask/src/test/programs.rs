//! The programs that the tests run. Missing ones are installed or named before anything is built.

use super::Extent;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A program of the table below.
#[derive(Debug)]
struct Program {
    /// Any one of these names is enough.
    names: &'static [&'static str],
    /// Arguments of a run that succeeds if the program is good enough; none if its presence is enough.
    probe: &'static [&'static str],
    /// Debian packages that bring it.
    packages: &'static [&'static str],
    needed_by: &'static str,
    /// The smaller extent that needs it.
    extent: Extent,
}

/// Succeeds if Python can make virtual environments, in one of the ways that `tests/outside/clients/setup.sh` knows.
const HAS_VENV: &str = "\
import importlib.util, shutil, sys
has = importlib.util.find_spec
sys.exit(not (has('venv') and has('ensurepip') or has('virtualenv') or shutil.which('virtualenv')))";

const PROGRAMS: &[Program] = &[
    Program {
        names: &["cc"],
        probe: &[],
        packages: &["gcc", "libc6-dev"],
        needed_by: "the power cut tests",
        extent: Extent::Fast,
    },
    Program {
        names: &["bash"],
        probe: &[],
        packages: &["bash"],
        needed_by: "the tests of the examples",
        extent: Extent::Fast,
    },
    Program {
        names: &["curl"],
        probe: &[],
        packages: &["curl"],
        needed_by: "the tests of the examples",
        extent: Extent::Fast,
    },
    Program {
        names: &["script"],
        probe: &[],
        packages: &["bsdutils"],
        needed_by: "the test of the demo in a terminal",
        extent: Extent::Fast,
    },
    Program {
        names: &["fish"],
        probe: &[],
        packages: &["fish"],
        needed_by: "the test of the demo's commands",
        extent: Extent::Everything,
    },
    Program {
        names: &["zsh"],
        probe: &[],
        packages: &["zsh"],
        needed_by: "the test of the demo's commands",
        extent: Extent::Everything,
    },
    Program {
        names: &["python3"],
        probe: &["-c", "import sys; sys.exit(sys.version_info < (3, 10))"],
        packages: &["python3"],
        needed_by: "the gateway tests; 3.10 or newer",
        extent: Extent::Fast,
    },
    Program {
        names: &["python3"],
        probe: &["-c", HAS_VENV],
        packages: &["python3", "python3-venv"],
        needed_by: "the spelling check and the official Python clients; with `venv` or `virtualenv`",
        extent: Extent::Fast,
    },
    Program {
        names: &["node"],
        probe: &["-e", "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)"],
        packages: &["nodejs"],
        needed_by: "the official TypeScript clients; 20 or newer",
        extent: Extent::Everything,
    },
    Program {
        names: &["npm"],
        probe: &[],
        packages: &["npm"],
        needed_by: "the official TypeScript clients",
        extent: Extent::Everything,
    },
    Program {
        names: &["chromium", "chromium-browser", "google-chrome"],
        probe: &[],
        packages: &["chromium"],
        needed_by: "the browser test",
        extent: Extent::Everything,
    },
    Program {
        names: &["nginx"],
        probe: &[],
        packages: &["nginx-light"],
        needed_by: "the tests of docs/deploy",
        extent: Extent::Everything,
    },
];

/// The step to take before the first test.
#[derive(Debug, PartialEq)]
enum Decision {
    /// Nothing is missing.
    Go,
    /// These Debian packages can be installed now.
    Install(Vec<&'static str>),
    /// A person has to act; the text has the command.
    Stop(String),
}

/// The machine that runs the tests.
#[derive(Clone, Copy)]
struct Machine {
    is_root: bool,
    has_apt: bool,
}

/// Installs what is missing, or fails with the line that installs it.
pub(crate) fn prepare(extent: Extent) -> Result<(), String> {
    let mut machine = Machine {
        is_root: is_root(),
        has_apt: find("apt-get").is_some(),
    };
    match decide(extent, is_installed, machine) {
        Decision::Go => return Ok(()),
        Decision::Stop(text) => return Err(text),
        Decision::Install(packages) => install(&packages)?,
    }
    // A package can be too old. To install it again does not help.
    machine.is_root = false;
    match decide(extent, is_installed, machine) {
        Decision::Stop(text) => Err(format!("after the installation {text}")),
        Decision::Go | Decision::Install(_) => Ok(()),
    }
}

fn decide(extent: Extent, is_installed: impl Fn(&Program) -> bool, machine: Machine) -> Decision {
    let needed = |program: &&Program| program.extent == Extent::Fast || extent == Extent::Everything;
    let missing: Vec<&Program> = PROGRAMS
        .iter()
        .filter(needed)
        .filter(|program| !is_installed(program))
        .collect();
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
    let mut text = "these programs are missing or too old:\n".to_owned();
    for program in missing {
        text += &format!("  {:<9} for {}\n", program.names[0], program.needed_by);
    }
    let packages = packages.join(" ");
    let sudo = if machine.is_root { "" } else { "sudo " };
    text += &match machine.has_apt {
        true => format!(
            "install them, then try again:\n  \
             {sudo}apt-get update && {sudo}apt-get install -y --no-install-recommends {packages}"
        ),
        false => format!("install them with the package manager of this system; Debian calls them:\n  {packages}"),
    };
    if extent == Extent::Everything {
        text += "\n`cargo xtask test --fast` needs fewer of them";
    }
    Decision::Stop(text)
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

fn is_installed(program: &Program) -> bool {
    let works = |path: PathBuf| {
        let mut probe = Command::new(path);
        probe.args(program.probe).stdin(Stdio::null());
        let ran = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
        ran.is_ok_and(|status| status.success())
    };
    let mut found = program.names.iter().filter_map(|name| find(name));
    found.any(|path| program.probe.is_empty() || works(path))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps nginx out of the path of ordinary users.
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

    fn without(missing: &'static [&'static str]) -> impl Fn(&Program) -> bool {
        |program| !missing.contains(&program.names[0])
    }

    #[test]
    fn complete_machine_goes() {
        for machine in [ROOT_ON_DEBIAN, USER_ON_DEBIAN, ELSEWHERE] {
            assert_eq!(decide(Extent::Everything, without(&[]), machine), Decision::Go);
        }
    }

    #[test]
    fn root_on_debian_installs_each_missing_package_once() {
        let decision = decide(Extent::Everything, without(&["python3", "chromium"]), ROOT_ON_DEBIAN);
        let packages = vec!["ca-certificates", "python3", "python3-venv", "chromium"];
        assert_eq!(decision, Decision::Install(packages));
    }

    #[test]
    fn user_on_debian_is_told_the_exact_line() {
        let Decision::Stop(text) = decide(Extent::Everything, without(&["chromium", "nginx"]), USER_ON_DEBIAN) else {
            panic!("it does not stop");
        };
        let line = "sudo apt-get update && sudo apt-get install -y --no-install-recommends \
                    ca-certificates chromium nginx-light";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("chromium  for the browser test"), "{text}");
        assert!(text.contains("--fast"), "{text}");
    }

    #[test]
    fn other_systems_are_told_the_programs() {
        let Decision::Stop(text) = decide(Extent::Everything, without(&["node"]), ELSEWHERE) else {
            panic!("it does not stop");
        };
        assert!(text.contains("node") && text.contains("20 or newer"), "{text}");
        assert!(!text.contains("apt-get"), "{text}");
    }

    #[test]
    fn fast_tests_need_fewer_programs() {
        let outside = without(&["node", "chromium", "nginx"]);
        assert_eq!(decide(Extent::Fast, outside, USER_ON_DEBIAN), Decision::Go);
        let Decision::Stop(text) = decide(Extent::Fast, without(&["curl"]), USER_ON_DEBIAN) else {
            panic!("it does not stop");
        };
        assert!(text.contains("curl") && !text.contains("--fast"), "{text}");
    }
}
