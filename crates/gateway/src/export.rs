//! `rethread export`: the entry of this gateway in the configuration of a client.

use crate::client_entry::{self, ClientEndpoint, ClientKind};
use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::start_message;

/// The entry and advice about it.
pub(crate) struct ClientExport {
    /// For stdout.
    pub(crate) entry: String,
    /// For stderr.
    pub(crate) advice: String,
}

/// The entry of all servers of `settings` for one client.
pub(crate) fn export(settings: &Settings, kind: ClientKind) -> Result<ClientExport, Failure> {
    if settings.listen.port() == 0 && settings.public_url.is_none() {
        let message = "the gateway has no fixed port: port 0 picks another one at each start";
        return Err(
            Failure::new(Exit::Usage, message).hint("--listen 127.0.0.1:8080, or the port of its start message")
        );
    }
    let base = start_message::base_url(settings, settings.listen);
    let servers = settings.servers.iter();
    let endpoints: Vec<_> = servers.map(|server| start_message::endpoint(&base, server)).collect();
    Ok(ClientExport {
        entry: kind.entry(&endpoints),
        advice: advice(kind, &endpoints),
    })
}

fn advice(kind: ClientKind, endpoints: &[ClientEndpoint]) -> String {
    let (title, file) = (kind.title(), kind.file());
    let mut lines = vec![match kind {
        ClientKind::Cursor => format!("For {title}: {file} in a project, or ~/{file} for all projects."),
        ClientKind::Codex => format!("For {title}: {file}."),
        ClientKind::Claude | ClientKind::Vscode => format!("For {title}: {file} in a project."),
    }];
    if kind == ClientKind::Claude {
        lines.push("Or without a file:".to_owned());
        lines.extend(
            endpoints
                .iter()
                .map(|endpoint| format!("  {}", client_entry::claude_command(endpoint))),
        );
        lines
            .push("Claude Desktop connects to public URLs only. For this machine, its file takes a bridge:".to_owned());
        lines.extend(endpoints.iter().map(|ClientEndpoint { name, url }| {
            format!(r#"  "{name}": {{ "command": "npx", "args": ["-y", "mcp-remote", "{url}"] }}"#)
        }));
    }
    lines.join("\n") + "\n"
}
