//! A small OAuth 2.1 authorization server for tests. It asks no person: each authorization request is answered at once by a
//! redirect with a code.
//!
//! It has the metadata of RFC 8414, dynamic registration (RFC 7591), authorization codes with PKCE (S256 only), resource
//! indicators (RFC 8707), refresh tokens, and the issuer in the redirect (RFC 9207). A code is used once.

use crate::issuer::{SigningKey, now_seconds};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// A longer body is refused.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// A running authorization server. It stops when dropped.
pub struct AuthorizationServer {
    url: String,
    state: Arc<Shared>,
    server: AbortHandle,
}

struct Shared {
    url: String,
    key: SigningKey,
    /// Seconds until a new access token expires.
    lifetime: u64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    clients: BTreeSet<String>,
    codes: BTreeMap<String, Grant>,
    refresh_tokens: BTreeMap<String, Grant>,
    /// The events in order: `register`, `authorize SCOPE`, `token GRANT`.
    events: Vec<String>,
}

/// An authorization that a client has got.
#[derive(Clone)]
struct Grant {
    client: String,
    redirect: String,
    challenge: String,
    resource: String,
    scope: String,
}

type Fields = BTreeMap<String, String>;
type Answer = Response<Full<Bytes>>;

impl Drop for AuthorizationServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl AuthorizationServer {
    /// Starts on a free port. Access tokens are valid for `lifetime` seconds.
    pub async fn start(lifetime: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let url = format!("http://{address}");
        let state = Arc::new(Shared {
            url: url.clone(),
            key: SigningKey::es256("oauth"),
            lifetime,
            table: Mutex::default(),
        });
        let served = Arc::clone(&state);
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let state = Arc::clone(&served);
                let service = service_fn(move |request| {
                    let state = Arc::clone(&state);
                    async move { Ok::<_, Infallible>(state.answer(request).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
        AuthorizationServer {
            url,
            state,
            server: server.abort_handle(),
        }
    }

    /// The issuer in tokens and metadata.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The events so far: `register`, `authorize SCOPE`, `token GRANT`.
    pub fn events(&self) -> Vec<String> {
        self.state.table().events.clone()
    }
}

impl Shared {
    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().expect("no test has panicked here")
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let query = fields(head.uri.query().unwrap_or_default());
        let body = match Limited::new(body, MAX_BODY_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return refuse("invalid_request", "the body is too large"),
        };
        let answered = match (&head.method, head.uri.path()) {
            (&Method::GET, "/.well-known/oauth-authorization-server" | "/.well-known/openid-configuration") => {
                Ok(json_answer(StatusCode::OK, &self.metadata()))
            }
            (&Method::GET, "/jwks") => Ok(json_answer(StatusCode::OK, &json!({ "keys": [self.key.jwk()] }))),
            (&Method::POST, "/register") => self.register(&body),
            (&Method::GET, "/authorize") => self.authorize(&query),
            (&Method::POST, "/token") => self.token(&fields(&String::from_utf8_lossy(&body))),
            _ => Ok(json_answer(StatusCode::NOT_FOUND, &json!({}))),
        };
        answered.unwrap_or_else(|(error, why)| refuse(error, why))
    }

    fn metadata(&self) -> Value {
        let url = &self.url;
        json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
            "registration_endpoint": format!("{url}/register"),
            "jwks_uri": format!("{url}/jwks"),
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": true,
        })
    }

    fn register(&self, body: &[u8]) -> Result<Answer, Problem> {
        let invalid = (
            "invalid_client_metadata",
            "the body is not an object with redirect_uris",
        );
        let mut client: Value = serde_json::from_slice(body).map_err(|_| invalid)?;
        if !client["redirect_uris"].is_array() {
            return Err(invalid);
        }
        let id = random_text();
        client["client_id"] = json!(id);
        client["token_endpoint_auth_method"] = json!("none");
        let mut table = self.table();
        table.clients.insert(id);
        table.events.push("register".to_owned());
        Ok(json_answer(StatusCode::CREATED, &client))
    }

    fn authorize(&self, query: &Fields) -> Result<Answer, Problem> {
        let field = |name: &'static str| query.get(name).cloned().ok_or(("invalid_request", name));
        if field("response_type")? != "code" || field("code_challenge_method")? != "S256" {
            return Err(("invalid_request", "only codes with S256"));
        }
        let grant = Grant {
            client: field("client_id")?,
            redirect: field("redirect_uri")?,
            challenge: field("code_challenge")?,
            resource: field("resource")?,
            scope: query.get("scope").cloned().unwrap_or_default(),
        };
        let mut table = self.table();
        if !table.clients.contains(&grant.client) {
            return Err(("invalid_client", "it is not registered"));
        }
        table.events.push(format!("authorize {}", grant.scope));
        let code = random_text();
        let mut location = format!("{}?code={code}&iss={}", grant.redirect, percent_encode(&self.url));
        if let Some(state) = query.get("state") {
            location.push_str(&format!("&state={}", percent_encode(state)));
        }
        table.codes.insert(code, grant);
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = StatusCode::FOUND;
        let location = location.parse().map_err(|_| ("invalid_request", "redirect_uri"))?;
        answer.headers_mut().insert(header::LOCATION, location);
        Ok(answer)
    }

    fn token(&self, form: &Fields) -> Result<Answer, Problem> {
        let field = |name: &'static str| form.get(name).ok_or(("invalid_request", name));
        let kind = field("grant_type")?;
        let mut table = self.table();
        let grant = match kind.as_str() {
            "authorization_code" => {
                let grant = table.codes.remove(field("code")?); // once
                let grant = grant.ok_or(("invalid_grant", "unknown code"))?;
                let verifier = digest(&SHA256, field("code_verifier")?.as_bytes());
                if URL_SAFE_NO_PAD.encode(verifier) != grant.challenge {
                    return Err(("invalid_grant", "the verifier does not fit"));
                }
                if *field("redirect_uri")? != grant.redirect || *field("client_id")? != grant.client {
                    return Err(("invalid_grant", "another client or redirect_uri"));
                }
                if *field("resource")? != grant.resource {
                    return Err(("invalid_target", "another resource"));
                }
                grant
            }
            "refresh_token" => {
                let grant = table.refresh_tokens.remove(field("refresh_token")?);
                grant.ok_or(("invalid_grant", "unknown refresh token"))?
            }
            _ => return Err(("unsupported_grant_type", "")),
        };
        table.events.push(format!("token {kind}"));
        let refresh = random_text();
        let now = now_seconds();
        let claims = json!({
            "iss": self.url, "sub": "ada", "aud": grant.resource, "client_id": grant.client,
            "scope": grant.scope, "iat": now, "exp": now + self.lifetime, "jti": random_text(),
        });
        let answer = json!({
            "access_token": self.key.token(&claims), "token_type": "Bearer", "expires_in": self.lifetime,
            "refresh_token": refresh, "scope": grant.scope,
        });
        table.refresh_tokens.insert(refresh, grant);
        Ok(json_answer(StatusCode::OK, &answer))
    }
}

/// An error code of OAuth, and what is wrong.
type Problem = (&'static str, &'static str);

fn refuse(error: &str, why: &str) -> Answer {
    json_answer(
        StatusCode::BAD_REQUEST,
        &json!({ "error": error, "error_description": why }),
    )
}

fn json_answer(status: StatusCode, body: &Value) -> Answer {
    let mut answer = Response::new(Full::from(body.to_string()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    answer
}

fn random_text() -> String {
    let mut bytes = [0; 24];
    SystemRandom::new().fill(&mut bytes).expect("random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The fields of a query or a form.
fn fields(text: &str) -> Fields {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (percent_decode(name), percent_decode(value)))
        .collect()
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%');
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(match (escaped, first) {
            (Some(byte), _) => byte,
            (None, b'+') => b' ',
            (None, other) => *other,
        });
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn percent_encode(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_fields_are_decoded() {
        let found = fields("a=x%20y+z&resource=http%3A%2F%2F127.0.0.1%3A1%2Fmcp&bad=%zz&empty=");
        let expected = [
            ("a", "x y z"),
            ("resource", "http://127.0.0.1:1/mcp"),
            ("bad", "%zz"),
            ("empty", ""),
        ];
        let expected: Fields = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(found, expected);
        assert_eq!(percent_decode(&percent_encode("a b/ü?&=")), "a b/ü?&=");
    }
}
