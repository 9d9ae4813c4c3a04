//! How the program ends: its exit codes, and failures that say what to try.

use rethread_store_embedded::OpenError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

/// Every exit code there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done, or stopped when told to.
    Ok = 0,
    /// Something went wrong while running.
    Failure = 1,
    /// The command line or the configuration is wrong. Also clap's own code.
    Usage = 2,
    /// Somebody else listens there.
    AddressInUse = 3,
    /// The data directory cannot be used.
    Store = 4,
    /// Told to stop twice: did not wait for running calls.
    Interrupted = 130,
}

impl Exit {
    const ALL: [Exit; 6] = [
        Exit::Ok,
        Exit::Failure,
        Exit::Usage,
        Exit::AddressInUse,
        Exit::Store,
        Exit::Interrupted,
    ];

    /// The number the shell sees.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    fn meaning(self) -> &'static str {
        match self {
            Exit::Ok => "done, or stopped when told to",
            Exit::Failure => "something failed while running",
            Exit::Usage => "the command line or the configuration is wrong",
            Exit::AddressInUse => "the address is in use",
            Exit::Store => "the data directory is in use, damaged or not writable",
            Exit::Interrupted => "interrupted twice: stopped without waiting for running calls",
        }
    }

    /// The section of the help that lists them.
    pub(crate) fn help() -> String {
        let lines = Exit::ALL.map(|exit| format!("  {:>3}  {}", exit.code(), exit.meaning()));
        format!("Exit codes:\n{}", lines.join("\n"))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// Why the program ends early: what happened, and what to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The code to end with.
    pub(crate) exit: Exit,
    /// What happened, and where.
    pub(crate) what: String,
    /// What a person may do about it.
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// A failure without advice.
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Failure {
            exit,
            what: what.into(),
            hint: None,
        }
    }

    /// Adds what to try.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// Why the gateway cannot listen on `address`.
pub(crate) fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::AddrInUse => Exit::AddressInUse,
        _ => Exit::Failure,
    };
    Failure::new(exit, format!("cannot listen on {address}: {error}"))
        .hint("--listen 127.0.0.1:0 for a free port, or another address")
}

/// Why a store cannot be opened.
pub(crate) fn cannot_use_store(error: &OpenError) -> Failure {
    Failure::new(Exit::Store, error.to_string()).hint("--data DIR for another folder, or --memory to keep nothing")
}

/// `error: …` and what to try.
pub(crate) fn report(what: &str, hint: Option<&str>, colour: bool) -> String {
    let (red, green, plain) = if colour {
        ("\x1b[1;31m", "\x1b[32m", "\x1b[0m")
    } else {
        ("", "", "")
    };
    let mut text = format!("{red}error:{plain} {what}\n");
    if let Some(hint) = hint {
        text.push_str(&format!("  {green}try:{plain} {hint}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_code_once() {
        let help = Exit::help();
        for exit in Exit::ALL {
            assert_eq!(help.matches(exit.meaning()).count(), 1, "{exit:?}");
        }
        assert!(help.contains("\n    3  the address is in use\n"), "{help}");
    }

    #[test]
    fn a_report_has_colours_only_if_asked() {
        let shown = |colour| report("cannot listen on 127.0.0.1:80", Some("--listen 127.0.0.1:0"), colour);
        let plain = "error: cannot listen on 127.0.0.1:80\n  try: --listen 127.0.0.1:0\n";
        assert_eq!(shown(false), plain);
        assert!(shown(true).starts_with("\x1b[1;31merror:\x1b[0m "));
    }
}
