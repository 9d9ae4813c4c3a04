//! The stdio server behind the gateways. It is minimal, so that the suite measures the gateway.

use serde_json::{Value, json};
use std::io::{self, BufRead, Write};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut line = String::new();
    let mut input = io::stdin().lock();
    while input.read_line(&mut line)? > 0 {
        if let Some(mut response) = serde_json::from_str(&line).ok().and_then(|message| respond(&message)) {
            response.push('\n');
            out.write_all(response.as_bytes())?;
            out.flush()?;
        }
        line.clear();
    }
    Ok(())
}

/// The response to a request. `None` for a notification.
fn respond(message: &Value) -> Option<String> {
    let id = message.get("id")?;
    let params = &message["params"];
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "echo-child", "version": "1" },
        }),
        "ping" => json!({}),
        "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
        "tools/call" => json!({ "content": [{ "type": "text", "text": params["arguments"]["message"] }] }),
        method => {
            let error = json!({ "code": -32601, "message": format!("no method {method}") });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
}
