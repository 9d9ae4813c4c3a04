//! The texts of the metrics.

enum Kind {
    Counter,
    Gauge,
    Histogram,
}

use Kind::{Counter, Gauge, Histogram};

/// Every metric of this library: its name, its kind and its text.
const HELP: &[(&str, Kind, &str)] = &[
    (
        "mcp_server_operation_duration_seconds",
        Histogram,
        "Duration of calls until their reply",
    ),
    (
        "mcp_server_session_duration_seconds",
        Histogram,
        "Age of sessions at their end",
    ),
    (
        "rethread_append_duration_seconds",
        Histogram,
        "Time until the store has acknowledged an append",
    ),
    (
        "rethread_append_events",
        Histogram,
        "Events of one append to a store of several nodes",
    ),
    (
        "rethread_append_seconds",
        Histogram,
        "Time until a store of several nodes has acknowledged an append",
    ),
    (
        "rethread_auth_total",
        Counter,
        "Requests by provider of the identity and outcome",
    ),
    (
        "rethread_calls_orphaned_total",
        Counter,
        "Calls of dead processes that were ended with an error",
    ),
    (
        "rethread_calls_parked",
        Gauge,
        "Calls that wait for input of the client",
    ),
    ("rethread_calls_running", Gauge, "Calls that a handler executes"),
    ("rethread_connections_open", Gauge, "Connections that read a stream"),
    (
        "rethread_events_appended_total",
        Counter,
        "Events that the store has acknowledged",
    ),
    (
        "rethread_forward_seconds",
        Histogram,
        "Time until another node has answered a forwarded request",
    ),
    (
        "rethread_forwards_total",
        Counter,
        "Requests that were forwarded to another node",
    ),
    ("rethread_handler_panics_total", Counter, "Handlers that panicked"),
    (
        "rethread_handlers_abandoned_total",
        Counter,
        "Cancelled handlers that did not stop in time",
    ),
    (
        "rethread_invalidations_total",
        Counter,
        "Changes of sessions that other nodes had to learn",
    ),
    (
        "rethread_lease_seconds",
        Gauge,
        "Time until the lease of this node ends",
    ),
    (
        "rethread_leases_lost_total",
        Counter,
        "Leases that ended before they were renewed",
    ),
    ("rethread_live_nodes", Gauge, "Nodes that this node knows to be alive"),
    (
        "rethread_mail_refused_total",
        Counter,
        "Messages in the mailbox that no node of this cluster has sealed",
    ),
    (
        "rethread_mailbox_age_seconds",
        Gauge,
        "Age of the oldest message in the mailbox of this node",
    ),
    (
        "rethread_mailbox_messages",
        Gauge,
        "Messages in the mailbox of this node",
    ),
    (
        "rethread_overtaken_readers_total",
        Counter,
        "Readers that were so far behind that they read from the store",
    ),
    (
        "rethread_parked_messages_dropped_total",
        Counter,
        "Messages of parked calls beyond the limit",
    ),
    (
        "rethread_push_dropped_total",
        Counter,
        "Messages that left a full push queue",
    ),
    (
        "rethread_push_queue_failures_total",
        Counter,
        "Push queues that were not stored",
    ),
    ("rethread_refusals_total", Counter, "Requests that were refused"),
    (
        "rethread_remote_readers",
        Gauge,
        "Connections that read a stream of another node",
    ),
    (
        "rethread_request_states_refused_total",
        Counter,
        "Request states that were refused",
    ),
    (
        "rethread_rereads_total",
        Counter,
        "Times that everything was read, because wake-ups may have been lost",
    ),
    ("rethread_resumes_total", Counter, "Connections that resumed a stream"),
    (
        "rethread_retained_bytes",
        Gauge,
        "Bytes of events that the store retains",
    ),
    (
        "rethread_sessionless_requests_total",
        Counter,
        "Requests of hosts that do not send their session id",
    ),
    ("rethread_sessions_active", Gauge, "Sessions in memory"),
    (
        "rethread_sessions_closed_total",
        Counter,
        "Sessions that ended in this process",
    ),
    (
        "rethread_sessions_expired_total",
        Counter,
        "Sessions of earlier processes that expired",
    ),
    (
        "rethread_sessions_opened_total",
        Counter,
        "Sessions that were opened or restored",
    ),
    (
        "rethread_sessions_restored_total",
        Counter,
        "Sessions of earlier processes that continued",
    ),
    (
        "rethread_stalled_readers_total",
        Counter,
        "Connections that were closed because their client did not read",
    ),
    (
        "rethread_store_failures_total",
        Counter,
        "Streams that went on without ids because the store failed",
    ),
    (
        "rethread_store_gaps_total",
        Counter,
        "Streams that continued after events that the store had lost",
    ),
    ("rethread_store_up", Gauge, "Whether the store works"),
    (
        "rethread_streams_fenced_total",
        Counter,
        "Streams that another writer has taken over",
    ),
    (
        "rethread_subscriber_reconnects_total",
        Counter,
        "Times that wake-ups of other nodes arrived again",
    ),
    (
        "rethread_takeovers_total",
        Counter,
        "Sessions of dead nodes that this node continues",
    ),
    ("rethread_wakeups_total", Counter, "Wake-ups of readers of other nodes"),
];

/// Gives each metric its text. A recorder that has them already stays as it is.
pub(super) fn describe() {
    for (name, kind, text) in HELP {
        match kind {
            Counter => metrics::describe_counter!(*name, *text),
            Gauge => metrics::describe_gauge!(*name, *text),
            Histogram => metrics::describe_histogram!(*name, *text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// OPS-05: a metric without a text has no HELP line.
    #[test]
    fn ops_05_every_metric_has_a_text() {
        let sources = [
            include_str!("../telemetry.rs"),
            include_str!("node_events.rs"),
            include_str!("server_metrics.rs"),
        ];
        let texts = sources.iter().flat_map(|source| source.split('"').skip(1).step_by(2));
        let code: BTreeSet<&str> = texts
            .filter(|text| text.starts_with("rethread_") || text.starts_with("mcp_server_"))
            .collect();
        let described: BTreeSet<&str> = HELP.iter().map(|(name, ..)| *name).collect();
        assert_eq!(described, code);
        assert_eq!(HELP.len(), code.len());
    }
}
