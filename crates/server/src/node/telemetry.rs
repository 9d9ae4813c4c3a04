//! The names of all metrics, and the log lines that go with them.

use rethread_proto::Refusal;

pub(crate) const TARGET: &str = "rethread";

pub(crate) fn refused(refusal: &Refusal) {
    metrics::counter!("rethread_refusals_total", "reason" => refusal.label()).increment(1);
    tracing::debug!(target: "rethread::refusal", reason = refusal.label(), status = refusal.status().as_u16(), "refused");
}

pub(crate) fn session_opened(live: usize) {
    metrics::gauge!("rethread_sessions_active").set(live as f64);
    metrics::counter!("rethread_sessions_opened_total").increment(1);
}

pub(crate) fn session_closed(live: usize, why: &'static str) {
    metrics::gauge!("rethread_sessions_active").set(live as f64);
    metrics::counter!("rethread_sessions_closed_total", "reason" => why).increment(1);
}

pub(crate) fn session_restored(epoch: u64) {
    metrics::counter!("rethread_sessions_restored_total").increment(1);
    tracing::info!(target: TARGET, epoch, "session restored");
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

pub(crate) fn appended(events: usize) {
    metrics::counter!("rethread_events_appended_total").increment(events as u64);
}

pub(crate) fn store_lost(error: &rethread_store::StoreError) {
    metrics::counter!("rethread_store_failures_total").increment(1);
    tracing::warn!(target: TARGET, error = %error, "stream goes on without ids: the store failed");
}

pub(crate) fn fenced(error: &rethread_store::StoreError) {
    metrics::counter!("rethread_streams_fenced_total").increment(1);
    tracing::warn!(target: TARGET, error = %error, "stream stopped: the store refused its writer");
}

pub(crate) fn resumed(gap: bool) {
    metrics::counter!("rethread_resumes_total").increment(1);
    if gap {
        metrics::counter!("rethread_gaps_total").increment(1);
        tracing::info!(target: TARGET, "resumed with a gap: events after the cursor are no longer kept");
    }
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

pub(crate) fn queue_not_stored(error: &rethread_store::StoreError) {
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
