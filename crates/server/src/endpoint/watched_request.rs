//! The facts of a request that an observer needs if the request is refused.

use crate::node::Node;
use crate::node::observe::RefusedRequest;
use bytes::Bytes;
use http::Extensions;
use rethread_proto::gate::SessionHeader;
use rethread_proto::jsonrpc::{self, Message, Payload};
use rethread_proto::{Principal, Refusal, SessionId, Tag};
use std::sync::Arc;

/// A request of an endpoint with an observer.
pub(crate) struct WatchedRequest {
    node: Arc<Node>,
    extensions: Extensions,
    /// Its tag is a hash: only a refusal pays for it.
    session: Option<SessionId>,
    principal: Option<Principal>,
    body: Bytes,
}

impl WatchedRequest {
    /// `None` without an observer.
    pub(crate) fn new(node: &Arc<Node>, extensions: &Extensions) -> Option<Box<Self>> {
        node.observer.as_ref()?;
        Some(Box::new(WatchedRequest {
            node: Arc::clone(node),
            extensions: extensions.clone(),
            session: None,
            principal: None,
            body: Bytes::new(),
        }))
    }

    /// The caller is known, and so is the session that the request names.
    pub(crate) fn identified(&mut self, principal: &Principal, session: &SessionHeader) {
        self.principal = Some(principal.clone());
        if let SessionHeader::Id(id) = session {
            self.session = Some(id.clone());
        }
    }

    pub(crate) fn read(&mut self, body: &Bytes) {
        self.body = body.clone();
    }

    /// Notifies the observer that the request was refused.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        // Refusals are rare: the body is parsed again, instead of keeping a copy of each message.
        let message = jsonrpc::parse(&self.body, &self.node.limits.envelope()).ok();
        let (method, params) = match &message {
            Some(Payload::One(Message::Request(request))) => (Some(request.method.as_str()), Some(&request.params)),
            Some(Payload::One(Message::Notification(note))) => (Some(note.method.as_str()), None),
            _ => (None, None),
        };
        let tool = params
            .filter(|_| method == Some("tools/call"))
            .and_then(jsonrpc::Params::name);
        if let Some(observer) = &self.node.observer {
            observer.refused(&RefusedRequest {
                refusal,
                session: self.session.as_ref().map(Tag::of_session),
                principal: self.principal.as_ref(),
                method,
                tool: tool.as_deref(),
                extensions: &self.extensions,
            });
        }
    }
}
