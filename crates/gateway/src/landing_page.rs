//! The page for a person who opens the gateway in a browser: its servers, and how to connect a client.
//!
//! It has no scripts, and every value is escaped. Requests of clients never get it: `gate::is_page_request` decides.

use crate::client_entry::{ClientEndpoint, ClientKind};
use crate::mount::path_prefix;
use crate::settings::{ServerSettings, Settings};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::Full;
use rethread_proto::gate::HostPolicy;

/// Tags around the list of servers.
const SERVERS_START: &str = "<ul class=\"servers\">";
const SERVERS_END: &str = "</ul>";

const STYLE: &str = include_str!("landing_page/style.css");

/// Nothing but the style of the page, which has this hash. A test computes it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'sha256-ktlc4jwhiXrNpvhSCfKwIR1uPuUbM/Yi3bxiyQc1R1k='; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page, if the host of the request is allowed. A foreign host is one of DNS rebinding (SEC-02).
pub(crate) fn respond(settings: &Settings, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
    let host = only_host(headers).filter(|host| admits(settings, host))?;
    let base = match &settings.public_url {
        Some(url) => url.clone(),
        None if settings.tls.is_some() => format!("https://{host}"),
        None => format!("http://{host}"),
    };
    let mut response = Response::new(Full::from(page(&base, &settings.servers)));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::VARY, "accept"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

fn only_host(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().filter(|_| hosts.next().is_none())?;
    host.to_str().ok()
}

fn admits(settings: &Settings, host: &str) -> bool {
    let mut policy = HostPolicy::default();
    // An invalid entry was refused when the configuration was read.
    settings.allow_hosts.iter().all(|allowed| policy.allow(allowed).is_ok()) && policy.admits(host)
}

/// The page as HTML. `base` is the URL of the gateway.
fn page(base: &str, servers: &[ServerSettings]) -> String {
    let endpoints: Vec<_> = servers
        .iter()
        .map(|server| ClientEndpoint {
            name: server.name.clone(),
            url: format!("{base}{}/mcp", path_prefix(server)),
        })
        .collect();
    let rows: String = endpoints.iter().map(server_row).collect();
    let rows = if rows.is_empty() {
        "<p>The gateway has no servers now.</p>".to_owned()
    } else {
        format!("{SERVERS_START}{rows}{SERVERS_END}")
    };
    let clients: String = ClientKind::ALL.iter().map(|kind| client(*kind, &endpoints)).collect();
    format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<meta name=\"robots\" content=\"noindex\">
<title>Rethread: an MCP endpoint</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<p class=\"mark\">rethread</p>
<h1>This is an MCP endpoint</h1>
<p class=\"lead\">Programs speak the Model Context Protocol here. Give one of these addresses to your client, and it can use the tools
behind it. A broken connection loses nothing: the client resumes its stream.</p>
<section aria-labelledby=\"servers\">
<h2 id=\"servers\">Servers</h2>
{rows}
</section>
<section aria-labelledby=\"connect\">
<h2 id=\"connect\">Connect a client</h2>
{clients}
</section>
</main>
</body>
</html>
"
    )
}

fn server_row(ClientEndpoint { name, url }: &ClientEndpoint) -> String {
    let (name, url) = (escape(name), escape(url));
    format!("<li><h3>{name}</h3><code>{url}</code></li>")
}

/// The servers on a page that a gateway of this version made. `None` if it lists none, or is another page.
pub(crate) fn listed_servers(page: &str) -> Option<Vec<ClientEndpoint>> {
    let (_, list) = page.split_once(SERVERS_START)?;
    let (list, _) = list.split_once(SERVERS_END)?;
    let rows = list.split_terminator("</li>");
    let endpoints = rows.map(|row| {
        let row = row.strip_prefix("<li><h3>")?.strip_suffix("</code>")?;
        let (name, url) = row.split_once("</h3><code>")?;
        let (name, url) = (unescape(name), unescape(url));
        Some(ClientEndpoint { name, url })
    });
    endpoints.collect()
}

fn client(kind: ClientKind, endpoints: &[ClientEndpoint]) -> String {
    let (title, file, entry) = (kind.title(), kind.file(), escape(&kind.entry(endpoints)));
    let open = if kind == ClientKind::Claude { " open" } else { "" };
    // The same name makes the group exclusive: one is open at a time.
    format!(
        "<details name=\"client\"{open}><summary>{title}<span>{file}</span></summary><pre><code>{entry}</code></pre></details>\n"
    )
}

