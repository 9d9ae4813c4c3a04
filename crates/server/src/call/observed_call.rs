//! The facts of a call for the log, the metrics and an observer.

use crate::call::active_call::ActiveCall;
use crate::call::call_scope::CallScope;
use crate::call::reply::{Reply, ReplyKind};
use crate::node::Node;
use crate::node::observe::{CallFacts, CallOutcome, RefusedRequest};
use crate::node::telemetry::{self, EndedCall};
use rethread_proto::jsonrpc::{Method, Params, Request, RpcError};
use rethread_proto::{Principal, Tag};
use std::time::{Duration, Instant};

const CALL_TARGET: &str = "rethread::call";

/// The measured part of a call: from its start until its reply, or until it is dropped.
pub(crate) struct ObservedCall {
    pub(crate) method: Method,
    started: Instant,
    outcome: CallOutcome,
    /// Only if somebody wants to know more than the duration. Boxed, because the future of every call has room for it.
    params: Option<Box<Params>>,
}

impl ObservedCall {
    pub(crate) fn start(node: &Node, request: &Request) -> Self {
        let is_wanted = node.observer.is_some()
            || node.metrics.names_tools()
            || tracing::enabled!(target: CALL_TARGET, tracing::Level::DEBUG);
        ObservedCall {
            method: request.method.clone(),
            started: Instant::now(),
            outcome: CallOutcome::Cancelled,
            params: is_wanted.then(|| Box::new(request.params.clone())),
        }
    }

    /// The handler has replied, and the call was not cancelled.
    pub(crate) fn replied(&mut self, node: &Node, result: &Result<Reply, RpcError>) {
        self.outcome = match result {
            Err(error) => CallOutcome::Error(error.code),
            Ok(reply @ Reply(ReplyKind::Result(_))) => {
                if self.method.as_str() == "tools/list" {
                    node.metrics.tools_listed(|| reply.tool_names());
                }
                match self.method.as_str() {
                    "tools/call" if reply.is_tool_error() => CallOutcome::ToolError,
                    _ => CallOutcome::Ok,
                }
            }
            Ok(Reply(ReplyKind::InputRequired(_))) => CallOutcome::Ok,
        };
    }

    /// The call has ended.
    pub(crate) fn ended(&self, running: &ActiveCall) {
        let (node, duration) = (&running.exchange.node, self.started.elapsed());
        let params = self.params.as_deref();
        let tool = params
            .filter(|_| self.method.as_str() == "tools/call")
            .and_then(Params::name);
        let tool = tool.as_deref();
        node.metrics.call_ended(&EndedCall {
            method: &self.method,
            version: running.version(),
            tool,
            outcome: self.outcome,
            duration,
        });
        let Some(params) = params else { return };
        let (session, principal) = owner(&running.exchange.scope);
        let facts = CallFacts {
            session,
            principal,
            version: running.version(),
            method: self.method.as_str(),
            tool,
            params,
            extensions: running.extensions.get(),
        };
        report(node, &facts, self.outcome, duration);
    }
}

/// Reports a refusal to the log and the observer.
pub(crate) fn report_refusal(node: &Node, request: &RefusedRequest<'_>) {
    telemetry::log_refusal(node.metrics.server(), request);
    if let Some(observer) = &node.observer {
        observer.refused(request);
    }
}

/// Reports the end of a call to the log and the observer.
pub(crate) fn report(node: &Node, call: &CallFacts<'_>, outcome: CallOutcome, duration: Duration) {
    if let Some(observer) = &node.observer {
        observer.call_ended(call, outcome, duration);
    }
    // The tag of the caller is a hash: only a line that is written pays for it.
    if !tracing::enabled!(target: CALL_TARGET, tracing::Level::DEBUG) {
        return;
    }
    let code = match outcome {
        CallOutcome::Error(code) => Some(code),
        _ => None,
    };
    tracing::debug!(
        target: CALL_TARGET,
        server = node.metrics.server(),
        session = call.session.map(tracing::field::display),
        principal = Tag::of_principal(call.principal).map(tracing::field::display),
        method = telemetry::shortened(call.method),
        tool = call.tool.map(telemetry::shortened),
        revision = call.version.as_str(),
        outcome = outcome.as_str(),
        code,
        duration_ms = duration.as_secs_f64() * 1000.0,
        "call ended"
    );
}

fn owner(scope: &CallScope) -> (Option<Tag>, &Principal) {
    match scope {
        CallScope::Session(session) => (Some(session.tag()), &session.key.principal),
        CallScope::Stateless(scope) => (None, &scope.principal),
    }
}
