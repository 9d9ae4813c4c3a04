//! Runs the commands in the header of an example and compares their output with the header.
//!
//! A header is Markdown in `//!` lines. An `sh` block is typed into a terminal. A `text` block is the expected output.
//! Prose selects the terminal: "another terminal", "the other terminal", "the first terminal". In a `text` block
//!
//! - `...` within a line matches any text, and on its own line any lines;
//! - `^C` sends Ctrl-C once everything above it was printed;
//! - empty lines are ignored.
//!
//! `cargo run --example NAME` runs the program that was built with the test, on a free port.

mod script;
mod terminal;

use script::{Step, parse};
use std::path::{Path, PathBuf};
use terminal::Terminal;

/// The address of examples in their headers.
const DOCUMENTED_ADDRESS: &str = "127.0.0.1:8080";

/// Runs the header of the example in `source`.
///
/// # Panics
/// If the output differs from the header.
pub fn run(source: &Path) {
    let name = source.file_stem().and_then(|name| name.to_str());
    let name = name.expect("a file name");
    let text = std::fs::read_to_string(source).expect("a readable source file");
    let steps = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let start = format!("cargo run --example {name}");
    let starts = |step: &Step| matches!(step, Step::Type { command, .. } if *command == start);
    assert!(
        steps.first().is_some_and(starts),
        "{name}: the header must start with `{start}`"
    );
    let expects = |step: &&Step| matches!(step, Step::Expect { .. });
    assert!(
        steps.iter().filter(expects).count() > 1,
        "{name}: the header shows no output"
    );

    let program = program(name, source);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut terminals: Vec<Terminal> = Vec::new();
    let mut address: Option<String> = None;
    for step in &steps {
        let (Step::Type { terminal, .. } | Step::Expect { terminal, .. }) = step;
        while terminals.len() <= *terminal {
            terminals.push(Terminal::open(directory.path()));
        }
        let terminal = &mut terminals[*terminal];
        match step {
            Step::Type { command, .. } if *command == start => {
                let listen = address.as_deref().unwrap_or("127.0.0.1:0");
                terminal.enter(&format!("'{}' {listen}", program.display()));
                let ready = terminal.peek();
                let host = ready.split_once("http://").and_then(|(_, rest)| rest.split('/').next());
                let host = host.unwrap_or_else(|| panic!("{name}: no address in `{ready}`"));
                address = Some(host.to_owned());
            }
            Step::Type { command, .. } => {
                let address = address.as_deref().expect("the program is running");
                terminal.enter(&command.replace(DOCUMENTED_ADDRESS, address));
            }
            Step::Expect { lines, .. } => {
                let address = address.as_deref().expect("the program is running");
                let lines: Vec<String> = lines
                    .iter()
                    .map(|line| line.replace(DOCUMENTED_ADDRESS, address))
                    .collect();
                terminal.expect(&lines);
            }
        }
    }
    for terminal in &mut terminals[1..] {
        terminal.wait_until_idle();
    }
}

/// The example program in the target directory of the running test.
fn program(name: &str, source: &Path) -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test");
    let profile = test.parent().and_then(Path::parent).expect("a path like target/…/deps");
    let program = profile.join("examples").join(name);
    let modified = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified());
    let hint = "build it with `cargo test` without a target option, or with `cargo build --examples`";
    let Ok(built) = modified(&program) else {
        panic!("{} does not exist; {hint}", program.display())
    };
    let written = modified(source).expect("a modification time");
    assert!(
        built >= written,
        "{} is older than its source; {hint}",
        program.display()
    );
    program
}