/// Escapes a text for an element or a quoted attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Reverses [`escape`].
fn unescape(text: &str) -> String {
    let references = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'")];
    let text = references
        .iter()
        .fold(text.to_owned(), |text, (reference, c)| text.replace(reference, c));
    text.replace("&amp;", "&") // the last one, since its result can begin a reference
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CliInput, ConfigValue, Environment, Source, SourcedValue};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest as _, Sha256};

    #[test]
    fn style_has_the_hash_of_the_policy() {
        let hash = STANDARD.encode(Sha256::digest(STYLE));
        let expected = format!("'sha256-{hash}'");
        assert!(CONTENT_SECURITY_POLICY.contains(&expected), "the hash is {expected}");
        assert!(!STYLE.contains('<'), "the style ends at its end tag");
    }

    fn settings(public_url: &str) -> Settings {
        let text = |text: &str| ConfigValue::Text(text.to_owned());
        let values = [
            ("public_url", text(public_url)),
            ("memory", ConfigValue::Bool(true)),
            ("name", text("it")),
        ];
        let layer = values.map(|(key, value)| {
            let source = Source::Flag("");
            (key.to_owned(), SourcedValue { value, source })
        });
        let input = CliInput {
            config_file: None,
            layer: layer.into(),
            command: vec!["x".to_owned()],
        };
        crate::config::resolve(&input, &Environment::default()).settings
    }

    /// SEC-02.
    #[test]
    fn sec_02_page_needs_one_allowed_host_and_shows_the_public_url() {
        let settings = settings("https://mcp.example/x");
        assert!(page("https://mcp.example/x", &settings.servers).contains("<code>https://mcp.example/x/mcp</code>"));
        let table: [(&[&'static str], bool); 6] = [
            (&["mcp.example"], true),
            (&["127.0.0.1:8080"], true),
            (&["evil.example"], false),
            (&["mcp.example", "mcp.example"], false),
            (&["mcp.example\"><script>"], false),
            (&[], false),
        ];
        for (hosts, allowed) in table {
            let headers = hosts.iter().map(|host| (header::HOST, HeaderValue::from_static(host)));
            let response = respond(&settings, &headers.collect());
            assert_eq!(response.is_some(), allowed, "{hosts:?}");
        }
    }

    #[test]
    fn values_cannot_become_markup() {
        let endpoint = ClientEndpoint {
            name: "<script>alert(1)</script>".to_owned(),
            url: "http://x/\"><img src=x onerror='alert(1)'>".to_owned(),
        };
        let mut shown = server_row(&endpoint);
        for kind in ClientKind::ALL {
            shown.push_str(&client(kind, std::slice::from_ref(&endpoint)));
        }
        assert!(!shown.contains("<script") && !shown.contains("<img"), "{shown}");
        assert!(shown.contains("&lt;script&gt;"), "{shown}");
        assert_eq!(escape("a&b<c>d\"e'f"), "a&amp;b&lt;c&gt;d&quot;e&#39;f");
    }

    #[test]
    fn servers_of_a_page_can_be_read_back() {
        let endpoint = |name: &str, url: &str| ClientEndpoint {
            name: name.to_owned(),
            url: url.to_owned(),
        };
        let endpoints = [
            endpoint("a", "http://x/servers/a/mcp"),
            endpoint("</h3>&lt;'\"", "http://x/</code></li>&amp;lt;"),
        ];
        let rows: String = endpoints.iter().map(server_row).collect();
        let shown = format!("<main>{SERVERS_START}{rows}{SERVERS_END}</main>");
        assert_eq!(listed_servers(&shown), Some(endpoints.into()));
        let own = page("https://mcp.example/x", &settings("https://mcp.example/x").servers);
        assert_eq!(
            listed_servers(&own),
            Some(vec![endpoint("it", "https://mcp.example/x/mcp")])
        );
        let damaged = format!("{SERVERS_START}<li>{SERVERS_END}");
        for other in [&*page("http://x", &[]), "<h1>It works!</h1>", "", &damaged] {
            assert_eq!(listed_servers(other), None, "{other}");
        }
    }
}
