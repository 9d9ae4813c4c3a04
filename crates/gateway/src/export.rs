//! `rethread export`: the entry of this gateway in the configuration of a client.

use crate::client_entry::{self, ClientEndpoint, ClientKind};
use crate::config::{self, CliInput, Problems, options};
use crate::exit::{Exit, Failure};
use crate::running_gateway;
use crate::settings::Settings;
use crate::start_message;
use std::net::SocketAddr;

/// Where the servers of an entry come from.
pub(crate) enum ExportSource {
    /// The options of a gateway, which need not run.
    Options(Box<Settings>),
    /// A gateway that runs and listens on `listen`.
    Running {
        listen: SocketAddr,
        public_url: Option<String>,
    },
}

/// The entry and advice about it.
pub(crate) struct ClientExport {
    /// For stdout.
    pub(crate) entry: String,
    /// For stderr.
    pub(crate) advice: String,
    pub(crate) warnings: Vec<String>,
}

/// The source for a command line. Without a server in it, a running gateway is meant.
pub(crate) fn source(input: &CliInput) -> Result<ExportSource, Problems> {
    if input.has_servers() {
        return Ok(ExportSource::Options(Box::new(config::load(input)?)));
    }
    let listen = input.value(&options::LISTEN)?;
    Ok(ExportSource::Running {
        listen: listen.unwrap_or_else(|| options::LISTEN.default_value()),
        public_url: input.value(&options::PUBLIC_URL)?,
    })
}

/// The entry of all servers of a gateway for one client.
pub(crate) async fn export(source: ExportSource, kind: ClientKind) -> Result<ClientExport, Failure> {
    let (listen, has_url) = match &source {
        ExportSource::Options(settings) => (settings.listen, settings.public_url.is_some()),
        ExportSource::Running { listen, .. } => (*listen, false),
    };
    if listen.port() == 0 && !has_url {
        let message = "the gateway has no fixed port: port 0 picks another one at each start";
        return Err(
            Failure::new(Exit::Usage, message).hint("--listen 127.0.0.1:8080, or the port of its start message")
        );
    }
    let (endpoints, warnings) = match source {
        ExportSource::Options(settings) => {
            let base = start_message::base_url(&settings, settings.listen);
            let servers = settings.servers.iter();
            let endpoints = servers.map(|server| start_message::endpoint(&base, server)).collect();
            (endpoints, settings.notes)
        }
        ExportSource::Running { listen, public_url } => {
            let servers = running_gateway::servers(listen).await?;
            (at_public_url(servers, public_url.as_deref()), Vec::new())
        }
    };
    Ok(ClientExport {
        entry: kind.entry(&endpoints),
        advice: advice(kind, &endpoints),
        warnings,
    })
}

/// The endpoints below the URL that the user names, if any.
fn at_public_url(mut endpoints: Vec<ClientEndpoint>, public_url: Option<&str>) -> Vec<ClientEndpoint> {
    let Some(public_url) = public_url else { return endpoints };
    for ClientEndpoint { name, url } in &mut endpoints {
        let own = format!("/servers/{name}/mcp");
        let path = if url.ends_with(&own) { &*own } else { "/mcp" };
        *url = format!("{public_url}{path}");
    }
    endpoints
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
