//! A request that the transport answers itself: no handler runs, and the request counts nevertheless.

use crate::call::observed_call::{report, report_refusal};
use crate::node::Node;
use crate::node::observe::{CallFacts, CallOutcome, RefusedRequest};
use crate::node::telemetry::{self, EndedCall};
use crate::session::Session;
use http::Extensions;
use rethread_proto::jsonrpc::{Params, Request, RpcError};
use rethread_proto::{Principal, Refusal, Tag, Version};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// A request, its sender, and the node that answers it.
pub(crate) struct UnhandledCall<'a> {
    node: &'a Node,
    request: &'a Request,
    /// Without a session. That of a session may be negotiated while this exists.
    stateless_version: Version,
    session: Option<&'a Session>,
    principal: &'a Principal,
    extensions: &'a Extensions,
}

impl<'a> UnhandledCall<'a> {
    pub(crate) fn in_session(session: &'a Session, request: &'a Request, extensions: &'a Extensions) -> Self {
        UnhandledCall {
            node: &session.node,
            request,
            stateless_version: session.version(),
            session: Some(session),
            principal: &session.key.principal,
            extensions,
        }
    }

    /// A request that belongs to no session, or to none that was opened.
    pub(crate) fn without_session(
        node: &'a Node,
        version: Version,
        principal: &'a Principal,
        request: &'a Request,
        extensions: &'a Extensions,
    ) -> Self {
        UnhandledCall {
            node,
            request,
            stateless_version: version,
            session: None,
            principal,
            extensions,
        }
    }

    /// The transport has answered with a result. `ping` and `initialize` would fill the log and the audit log, and the latter has a
    /// line for the session: they only count.
    pub(crate) fn succeeded(&self, started: Instant) {
        self.count(CallOutcome::Ok, None, started.elapsed());
    }

    /// The transport has answered with an error.
    pub(crate) fn failed(&self, started: Instant, error: &RpcError) {
        let (outcome, duration) = (CallOutcome::Error(error.code), started.elapsed());
        let (tool, method) = (self.tool(), self.request.method.as_str());
        self.count(outcome, tool.as_deref(), duration);
        let facts = CallFacts {
            session: self.tag(),
            principal: self.principal,
            version: self.version(),
            method,
            tool: tool.as_deref(),
            params: &self.request.params,
            extensions: self.extensions,
        };
        report(self.node, &facts, outcome, duration);
    }

    /// The request is refused, but its response is part of a larger one: no status says so.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        telemetry::refused(refusal);
        let tool = self.tool();
        let request = RefusedRequest {
            refusal,
            session: self.tag(),
            principal: Some(self.principal),
            version: Some(self.version()),
            method: Some(self.request.method.as_str()),
            tool: tool.as_deref(),
            extensions: self.extensions,
        };
        report_refusal(self.node, &request);
    }

    fn count(&self, outcome: CallOutcome, tool: Option<&str>, duration: Duration) {
        self.node.metrics.call_ended(&EndedCall {
            method: &self.request.method,
            version: self.version(),
            tool,
            outcome,
            duration,
        });
    }

    fn version(&self) -> Version {
        self.session.map_or(self.stateless_version, Session::version)
    }

    fn tag(&self) -> Option<Tag> {
        self.session.map(Session::tag)
    }

    fn tool(&self) -> Option<Cow<'a, str>> {
        let params = Some(&self.request.params).filter(|_| self.request.method.as_str() == "tools/call");
        params.and_then(Params::name)
    }
}
