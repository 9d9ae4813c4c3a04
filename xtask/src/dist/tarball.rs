//! The archive with the program, its manual pages, completions and licences.

use super::program::{Program, commit_time};
use super::{copy_file, copy_licences, make_folder, output, write_file};
use crate::run;
use std::path::Path;
use std::process::Command;

/// Commands with their own manual page.
const COMMANDS: [&str; 3] = ["serve", "check", "demo"];

/// Shells, and the name of the completion script that each of them expects.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "rethread.bash"),
    ("fish", "rethread.fish"),
    ("zsh", "_rethread"),
];

/// The name of the archive and of the folder in it, as `package.metadata.binstall` of the gateway has it.
const NAME: &str = "rethread-{ version }-{ target }";

/// Makes `rethread-VERSION-TARGET.tar.gz`.
pub(super) fn make(program: &Program, stage: &Path, out: &Path) -> Result<(), String> {
    let name = NAME.replace("{ version }", &program.version);
    let name = name.replace("{ target }", &program.target);
    let folder = stage.join(&name);
    make_folder(&folder)?;
    let root = run::root();
    copy_file(&program.file, &folder.join("rethread"))?;
    copy_file(&root.join("crates/gateway/README.md"), &folder.join("README.md"))?;
    copy_file(&root.join("CHANGELOG.md"), &folder.join("CHANGELOG.md"))?;
    copy_licences(&folder)?;
    if program.run(&["--version"]).is_some() {
        write_pages(program, &folder)?;
    } else {
        println!(
            "no manual pages and completions: this machine cannot run a program for {}",
            program.target
        );
    }
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mode=u=rwX,go=rX",
    ])
    .arg(format!("--mtime=@{}", commit_time(&root)))
    // gzip -n omits the time of the run.
    .args(["--use-compress-program", "gzip -9 -n", "-cf"])
    .arg(out.join(format!("{name}.tar.gz")))
    .arg("-C")
    .arg(stage)
    .arg(&name);
    output(&mut tar).map(drop)
}

fn write_pages(program: &Program, folder: &Path) -> Result<(), String> {
    let print = |arguments: &[&str]| {
        let printed = program.run(arguments);
        printed.ok_or_else(|| format!("rethread {} failed", arguments.join(" ")))
    };
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    make_folder(&man)?;
    make_folder(&completions)?;
    write_file(&man.join("rethread.1"), &print(&["man"])?)?;
    for command in COMMANDS {
        write_file(&man.join(format!("rethread-{command}.1")), &print(&["man", command])?)?;
    }
    for (shell, file) in SHELLS {
        write_file(&completions.join(file), &print(&["completions", shell])?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binstall_looks_for_this_archive() {
        let manifest = include_str!("../../../crates/gateway/Cargo.toml");
        let lines: Vec<&str> = manifest.lines().collect();
        let has = |key: &str, part: &str| lines.iter().any(|line| line.starts_with(key) && line.contains(part));
        assert!(has("pkg-url", &format!("/{NAME}.tar.gz\"")));
        assert!(has("bin-dir", &format!("\"{NAME}/{{ bin }}")));
    }
}
