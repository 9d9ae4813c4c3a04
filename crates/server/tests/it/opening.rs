//! Handlers that keep something for each session, and pass on what they are told: what a gateway is made of.

use crate::support::{D, SESSION_ERA};
use rethread::{
    Call, Context, Handler, InitializeReply, McpService, MemoryStore, Notification, OpenError, Peer, PreviousState,
    Reply, RpcError, SessionId, SessionStart,
};
use rethread_testkit::client::Client;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Writes down what it hears.
#[derive(Clone, Default)]
struct Relay(Arc<Mutex<Heard>>);

#[derive(Default)]
struct Heard {
    opened: Vec<(String, Option<PreviousState>)>,
    closed: Vec<String>,
    calls: Vec<String>,
    notices: Vec<String>,
    peer: Option<Peer>,
    slow: bool,
    version: Option<&'static str>,
    fails: Option<OpenError>,
}

impl Relay {
    fn heard<T>(&self, look: impl FnOnce(&mut Heard) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }
}

impl Handler for Relay {
    async fn open(&self, opening: &SessionStart) -> Result<InitializeReply, OpenError> {
        if self.heard(|heard| heard.slow) {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        if let Some(why) = self.heard(|heard| heard.fails.clone()) {
            return Err(why);
        }
        let hello: Value = serde_json::from_slice(opening.params()).unwrap();
        let id = opening.peer().id().as_str().to_owned();
        let version = self.heard(|heard| {
            heard.peer = Some(opening.peer().clone());
            heard.opened.push((id, opening.earlier().cloned()));
            heard.version.unwrap_or(opening.version().as_str())
        });
        Ok(InitializeReply::raw(
            json!({
                "protocolVersion": version,
                "capabilities": { "logging": {}, "tools": { "listChanged": true } },
                "serverInfo": { "name": hello["clientInfo"]["name"], "version": "of the child" },
            })
            .to_string(),
        ))
    }

    fn on_session_closed(&self, session: &SessionId) {
        self.heard(|heard| heard.closed.push(session.as_str().to_owned()));
    }

    fn relays(&self) -> bool {
        true
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        self.heard(|heard| heard.calls.push(call.method().to_owned()));
        if call.method() == "tools/call" {
            cx.notify("notifications/anything", json!({ "n": 1 })).await?;
            let answer = cx.request("custom/question", json!({ "n": 2 })).await?;
            return Ok(Reply::raw(answer.raw().to_vec()));
        }
        Ok(Reply::empty())
    }

    async fn on_notification(&self, notice: Notification, _: &Peer) {
        self.heard(|heard| heard.notices.push(notice.method().to_owned()));
    }
}

fn serve(relay: &Relay, store: &MemoryStore) -> (McpService<Relay>, Client) {
    let service = McpService::builder(relay.clone()).store(store.clone()).build();
    (service.clone(), Client::new(service))
}

#[tokio::test]
async fn gw_05_a_handler_welcomes_each_session_in_its_own_words() {
    for version in SESSION_ERA {
        let (relay, store) = (Relay::default(), MemoryStore::default());
        let (_, client) = serve(&relay, &store);
        let session = client.open(version).await;
        assert_eq!(
            session.initialize_response["result"]["serverInfo"]["version"],
            "of the child"
        );
        assert_eq!(session.version, version);
        assert_eq!(relay.heard(|heard| heard.opened[0].clone()), (session.id.clone(), None));
        assert_eq!(
            relay.heard(|heard| heard.notices.clone()),
            ["notifications/initialized"]
        );
        session.call(1, "logging/setLevel", json!({ "level": "error" })).await;
        session.call(2, "ping", json!({})).await;
        assert_eq!(relay.heard(|heard| heard.calls.clone()), ["logging/setLevel"]);
        session.delete().await;
        assert_eq!(relay.heard(|heard| heard.closed.clone()), [session.id]);
    }
}

#[tokio::test]
async fn gw_05_a_version_that_is_not_served_is_not_relayed() {
    let (relay, store) = (Relay::default(), MemoryStore::default());
    let (service, client) = serve(&relay, &store);
    for unknown in ["2031-01-01", "2026-07-28", "2024-11-04"] {
        relay.heard(|heard| heard.version = Some(unknown));
        let hello = json!({ "protocolVersion": D, "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello });
        let error = client.post(&request).await.json().await;
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(unknown), "{message}");
    }
    assert_eq!((service.sessions(), store.sessions()), (0, 0));
    assert_eq!(
        relay.heard(|heard| (heard.opened.len(), heard.closed.len())),
        (3, 3),
        "what was opened is closed"
    );
}

/// GW-09: a refusal is the answer to `initialize`, and a lack that may pass is a 503.
#[tokio::test]
async fn gw_09_a_session_that_cannot_begin_now_may_be_tried_again() {
    let (relay, store) = (Relay::default(), MemoryStore::default());
    let (service, client) = serve(&relay, &store);
    let hello = json!({ "protocolVersion": D, "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello });
    relay.heard(|heard| heard.fails = Some(RpcError::new(-32099, "not you").into()));
    let refused = client.post(&request).await;
    assert_eq!(refused.status, 200);
    assert_eq!(refused.json().await["error"]["code"], -32099);
    relay.heard(|heard| heard.fails = Some(OpenError::Unavailable("all seats are taken".into())));
    let full = client.post(&request).await;
    assert_eq!(full.status, 503);
    assert!(full.headers.contains_key("retry-after"));
    let error = full.json().await;
    assert_eq!(
        (&error["id"], &error["error"]["message"]),
        (&json!(1), &json!("all seats are taken"))
    );
    assert_eq!((service.sessions(), store.sessions()), (0, 0));
    relay.heard(|heard| heard.fails = None);
    client.open(D).await;
}

/// A client that leaves while its session is being made leaves nothing behind.
#[tokio::test]
async fn gw_08_an_initialize_that_nobody_waits_for_is_undone() {
    let (relay, store) = (Relay::default(), MemoryStore::default());
    let (service, client) = serve(&relay, &store);
    relay.heard(|heard| heard.slow = true);
    let impatient = tokio::time::timeout(Duration::from_millis(10), client.open(D)).await;
    assert!(impatient.is_err());
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!((service.sessions(), store.sessions()), (0, 0));
    assert_eq!(relay.heard(|heard| (heard.opened.len(), heard.closed.len())), (0, 0));
}

#[tokio::test]
async fn rst_01_a_handler_is_told_what_a_session_had() {
    let (relay, store) = (Relay::default(), MemoryStore::default());
    let (_, client) = serve(&relay, &store);
    let session = client.open(D).await;
    session.call(1, "logging/setLevel", json!({ "level": "error" })).await;
    session.call(2, "resources/subscribe", json!({ "uri": "a:b" })).await;
    let next = Relay::default();
    let (service, client) = serve(&next, &store);
    let session = session.with_client(&client);
    next.heard(|heard| heard.fails = Some(RpcError::internal("the child cannot be started").into()));
    let reply = session.call(3, "ping", json!({})).await;
    assert_eq!(
        (reply.status.as_u16(), service.sessions()),
        (503, 0),
        "may be tried again"
    );
    next.heard(|heard| heard.fails = None);
    assert_eq!(session.call(3, "ping", json!({})).await.status, 200);
    let (id, earlier) = next.heard(|heard| heard.opened[0].clone());
    let earlier = earlier.unwrap();
    assert_eq!(id, session.id);
    assert!(earlier.initialized);
    assert_eq!(earlier.log_level.as_deref(), Some("error"));
    assert_eq!(earlier.subscriptions, ["a:b".into()].into());
}

#[tokio::test]
async fn s2c_02_any_question_can_be_asked_in_a_call_and_aside() {
    let (relay, store) = (Relay::default(), MemoryStore::default());
    let (_, client) = serve(&relay, &store);
    let session = client.open(D).await;
    let mut get = session.get(None).await.events();
    let mut events = session.tool(7, "any", json!({})).await.events();
    assert_eq!(events.next().await.data["method"], "notifications/anything");
    let question = events.next().await.data;
    assert_eq!(
        (&question["method"], &question["params"]["n"]),
        (&json!("custom/question"), &json!(2))
    );
    session.answer(&question["id"], json!({ "content": [] })).await;
    assert_eq!(events.next().await.data["result"], json!({ "content": [] }));

    let peer = relay.heard(|heard| heard.peer.clone()).unwrap();
    let (answer, ()) = tokio::join!(peer.request("roots/list", ()), async {
        let question = get.next().await.data;
        assert_eq!(question["method"], "roots/list");
        session.answer(&question["id"], json!({ "roots": [] })).await;
    });
    assert_eq!(answer.unwrap().json::<Value>().unwrap(), json!({ "roots": [] }));

    // Nobody waits any more: the client is told so.
    let asking = tokio::time::timeout(Duration::from_millis(20), peer.request("roots/list", ()));
    let (asked, question) = tokio::join!(asking, get.next());
    assert!(asked.is_err());
    let withdrawn = get.next().await.data;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question.data["id"]);

    peer.end();
    assert_eq!(session.call(9, "ping", json!({})).await.status, 404);
    assert_eq!(relay.heard(|heard| heard.closed.len()), 1);
}
