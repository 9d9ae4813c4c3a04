//! `Builder::authenticate`: when the endpoint asks for the caller, and how it refuses one.

use crate::http_sse::HttpSseClient;
use crate::support::{LEGACY_REVISIONS, ScriptedHandler, V2025_03_26, V2025_11_25, as_principal, result_text};
use http::request::Parts;
use rethread::auth::{AuthOutcome, AuthRefusal, Challenge, Credentials, Scope, Scopes, credentials};
use rethread::{
    Authenticate, Authentication, Call, Caller, Context, Handler, HandlerOptions, McpService, Params, Principal, Reply,
    RpcError,
};
use rethread_testkit::client::{self, Client};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const METADATA: &str = "https://mcp.example/.well-known/oauth-protected-resource/mcp";

/// Knows the tokens `alice`, `bob` and `slow`, whose caller is not known at once. A token may have scopes: `alice.write`.
#[derive(Clone, Default)]
struct NamedTokens {
    asked: Arc<AtomicUsize>,
}

impl NamedTokens {
    fn challenge() -> Challenge {
        Challenge::new(Scopes::from_words("mcp"), Some(METADATA.into()))
    }

    fn look_up(token: &str) -> Result<Caller, AuthRefusal> {
        let mut words = token.split('.');
        let name = words.next().unwrap_or_default();
        if !["alice", "bob", "slow"].contains(&name) {
            return Err(AuthRefusal::challenge(AuthOutcome::Unknown, "", Self::challenge()));
        }
        let caller = Caller::new(Principal::new("test", name), "named");
        let scopes = words.filter_map(Scope::parse).collect();
        Ok(caller.with_scopes(scopes).with_challenge(Self::challenge()))
    }
}

impl Authenticate for NamedTokens {
    fn caller(&self, head: &Parts) -> Authentication {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let outcome = match credentials(&head.uri, &head.headers) {
            Ok(Credentials::Token(token)) => {
                let caller = Self::look_up(token);
                if token.starts_with("slow") {
                    return Authentication::pending(async move {
                        tokio::task::yield_now().await;
                        caller
                    });
                }
                return Authentication::Done(caller);
            }
            Ok(Credentials::Absent) => AuthOutcome::Missing,
            Err(_) => AuthOutcome::Malformed,
        };
        Authentication::Done(Err(AuthRefusal::challenge(outcome, "", Self::challenge())))
    }

    fn needs(&self, method: &str, params: &Params) -> Scopes {
        match (method, params.name().as_deref()) {
            ("tools/call", Some("write")) => Scopes::from_words("write"),
            ("tools/call", Some("erase")) => Scopes::from_words("erase"),
            _ => Scopes::new(),
        }
    }
}

fn with_token(client: &Client, token: &str) -> Client {
    let value = format!("Bearer {token}");
    client.with_request_hook(move |request| {
        request.headers_mut().insert("authorization", value.parse().unwrap());
    })
}

fn ping(id: u64) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }).to_string()
}

