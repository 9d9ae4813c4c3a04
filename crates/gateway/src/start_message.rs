//! The start message: URLs, stores and how to add the gateway to a client.

use crate::client_entry::{self, ClientEndpoint};
use crate::config::secret;
use crate::mount::path_prefix;
use crate::output::Styles;
use crate::settings::{ServerSettings, Settings, StoreSettings, SyncMode};
use std::net::SocketAddr;
use std::path::Path;

/// A server that is being served.
pub(crate) struct ReadyServer<'a> {
    pub(crate) server: &'a ServerSettings,
    /// For people.
    pub(crate) eras: &'a str,
}

/// The public URL, or the address of the listener.
pub(crate) fn base_url(settings: &Settings, bound: SocketAddr) -> String {
    if let Some(url) = &settings.public_url {
        return url.clone();
    }
    listener_url(bound, settings.tls.is_some())
}

/// The URL of a listener on this machine.
pub(crate) fn listener_url(bound: SocketAddr, is_tls: bool) -> String {
    // A client cannot connect to the unspecified address.
    let host = match bound.ip() {
        ip if ip.is_unspecified() => "localhost".to_owned(),
        ip if ip.is_ipv6() => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    let scheme = if is_tls { "https" } else { "http" };
    format!("{scheme}://{host}:{}", bound.port())
}

/// The URL of a server without `/mcp` or `/sse`.
pub(crate) fn server_url(base: &str, server: &ServerSettings) -> String {
    format!("{base}{}", path_prefix(server))
}

/// The endpoint of a server for clients.
pub(crate) fn endpoint(base: &str, server: &ServerSettings) -> ClientEndpoint {
    ClientEndpoint {
        name: server.name.clone(),
        url: format!("{}/mcp", server_url(base, server)),
    }
}

/// The message as log events: one for each server, then `ready`.
pub(crate) fn log(settings: &Settings, servers: &[ReadyServer<'_>], bound: SocketAddr) {
    let base = base_url(settings, bound);
    for ReadyServer { server, eras } in servers {
        let (url, store) = (server_url(&base, server), describe_store(settings, server));
        tracing::info!(
            server = server.name,
            url = format!("{url}/mcp"),
            eras,
            store,
            "server ready"
        );
    }
    for warning in warnings(settings, bound) {
        tracing::warn!(warning, "configuration warning");
    }
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, listen = %bound, url = base, servers = servers.len(), "ready");
}

/// The message as text. `bound` is the address of the socket.
pub(crate) fn text(settings: &Settings, servers: &[ReadyServer<'_>], bound: SocketAddr, color: bool) -> String {
    let Styles { bold, dim, plain, .. } = Styles::new(color);
    let base = base_url(settings, bound);
    let mut lines = vec![
        format!("{bold}rethread {} is ready{plain}", env!("CARGO_PKG_VERSION")),
        String::new(),
    ];
    let mut line = |name: &str, value: &str| lines.push(format!("  {dim}{name:<7}{plain} {value}"));
    for ReadyServer { server, eras } in servers {
        let url = server_url(&base, server);
        line(
            "url",
            &format!("{bold}{url}/mcp{plain}   {dim}old clients: {url}/sse{plain}"),
        );
        line(
            "server",
            &secret::display_command(&server.command.to_string_lossy(), &server.shown_args),
        );
        line("eras", eras);
        line("store", &describe_store(settings, server));
        if servers.len() > 1 {
            line("", "");
        }
    }
    line("health", &format!("{base}/healthz   {base}/readyz"));
    if settings.public_url.is_some() {
        line("listens", &bound.to_string());
    }
    lines.push(String::new());
    lines.extend(
        warnings(settings, bound)
            .iter()
            .flat_map(|warning| [format!("  warning: {warning}"), String::new()]),
    );
    let has_tokens = settings.auth.as_ref().is_some_and(|auth| auth.tokens.is_some());
    lines.push(match has_tokens {
        true => "Add it to a client, with a token in the header `Authorization: Bearer TOKEN`:".to_owned(),
        false => "Add it to a client:".to_owned(),
    });
    let endpoints: Vec<_> = servers.iter().map(|ready| endpoint(&base, ready.server)).collect();
    lines.extend(
        endpoints
            .iter()
            .map(|endpoint| format!("  {}", client_entry::claude_command(endpoint))),
    );
    lines.push(format!("  {}", client_entry::one_line(&endpoints)));
    lines.push(String::new());
    lines.push(format!("{dim}Ctrl-C stops it and lets running calls finish.{plain}"));
    let trimmed: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
    trimmed.join("\n") + "\n"
}

fn describe_store(settings: &Settings, server: &ServerSettings) -> String {
    match &settings.store {
        StoreSettings::Memory => "memory: sessions end with the gateway".to_owned(),
        StoreSettings::Embedded { data, sync } => {
            let survives = match sync {
                SyncMode::Always => "a restart and a power cut",
                SyncMode::Interval | SyncMode::Os => "a restart",
            };
            let folder = data.join(&server.folder);
            format!("{}: sessions survive {survives}", folder.display())
        }
        StoreSettings::Redis(redis) => format!(
            "{} as {}: every gateway with it serves these sessions",
            redis.url, server.folder
        ),
    }
}

/// Settings that are allowed but probably not intended.
pub(crate) fn warnings(settings: &Settings, bound: SocketAddr) -> Vec<String> {
    let mut warnings = settings.notes.clone();
    if !bound.ip().is_loopback() && settings.auth.is_none() {
        let text = format!("{bound} is open to the network, and the gateway does not authenticate clients");
        warnings.push(format!(
            "{text}; put an authenticating proxy in front of it, or listen on 127.0.0.1"
        ));
    }
    if bound.ip().is_unspecified() && settings.allow_hosts.is_empty() {
        let text = "the gateway answers only requests to loopback names";
        warnings.push(format!(
            "{text}; allow others with --allow-host NAME or --public-url URL"
        ));
    }
    if !bound.ip().is_loopback() && settings.auth.is_some() && settings.tls.is_none() && settings.public_url.is_none() {
        let text = "tokens cross the network in clear text";
        warnings.push(format!(
            "{text}; set --tls-cert and --tls-key, or --public-url if a proxy has the certificate"
        ));
    }
    let tokens = settings.auth.as_ref().and_then(|auth| auth.tokens.as_deref());
    let key = settings.tls.as_ref().map(|tls| &*tls.key);
    for secret in tokens.into_iter().chain(key).filter(|path| is_readable_by_others(path)) {
        let secret = secret.display();
        warnings.push(format!("other users can read {secret}; chmod 600 {secret}"));
    }
    if settings.store.redis().is_some() {
        let unnamed = settings.servers.iter().filter(|server| server.folder != server.name);
        warnings.extend(unnamed.map(|server| {
            let text = "gateways share its sessions only if their command, arguments and directory are equal";
            format!("{} has no name, so {text}; set --name", server.name)
        }));
    }
    warnings
}

#[cfg(unix)]
fn is_readable_by_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0)
}

