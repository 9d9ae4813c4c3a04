//! The 2024-11-05 transport beside the single endpoint (LEG-01 to LEG-05).

use crate::support::{D, Puppet, text_of};
use rethread_testkit::client::{Client, Events};
use serde_json::{Value, json};
use std::time::Duration;

struct Old {
    client: Client,
    events: Events,
    path: String,
}

impl Old {
    async fn open(client: &Client) -> Self {
        let reply = client.request("GET", &[("accept", "text/event-stream")], "").await;
        let mut events = reply.events();
        let first = events.block().await.unwrap();
        assert_eq!((first.event.as_deref(), first.id), (Some("endpoint"), None), "LEG-01");
        Old {
            client: client.clone(),
            path: first.data.unwrap(),
            events,
        }
    }

    async fn post(&self, body: Value) -> u16 {
        let path = self.path.clone();
        let to = self
            .client
            .prepared(move |request| *request.uri_mut() = path.parse().unwrap());
        to.request("POST", &[], body.to_string()).await.status.as_u16()
    }

    async fn hello(&mut self, version: &str) -> Value {
        let params = json!({ "protocolVersion": version, "capabilities": { "sampling": {}, "elicitation": {} },
            "clientInfo": { "name": "old", "version": "1" } });
        assert_eq!(
            self.post(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
                .await,
            202
        );
        let answer = self.next().await;
        assert_eq!(
            self.post(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
                .await,
            202
        );
        answer["result"].clone()
    }

    async fn next(&mut self) -> Value {
        loop {
            let block = self.events.block().await.expect("another event");
            if let Some(data) = block.data {
                assert_eq!((block.event.as_deref(), block.id), (Some("message"), None), "LEG-02");
                return serde_json::from_str(&data).unwrap();
            }
        }
    }
}

/// LEG-01, LEG-02, LEG-04: any session-era revision inside, the framing stays.
#[tokio::test]
async fn leg_02_everything_comes_on_the_one_stream() {
    for version in ["2024-11-05", D] {
        let puppet = Puppet::new();
        let (service, _) = puppet.serve();
        let client = Client::new(service.http_sse("/behind/a/prefix/messages"));
        let mut old = Old::open(&client).await;
        assert!(
            old.path.starts_with("/behind/a/prefix/messages?sessionId="),
            "{}",
            old.path
        );
        assert_eq!(old.hello(version).await["protocolVersion"], version);
        let strings = puppet.strings("a");
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "a", "_meta": { "progressToken": "p" } } });
        assert_eq!(old.post(call).await, 202);
        strings.progress(1).await;
        assert_eq!(old.next().await["params"]["progress"], 1);
        let (answered, ()) = tokio::join!(
            strings.ask("sample", json!({ "messages": [], "maxTokens": 1 })),
            async {
                let question = old.next().await;
                assert_eq!(question["method"], "sampling/createMessage");
                let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "ok": 1 } });
                assert_eq!(old.post(answer).await, 202);
            }
        );
        assert_eq!(answered, Ok(json!({ "ok": 1 })));
        strings.push(5).await;
        strings.finish("old").await;
        let both = [old.next().await, old.next().await];
        assert!(both.iter().any(|m| m["id"] == 1 && text_of(m) == "old"));
        assert!(both.iter().any(|m| m["params"]["data"] == 5), "pushes come on it too");
        assert_eq!(
            old.post(json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" })).await,
            202
        );
        assert_eq!(old.next().await, json!({ "jsonrpc": "2.0", "id": 2, "result": {} }));
    }
}

/// LEG-03, LEG-05.
#[tokio::test]
async fn leg_03_wrong_posts_are_refused_and_closing_the_stream_ends_the_session() {
    let puppet = Puppet::new();
    let (service, single) = puppet.serve();
    let client = Client::new(service.http_sse("/messages"));
    let mut old = Old::open(&client).await;
    old.hello("2024-11-05").await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let to = |path: &str| Old {
        client: client.clone(),
        events: Events::none(),
        path: path.to_owned(),
    };
    assert_eq!(to("/messages").post(ping.clone()).await, 400, "missing");
    assert_eq!(
        to("/messages?sessionId=nobody").post(ping.clone()).await,
        404,
        "unknown"
    );
    assert_eq!(old.post(json!([ping])).await, 400, "LEG-05");
    let id = old.path.rsplit('=').next().unwrap().to_owned();
    let elsewhere = single
        .request("POST", &[("mcp-session-id", &id)], ping.to_string())
        .await;
    assert_eq!(elsewhere.status, 404, "LEG-04: not on the other endpoint");
    let modern = single.open(D).await;
    assert_eq!(
        to(&format!("/messages?sessionId={}", modern.id))
            .post(ping.clone())
            .await,
        404
    );
    let evil = client.request("GET", &[("origin", "http://evil.example")], "").await;
    assert_eq!(evil.status, 403, "SEC-01");

    let strings = puppet.strings("a");
    old.post(json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "a" } }))
        .await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(service.running_calls(), 1);
    let path = old.path.clone();
    drop(old);
    strings.over().await;
    assert_eq!(service.sessions(), 1, "the other one");
    assert_eq!(to(&path).post(ping).await, 404);
}
