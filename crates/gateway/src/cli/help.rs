//! The texts below the options: examples first.

use crate::accept::{HEAD_TIMEOUT, IDLE_TIMEOUT};
use crate::config::options::OPTIONS;
use crate::config::{OptionDef, Reload, Scope};
use crate::exit::Exit;

pub(super) const PROGRAM_SHORT: &str = "\
Examples:
  rethread demo                                  see it work, with no other program
  rethread serve -- npx -y some-server           one stdio server at /mcp and /sse
  rethread serve --config rethread.toml          several, each at /servers/NAME/mcp
  rethread serve --config .mcp.json              the servers of a client's JSON file

`rethread --help` shows more.";

pub(super) const PROGRAM: &str = "\
Examples:
  rethread demo
      See a call survive its connection and the gateway, then try it with curl.

  rethread serve -- npx -y @modelcontextprotocol/server-everything
      Serve a stdio server at http://127.0.0.1:8080/mcp, and at /sse for old clients.

  rethread serve --config rethread.toml
      Serve several servers at /servers/NAME/mcp.

  rethread serve --config claude_desktop_config.json
      The same with the file of Claude, Cursor or VS Code. `rethread import` prints it as TOML.

  rethread export --client cursor
      Print the entry of the running gateway for a client.

  rethread check --config rethread.toml
      Show every effective value and its source.";

pub(super) const TAPE_ABOUT: &str = "\
Prints what `serve --tape DIR` has recorded: requests, responses, events with their ids, and where connections were cut.

By default a tape has the shape of messages: kinds and sizes, no value. Headers are never on it, and a session is a tag.";

pub(super) const TAPE: &str = "\
Examples:
  rethread serve --tape tapes -- npx -y some-server
  rethread tape tapes/tape-4711-1.jsonl";

pub(super) const SERVE_SHORT: &str = "\
Examples:
  rethread serve -- npx -y @modelcontextprotocol/server-everything
  rethread serve --listen 127.0.0.1:9000 --memory -- uvx mcp-server-git
  rethread serve --config rethread.toml

`rethread serve --help` shows all options.";

pub(super) const CONSOLE_ABOUT: &str = "\
Prints the URL of the console page of a gateway on this machine.

The token is behind the `#`, which browsers never send. Who has the URL can use the admin API.";

pub(super) const CONSOLE: &str = "\
Examples:
  rethread console
      The gateway that was started with `--admin 127.0.0.1:9465` and the usual data directory.

  rethread console --config rethread.toml
      The gateway of this file, with its [admin] table.";

const SERVE_EXAMPLES: &str = "\
Examples:
  rethread serve -- npx -y @modelcontextprotocol/server-everything
      One server at /mcp and /sse. Sessions and streams survive a restart.

  rethread serve --memory --listen 127.0.0.1:9000 -- uvx mcp-server-git --repository .
      On another port, without files on disk.

  rethread serve --public-url https://mcp.example -- ./my-server
      Behind a reverse proxy that terminates TLS. Responses ask it not to buffer events.

  rethread serve --config rethread.toml
      Several servers at /servers/NAME/mcp and /servers/NAME/sse.

  rethread serve --config claude_desktop_config.json
      The stdio servers of a client's JSON file: Claude Desktop, Claude Code (.mcp.json),
      Cursor or VS Code (mcp.json). Other entries are named in a warning.

