//! The facts of a request that the log and an observer need if the request is refused.

use crate::call::observed_call::report_refusal;
use crate::node::Node;
use crate::node::observe::RefusedRequest;
use crate::node::telemetry;
use bytes::Bytes;
use http::Extensions;
use rethread_proto::gate::{SessionHeader, VersionHeader};
use rethread_proto::jsonrpc::{self, Message, Payload};
use rethread_proto::refusal::Reason;
use rethread_proto::{Principal, Refusal, SessionId, Tag, Version};
use std::sync::Arc;

/// A request whose refusal somebody wants to know: an observer, or a log at its most detailed level.
pub(crate) struct WatchedRequest {
    node: Arc<Node>,
    extensions: Extensions,
    /// Its tag is a hash: only a refusal pays for it.
    session: Option<SessionId>,
    principal: Option<Principal>,
    version: Option<Version>,
    body: Bytes,
}

impl WatchedRequest {
    /// `None` if nobody wants to know.
    pub(crate) fn new(node: &Arc<Node>, extensions: &Extensions) -> Option<Box<Self>> {
        if node.observer.is_none() && !telemetry::logs_refusals() {
            return None;
        }
        Some(Box::new(WatchedRequest {
            node: Arc::clone(node),
            extensions: extensions.clone(),
            session: None,
            principal: None,
            version: None,
            body: Bytes::new(),
        }))
    }

    /// The headers are admitted.
    pub(crate) fn named(&mut self, session: &SessionHeader, version: &VersionHeader) {
        if let SessionHeader::Id(id) = session {
            self.session = Some(id.clone());
        }
        if let VersionHeader::Known(version) = version {
            self.version = Some(*version);
        }
    }

    /// The caller is known.
    pub(crate) fn identified(&mut self, principal: &Principal) {
        self.principal = Some(principal.clone());
    }

    pub(crate) fn read(&mut self, body: &Bytes) {
        self.body = body.clone();
    }

    /// Notifies the log and the observer that the request was refused.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        // Refusals are rare: the body is parsed again, instead of keeping a copy of each message.
        let message = jsonrpc::parse(&self.body, &self.node.limits.envelope()).ok();
        let (method, params) = match &message {
            Some(Payload::One(Message::Request(request))) => (Some(request.method.as_str()), Some(&request.params)),
            Some(Payload::One(Message::Notification(note))) => (Some(note.method.as_str()), Some(&note.params)),
            _ => (None, None),
        };
        let tool = params
            .filter(|_| method == Some("tools/call"))
            .and_then(jsonrpc::Params::name);
        // A caller whose token was verified, and who may not call.
        let refused_caller = match &refusal.reason {
            Reason::Auth(auth) => auth.principal.as_ref(),
            _ => None,
        };
        let named_version = || params?.meta_protocol_version()?.parse().ok();
        let request = RefusedRequest {
            refusal,
            session: self.session.as_ref().map(Tag::of_session),
            principal: self.principal.as_ref().or(refused_caller),
            version: self.version.or_else(named_version),
            method,
            tool: tool.as_deref(),
            extensions: &self.extensions,
        };
        report_refusal(&self.node, &request);
    }
}