fn initialize() -> Value {
    let params =
        json!({ "protocolVersion": V2025_11_25, "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

/// SEC-03: also a GET.
#[tokio::test]
async fn auth_01_every_request_needs_a_token_of_its_own() {
    let handler = ScriptedHandler::new();
    let (service, stranger) = handler.serve_with(|builder| builder.authenticate(NamedTokens::default()));
    let session = with_token(&stranger, "alice").open(V2025_11_25).await;
    let in_session = [("mcp-session-id", session.id.as_str())];
    let (stateless, body) = client::stateless(&json!(1), "tools/list", json!({}), json!({}));
    let stateless: Vec<_> = stateless.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let sse = Client::new(service.http_sse("/messages"));
    for (client, method, headers, body) in [
        (&stranger, "POST", &[][..], initialize().to_string()),
        (&stranger, "POST", &in_session, ping(1)),
        (&stranger, "POST", &stateless, body.to_string()),
        (&stranger, "GET", &in_session, String::new()),
        (&stranger, "DELETE", &in_session, String::new()),
        (&sse, "GET", &[], String::new()),
        (&sse, "POST", &[], ping(1)),
    ] {
        let reply = client.request(method, headers, body).await;
        assert_eq!(reply.status, 401, "{method}");
        let expected = format!(r#"Bearer scope="mcp", resource_metadata="{METADATA}""#);
        assert_eq!(reply.header("www-authenticate"), Some(expected));
        assert_eq!(reply.headers.get_all("www-authenticate").iter().count(), 1);
        assert_eq!(reply.json().await["error"]["code"], -32600);
    }
    assert_eq!(
        session.call(1, "ping", json!({})).await.status,
        200,
        "the session lives"
    );
}

#[tokio::test]
async fn auth_04_host_and_origin_are_checked_before_the_token() {
    let handler = ScriptedHandler::new();
    let tokens = NamedTokens::default();
    let authenticator = tokens.clone();
    let (service, client) =
        handler.serve_with(|builder| builder.authenticate(authenticator).allow_origin("https://app.example"));
    let sse = Client::new(service.http_sse("/messages"));
    for client in [&client, &sse] {
        for headers in [[("origin", "https://evil.example")], [("host", "evil.example")]] {
            let reply = with_token(client, "alice").request("POST", &headers, ping(1)).await;
            assert_eq!(reply.status, 403);
            assert_eq!(reply.header("www-authenticate"), None);
            assert_eq!(reply.header("access-control-allow-origin"), None);
        }
        let preflight = [
            ("origin", "https://app.example"),
            ("access-control-request-method", "POST"),
        ];
        assert_eq!(client.request("OPTIONS", &preflight, "").await.status, 204);
    }
    assert_eq!(tokens.asked.load(Ordering::Relaxed), 0, "the token is not examined");
    for client in [&client, &sse] {
        let reply = client
            .request("POST", &[("origin", "https://app.example")], ping(1))
            .await;
        assert_eq!(reply.status, 401);
        let origin = reply.header("access-control-allow-origin");
        assert_eq!(origin.as_deref(), Some("https://app.example"));
        let exposed = reply.header("access-control-expose-headers").unwrap();
        assert!(exposed.contains("WWW-Authenticate"), "{exposed}");
    }
}

#[tokio::test]
async fn auth_20_session_belongs_to_its_principal_and_not_to_a_token() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|builder| builder.authenticate(NamedTokens::default()));
    let session = with_token(&client, "alice").open(V2025_11_25).await;
    let refreshed = session.with_client(&with_token(&client, "alice.read"));
    assert_eq!(refreshed.call(1, "ping", json!({})).await.status, 200);
    let mut unknown = session.clone();
    unknown.id = "never-existed-0123456789".to_owned();
    let bob = with_token(&client, "bob");
    let stranger = session.with_client(&bob).call(2, "ping", json!({})).await;
    let never = unknown.with_client(&bob).call(2, "ping", json!({})).await;
    assert_eq!((stranger.status, &stranger.headers), (never.status, &never.headers));
    assert_eq!(
        (stranger.status.as_u16(), stranger.bytes().await),
        (404, never.bytes().await)
    );
}

/// The caller of an extension counts only without an authenticator.
#[tokio::test]
async fn auth_06_extension_of_another_layer_does_not_replace_the_token() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|builder| builder.authenticate(NamedTokens::default()));
    let session = with_token(&client, "alice").open(V2025_11_25).await;
    let forged = as_principal(&client, "alice");
    assert_eq!(forged.request("POST", &[], ping(1)).await.status, 401);
    let (_, open) = handler.serve();
    assert_eq!(
        as_principal(&open, "alice").open(V2025_11_25).await.version,
        V2025_11_25
    );
    drop(session);
}

#[tokio::test]
async fn auth_13_caller_that_is_not_known_at_once_is_awaited() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|builder| builder.authenticate(NamedTokens::default()));
    let session = with_token(&client, "slow").open(V2025_11_25).await;
    let script = handler.script("quick");
    let (reply, ()) = tokio::join!(session.tool(1, "quick", json!({})), script.finish("done"));
    assert_eq!(result_text(&reply.json().await), "done");
    let sse = Client::new(service.http_sse("/messages"));
    let mut opened = HttpSseClient::open(&with_token(&sse, "slow")).await;
    assert_eq!(opened.handshake(V2025_11_25).await["protocolVersion"], V2025_11_25);
}

