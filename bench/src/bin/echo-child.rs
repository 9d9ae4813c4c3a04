//! The stdio server behind the gateways. It is minimal, so that the suite measures the gateway. It speaks the revisions with sessions, or
//! with `--stateless` only 2026-07-28.

use serde_json::{Value, json};
use std::io::{self, BufRead, Write};

fn main() -> io::Result<()> {
    let is_stateless = std::env::args().any(|argument| argument == "--stateless");
    let mut out = io::stdout().lock();
    let mut line = String::new();
    let mut input = io::stdin().lock();
    while input.read_line(&mut line)? > 0 {
        if let Some(mut response) = serde_json::from_str(&line)
            .ok()
            .and_then(|message| respond(&message, is_stateless))
        {
            response.push('\n');
            out.write_all(response.as_bytes())?;
            out.flush()?;
        }
        line.clear();
    }
    Ok(())
}

/// The response to a request. `None` for a notification.
fn respond(message: &Value, is_stateless: bool) -> Option<String> {
    let id = message.get("id")?;
    let params = &message["params"];
    let server = json!({ "name": "echo-child", "version": "1" });
    let mut result = match message["method"].as_str()? {
        "server/discover" if is_stateless => json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} },
            "serverInfo": server,
        }),
        "initialize" if !is_stateless => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": server,
        }),
        "ping" if !is_stateless => json!({}),
        "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
        "tools/call" => json!({ "content": [{ "type": "text", "text": params["arguments"]["message"] }] }),
        method => {
            let error = json!({ "code": -32601, "message": format!("no method {method}") });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
        }
    };
    if is_stateless {
        result["resultType"] = "complete".into();
    }
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
}
