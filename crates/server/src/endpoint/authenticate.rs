//! The seam for authentication: who calls, and which scopes a message needs.

use crate::node::telemetry::{self, AdmittedCallers};
use http::request::Parts;
use rethread_proto::Refusal;
use rethread_proto::auth::{AuthOutcome, AuthRefusal, Caller, Scopes};
use rethread_proto::jsonrpc::{Message, Params, Payload};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Identifies the callers of an endpoint: see [`Builder::authenticate`](crate::Builder::authenticate).
///
/// The endpoint asks after it has checked host, origin and method, and before it reads the body. It makes the response of a
/// refusal itself, so that a page at an allowed origin can read a 401.
pub trait Authenticate: Send + Sync + 'static {
    /// The caller of a request with this head. Never asked for `OPTIONS`, which browsers send without credentials.
    fn caller(&self, head: &Parts) -> Authentication;

    /// The scopes that one message needs besides those that [`caller`](Self::caller) has checked. [`Params::name`] is the
    /// name of the tool in `tools/call`. A batch needs the scopes of all its messages.
    fn needs(&self, method: &str, params: &Params) -> Scopes {
        let _ = (method, params);
        Scopes::new()
    }
}

/// The answer to [`Authenticate::caller`].
pub enum Authentication {
    /// It is known at once.
    Done(Result<Caller, AuthRefusal>),
    /// Something must be fetched first.
    Pending(Pin<Box<dyn Future<Output = Result<Caller, AuthRefusal>> + Send>>),
}

impl Authentication {
    /// Something must be fetched first.
    pub fn pending(caller: impl Future<Output = Result<Caller, AuthRefusal>> + Send + 'static) -> Self {
        Authentication::Pending(Box::pin(caller))
    }
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Authentication::Done(done) => f.debug_tuple("Done").field(done).finish(),
            Authentication::Pending(_) => f.write_str("Pending"),
        }
    }
}

/// A caller whose messages are not checked yet. It is counted when it is dropped.
pub(crate) struct CheckedCaller {
    caller: Caller,
    authenticator: Arc<dyn Authenticate>,
    counters: Arc<AdmittedCallers>,
    outcome: AuthOutcome,
}

impl CheckedCaller {
    pub(crate) fn new(caller: Caller, authenticator: &Arc<dyn Authenticate>, counters: &Arc<AdmittedCallers>) -> Self {
        CheckedCaller {
            caller,
            authenticator: Arc::clone(authenticator),
            counters: Arc::clone(counters),
            outcome: AuthOutcome::Ok,
        }
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// AUTH-15: checks the scopes of all messages, before any handler.
    pub(crate) fn authorize(&mut self, payload: &Payload) -> Result<(), Refusal> {
        let mut needed = Scopes::new();
        for message in payload.messages() {
            let (method, params) = match message {
                Message::Request(request) => (&request.method, &request.params),
                Message::Notification(note) => (&note.method, &note.params),
                Message::Answer(_) => continue,
            };
            needed.extend(self.authenticator.needs(method.as_str(), params).iter().cloned());
        }
        if self.caller.scopes.contain_all(&needed) {
            return Ok(());
        }
        self.outcome = AuthOutcome::Scope;
        let id = match payload {
            Payload::One(message) => message.request_id(),
            Payload::Batch(_) => None,
        };
        let (provider, challenge) = (Arc::clone(&self.caller.provider), self.caller.challenge.clone());
        let refusal = AuthRefusal::scope(provider, challenge, &needed);
        Err(Refusal::from(refusal).about(id))
    }
}

impl Drop for CheckedCaller {
    fn drop(&mut self) {
        match self.outcome {
            AuthOutcome::Ok => self.counters.count(&self.caller.provider),
            outcome => telemetry::caller_refused(&self.caller.provider, outcome),
        }
    }
}

/// Counts a refused caller, and makes its refusal.
pub(crate) fn refused(refusal: AuthRefusal) -> Refusal {
    telemetry::caller_refused(&refusal.provider, refusal.outcome);
    refusal.into()
}