#[tokio::test]
async fn auth_15_scopes_of_a_tool_are_checked_before_its_handler() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|builder| builder.authenticate(NamedTokens::default()));
    let poor = with_token(&client, "alice.read");
    let refused = |scopes: &str| {
        Some(format!(
            r#"Bearer error="insufficient_scope", scope="{scopes}", resource_metadata="{METADATA}""#
        ))
    };
    for revision in LEGACY_REVISIONS {
        let session = poor.open(revision).await;
        let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"writ\u0065"}}"#;
        let reply = session.raw("POST", &[], body).await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("www-authenticate")),
            (403, refused("mcp write"))
        );
        assert_eq!(reply.json().await["id"], 7);
    }
    let reply = poor
        .stateless(8, "tools/call", json!({ "name": "write" }), json!({}))
        .await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("www-authenticate")),
        (403, refused("mcp write"))
    );

    let call = |id: u64, tool: &str| {
        let params = json!({ "name": tool });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let session = poor.open(V2025_03_26).await;
    let batch = json!([call(1, "read"), call(2, "erase"), call(3, "write")]);
    let reply = session.post(&batch).await;
    let header = reply.header("www-authenticate");
    assert_eq!(
        (reply.status.as_u16(), header),
        (403, refused("mcp erase write")),
        "the union"
    );
    assert_eq!(handler.started.load(Ordering::Relaxed), 0, "no handler has run");

    let script = handler.script("write");
    let rich = session.with_client(&with_token(&client, "alice.write"));
    let (reply, ()) = tokio::join!(rich.tool(9, "write", json!({})), script.finish("written"));
    assert_eq!(reply.status, 200, "the same session goes on with a better token");
}

#[tokio::test]
async fn auth_15_scopes_are_checked_on_messages_of_2024_11_05() {
    let handler = ScriptedHandler::new();
    let (service, _) = handler.serve_with(|builder| builder.authenticate(NamedTokens::default()));
    let client = Client::new(service.http_sse("/messages"));
    let mut opened = HttpSseClient::open(&with_token(&client, "alice")).await;
    opened.handshake("2024-11-05").await;
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "write" } });
    assert_eq!(opened.post(call).await, 403);
    assert_eq!(handler.started.load(Ordering::Relaxed), 0);
}

/// Returns what it sees of the head of its request.
struct HeadReader;

impl Handler for HeadReader {
    fn options(&self) -> HandlerOptions {
        HandlerOptions::new().wants_request_head()
    }

    async fn handle(&self, mut call: Call, cx: &Context) -> Result<Reply, RpcError> {
        let parts = call.take_parts().expect("the head");
        let caller = parts.extensions.get::<Caller>().expect("the caller");
        Ok(Reply::json(json!({
            "authorization": parts.headers.contains_key("authorization"),
            "principal": parts.extensions.get::<Principal>().map(Principal::subject),
            "scopes": caller.scopes.to_string(),
            "context": cx.principal().subject(),
        })))
    }
}

#[tokio::test]
async fn auth_22_handler_sees_the_caller_and_not_the_token() {
    let service = McpService::builder(HeadReader)
        .authenticate(NamedTokens::default())
        .build();
    let client = with_token(&Client::new(service), "alice.read.write");
    let reply = client.stateless(1, "tools/list", json!({}), json!({})).await;
    let result = reply.json().await["result"].clone();
    let fields = ["authorization", "principal", "scopes", "context"].map(|field| result[field].clone());
    assert_eq!(
        fields,
        [json!(false), json!("alice"), json!("read write"), json!("alice")]
    );
}

/// Returns the scopes of the caller and the words of a layer, as its context has them.
struct ContextReader;

#[derive(Clone)]
struct OfLayer(&'static str);

impl Handler for ContextReader {
    async fn handle(&self, _: Call, cx: &Context) -> Result<Reply, RpcError> {
        let extensions = cx.extensions();
        Ok(Reply::json(json!({
            "scopes": extensions.get::<Caller>().map(|caller| caller.scopes.to_string()),
            "layer": extensions.get::<OfLayer>().map(|word| word.0),
            "principal": extensions.get::<Principal>().is_some(),
        })))
    }
}

/// The caller is among the extensions, with and without those of a layer, whose principal does not count.
#[tokio::test]
async fn auth_22_context_has_the_caller_beside_the_extensions_of_layers() {
    let service = McpService::builder(ContextReader)
        .authenticate(NamedTokens::default())
        .build();
    let client = with_token(&Client::new(service), "alice.read.write");
    let layered = client.with_request_hook(|request| {
        request.extensions_mut().insert(OfLayer("word"));
        request.extensions_mut().insert(Principal::new("layer", "mallory"));
    });
    for (client, word) in [(&client, json!(null)), (&layered, json!("word"))] {
        let expected = json!({ "scopes": "read write", "layer": word, "principal": false });
        let stateless = client.stateless(1, "tools/list", json!({}), json!({})).await;
        let result = stateless.json().await["result"].clone();
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&result[name], value, "{name}");
        }
        let session = client.open(V2025_11_25).await;
        let reply = session.call(1, "tools/list", json!({})).await;
        assert_eq!(reply.json().await["result"], expected);
    }
}
