//! The observers of a server: the audit log, and others that record sessions, calls and refusals.

use crate::audit::{self, AuditEvent, AuditLog};
use crate::auth::{ClientAddress, PeerAddress};
use http::Extensions;
use rethread::{CallFacts, CallOutcome, Observe, RefusedRequest, ResumeFacts, SessionEnd, SessionFacts, Version};
use rethread_proto::refusal::Reason;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Notifies several observers.
pub(crate) struct Observers(pub(crate) Vec<Arc<dyn Observe>>);

impl Observers {
    /// One observer for all. `None` if there is none: then calls pay nothing.
    pub(crate) fn into_observer(mut self) -> Option<Arc<dyn Observe>> {
        match self.0.len() {
            0 => None,
            1 => self.0.pop(),
            _ => Some(Arc::new(self)),
        }
    }
}

impl Observe for Observers {
    fn session_opened(&self, session: &SessionFacts<'_>) {
        self.0.iter().for_each(|observer| observer.session_opened(session));
    }

    fn session_ended(&self, session: &SessionFacts<'_>, end: SessionEnd, age: Duration) {
        self.0
            .iter()
            .for_each(|observer| observer.session_ended(session, end, age));
    }

    fn call_ended(&self, call: &CallFacts<'_>, outcome: CallOutcome, duration: Duration) {
        self.0
            .iter()
            .for_each(|observer| observer.call_ended(call, outcome, duration));
    }

    fn stream_resumed(&self, resume: &ResumeFacts<'_>) {
        self.0.iter().for_each(|observer| observer.stream_resumed(resume));
    }

    fn refused(&self, request: &RefusedRequest<'_>) {
        self.0.iter().for_each(|observer| observer.refused(request));
    }
}

/// Writes the audit log of one server.
pub(crate) struct AuditObserver {
    pub(crate) server: String,
    pub(crate) log: Arc<AuditLog>,
}

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let forwarded = extensions.get::<ClientAddress>().map(|address| address.0);
    forwarded.or_else(|| extensions.get::<PeerAddress>().map(|address| address.0))
}

impl Observe for AuditObserver {
    fn session_opened(&self, session: &SessionFacts<'_>) {
        self.log.record(&AuditEvent {
            event: "session.opened",
            server: Some(&self.server),
            principal: self.log.principal(session.principal),
            session: Some(session.tag),
            peer: session.extensions.and_then(peer),
            revision: Some(session.version.as_str()),
            outcome: Some("ok"),
            reason: session.is_restored.then_some("restored"),
            ..AuditEvent::default()
        });
    }

    fn session_ended(&self, session: &SessionFacts<'_>, end: SessionEnd, age: Duration) {
        self.log.record(&AuditEvent {
            event: "session.ended",
            server: Some(&self.server),
            principal: self.log.principal(session.principal),
            session: Some(session.tag),
            revision: Some(session.version.as_str()),
            reason: Some(end.as_str()),
            duration: Some(age),
            ..AuditEvent::default()
        });
    }

    fn call_ended(&self, call: &CallFacts<'_>, outcome: CallOutcome, duration: Duration) {
        let code = match outcome {
            CallOutcome::Error(code) => Some(code.to_string()),
            _ => None,
        };
        let params = self.log.has_params.then(|| call.params.as_json());
        self.log.record(&AuditEvent {
            event: "call",
            server: Some(&self.server),
            principal: self.log.principal(call.principal),
            session: call.session,
            peer: peer(call.extensions),
            revision: Some(call.version.as_str()),
            method: Some(audit::bounded(call.method)),
            tool: call.tool.map(audit::bounded),
            outcome: Some(outcome.as_str()),
            reason: code.as_deref(),
            duration: Some(duration),
            params: params.and_then(audit::params_for_line),
            ..AuditEvent::default()
        });
    }

    fn refused(&self, request: &RefusedRequest<'_>) {
        let auth = match &request.refusal.reason {
            Reason::Auth(auth) => Some(&**auth),
            _ => None,
        };
        self.log.record(&AuditEvent {
            event: if auth.is_some() { "auth.refused" } else { "call" },
            server: Some(&self.server),
            // Known only if its token was verified.
            principal: request.principal.and_then(|principal| self.log.principal(principal)),
            session: request.session,
            peer: peer(request.extensions),
            revision: request.version.map(Version::as_str),
            method: request.method.map(audit::bounded),
            tool: request.tool.map(audit::bounded),
            outcome: Some("refused"),
            reason: Some(auth.map_or_else(|| request.refusal.label(), |auth| auth.outcome.as_str())),
            ..AuditEvent::default()
        });
    }
}
