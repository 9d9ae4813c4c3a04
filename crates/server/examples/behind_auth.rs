//! An auth layer says who is calling; sessions and streams belong to the caller.
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
//! As Bob, who has learnt Ada's session id:
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
use rethread::{Context, McpService, Principal, RpcError};
use tokio::net::TcpListener;

/// What this server's own code wants to know of a caller. The transport does not look at it.
#[derive(Clone)]
struct MayWrite(bool);

/// Who a token stands for. In real life this checks a signature, or asks somebody.
fn caller(token: &str) -> Option<(Principal, MayWrite)> {
    match token {
        "token-of-ada" => Some((Principal::new("example", "ada"), MayWrite(true))),
        "token-of-bob" => Some((Principal::new("example", "bob"), MayWrite(false))),
        _ => None,
    }
}

/// Lets only known callers in, and says who they are.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let value = request.headers().get(header::AUTHORIZATION);
    let token = value.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some((principal, may_write)) = token.and_then(caller) else {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response();
    };
    request.extensions_mut().insert(principal); // the transport takes this one
    request.extensions_mut().insert(may_write); // and this one is found in the context
    next.run(request).await
}

async fn whoami(_: NoArgs, cx: Context) -> Result<String, RpcError> {
    let caller = cx.principal();
    let may = match cx.extensions().get() {
        Some(MayWrite(true)) => "may",
        _ => "may not",
    };
    Ok(format!("{} of {}, who {may} write", caller.subject(), caller.issuer()))
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
