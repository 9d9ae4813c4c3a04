//! A client of 2026-07-28 that answers questions.

use crate::client::{Client, HttpReply};
use crate::gateway::Gateway;
use serde_json::{Value, json};

pub(super) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The capabilities of a client that answers every kind of question.
pub(super) fn all_capabilities() -> Value {
    json!({ "sampling": {}, "roots": {}, "elicitation": { "form": {}, "url": {} } })
}

/// A client that answers questions.
pub(super) struct Caller {
    pub(super) client: Client,
    pub(super) name: &'static str,
    pub(super) capabilities: Value,
}

impl Caller {
    pub(super) fn new(gateway: &Gateway, name: &'static str) -> Self {
        Caller {
            client: gateway.client(),
            name,
            capabilities: all_capabilities(),
        }
    }

    pub(super) fn with_capabilities(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    pub(super) async fn send(&self, id: u64, method: &str, mut params: Value, meta: Value) -> HttpReply {
        params["_meta"] = json!({
            "io.modelcontextprotocol/clientInfo": { "name": self.name, "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        });
        for (key, value) in meta.as_object().unwrap() {
            params["_meta"][key] = value.clone();
        }
        let (headers, body) = rethread_testkit::client::stateless(&json!(id), method, params, json!({}));
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.client.post(&headers, &body).await
    }

    /// Sends a call, or its retry with `more` params.
    pub(super) async fn start(&self, id: u64, tool: &str, arguments: Value, more: Value) -> HttpReply {
        let mut params = json!({ "name": tool, "arguments": arguments });
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        self.send(id, "tools/call", params, json!({ "progressToken": id }))
            .await
    }

    pub(super) async fn call(&self, id: u64, tool: &str, arguments: Value) -> Value {
        self.start(id, tool, arguments, json!({})).await.response().await
    }

    /// Calls again with an answer for every question of `asked`.
    pub(super) async fn retry(&self, id: u64, tool: &str, arguments: Value, asked: &Value, answer: Value) -> HttpReply {
        self.start(id, tool, arguments, retry_params(asked, &answer)).await
    }

    /// Subscribes, and returns the acknowledged part of `filter`.
    pub(super) async fn listen(&self, id: u64, filter: Value) -> (HttpReply, Value) {
        let params = json!({ "notifications": filter });
        let mut stream = self.send(id, "subscriptions/listen", params, json!({})).await;
        let acknowledged = stream.next().await.unwrap();
        assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(acknowledged["params"]["_meta"][SUBSCRIPTION], id);
        (stream, acknowledged["params"]["notifications"].clone())
    }
}

/// The params of a retry with the same answer for every question of `asked`.
pub(super) fn retry_params(asked: &Value, answer: &Value) -> Value {
    let keys = asked["result"]["inputRequests"].as_object().unwrap().keys();
    let responses: serde_json::Map<String, Value> = keys.map(|key| (key.clone(), answer.clone())).collect();
    json!({ "inputResponses": responses, "requestState": asked["result"]["requestState"] })
}

pub(super) fn accept(text: &str) -> Value {
    json!({ "action": "accept", "content": { "seat": text } })
}

pub(super) fn assert_asked(reply: &Value) {
    assert_eq!(reply["result"]["resultType"], "input_required", "{reply}");
}
