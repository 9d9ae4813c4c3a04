//! The names of all metrics, and the log lines that go with them.

mod admitted_callers;
mod help;
mod server_metrics;

pub(crate) use admitted_callers::AdmittedCallers;
pub(crate) use server_metrics::{EndedCall, ServerMetrics, SessionLife};

use metrics::Counter;
use parking_lot::Mutex;
use rethread_proto::Refusal;
use rethread_proto::auth::AuthOutcome;
use rethread_proto::refusal::Reason;
use rethread_store::{Incarnation, MailboxStatus, StoreError};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(crate) const TARGET: &str = "rethread";

/// How often the log repeats that a limit is reached. Under overload each request would write a line.
const CAPACITY_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Characters of a value of a client that the log shows.
const MAX_LOGGED_CHARS: usize = 128;

pub(crate) fn refused(refusal: &Refusal) {
    metrics::counter!("rethread_refusals_total", "reason" => refusal.label()).increment(1);
    if let Reason::Overloaded(limit) | Reason::TooMany(limit) = refusal.reason {
        capacity_reached(limit);
    }
    if tracing::enabled!(target: "rethread::refusal", tracing::Level::DEBUG) {
        let detail = refusal.detail();
        let detail = detail.as_deref().map(shortened).unwrap_or_default();
        tracing::debug!(target: "rethread::refusal", reason = refusal.label(), status = refusal.status().as_u16(), detail, "refused");
    }
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

/// This node became the owner of a session whose owner had died or released it.
pub(crate) fn session_claimed() {
    metrics::counter!("rethread_takeovers_total").increment(1);
    tracing::info!(target: TARGET, "session claimed from another node");
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

pub(crate) fn lease_lost() {
    metrics::counter!("rethread_leases_lost_total").increment(1);
    tracing::warn!(target: TARGET, "the lease has ended: sessions are refused until this node has joined again");
}

pub(crate) fn node_replaced() {
    tracing::error!(target: TARGET, "a newer process uses the name of this node");
}

/// The lease of this node and the nodes that it knows, after each look at them.
pub(crate) fn membership(lease_left: Duration, live_nodes: usize) {
    metrics::gauge!("rethread_lease_seconds").set(lease_left.as_secs_f64());
    metrics::gauge!("rethread_live_nodes").set(live_nodes as f64);
}

/// A remote reader was woken, and found something to read or nothing.
pub(crate) fn woken(is_useful: bool) {
    let result = if is_useful { "useful" } else { "idle" };
    metrics::counter!("rethread_wakeups_total", "result" => result).increment(1);
}

/// The wake-ups of other nodes arrive again after an interruption.
pub(crate) fn reconnected() {
    metrics::counter!("rethread_subscriber_reconnects_total").increment(1);
}

/// A request was forwarded to another node.
pub(crate) fn forwarded(kind: &'static str, outcome: &'static str, took: Duration) {
    metrics::counter!("rethread_forwards_total", "kind" => kind, "outcome" => outcome).increment(1);
    metrics::histogram!("rethread_forward_seconds").record(took.as_secs_f64());
}

/// A message in the mailbox was not sealed by a node of this cluster.
pub(crate) fn mail_refused() {
    metrics::counter!("rethread_mail_refused_total").increment(1);
    tracing::warn!(target: TARGET, "mail refused: it was not sealed with the secret of this cluster");
}

/// The mailbox of this node, after each renewal of its lease.
pub(crate) fn mailbox(status: MailboxStatus) {
    metrics::gauge!("rethread_mailbox_messages").set(status.messages as f64);
    metrics::gauge!("rethread_mailbox_age_seconds").set(status.oldest.as_secs_f64());
}

/// A connection began or ended to read a stream of another node.
pub(crate) fn remote_reader(change: f64) {
    metrics::gauge!("rethread_remote_readers").increment(change);
}

/// A stream continues after events that the store does not have.
pub(crate) fn store_gap() {
    metrics::counter!("rethread_store_gaps_total").increment(1);
    tracing::warn!(target: TARGET, "the store lacks events of a stream: it continues after a gap");
}

/// Every view and every stream is read, because wake-ups may have been lost.
pub(crate) fn read_again() {
    metrics::counter!("rethread_rereads_total").increment(1);
}

/// Whether every node with a view acknowledged a change of a session in time.
pub(crate) fn change_seen(in_time: bool) {
    let outcome = if in_time { "acked" } else { "late" };
    metrics::counter!("rethread_invalidations_total", "outcome" => outcome).increment(1);
}

pub(crate) fn sessions_expired(sessions: usize) {
    if sessions > 0 {
        metrics::counter!("rethread_sessions_expired_total").increment(sessions as u64);
        tracing::info!(target: TARGET, sessions, "sessions of an earlier life expired");
    }
}

/// Calls of a dead process were ended with an error.
pub(crate) fn orphaned(calls: usize) {
    metrics::counter!("rethread_calls_orphaned_total").increment(calls as u64);
    tracing::info!(target: TARGET, calls, "calls that nobody works on any more were ended with an error");
}

pub(crate) fn fenced(error: &StoreError) {
    metrics::counter!("rethread_streams_fenced_total").increment(1);
    tracing::warn!(target: TARGET, error = %error, "stream stopped: the store refused its writer");
}

pub(crate) fn stalled() {
    metrics::counter!("rethread_stalled_readers_total").increment(1);
}

pub(crate) fn overtaken() {
    metrics::counter!("rethread_overtaken_readers_total").increment(1);
}

pub(crate) fn push_dropped(messages: usize) {
    if messages > 0 {
        metrics::counter!("rethread_push_dropped_total").increment(messages as u64);
        tracing::debug!(target: TARGET, messages, "push queue full: oldest messages dropped");
    }
}

pub(crate) fn queue_not_stored(error: &StoreError) {
    metrics::counter!("rethread_push_queue_failures_total").increment(1);
    tracing::debug!(target: TARGET, error = %error, "push queue not stored: the store failed");
}

pub(crate) fn panicked(method: &str) {
    metrics::counter!("rethread_handler_panics_total").increment(1);
    tracing::error!(target: TARGET, method, "handler panicked");
}

pub(crate) fn abandoned() {
    metrics::counter!("rethread_handlers_abandoned_total").increment(1);
    tracing::warn!(target: TARGET, "handler dropped: it did not stop within the grace after its call was cancelled");
}

/// Messages of a parked call that exceeded the limit for its retry.
pub(crate) fn parked_messages_dropped(messages: usize) {
    if messages > 0 {
        metrics::counter!("rethread_parked_messages_dropped_total").increment(messages as u64);
        tracing::debug!(target: TARGET, messages, "messages of a parked call dropped: too many to keep for its retry");
    }
}

pub(crate) fn state_refused(invalid: rethread_proto::mrtr::Invalid) {
    metrics::counter!("rethread_request_states_refused_total", "reason" => invalid.label()).increment(1);
    tracing::debug!(target: TARGET, reason = invalid.label(), "request state refused");
}

/// Registers the metrics that belong to no server, so that each one has a value and a text from the start.
pub(crate) fn describe() {
    for reason in Refusal::LABELS {
        metrics::counter!("rethread_refusals_total", "reason" => reason).increment(0);
    }
    help::describe();
}
