//! Follows what the header of an example tells its reader to do, and compares what happens with what the header says.
//!
//! A header is Markdown in `//!` lines. An `sh` block is typed into a terminal, a `text` block is what must be seen there
//! next. Prose says which terminal: "another terminal", "the other terminal", "the first terminal". In a `text` block
//!
//! - `...` within a line stands for anything, and on a line of its own for any lines;
//! - `^C` is where the reader presses Ctrl-C: when everything above it has been seen;
//! - empty lines do not count.
//!
//! `cargo run --example NAME` runs the program that was built together with the test, on a free port instead of the one in
//! the header.

mod script;
mod terminal;

use script::{Step, read};
use std::path::{Path, PathBuf};
use terminal::Terminal;

/// Where examples listen, as their headers say.
const USUAL: &str = "127.0.0.1:8080";

/// Follows the header of the example in `source`.
///
/// # Panics
/// If anything is not as the header says.
pub fn follow(source: &Path) {
    let name = source.file_stem().and_then(|name| name.to_str());
    let name = name.expect("an example has a name");
    let text = std::fs::read_to_string(source).expect("the source of the example can be read");
    let steps = read(&text).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    let start = format!("cargo run --example {name}");
    let starts = |step: &Step| matches!(step, Step::Type { command, .. } if *command == start);
    assert!(
        steps.first().is_some_and(starts),
        "{name}: the header must begin with `{start}`"
    );
    let seen = |step: &&Step| matches!(step, Step::See { .. });
    assert!(
        steps.iter().filter(seen).count() > 1,
        "{name}: the header shows nothing"
    );

    let program = program(name, source);
    let room = tempfile::tempdir().expect("a directory for the files of the example");
    let mut terminals: Vec<Terminal> = Vec::new();
    let mut address: Option<String> = None;
    for step in &steps {
        let (Step::Type { terminal, .. } | Step::See { terminal, .. }) = step;
        while terminals.len() <= *terminal {
            terminals.push(Terminal::open(room.path()));
        }
        let terminal = &mut terminals[*terminal];
        match step {
            Step::Type { command, .. } if *command == start => {
                let listen = address.as_deref().unwrap_or("127.0.0.1:0");
                terminal.enter(&format!("'{}' {listen}", program.display()));
                let ready = terminal.peek();
                let found = ready.split_once("http://").and_then(|(_, rest)| rest.split('/').next());
                let found = found.unwrap_or_else(|| panic!("{name}: no address in `{ready}`"));
                address = Some(found.to_owned());
            }
            Step::Type { command, .. } => {
                let address = address.as_deref().expect("the program runs");
                terminal.enter(&command.replace(USUAL, address));
            }
            Step::See { lines, .. } => {
                let address = address.as_deref().expect("the program runs");
                let lines: Vec<String> = lines.iter().map(|line| line.replace(USUAL, address)).collect();
                terminal.see(&lines);
            }
        }
    }
    for terminal in &mut terminals[1..] {
        terminal.settle();
    }
}

/// The example, built with the test that runs: its neighbour in the target directory.
fn program(name: &str, source: &Path) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own program");
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("tests are in target/…/deps");
    let program = profile.join("examples").join(name);
    let age = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified());
    let hint = "build it first: `cargo test` without a choice of targets does, and so does `cargo build --examples`";
    let Ok(built) = age(&program) else {
        panic!("{} is not there; {hint}", program.display())
    };
    let written = age(source).expect("the source of the example has an age");
    assert!(
        built >= written,
        "{} is older than its source; {hint}",
        program.display()
    );
    program
}
