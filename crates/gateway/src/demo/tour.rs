//! The commands to try after the story. Each works as printed in its shell.

use crate::output::Styles;
use clap::ValueEnum;
use std::net::SocketAddr;

/// The shell that the commands are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TourShell {
    /// sh, bash, zsh and other POSIX shells
    Sh,
    Fish,
    Powershell,
}

impl TourShell {
    /// The shell of the user, if it is known.
    pub(crate) fn of_user() -> Self {
        Self::of_path(&std::env::var("SHELL").unwrap_or_default())
    }

    fn of_path(path: &str) -> Self {
        match path.rsplit('/').next() {
            Some("fish") => TourShell::Fish,
            Some("pwsh" | "powershell") => TourShell::Powershell,
            _ => TourShell::Sh,
        }
    }
}

/// The commands of the tour, one line each.
struct TourCommands {
    /// Defines `mcp`, which sends a request with the headers of MCP.
    define: String,
    session: String,
    call: String,
    resume: String,
    kill: String,
}

const ACCEPT: &str = "accept: application/json, text/event-stream";
const CONTENT_TYPE: &str = "content-type: application/json";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}"#;
const COUNTDOWN: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"countdown","arguments":{"seconds":10},"_meta":{"progressToken":1}}}"#;

impl TourCommands {
    fn new(shell: TourShell, url: &str, pid: u32) -> Self {
        match shell {
            TourShell::Sh => TourCommands {
                define: format!(r#"mcp() {{ curl -sSN {url} -H '{ACCEPT}' -H '{CONTENT_TYPE}' "$@"; }}"#),
                session: format!(
                    r#"SESSION=$(mcp -i -d '{INITIALIZE}' | tr -d '\r' | awk '/^mcp-session-id:/ {{ print $2 }}')"#
                ),
                call: format!(r#"mcp -H "mcp-session-id: $SESSION" -d '{COUNTDOWN}'"#),
                resume: r#"mcp -H "mcp-session-id: $SESSION" -H 'last-event-id: 1-3'"#.to_owned(),
                kill: format!("kill -9 {pid}"),
            },
            TourShell::Fish => TourCommands {
                define: format!("function mcp; curl -sSN {url} -H '{ACCEPT}' -H '{CONTENT_TYPE}' $argv; end"),
                session: format!(
                    r"set SESSION (mcp -i -d '{INITIALIZE}' | string replace -rf '^mcp-session-id: (\S+)\s*$' '$1')"
                ),
                call: format!(r#"mcp -H "mcp-session-id: $SESSION" -d '{COUNTDOWN}'"#),
                resume: r#"mcp -H "mcp-session-id: $SESSION" -H 'last-event-id: 1-3'"#.to_owned(),
                kill: format!("kill -9 {pid}"),
            },
            // Bodies go through stdin, since PowerShell before 7.3 removes the quotes of arguments. `curl` alone can be an alias.
            TourShell::Powershell => TourCommands {
                define: format!(
                    "$curl = (Get-Command curl -CommandType Application)[0].Source; \
                     function mcp {{ $input | & $curl -sSN {url} -H '{ACCEPT}' -H '{CONTENT_TYPE}' @args }}"
                ),
                session: format!(
                    r"$session = ('{INITIALIZE}' | mcp -i -d '@-' | Select-String '^mcp-session-id: (\S+)').Matches[0].Groups[1].Value"
                ),
                call: format!(r#"'{COUNTDOWN}' | mcp -H "mcp-session-id: $session" -d '@-'"#),
                resume: r#"mcp -H "mcp-session-id: $session" -H 'last-event-id: 1-3'"#.to_owned(),
                kill: format!("Stop-Process -Force -Id {pid}"),
            },
        }
    }
}

/// The end of the demo's output. `pid` is the process of the gateway.
pub(super) fn tour(shell: TourShell, address: SocketAddr, pid: u32, styles: &Styles) -> String {
    let Styles { bold, dim, plain, .. } = styles;
    let base = format!("http://{address}");
    let TourCommands {
        define,
        session,
        call,
        resume,
        kill,
    } = TourCommands::new(shell, &format!("{base}/mcp"), pid);
    format!(
        "\
{bold}Now you: the gateway is at {base}/mcp{plain}
In another terminal:

{bold}1. Open a session.{plain}
{define}
{session}

{bold}2. Start a call of ten seconds, and press Ctrl-C before it ends.{plain} Every event has an id.
{call}

{bold}3. Resume the stream.{plain} The call has continued. Replace 1-3 by the last id you saw, or keep it.
{resume}

{bold}4. Kill the gateway, and resume again.{plain} The demo starts another process on the same data.
{kill}

{dim}Or open {base}/ in a browser, or add it to a client:
  claude mcp add --transport http rethread-demo {base}/mcp
Ctrl-C here stops the demo. For your own server: rethread serve -- COMMAND{plain}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(shell: TourShell) -> String {
        tour(shell, ([127, 0, 0, 1], 1).into(), 7, &Styles::new(false))
    }

    #[test]
    fn tour_shows_every_command_on_its_own_line() {
        for &shell in TourShell::value_variants() {
            let text = text(shell);
            let commands = TourCommands::new(shell, "http://127.0.0.1:1/mcp", 7);
            let TourCommands {
                define,
                session,
                call,
                resume,
                kill,
            } = commands;
            for command in [define, session, call, resume, kill] {
                assert!(text.lines().any(|line| line == command), "{shell:?}: {command}");
            }
            assert!(!text.contains('\x1b'));
        }
        let colored = tour(TourShell::Sh, ([127, 0, 0, 1], 1).into(), 7, &Styles::new(true));
        assert!(colored.contains('\x1b'));
    }

    #[test]
    fn bodies_are_json_in_single_quotes() {
        for &shell in TourShell::value_variants() {
            let text = text(shell);
            let bodies = text
                .split('\'')
                .filter(|part| part.starts_with('{') && part.contains("jsonrpc"));
            let bodies: Vec<_> = bodies.collect();
            assert_eq!(bodies.len(), 2, "{shell:?}");
            for body in bodies {
                assert!(serde_json::from_str::<serde_json::Value>(body).is_ok(), "{body}");
            }
        }
    }

    #[test]
    fn shell_follows_from_its_path() {
        let table = [
            ("/usr/bin/fish", TourShell::Fish),
            ("/opt/microsoft/powershell/7/pwsh", TourShell::Powershell),
            ("/bin/bash", TourShell::Sh),
            ("", TourShell::Sh),
        ];
        for (path, shell) in table {
            assert_eq!(TourShell::of_path(path), shell, "{path}");
        }
    }
}