#[cfg(not(unix))]
fn is_readable_by_others(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AuthSettings;
    use rethread_proto::auth::Rate;
    use std::time::Duration;

    fn server(name: &str, at_root: bool) -> ServerSettings {
        ServerSettings {
            name: name.to_owned(),
            folder: format!("{name}-1"),
            at_root,
            command: "npx".into(),
            args: vec![
                "-y".to_owned(),
                "it".to_owned(),
                "--token".to_owned(),
                "hush".to_owned(),
            ],
            shown_args: vec![
                "-y".to_owned(),
                "it".to_owned(),
                "--token".to_owned(),
                secret::MASK.to_owned(),
            ],
            env: Default::default(),
            inherit_env: Default::default(),
            cwd: None,
            era: Default::default(),
            restore: Default::default(),
            start_timeout: Duration::from_secs(1),
            max_children: 1,
            child_idle: None,
            spare: 0,
            access: Default::default(),
            identity: Default::default(),
            bridge: Default::default(),
        }
    }

    fn settings(servers: Vec<ServerSettings>) -> Settings {
        Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            public_url: None,
            allow_hosts: vec![],
            allow_origins: vec![],
            tls: None,
            store: StoreSettings::Embedded {
                data: "/data".into(),
                sync: SyncMode::Interval,
            },
            drain: Duration::ZERO,
            retry: Duration::ZERO,
            session_idle: Duration::ZERO,
            session_unused: Duration::from_secs(300),
            sessionless: crate::settings::SessionlessSetting::Serve,
            max_connections_per_peer: 0,
            limits: Default::default(),
            auth: None,
            no_auth: false,
            trusted_proxies: vec![],
            admin: None,
            operation: Default::default(),
            servers,
            notes: vec![],
        }
    }

    fn message(settings: &Settings, bound: &str) -> String {
        let servers = settings
            .servers
            .iter()
            .map(|server| ReadyServer { server, eras: "both" });
        text(settings, &servers.collect::<Vec<_>>(), bound.parse().unwrap(), false)
    }

    #[test]
    fn message_shows_one_server_in_full() {
        let expected = format!(
            "\
rethread {} is ready

  url     http://127.0.0.1:8080/mcp   old clients: http://127.0.0.1:8080/sse
  server  npx -y it --token ******
  eras    both
  store   /data/it-1: sessions survive a restart
  health  http://127.0.0.1:8080/healthz   http://127.0.0.1:8080/readyz

Add it to a client:
  claude mcp add --transport http it http://127.0.0.1:8080/mcp
  {{\"mcpServers\":{{\"it\":{{\"type\":\"http\",\"url\":\"http://127.0.0.1:8080/mcp\"}}}}}}

Ctrl-C stops it and lets running calls finish.
",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(message(&settings(vec![server("it", true)]), "127.0.0.1:8080"), expected);
    }

    #[test]
    fn message_names_the_header_of_static_tokens() {
        let mut settings = settings(vec![server("it", true)]);
        let mut auth = AuthSettings {
            tokens: Some("tokens.toml".into()),
            scopes: Default::default(),
            leeway: Default::default(),
            implies: Default::default(),
            failures: Rate::new(60, Duration::from_secs(60)).unwrap(),
            jwt: vec![],
        };
        let header = "with a token in the header `Authorization: Bearer TOKEN`";
        settings.auth = Some(auth.clone());
        assert!(message(&settings, "127.0.0.1:9").contains(header));
        auth.tokens = None; // with issuers only, clients get a token by themselves
        settings.auth = Some(auth);
        assert!(!message(&settings, "127.0.0.1:9").contains(header));
    }

    #[test]
    fn message_shows_a_path_for_each_of_several_servers() {
        let mut settings = settings(vec![server("a", false), server("b", false)]);
        settings.public_url = Some("https://mcp.example/x".to_owned());
        settings.store = StoreSettings::Memory;
        let message = message(&settings, "127.0.0.1:9");
        for expected in [
            "https://mcp.example/x/servers/a/mcp   old clients: https://mcp.example/x/servers/a/sse\n",
            "claude mcp add --transport http b https://mcp.example/x/servers/b/mcp\n",
            "store   memory: sessions end with the gateway\n",
            "listens 127.0.0.1:9\n",
        ] {
            assert!(message.contains(expected), "{expected}\n{message}");
        }
        let json = message.lines().find(|line| line.contains("mcpServers")).unwrap();
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(json["mcpServers"]["b"]["url"], "https://mcp.example/x/servers/b/mcp");
    }

    #[test]
    fn message_warns_of_an_open_address() {
        let mut settings = settings(vec![server("it", true)]);
        assert!(!message(&settings, "[::1]:80").contains("warning"));
        let open = message(&settings, "0.0.0.0:80");
        assert_eq!(open.matches("warning: ").count(), 2, "{open}");
        assert!(open.contains("http://localhost:80/mcp"), "{open}");
        settings.allow_hosts.push("mcp.example".to_owned());
        assert_eq!(message(&settings, "0.0.0.0:80").matches("warning: ").count(), 1);
    }
}
