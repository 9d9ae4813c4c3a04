//! The seam for programs that record who did what: an audit log, a feed, traces.

use crate::node::session_end::SessionEnd;
use http::Extensions;
use rethread_proto::jsonrpc::{Params, RequestId};
use rethread_proto::{Principal, Refusal, Tag, Version};
use std::time::Duration;

/// An observer of sessions, calls and refusals: see [`Builder::observe`](crate::Builder::observe).
///
/// The methods run in the future of the request, so they must not wait. Send data that needs IO to a queue.
pub trait Observe: Send + Sync + 'static {
    /// A session was opened, or restored after a restart.
    fn session_opened(&self, session: &SessionFacts<'_>) {
        let _ = session;
    }

    /// A session has ended in this process.
    fn session_ended(&self, session: &SessionFacts<'_>, end: SessionEnd, age: Duration) {
        let _ = (session, end, age);
    }

    /// A call has ended.
    fn call_ended(&self, call: &CallFacts<'_>, outcome: CallOutcome, duration: Duration) {
        let _ = (call, outcome, duration);
    }

    /// A client reads a stream again, after the last event that it has seen.
    fn stream_resumed(&self, resume: &ResumeFacts<'_>) {
        let _ = resume;
    }

    /// A request was refused.
    fn refused(&self, request: &RefusedRequest<'_>) {
        let _ = request;
    }
}

/// The facts of a session.
#[derive(Debug)]
#[non_exhaustive]
pub struct SessionFacts<'a> {
    /// The tag of its id.
    pub tag: Tag,
    /// The principal that opened it.
    pub principal: &'a Principal,
    /// The negotiated revision.
    pub version: Version,
    /// Whether it continues a session of an earlier process.
    pub is_restored: bool,
    /// The extensions of the request that opened it. `None` at its end.
    pub extensions: Option<&'a Extensions>,
}

/// The facts of a call.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallFacts<'a> {
    /// The tag of its session. `None` on 2026-07-28.
    pub session: Option<Tag>,
    /// The caller.
    pub principal: &'a Principal,
    /// The revision.
    pub version: Version,
    /// The method.
    pub method: &'a str,
    /// The tool of `tools/call`.
    pub tool: Option<&'a str>,
    /// The params. They may hold secrets.
    pub params: &'a Params,
    /// The extensions of the request.
    pub extensions: &'a Extensions,
}

/// The facts of the resumption of a stream.
#[derive(Debug)]
#[non_exhaustive]
pub struct ResumeFacts<'a> {
    /// The tag of its session.
    pub session: Tag,
    /// The caller.
    pub principal: &'a Principal,
    /// The revision of the session.
    pub version: Version,
    /// The requests that the stream answers. Empty for a push stream.
    pub calls: &'a [RequestId],
    /// Whether events after the cursor are no longer retained.
    pub has_gap: bool,
    /// The time from the request until the stream was found.
    pub duration: Duration,
    /// The extensions of the request.
    pub extensions: &'a Extensions,
}

/// The facts of a request that was refused.
#[derive(Debug)]
#[non_exhaustive]
pub struct RefusedRequest<'a> {
    /// The refusal.
    pub refusal: &'a Refusal,
    /// The tag of the session that the request names, whether it exists or not.
    pub session: Option<Tag>,
    /// The caller. `None` if it is not known.
    pub principal: Option<&'a Principal>,
    /// The revision, if a header or the message names it.
    pub version: Option<Version>,
    /// The method of the message, if it was read.
    pub method: Option<&'a str>,
    /// The tool of `tools/call`, if it was read.
    pub tool: Option<&'a str>,
    /// The extensions of the request.
    pub extensions: &'a Extensions,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallOutcome {
    /// With a result.
    Ok,
    /// With a JSON-RPC error of this code.
    Error(i64),
    /// With a result that has `isError: true`.
    ToolError,
    /// Without a reply: the call was cancelled.
    Cancelled,
}

impl CallOutcome {
    /// The outcome in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            CallOutcome::Ok => "ok",
            CallOutcome::Error(_) => "error",
            CallOutcome::ToolError => "tool_error",
            CallOutcome::Cancelled => "cancelled",
        }
    }
}
