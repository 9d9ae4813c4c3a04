//! Golden transcripts: exact bytes per revision, with fixed ids.

use crate::support::{LEGACY_REVISIONS, ScriptedHandler};
use rethread::SessionId;
use rethread_testkit::transcript::Transcript;
use std::path::PathBuf;

fn transcript_path(version: &str, name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/transcripts/{version}/{name}.txt"))
}

fn fixture() -> (ScriptedHandler, rethread_testkit::client::Client, String) {
    let handler = ScriptedHandler::new();
    let id = SessionId::from_random([7; 18]);
    let header = id.as_str().to_owned();
    let (_, client) = handler.serve_with(|b| b.dangerous_session_ids(move || id.clone()));
    (handler, client, header)
}

fn initialize(version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{"sampling":{{}}}},"clientInfo":{{"name":"demo","version":"1"}}}}}}"#
    )
}

/// HTTP-05, HTTP-07, SES-01, SSE-02, SSE-05, SSE-06, SSE-10, RES-02, RES-04, S2C-02, S2C-03.
#[tokio::test]
async fn transcripts_of_a_whole_session_match_byte_by_byte() {
    for version in LEGACY_REVISIONS {
        let (handler, client, session) = fixture();
        let mut transcript = Transcript::new(&client);
        let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", version)];

        transcript.heading("open a session");
        transcript.exchange("POST", &[], &initialize(version)).await;
        let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        transcript.exchange("POST", &headers, ready).await;

        transcript.heading("a call without events returns JSON");
        let echo =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hi"}}}"#;
        transcript.exchange("POST", &headers, echo).await;

        transcript.heading("a call with events returns a stream");
        let call =
            r#"{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"a","_meta":{"progressToken":"p"}}}"#;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(transcript.send("POST", &headers, call), async {
            script.progress(1).await;
            script.progress(2).await;
            script.finish("done").await;
        });
        transcript.record(reply).await;

        transcript.heading("resume the stream after its first message");
        let mut resume = headers.to_vec();
        resume.push(("last-event-id", "1-1"));
        transcript.exchange("GET", &resume, "").await;

        transcript.heading("the server asks, and the client answers on another POST");
        let ask = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"b"}}"#;
        let script = handler.script("b");
        let (reply, (asked, ())) = tokio::join!(transcript.send("POST", &headers, ask), async {
            let params = serde_json::json!({ "messages": [], "maxTokens": 8 });
            let answer = async {
                let result = r#"{"jsonrpc":"2.0","id":"s1-1","result":{"role":"assistant"}}"#;
                while client.request("POST", &headers, result).await.status != 202 {
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await; // the handler asks after this
                }
            };
            let done = tokio::join!(script.ask("sample", params), answer);
            script.finish("asked").await;
            done
        });
        asked.unwrap();
        transcript.record(reply).await;

        transcript.heading("errors");
        transcript
            .exchange("POST", &headers, r#"{"jsonrpc":"2.0","id":4,"method":"no/such"}"#)
            .await;
        transcript.exchange("POST", &headers, "{").await;
        transcript
            .exchange("POST", &headers, r#"[{"jsonrpc":"2.0","id":5,"method":"ping"}]"#)
            .await;
        transcript
            .exchange("POST", &[], r#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#)
            .await;
        transcript.exchange("PUT", &headers, "").await;
        let mut evil = headers.to_vec();
        evil.push(("origin", "http://evil.example"));
        transcript.exchange("POST", &evil, ready).await;

        transcript.heading("delete the session");
        transcript.exchange("DELETE", &headers, "").await;
        transcript.exchange("POST", &headers, ready).await;
        transcript.check(&transcript_path(version, "session"));
    }
}

/// SSE-11, SSE-12, VER-04 to VER-07, VER-13, HDR-01, HTTP-06, HTTP-12, SUB-02, SUB-03, SUB-06.
#[tokio::test]
async fn transcripts_of_stateless_requests_match_byte_by_byte() {
    let version = rethread_testkit::client::MODERN;
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let mut transcript = Transcript::new(&client);
    let body = |id: &str, method: &str, params: &str| {
        let meta = format!(
            r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}","io.modelcontextprotocol/clientCapabilities":{{}}}}"#
        );
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{meta}}}}}"#)
    };
    let headers = |method: &'static str| [("mcp-protocol-version", version), ("mcp-method", method)];
    let tool = |name: &'static str| [&headers("tools/call")[..], &[("mcp-name", name)]].concat();

    transcript.heading("discover");
    transcript
        .exchange("POST", &headers("server/discover"), &body("1", "server/discover", ""))
        .await;

    transcript.heading("a call without events returns JSON");
    let echo = body("2", "tools/call", r#""name":"echo","arguments":{"message":"hi"},"#);
    transcript.exchange("POST", &tool("echo"), &echo).await;

    transcript.heading("a call with events returns a stream without ids");
    let script = handler.script("a");
    let call =
        body(r#""three""#, "tools/call", r#""name":"a","#).replace("\"_meta\":{", "\"_meta\":{\"progressToken\":7,");
    let to_a = tool("a");
    let (reply, ()) = tokio::join!(transcript.send("POST", &to_a, &call), async {
        script.progress(1).await;
        script.finish("done").await;
    });
    transcript.record(reply).await;

    transcript.heading("a subscription until the server shuts down");
    let listen = body(
        "4",
        "subscriptions/listen",
        r#""notifications":{"toolsListChanged":true,"promptsListChanged":false},"#,
    );
    let reply = transcript.send("POST", &headers("subscriptions/listen"), &listen).await;
    service.notifier().list_changed(rethread::ListKind::Tools);
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let stopping = tokio::spawn({
        let service = service.clone();
        async move { service.shutdown(std::time::Duration::from_secs(1)).await }
    });
    transcript.record(reply).await;
    stopping.await.unwrap();

    transcript.heading("errors");
    let (_, client) = handler.serve();
    let mut errors = Transcript::new(&client);
    errors.exchange("POST", &headers("ping"), &body("5", "ping", "")).await;
    errors
        .exchange(
            "POST",
            &headers("tools/list"),
            &body("6", "tools/call", r#""name":"echo","#),
        )
        .await;
    errors.exchange("POST", &tool("other"), &echo).await;
    errors
        .exchange("POST", &[("mcp-method", "ping")], &body("8", "ping", ""))
        .await;
    let unknown = body("9", "ping", "").replace(version, "2027-01-01");
    errors
        .exchange("POST", &[("mcp-protocol-version", "2027-01-01")], &unknown)
        .await;
    errors
        .exchange("POST", &headers("ping"), r#"{"jsonrpc":"2.0","id":10,"method":"ping"}"#)
        .await;
    errors
        .exchange("POST", &headers("x"), r#"{"jsonrpc":"2.0","id":11,"result":{}}"#)
        .await;
    errors.exchange("GET", &headers("x")[..1], "").await;
    transcript.append(&errors);
    transcript.check(&transcript_path(version, "requests"));
}
