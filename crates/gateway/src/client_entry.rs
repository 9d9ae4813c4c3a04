//! The entry of the gateway in the configuration of a client, as each client writes it.

use clap::ValueEnum;
use serde_json::{Map, Value, json};
use toml_writer::{ToTomlKey as _, ToTomlValue as _};

/// A client with its own configuration format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientKind {
    /// Claude Code: .mcp.json
    Claude,
    /// Cursor: .cursor/mcp.json
    Cursor,
    /// VS Code: .vscode/mcp.json
    Vscode,
    /// Codex: ~/.codex/config.toml
    Codex,
}

/// A server of the gateway as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientEndpoint {
    pub(crate) name: String,
    /// The URL that ends with `/mcp`.
    pub(crate) url: String,
}

impl ClientKind {
    pub(crate) const ALL: [ClientKind; 4] = [
        ClientKind::Claude,
        ClientKind::Cursor,
        ClientKind::Vscode,
        ClientKind::Codex,
    ];

    /// The name of the program.
    pub(crate) fn title(self) -> &'static str {
        match self {
            ClientKind::Claude => "Claude Code",
            ClientKind::Cursor => "Cursor",
            ClientKind::Vscode => "VS Code",
            ClientKind::Codex => "Codex",
        }
    }

    /// The file of a project or of a user that takes the entry.
    pub(crate) fn file(self) -> &'static str {
        match self {
            ClientKind::Claude => ".mcp.json",
            ClientKind::Cursor => ".cursor/mcp.json",
            ClientKind::Vscode => ".vscode/mcp.json",
            ClientKind::Codex => "~/.codex/config.toml",
        }
    }

    /// The entry of all endpoints, with a newline at its end.
    pub(crate) fn entry(self, endpoints: &[ClientEndpoint]) -> String {
        match self {
            ClientKind::Codex => {
                let tables = endpoints.iter().map(|ClientEndpoint { name, url }| {
                    format!("[mcp_servers.{}]\nurl = {}\n", name.to_toml_key(), url.to_toml_value())
                });
                tables.collect::<Vec<_>>().join("\n")
            }
            _ => format!("{:#}\n", self.json(endpoints)),
        }
    }

    /// The entry of a client that reads JSON.
    fn json(self, endpoints: &[ClientEndpoint]) -> Value {
        let servers = endpoints.iter().map(|ClientEndpoint { name, url }| {
            let entry = match self {
                ClientKind::Cursor => json!({ "url": url }),
                _ => json!({ "type": "http", "url": url }),
            };
            (name.clone(), entry)
        });
        let servers: Map<String, Value> = servers.collect();
        match self {
            ClientKind::Vscode => json!({ "servers": servers }),
            _ => json!({ "mcpServers": servers }),
        }
    }
}

/// The entry that most clients read, on one line.
pub(crate) fn one_line(endpoints: &[ClientEndpoint]) -> String {
    ClientKind::Claude.json(endpoints).to_string()
}

/// The command that adds an endpoint to Claude Code.
pub(crate) fn claude_command(ClientEndpoint { name, url }: &ClientEndpoint) -> String {
    format!("claude mcp add --transport http {name} {url}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_gets_its_own_format() {
        let endpoints = ["a", "b.c"].map(|name| ClientEndpoint {
            name: name.to_owned(),
            url: format!("http://127.0.0.1:8080/servers/{name}/mcp"),
        });
        let (a, b) = (&endpoints[0].url, &endpoints[1].url);
        let json = |kind: ClientKind| serde_json::from_str::<Value>(&kind.entry(&endpoints)).unwrap();
        assert_eq!(
            json(ClientKind::Claude),
            json!({ "mcpServers": { "a": { "type": "http", "url": a }, "b.c": { "type": "http", "url": b } } })
        );
        assert_eq!(
            json(ClientKind::Cursor),
            json!({ "mcpServers": { "a": { "url": a }, "b.c": { "url": b } } })
        );
        assert_eq!(
            json(ClientKind::Vscode),
            json!({ "servers": { "a": { "type": "http", "url": a }, "b.c": { "type": "http", "url": b } } })
        );
        assert_eq!(
            ClientKind::Codex.entry(&endpoints),
            format!("[mcp_servers.a]\nurl = \"{a}\"\n\n[mcp_servers.\"b.c\"]\nurl = \"{b}\"\n")
        );
    }

    #[test]
    fn one_line_is_the_entry_of_most_clients() {
        let endpoint = ClientEndpoint {
            name: "a".to_owned(),
            url: "u".to_owned(),
        };
        assert_eq!(
            one_line(&[endpoint]),
            r#"{"mcpServers":{"a":{"type":"http","url":"u"}}}"#
        );
    }
}