Configuration file:
  listen = \"127.0.0.1:8080\"
  session_idle = \"2h\"

  [servers.files]
  command = [\"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \".\"]

  [servers.github]
  command = \"github-mcp-server\"
  args = [\"stdio\"]
  env = { GITHUB_PERSONAL_ACCESS_TOKEN = \"${GITHUB_TOKEN}\" }
  inherit_env = [\"PATH\", \"HOME\"]
  cwd = \"/srv/github\"
  max_children = 20

  The keys are the options with `_` for `-`. `allow_hosts` and `allow_origins` are lists. Paths
  are relative to the file. No server inherits RETHREAD_* and OTEL_EXPORTER_OTLP_*HEADERS.";

pub(super) const CHECK_ABOUT: &str = "\
Check the configuration; print every effective value and its source.

Takes the options of `serve`, starts nothing, and exits with the code that `serve` would. Secrets are masked.";

pub(super) const CHECK: &str = "\
Examples:
  rethread check --config rethread.toml
  RETHREAD_LISTEN=127.0.0.1:80 rethread check -- npx -y some-server";

pub(super) const DEMO_ABOUT: &str = "\
See a call survive its connection and the gateway, then try it.

A built-in client starts calls on a built-in server. Its connection is cut, the gateway is killed with SIGKILL and restarted, \
and every event is printed with its id. Then the gateway stays up for the commands that the demo prints. With --quiet there is \
no story. Needs no other program.";

pub(super) const DEMO: &str = "\
Examples:
  rethread demo
  rethread demo --shell fish            commands for fish instead of $SHELL
  rethread demo --data ./demo-data      sessions survive when the demo itself is killed";

pub(super) const IMPORT_ABOUT: &str = "\
Print the servers of a client's JSON file as TOML.

Reads claude_desktop_config.json, .mcp.json, and mcp.json of Cursor and VS Code. Values of `env` are copied, so keep the \
output private. `serve --config` reads such a file directly too.";

pub(super) const IMPORT: &str = "\
Examples:
  rethread import ~/.cursor/mcp.json > rethread.toml
  rethread import .vscode/mcp.json";

pub(super) const EXPORT_ABOUT: &str = "\
Print the entry of this gateway for the configuration of a client.

Without a command and a file it asks the gateway that runs at --listen for its servers. Else it takes the options of `serve` and \
starts nothing. The entry goes to stdout, its place to stderr.";

pub(super) const EXPORT: &str = "\
Examples:
  rethread export --client cursor
  rethread export --client claude --listen 127.0.0.1:9000
  rethread export --client vscode --config rethread.toml > .vscode/mcp.json
  rethread export --client codex -- npx -y some-server >> ~/.codex/config.toml
  rethread export --client claude --public-url https://mcp.example --config rethread.toml";

pub(super) const TOKEN_ABOUT: &str = "\
Make a token for a caller, or hash one.

The token file of `serve --tokens` has only the SHA-256 of each token. A token is printed once and is never a flag.";

pub(super) const TOKEN: &str = "\
Examples:
  rethread token new ada --scope mcp
  rethread token new build-server --scope mcp,files:read --expires 2027-01-31T12:00:00Z
  rethread token hash < token.txt";

pub(super) const COMPLETIONS: &str = "\
Examples:
  rethread completions bash > ~/.local/share/bash-completion/completions/rethread
  rethread completions zsh > ~/.zfunc/_rethread
  rethread completions fish > ~/.config/fish/completions/rethread.fish";

pub(super) const MAN: &str = "\
Examples:
  rethread man | man -l -
  rethread man serve > rethread-serve.1";

/// The text below the options of `serve`.
pub(super) fn serve() -> String {
    let file_only = OPTIONS.iter().filter(|option| option.flag.is_none());
    let file_only: String = file_only
        .map(|option| format!("    {:<12} {}\n", option.key, option.help))
        .collect();
    let every_server = keys(|option| option.scope == Scope::EveryServer);
    let need_restart = keys(|option| matches!(option.reload, Reload::NeedsRestart { .. }));
    let (head, idle) = (HEAD_TIMEOUT.as_secs(), IDLE_TIMEOUT.as_secs());
    format!(
        "\
{SERVE_EXAMPLES}

  Keys without a flag:
{file_only}
  Keys that apply to every server when they are at the top of the file:
    {every_server}

Sources of values:
  Flag, then environment, then file, then default. The variable of an option is RETHREAD_ and
  its name: RETHREAD_PUBLIC_URL. `rethread check` with the same options shows each value and
  its source.

Signals:
  SIGTERM and Ctrl-C let running calls finish. A second signal exits at once.
  SIGHUP reads the file again and adds, removes and replaces servers. Others continue. These
  keys need a restart, and the log names them if they have changed:
    {need_restart}

Connections:
  A request head must be complete within {head} seconds. An idle connection closes after {idle}. A
  reverse proxy is one address, and each open stream is one of its connections: set
  max_connections_per_peer to the number that the proxy may open, or to 0 for no limit."
    )
}

fn keys(select: fn(&OptionDef) -> bool) -> String {
    let options = OPTIONS.iter().filter(|option| select(option));
    let keys: Vec<_> = options.map(|option| option.key).collect();
    keys.join(", ")
}

/// Appends the exit codes.
pub(super) fn with_exit_codes(text: &str) -> String {
    format!("{text}\n\n{}", Exit::help())
}
