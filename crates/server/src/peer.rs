//! The client at the other end of a session.

use crate::context::{CallEnded, LogLevel};
use crate::opening::PreviousState;
use crate::session::{Session, list_changed, resource_updated};
use rethread_proto::gate::mirror::Capabilities;
use rethread_proto::jsonrpc::write_notification;
use rethread_proto::mrtr::{InputMethod, InputRequest};
use rethread_proto::push::Collapse;
use rethread_proto::sse::Draft;
use rethread_proto::{Principal, SessionId, Version};
use rethread_store::ListKind;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// The client at the other end of a session, as a handler sees it.
#[derive(Clone, Debug)]
pub struct Peer(pub(crate) Arc<Session>);

impl Peer {
    /// Sends a notification that belongs to no call: to one of the session's GET streams, or to the next one that is
    /// opened, by this process or by the next one on the same store. It is kept for replay. This does not wait until it is
    /// stored: a process that is killed within that moment takes it along. Fails only when the session has ended.
    pub fn push(&self, method: &str, params: impl Serialize) -> Result<(), CallEnded> {
        if self.0.has_ended() {
            return Err(CallEnded);
        }
        let mut problem = None;
        let draft = Draft::new(128, |out| problem = write_notification(out, method, &params).err());
        if let Some(error) = problem {
            tracing::error!(target: crate::telemetry::TARGET, %error, method, "notification dropped: its params are not JSON");
            return Ok(());
        }
        self.0.offer((draft, Collapse::Never));
        Ok(())
    }

    /// A list changed for this client, if the server declares `listChanged` for it. One that is waiting to be told covers
    /// the next.
    pub fn list_changed(&self, list: ListKind) {
        if self.0.declares(&format!("{}.listChanged", list.capability())) {
            self.0.offer(list_changed(list));
        }
    }

    /// A resource changed: told to the client if it [subscribed](Self::is_subscribed) to it.
    pub fn resource_updated(&self, uri: &str) {
        if self.0.is_subscribed(uri) {
            self.0.offer(resource_updated(uri));
        }
    }

    /// Whether the client wants log messages of this level, and the server declares that it logs (LOG-01).
    pub fn wants_log(&self, level: LogLevel) -> bool {
        self.0.log_level().is_none_or(|least| level >= least) && self.0.declares("logging")
    }

    /// Ends the session: its client gets 404 from now on, and begins a new one.
    pub fn end(&self) {
        self.0.end().mention();
    }

    /// Waits until the session has ended, also one that is only about to begin: what is made for it is then of no use.
    pub async fn ended(&self) {
        self.0.when_ended().await;
    }

    /// Whether the client subscribed to `uri`, or to something above it.
    pub fn is_subscribed(&self, uri: &str) -> bool {
        self.0.is_subscribed(uri)
    }

    /// Who opened the session.
    pub fn principal(&self) -> &Principal {
        &self.0.key.principal
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.0.key.session
    }

    /// The negotiated revision.
    pub fn version(&self) -> Version {
        self.0.version()
    }

    /// What the client can do.
    pub fn capabilities(&self) -> ClientCapabilities {
        self.0.client()
    }

    /// What the session has come to: what a server that starts anew in its middle must be told.
    pub fn state(&self) -> PreviousState {
        let record = self.0.record();
        PreviousState {
            initialized: record.initialized,
            log_level: record.log_level,
            subscriptions: record.subscriptions,
        }
    }

    /// The raw params of the client's `initialize`.
    pub fn initialize_params(&self) -> &[u8] {
        self.0.initialize_params()
    }
}

/// What a client said it can do, as far as the transport must know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCapabilities {
    /// It answers `sampling/createMessage`.
    pub sampling: bool,
    /// Its sampling can use tools.
    pub sampling_tools: bool,
    /// It shows forms to its user.
    pub elicitation_form: bool,
    /// It sends its user to a URL.
    pub elicitation_url: bool,
    /// It answers `roots/list`.
    pub roots: bool,
}

impl ClientCapabilities {
    /// What the client lacks to answer a question, if it lacks anything (MRTR-03).
    pub(crate) fn lacks(&self, request: &InputRequest) -> Option<&'static str> {
        let raw = request.params.as_deref().unwrap_or_default();
        let params: Value = serde_json::from_slice(raw).unwrap_or_default();
        self.lacks_for(request.method, &params)
    }

    /// What the client lacks to answer a question of `method` with `params`.
    pub(crate) fn lacks_for(&self, method: InputMethod, params: &Value) -> Option<&'static str> {
        let with_tools = params.get("tools").is_some() || params.get("toolChoice").is_some();
        let by_url = params.get("mode").is_some_and(|mode| mode == "url");
        match method {
            InputMethod::Sample if !self.sampling => Some("sampling"),
            InputMethod::Sample if with_tools && !self.sampling_tools => Some("sampling with tools"),
            InputMethod::Elicit if by_url && !self.elicitation_url => Some("elicitation by URL"),
            InputMethod::Elicit if !by_url && !self.elicitation_form => Some("elicitation"),
            InputMethod::Roots if !self.roots => Some("roots"),
            _ => None,
        }
    }

    /// As a request of 2026-07-28 declares them.
    pub(crate) fn of_request(declared: &Capabilities) -> Self {
        ClientCapabilities {
            sampling: declared.sampling,
            sampling_tools: declared.sampling_tools,
            elicitation_form: declared.elicitation_form,
            elicitation_url: declared.elicitation_url,
            roots: declared.roots,
        }
    }

    pub(crate) fn read(hello: &[u8]) -> Self {
        let hello: Value = serde_json::from_slice(hello).unwrap_or_default();
        let capabilities = &hello["capabilities"];
        let has = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
        let elicitation = &capabilities["elicitation"];
        ClientCapabilities {
            sampling: has(&capabilities["sampling"]),
            sampling_tools: has(&capabilities["sampling"]["tools"]),
            // An empty object is how revisions before modes, and clients after them, declare forms.
            elicitation_form: has(elicitation) && (has(&elicitation["form"]) || !has(&elicitation["url"])),
            elicitation_url: has(&elicitation["url"]),
            roots: has(&capabilities["roots"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// S2C-05: the capability matrix.
    #[test]
    fn s2c_05_capabilities_are_read_as_declared() {
        let read = |capabilities: Value| {
            ClientCapabilities::read(json!({ "capabilities": capabilities }).to_string().as_bytes())
        };
        assert_eq!(read(json!({})), ClientCapabilities::default());
        assert_eq!(ClientCapabilities::read(b""), ClientCapabilities::default());
        assert!(read(json!({ "elicitation": {} })).elicitation_form);
        let url = read(json!({ "elicitation": { "url": {} } }));
        assert!(url.elicitation_url && !url.elicitation_form);
        let both = read(json!({ "elicitation": { "url": {}, "form": {} } }));
        assert!(both.elicitation_url && both.elicitation_form);
        let sampling = read(json!({ "sampling": { "tools": {} }, "roots": { "listChanged": true } }));
        assert!(sampling.sampling && sampling.sampling_tools && sampling.roots);
        assert!(!read(json!({ "sampling": {} })).sampling_tools);
    }
}
