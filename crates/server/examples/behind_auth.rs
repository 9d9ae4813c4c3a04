//! An auth layer identifies the caller. Sessions and streams belong to the caller.
//!
//! ```sh
//! cargo run --example behind_auth
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In another terminal, without a token:
//!
//! ```sh
//! URL=http://127.0.0.1:8080/mcp
//! JSON='content-type: application/json'
//! HELLO='{"jsonrpc":"2.0","id":0,"method":"initialize","params":
//!   {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}'
//! curl -i $URL -H "$JSON" -d "$HELLO"
//! ```
//!
//! You should see the layer's answer. The request never reached the endpoint:
//!
//! ```text
//! HTTP/1.1 401 Unauthorized
//! www-authenticate: Bearer
//! ...
//! ```
//!
//! As Ada:
//!
//! ```sh
//! SESSION=$(curl -si $URL -H "$JSON" -H 'authorization: Bearer token-of-ada' -d "$HELLO" |
//!   awk -F'[ \r]' '/^mcp-session-id/{print $2}')
//! CALL='{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami"}}'
//! curl $URL -H "$JSON" -H "mcp-session-id: $SESSION" -H 'authorization: Bearer token-of-ada' -d "$CALL"
//! ```
//!
//! ```text
//! {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"ada of example, who may write"}]}}
//! ```
//!
//! As Bob, who knows Ada's session id:
//!
//! ```sh
//! curl -i $URL -H "$JSON" -H "mcp-session-id: $SESSION" -H 'authorization: Bearer token-of-bob' -d "$CALL"
//! ```
//!
//! You should see that for Bob there is no such session:
//!
//! ```text
//! HTTP/1.1 404 Not Found
//! ...
//! ```

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use rethread::catalog::{Catalog, NoArgs, Tool};
use rethread::{Context, McpService, Principal};
use tokio::net::TcpListener;

/// Data about a caller for the tools of this server. The transport ignores it.
#[derive(Clone)]
struct MayWrite(bool);

/// The caller of a token. A real server checks a signature, or asks an authorization server.
fn caller(token: &str) -> Option<(Principal, MayWrite)> {
    match token {
        "token-of-ada" => Some((Principal::new("example", "ada"), MayWrite(true))),
        "token-of-bob" => Some((Principal::new("example", "bob"), MayWrite(false))),
        _ => None,
    }
}

/// Admits only known callers, and adds their identity to the request.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let value = request.headers().get(header::AUTHORIZATION);
    let token = value.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some((principal, may_write)) = token.and_then(caller) else {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response();
    };
    request.extensions_mut().insert(principal); // read by the transport
    request.extensions_mut().insert(may_write); // read from the context by the tools
    next.run(request).await
}

async fn whoami(_: NoArgs, cx: Context) -> String {
    let caller = cx.principal();
    let may = match cx.extensions().get() {
        Some(MayWrite(true)) => "may",
        _ => "may not",
    };
    format!("{} of {}, who {may} write", caller.subject(), caller.issuer())
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let tool = Tool::new("whoami").description("Says who is calling");
    let mcp = McpService::builder(Catalog::new("behind_auth", "1.0.0").tool(tool, whoami)).build();
    let app = axum::Router::new()
        .route_service("/mcp", mcp)
        .layer(from_fn(authenticate));

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await
}
