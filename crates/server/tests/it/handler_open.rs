//! Handlers with session state that forward messages, as a gateway does.

use crate::support::{LEGACY_REVISIONS, V2025_11_25};
use rethread::{
    Call, Context, Handler, InitializeReply, McpService, MemoryStore, Notification, OpenError, Peer, PreviousState,
    Reply, RpcError, SessionId, SessionStart,
};
use rethread_testkit::client::Client;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Records every callback.
#[derive(Clone, Default)]
struct Relay(Arc<Mutex<RelayLog>>);

#[derive(Default)]
struct RelayLog {
    opened: Vec<(String, Option<PreviousState>)>,
    closed: Vec<String>,
    calls: Vec<String>,
    notifications: Vec<String>,
    peer: Option<Peer>,
    slow: bool,
    version: Option<&'static str>,
    fails: Option<OpenError>,
}

impl Relay {
    fn log<T>(&self, access: impl FnOnce(&mut RelayLog) -> T) -> T {
        access(&mut self.0.lock().unwrap())
    }
}

impl Handler for Relay {
    async fn open(&self, start: &SessionStart) -> Result<InitializeReply, OpenError> {
        if self.log(|log| log.slow) {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        if let Some(error) = self.log(|log| log.fails.clone()) {
            return Err(error);
        }
        let params: Value = serde_json::from_slice(start.params()).unwrap();
        let id = start.peer().id().as_str().to_owned();
        let version = self.log(|log| {
            log.peer = Some(start.peer().clone());
            log.opened.push((id, start.previous_state().cloned()));
            log.version.unwrap_or(start.version().as_str())
        });
        Ok(InitializeReply::raw(
            json!({
                "protocolVersion": version,
                "capabilities": { "logging": {}, "tools": { "listChanged": true } },
                "serverInfo": { "name": params["clientInfo"]["name"], "version": "from the handler" },
            })
            .to_string(),
        ))
    }

    fn on_session_closed(&self, session: &SessionId) {
        self.log(|log| log.closed.push(session.as_str().to_owned()));
    }

    fn options(&self) -> rethread::HandlerOptions {
        rethread::HandlerOptions::new().relays()
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        self.log(|log| log.calls.push(call.method().to_owned()));
        if call.method() == "tools/call" {
            cx.notify("notifications/anything", json!({ "n": 1 })).await?;
            let answer = cx.request("custom/question", json!({ "n": 2 })).await?;
            return Ok(Reply::raw(answer.raw().to_vec()));
        }
        Ok(Reply::empty())
    }

    async fn on_notification(&self, notification: Notification, _: &Peer) {
        self.log(|log| log.notifications.push(notification.method().to_owned()));
    }
}

fn serve(relay: &Relay, store: &MemoryStore) -> (McpService, Client) {
    let service = McpService::builder(relay.clone()).store(store.clone()).build();
    (service.clone(), Client::new(service))
}

#[tokio::test]
async fn gw_05_handler_returns_its_own_initialize_result() {
    for version in LEGACY_REVISIONS {
        let (relay, store) = (Relay::default(), MemoryStore::default());
        let (_, client) = serve(&relay, &store);
        let session = client.open(version).await;
        assert_eq!(
            session.initialize_response["result"]["serverInfo"]["version"],
            "from the handler"
        );
        assert_eq!(session.version, version);
        assert_eq!(relay.log(|log| log.opened[0].clone()), (session.id.clone(), None));
        assert_eq!(
            relay.log(|log| log.notifications.clone()),
            ["notifications/initialized"]
        );
        session.call(1, "logging/setLevel", json!({ "level": "error" })).await;
        session.call(2, "ping", json!({})).await;
        assert_eq!(relay.log(|log| log.calls.clone()), ["logging/setLevel"]);
        session.delete().await;
        assert_eq!(relay.log(|log| log.closed.clone()), [session.id]);
    }
}

#[tokio::test]
async fn gw_05_unsupported_version_is_not_relayed() {
    let (relay, store) = (Relay::default(), MemoryStore::default());
    let (service, client) = serve(&relay, &store);
    for unknown in ["2031-01-01", "2026-07-28", "2024-11-04"] {
        relay.log(|log| log.version = Some(unknown));
        let initialize = json!({ "protocolVersion": V2025_11_25, "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize });
        let error = client.post(&request).await.json().await;
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(unknown), "{message}");
    }
    assert_eq!((service.stats().sessions, store.sessions()), (0, 0));
    assert_eq!(
        relay.log(|log| (log.opened.len(), log.closed.len())),
        (3, 3),
        "what was opened is closed"
    );
}

/// GW-09: the client gets the refusal as the response to `initialize`. A temporary one has status 503.
#[tokio::test]
async fn gw_09_unavailable_handler_returns_503() {
    let (relay, store) = (Relay::default(), MemoryStore::default());
    let (service, client) = serve(&relay, &store);
    let initialize =
        json!({ "protocolVersion": V2025_11_25, "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize });
    relay.log(|log| log.fails = Some(RpcError::new(-32099, "not you").into()));
    let refused = client.post(&request).await;
    assert_eq!(refused.status, 200);
    assert_eq!(refused.json().await["error"]["code"], -32099);
    relay.log(|log| log.fails = Some(OpenError::Unavailable("all seats are taken".into())));
    let full = client.post(&request).await;
    assert_eq!(full.status, 503);
    assert!(full.headers.contains_key("retry-after"));
    let error = full.json().await;
    assert_eq!(
        (&error["id"], &error["error"]["message"]),
        (&json!(1), &json!("all seats are taken"))
    );
    assert_eq!((service.stats().sessions, store.sessions()), (0, 0));
    relay.log(|log| log.fails = None);
    client.open(V2025_11_25).await;
}

/// GW-08: the client disconnects during `initialize`.
#[tokio::test]
async fn gw_08_abandoned_initialize_is_undone() {
    let (relay, store) = (Relay::default(), MemoryStore::default());
    let (service, client) = serve(&relay, &store);
    relay.log(|log| log.slow = true);
    let impatient = tokio::time::timeout(Duration::from_millis(10), client.open(V2025_11_25)).await;
    assert!(impatient.is_err());
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!((service.stats().sessions, store.sessions()), (0, 0));
    assert_eq!(relay.log(|log| (log.opened.len(), log.closed.len())), (0, 0));
}

#[tokio::test]
async fn rst_01_handler_gets_the_previous_session_state() {
    let (relay, store) = (Relay::default(), MemoryStore::default());
    let (_, client) = serve(&relay, &store);
    let session = client.open(V2025_11_25).await;
    session.call(1, "logging/setLevel", json!({ "level": "error" })).await;
    session.call(2, "resources/subscribe", json!({ "uri": "a:b" })).await;
    let next = Relay::default();
    let (service, client) = serve(&next, &store);
    let session = session.with_client(&client);
    next.log(|log| log.fails = Some(RpcError::internal("the child cannot be started").into()));
    let reply = session.call(3, "ping", json!({})).await;
    assert_eq!(
        (reply.status.as_u16(), service.stats().sessions),
        (503, 0),
        "may be tried again"
    );
    next.log(|log| log.fails = None);
    assert_eq!(session.call(3, "ping", json!({})).await.status, 200);
    let (id, earlier) = next.log(|log| log.opened[0].clone());
    let earlier = earlier.unwrap();
    assert_eq!(id, session.id);
    assert!(earlier.initialized);
    assert_eq!(earlier.log_level.as_deref(), Some("error"));
    assert_eq!(earlier.subscriptions, ["a:b".into()].into());
}

#[tokio::test]
async fn s2c_02_custom_question_works_in_a_call_and_in_the_session() {
    let (relay, store) = (Relay::default(), MemoryStore::default());
    let (_, client) = serve(&relay, &store);
    let session = client.open(V2025_11_25).await;
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

    let peer = relay.log(|log| log.peer.clone()).unwrap();
    let (answer, ()) = tokio::join!(peer.request("roots/list", ()), async {
        let question = get.next().await.data;
        assert_eq!(question["method"], "roots/list");
        session.answer(&question["id"], json!({ "roots": [] })).await;
    });
    assert_eq!(answer.unwrap().json::<Value>().unwrap(), json!({ "roots": [] }));

    // The handler stops waiting, so the client gets a cancellation.
    let asking = tokio::time::timeout(Duration::from_millis(20), peer.request("roots/list", ()));
    let (asked, question) = tokio::join!(asking, get.next());
    assert!(asked.is_err());
    let withdrawn = get.next().await.data;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question.data["id"]);

    peer.end();
    assert_eq!(session.call(9, "ping", json!({})).await.status, 404);
    assert_eq!(relay.log(|log| log.closed.len()), 1);
}
