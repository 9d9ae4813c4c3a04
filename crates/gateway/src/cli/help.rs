//! The words around the options: examples first.

use crate::exit::Exit;

pub(super) const SHORT: &str = "\
Examples:
  rethread demo                                  see it work, with no other program
  rethread serve -- npx -y some-server           one stdio server at /mcp and /sse
  rethread serve --config rethread.toml          several, each at /servers/NAME/mcp

`rethread --help` says more.";

pub(super) const EXAMPLES: &str = "\
Examples:
  rethread demo
      See it work: a built-in server, and three things to try with curl.

  rethread serve -- npx -y @modelcontextprotocol/server-everything
      Put a stdio server at http://127.0.0.1:8080/mcp, and at /sse for old clients.

  rethread serve --config rethread.toml
      Put several at /servers/NAME/mcp.

  rethread check --config rethread.toml
      See every effective value and where it came from.";

pub(super) const SERVE_SHORT: &str = "\
Examples:
  rethread serve -- npx -y @modelcontextprotocol/server-everything
  rethread serve --listen 127.0.0.1:9000 --memory -- uvx mcp-server-git
  rethread serve --config rethread.toml

`rethread serve --help` shows all options.";

pub(super) const SERVE: &str = "\
Examples:
  rethread serve -- npx -y @modelcontextprotocol/server-everything
      One server, at /mcp and /sse. Sessions and streams survive a restart.

  rethread serve --memory --listen 127.0.0.1:9000 -- uvx mcp-server-git --repository .
      On another port, and nothing on the disk.

  rethread serve --public-url https://mcp.example -- ./my-server
      Behind a reverse proxy that ends TLS; it is asked not to hold events back.

  rethread serve --config rethread.toml
      Several servers, at /servers/NAME/mcp and /servers/NAME/sse.

A file:
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

  Its keys are the options with `_` for `-`; lists are `allow_hosts` and `allow_origins`. Paths
  are relative to the file. `era`, `restore`, `start_timeout` and `max_children` may stand at
  the top too, for all servers. A server inherits the variables of this program, those of
  `inherit_env` only if it is there, and never RETHREAD_* and OTEL_EXPORTER_OTLP_*HEADERS.

Where values come from:
  Flag, then environment, then file, then default. The variable of an option is RETHREAD_ and
  its name: RETHREAD_PUBLIC_URL. `rethread check` with the same options shows each value and
  its source.

Signals:
  SIGTERM and Ctrl-C let running calls finish; a second one does not wait.
  SIGHUP reads the file again: servers are added, removed and changed, the others go on. The log
  names keys that need a restart: listen, data, memory, sync, retry_ms, session_idle.

Connections:
  A request head must be whole within 15 seconds; an idle connection is closed after 75. One
  address may have 1024 connections, then it gets 429. A reverse proxy is one address, and
  each open stream is a connection of it: set max_connections_per_peer to what the proxy may
  open, or to 0 for no limit.";

pub(super) const CHECK: &str = "\
Examples:
  rethread check --config rethread.toml
  RETHREAD_LISTEN=0.0.0.0:80 rethread check -- npx -y some-server";

pub(super) const DEMO: &str = "\
Examples:
  rethread demo
  rethread demo --data ./demo-data      keep sessions when the demo itself is killed";

pub(super) const COMPLETIONS: &str = "\
Examples:
  rethread completions bash > ~/.local/share/bash-completion/completions/rethread
  rethread completions zsh > ~/.zfunc/_rethread
  rethread completions fish > ~/.config/fish/completions/rethread.fish";

pub(super) const MAN: &str = "\
Examples:
  rethread man | man -l -
  rethread man serve > rethread-serve.1";

/// Examples and exit codes.
pub(super) fn long(examples: &str) -> String {
    format!("{examples}\n\n{}", Exit::help())
}
