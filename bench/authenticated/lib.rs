//! Calls of an anonymous caller, and the same calls with a token that was verified before: `cargo xtask instructions --bench
//! authenticated` counts them, `cargo bench --bench paired` measures their time. The goal: at most 1.15 times.

use bytes::Bytes;
use http::Request;
use http::request::Parts;
use http_body_util::{BodyExt, Full};
use rethread::auth::{AuthOutcome, Credentials, Scopes, credentials};
use rethread::{
    Authenticate, Authentication, Call, Context, Handler, McpService, Principal, Reply, Revisions, RpcError, Wall,
};
use rethread_auth::{Audience, Endpoint, Identity, ServerPolicy, TokenDigest, VerifiedTokens};
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;
use tower_service::Service;

const RESOURCE: &str = "https://mcp.example.com/mcp";
const NOW: Wall = Wall::from_millis(1_800_000_000_000);
const BODY: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"},"_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}}}"#;

struct Echo;

impl Handler for Echo {
    async fn handle(&self, _: Call, _: &Context) -> Result<Reply, RpcError> {
        Ok(Reply::raw(Bytes::from_static(br#"{"content":[{"type":"text","text":"hello"}]}"#)))
    }
}

/// Knows one verified token, and decides about it with the functions that the gateway uses.
struct Verified {
    tokens: Mutex<VerifiedTokens>,
    policy: ServerPolicy,
}

impl Verified {
    fn new(token: &str) -> Self {
        let scopes = Scopes::from_words("mcp");
        let principal = Principal::new("https://login.example.com/realms/corp", "3f2a6c1e-0000-4000-8000-000000000000");
        let mut identity = Identity::new(principal, "corp".into(), scopes.clone(), Some(Wall::from_millis(u64::MAX)));
        identity.audience = Some(Audience { claimed: vec![RESOURCE.to_owned()], accepted: None });
        let mut tokens = VerifiedTokens::default();
        tokens.insert(TokenDigest::of(token), Arc::new(identity));
        let policy = ServerPolicy::new(scopes).with_urls(RESOURCE, "https://mcp.example.com/sse", None);
        Verified { tokens: Mutex::new(tokens), policy }
    }
}

impl Authenticate for Verified {
    fn caller(&self, head: &Parts) -> Authentication {
        let identity = match credentials(&head.uri, &head.headers) {
            Ok(Credentials::Token(token)) => {
                self.tokens.lock().expect("no other thread").get(&TokenDigest::of(token), NOW)
            }
            _ => None,
        };
        Authentication::Done(match identity {
            Some(identity) => self.policy.admit(&identity, Endpoint::Mcp),
            None => Err(self.policy.refuse(AuthOutcome::Unknown, &"".into(), Endpoint::Mcp)),
        })
    }
}

/// A service, a runtime to poll it on, and the credentials of the caller.
pub struct Setup {
    runtime: Runtime,
    service: McpService,
    authorization: Option<String>,
}

impl Setup {
    /// One call. Returns the bytes of its response.
    pub fn send(&mut self) -> usize {
        let request = Request::post("/mcp")
            .header("host", "127.0.0.1:8080")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "echo");
        let request = match &self.authorization {
            Some(authorization) => request.header("authorization", authorization.as_str()),
            None => request,
        };
        let request = request.body(Full::new(Bytes::from_static(BODY.as_bytes()))).expect("a request");
        let service = &mut self.service;
        self.runtime.block_on(async {
            let Ok(response) = service.call(black_box(request)).await;
            assert_eq!(response.status(), 200);
            response.into_body().collect().await.map_or(0, |body| body.to_bytes().len())
        })
    }
}

/// `token_bytes` is zero for an anonymous caller.
pub fn setup(token_bytes: usize) -> Setup {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let builder = McpService::builder(Echo).revisions(Revisions::BOTH);
    let token = (token_bytes > 0).then(|| "t".repeat(token_bytes));
    let service = match &token {
        Some(token) => builder.authenticate(Verified::new(token)).build(),
        None => builder.build(),
    };
    let authorization = token.map(|token| format!("Bearer {token}"));
    let mut setup = Setup { runtime, service, authorization };
    for _ in 0..3 {
        assert!(setup.send() > 0); // tables and pools have their size
    }
    setup
}
