//! The names of all metrics, and the log lines that go with them.

mod admitted_callers;
mod help;
mod node_events;
mod server_metrics;

pub(crate) use admitted_callers::AdmittedCallers;
pub(crate) use node_events::{ForwardKind, ForwardOutcome};
pub(crate) use server_metrics::{EndedCall, ServerMetrics, SessionLife};

use crate::node::observe::RefusedRequest;
use metrics::Counter;
use parking_lot::Mutex;
use rethread_proto::auth::AuthOutcome;
use rethread_proto::refusal::Reason;
use rethread_proto::{Refusal, Tag, Version};
use rethread_store::{Incarnation, StoreError};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(crate) const TARGET: &str = "rethread";

/// How often the log repeats that a limit is reached. Under overload each request would write a line.
const CAPACITY_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Characters of a value of a client that the log shows.
const MAX_LOGGED_CHARS: usize = 128;

/// Counts a refusal.
pub(crate) fn refused(refusal: &Refusal) {
    metrics::counter!("rethread_refusals_total", "reason" => refusal.label()).increment(1);
    if let Reason::Overloaded(limit) | Reason::TooMany(limit) = refusal.reason {
        capacity_reached(limit);
    }
}

/// Whether the log has a line for each refusal.
pub(crate) fn logs_refusals() -> bool {
    tracing::enabled!(target: "rethread::refusal", tracing::Level::DEBUG)
}

/// The line of a refusal. Tags are hashes, so only a line that is written pays for them.
pub(crate) fn log_refusal(server: &str, request: &RefusedRequest<'_>) {
    if !logs_refusals() {
        return;
    }
    let refusal = request.refusal;
    let detail = refusal.detail();
    tracing::debug!(
        target: "rethread::refusal",
        server,
        session = request.session.map(tracing::field::display),
        principal = request.principal.and_then(Tag::of_principal).map(tracing::field::display),
        method = request.method.map(shortened),
        tool = request.tool.map(shortened),
        revision = request.version.map(Version::as_str),
        reason = refusal.label(),
        status = refusal.status().as_u16(),
        detail = detail.as_deref().map(shortened).unwrap_or_default(),
        "refused"
    );
}

/// A limit is reached: one line a minute for each limit. The limits are constants, so the table is bounded.
fn capacity_reached(limit: &'static str) {
    static LOGGED: Mutex<BTreeMap<&str, Instant>> = Mutex::new(BTreeMap::new());
    let now = Instant::now();
    let is_due = {
        let mut logged = LOGGED.lock();
        let last = logged.get(limit);
        let is_due = last.is_none_or(|last| now.duration_since(*last) >= CAPACITY_LOG_INTERVAL);
        if is_due {
            logged.insert(limit, now);
        }
        is_due
    };
    if is_due {
        tracing::warn!(target: TARGET, limit, "capacity reached: requests are refused");
    }
}

/// The beginning of a text that a client wrote.
pub(crate) fn shortened(text: &str) -> &str {
    text.char_indices()
        .nth(MAX_LOGGED_CHARS)
        .map_or(text, |(end, _)| &text[..end])
}

/// A request was refused for its credentials. [`AdmittedCallers`] counts the others: one per request in all.
pub(crate) fn caller_refused(provider: &str, outcome: AuthOutcome) {
    auth_counter(provider, outcome).increment(1);
}

fn auth_counter(provider: &str, outcome: AuthOutcome) -> Counter {
    let provider = provider.to_owned();
    metrics::counter!("rethread_auth_total", "provider" => provider, "outcome" => outcome.as_str())
}

pub(crate) fn node_joined(node: &Incarnation, lease: Duration) {
    tracing::info!(target: TARGET, %node, lease_seconds = lease.as_secs_f64(), "joined the cluster");
}

pub(crate) fn join_failed(error: &StoreError) {
    tracing::warn!(target: TARGET, %error, "cannot join the cluster");
}

pub(crate) fn renewal_failed(error: &StoreError) {
    tracing::warn!(target: TARGET, %error, "the lease was not renewed");
}

pub(crate) fn node_replaced() {
    tracing::error!(target: TARGET, "a newer process uses the name of this node");
}

/// Registers the metrics that belong to no server, so that each one has a value and a text from the start.
pub(crate) fn describe() {
    for reason in Refusal::LABELS {
        metrics::counter!("rethread_refusals_total", "reason" => reason).increment(0);
    }
    help::describe();
}
