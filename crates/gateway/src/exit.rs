//! Exit codes, and failures with advice.

use crate::output::Styles;
use rethread_store_embedded::OpenError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

/// The exit codes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Ok = 0,
    Failure = 1,
    /// Also the code of clap for usage errors.
    Usage = 2,
    AddressInUse = 3,
    Store = 4,
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

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    fn meaning(self) -> &'static str {
        match self {
            Exit::Ok => "success, or stopped by a signal",
            Exit::Failure => "a failure at run time",
            Exit::Usage => "invalid command line or configuration",
            Exit::AddressInUse => "the address is in use",
            Exit::Store => {
                "the store cannot be used: a data directory in use, damaged or not writable; Redis not reachable"
            }
            Exit::Interrupted => "stopped by a second signal, without waiting for running calls",
        }
    }

    /// The section of the help.
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

/// Why the program ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// A remedy for the user to try.
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::new(Exit::Failure, error.to_string())
    }
}

/// The gateway cannot listen on `address`.
pub(crate) fn listen_failure(address: SocketAddr, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::AddrInUse => Exit::AddressInUse,
        _ => Exit::Failure,
    };
    Failure::new(exit, format!("cannot listen on {address}: {error}"))
        .hint("--listen 127.0.0.1:0 for a free port, or another address")
}

/// A store cannot be opened.
pub(crate) fn store_failure(error: &OpenError) -> Failure {
    Failure::new(Exit::Store, error.to_string())
        .hint("--data DIR with another directory, or --memory to keep sessions in memory")
}

/// Formats an error and its hint for stderr.
pub(crate) fn report(message: &str, hint: Option<&str>, color: bool) -> String {
    let Styles { red, green, plain, .. } = Styles::new(color);
    let mut text = format!("{red}error:{plain} {message}\n");
    if let Some(hint) = hint {
        text.push_str(&format!("  {green}try:{plain} {hint}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_every_code_once() {
        let help = Exit::help();
        for exit in Exit::ALL {
            assert_eq!(help.matches(exit.meaning()).count(), 1, "{exit:?}");
        }
        assert!(help.contains("\n    3  the address is in use\n"), "{help}");
    }

    #[test]
    fn report_has_colors_only_on_request() {
        let shown = |color| report("cannot listen on 127.0.0.1:80", Some("--listen 127.0.0.1:0"), color);
        let plain = "error: cannot listen on 127.0.0.1:80\n  try: --listen 127.0.0.1:0\n";
        assert_eq!(shown(false), plain);
        assert!(shown(true).starts_with("\x1b[1;31merror:\x1b[0m "));
    }
}
