//! Completions and manual pages.

use crate::exit::{Exit, Failure};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// The completion script of a shell.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(), "rethread", &mut script);
    script
}

/// The command line without hidden commands, which the generators would offer.
fn visible() -> Command {
    let full = super::command();
    let commands = full.get_subcommands().filter(|command| !command.is_hide_set());
    Command::new("rethread")
        .propagate_version(true)
        .version(env!("CARGO_PKG_VERSION"))
        .args(full.get_arguments().cloned())
        .subcommands(commands.cloned())
}

/// The manual page of the program, or of one of its commands.
pub(crate) fn man(command: Option<&str>) -> Result<Vec<u8>, Failure> {
    let mut root = super::command();
    root.build(); // sets the full names of the commands
    let page = match command {
        Some(name) => root.find_subcommand(name).cloned(),
        None => Some(root),
    };
    let page = page.ok_or_else(|| Failure::new(Exit::Usage, "there is no such command"))?;
    // The generator omits options that `-h` hides, unless they have a long help.
    let page = page.mut_args(|arg| match arg.get_help().cloned() {
        Some(help) if arg.get_long_help().is_none() => arg.long_help(help),
        _ => arg,
    });
    let title = page.get_display_name().unwrap_or("rethread").to_owned();
    let mut text = Vec::new();
    Man::new(page)
        .title(title)
        .manual("Rethread")
        .render(&mut text)
        .map_err(|error| Failure::new(Exit::Failure, format!("cannot make the manual page: {error}")))?;
    Ok(text)
}
