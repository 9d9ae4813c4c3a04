//! Protected resource metadata (RFC 9728): where clients of a server get their tokens (AUTH-02).

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use rethread_auth::ServerPolicy;
use rethread_proto::auth::Scope;
use serde_json::json;
use std::collections::BTreeMap;

/// The path of a document is this, and the path of the endpoint behind it.
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The documents of all servers, by path.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MetadataDocuments(BTreeMap<String, Bytes>);

/// One server: its path, its policy.
pub(crate) struct MetadataServer<'a> {
    /// The path in front of `/mcp`.
    pub(crate) prefix: String,
    pub(crate) policy: &'a ServerPolicy,
}

impl MetadataDocuments {
    /// The documents of servers below the URL `base`, whose path is `base_path`.
    pub(crate) fn new(base: &str, issuers: &[&str], servers: &[MetadataServer<'_>]) -> Self {
        let mut documents = BTreeMap::new();
        let base_path = url_path(base);
        if issuers.is_empty() {
            return MetadataDocuments(documents);
        }
        for server in servers {
            for endpoint in ["mcp", "sse"] {
                let path = format!("{}/{endpoint}", server.prefix);
                let document = document(&format!("{base}{path}"), issuers, server.policy);
                // A proxy may remove the path of the public URL, or keep it.
                documents.insert(format!("{WELL_KNOWN}{base_path}{path}"), document.clone());
                documents.insert(format!("{WELL_KNOWN}{path}"), document.clone());
                if servers.len() == 1 && endpoint == "mcp" {
                    documents.insert(WELL_KNOWN.to_owned(), document);
                }
            }
        }
        MetadataDocuments(documents)
    }

    /// The response to a request for a path, if there is a document. No token is needed, and every origin may read it.
    pub(crate) fn respond(&self, method: &Method, path: &str) -> Option<Response<Full<Bytes>>> {
        let document = self.0.get(path)?;
        let (status, body) = match *method {
            Method::GET | Method::HEAD => (StatusCode::OK, document.clone()),
            Method::OPTIONS => (StatusCode::NO_CONTENT, Bytes::new()),
            _ => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
        };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let any = HeaderValue::from_static("*");
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, any);
        match status {
            StatusCode::OK => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
            StatusCode::NO_CONTENT => {
                let methods = HeaderValue::from_static("GET, HEAD");
                headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
                let names = HeaderValue::from_static("MCP-Protocol-Version, Accept");
                headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
            }
            _ => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
            }
        }
        Some(response)
    }
}

/// The URL of the document of an endpoint: `base` is the public URL, `path` that of the endpoint.
pub(crate) fn document_url(base: &str, path: &str) -> String {
    let base_path = url_path(base);
    let origin = &base[..base.len() - base_path.len()];
    format!("{origin}{WELL_KNOWN}{base_path}{path}")
}

fn document(resource: &str, issuers: &[&str], policy: &ServerPolicy) -> Bytes {
    let scopes = policy.all_scopes();
    // A server never needs it: it is a wish of the client to the authorization server.
    let scopes: Vec<_> = scopes
        .iter()
        .map(Scope::as_str)
        .filter(|scope| *scope != "offline_access")
        .collect();
    let document = json!({
        "resource": resource,
        "authorization_servers": issuers,
        "scopes_supported": scopes,
        "bearer_methods_supported": ["header"],
    });
    document.to_string().into()
}

/// The path of a URL without a final slash.
fn url_path(url: &str) -> &str {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    after_scheme.find('/').map_or("", |at| &after_scheme[at..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rethread_proto::auth::Scopes;

    fn documents(base: &str, prefixes: &[&str], issuers: &[&str]) -> MetadataDocuments {
        let policy = ServerPolicy::new(Scopes::from_words("mcp offline_access"));
        let servers = prefixes.iter().map(|prefix| MetadataServer {
            prefix: (*prefix).to_owned(),
            policy: &policy,
        });
        MetadataDocuments::new(base, issuers, &servers.collect::<Vec<_>>())
    }

    #[test]
    fn auth_02_each_endpoint_has_a_document_with_its_own_url() {
        let all = documents("https://mcp.example/x", &["/servers/a", "/servers/b"], &["https://idp"]);
        for path in ["/x/servers/a/sse", "/servers/a/sse"] {
            let path = format!("{WELL_KNOWN}{path}");
            let body: serde_json::Value = serde_json::from_slice(&all.0[&path]).unwrap();
            let expected = json!({
                "resource": "https://mcp.example/x/servers/a/sse",
                "authorization_servers": ["https://idp"],
                "scopes_supported": ["mcp"],
                "bearer_methods_supported": ["header"],
            });
            assert_eq!(body, expected, "{path}");
        }
        assert_eq!(all.0.len(), 8);
        assert!(all.respond(&Method::GET, WELL_KNOWN).is_none(), "two servers");
        let url = document_url("https://mcp.example/x", "/servers/a/sse");
        assert_eq!(
            url,
            "https://mcp.example/.well-known/oauth-protected-resource/x/servers/a/sse"
        );
    }

    #[test]
    fn auth_02_bare_path_exists_for_one_server_with_an_issuer() {
        let one = documents("http://127.0.0.1:80", &[""], &["https://idp"]);
        assert!(one.respond(&Method::GET, WELL_KNOWN).is_some());
        for (method, status) in [
            (Method::GET, 200),
            (Method::HEAD, 200),
            (Method::OPTIONS, 204),
            (Method::POST, 405),
        ] {
            let response = one.respond(&method, &format!("{WELL_KNOWN}/mcp")).unwrap();
            assert_eq!(response.status().as_u16(), status, "{method}");
            assert_eq!(response.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        }
        let none = documents("http://127.0.0.1:80", &[""], &[]);
        assert_eq!(none, MetadataDocuments::default(), "static tokens have no issuer");
    }
}
