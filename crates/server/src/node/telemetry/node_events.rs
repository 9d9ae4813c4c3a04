//! Events that are counted for each server, and the gauges of its node in a cluster.

use super::TARGET;
use metrics::Counter;
use rethread_proto::Tag;
use rethread_proto::mrtr::Invalid;
use rethread_store::{MailboxStatus, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// An event without labels of its own.
#[derive(Clone, Copy)]
enum NodeEvent {
    CallOrphaned,
    HandlerAbandoned,
    HandlerPanicked,
    LeaseLost,
    MailRefused,
    ParkedMessageDropped,
    PushMessageDropped,
    PushQueueNotStored,
    ReaderOvertaken,
    ReaderStalled,
    Reread,
    SessionClaimed,
    SessionExpired,
    StoreGap,
    StreamFenced,
    SubscriberReconnected,
}

impl NodeEvent {
    /// All events, in the order of the variants.
    const ALL: [NodeEvent; 16] = [
        NodeEvent::CallOrphaned,
        NodeEvent::HandlerAbandoned,
        NodeEvent::HandlerPanicked,
        NodeEvent::LeaseLost,
        NodeEvent::MailRefused,
        NodeEvent::ParkedMessageDropped,
        NodeEvent::PushMessageDropped,
        NodeEvent::PushQueueNotStored,
        NodeEvent::ReaderOvertaken,
        NodeEvent::ReaderStalled,
        NodeEvent::Reread,
        NodeEvent::SessionClaimed,
        NodeEvent::SessionExpired,
        NodeEvent::StoreGap,
        NodeEvent::StreamFenced,
        NodeEvent::SubscriberReconnected,
    ];

    const fn metric(self) -> &'static str {
        match self {
            NodeEvent::CallOrphaned => "rethread_calls_orphaned_total",
            NodeEvent::HandlerAbandoned => "rethread_handlers_abandoned_total",
            NodeEvent::HandlerPanicked => "rethread_handler_panics_total",
            NodeEvent::LeaseLost => "rethread_leases_lost_total",
            NodeEvent::MailRefused => "rethread_mail_refused_total",
            NodeEvent::ParkedMessageDropped => "rethread_parked_messages_dropped_total",
            NodeEvent::PushMessageDropped => "rethread_push_dropped_total",
            NodeEvent::PushQueueNotStored => "rethread_push_queue_failures_total",
            NodeEvent::ReaderOvertaken => "rethread_overtaken_readers_total",
            NodeEvent::ReaderStalled => "rethread_stalled_readers_total",
            NodeEvent::Reread => "rethread_rereads_total",
            NodeEvent::SessionClaimed => "rethread_takeovers_total",
            NodeEvent::SessionExpired => "rethread_sessions_expired_total",
            NodeEvent::StoreGap => "rethread_store_gaps_total",
            NodeEvent::StreamFenced => "rethread_streams_fenced_total",
            NodeEvent::SubscriberReconnected => "rethread_subscriber_reconnects_total",
        }
    }
}

/// The counters of all events of one server. Each exists from the start: an alert on a rate needs the zero.
pub(crate) struct NodeEvents {
    server: Arc<str>,
    events: [Counter; NodeEvent::ALL.len()],
    useful_wakeups: Counter,
    idle_wakeups: Counter,
    acked_changes: Counter,
    late_changes: Counter,
}

impl NodeEvents {
    pub(super) fn new(server: &Arc<str>) -> Self {
        let name = || Arc::clone(server);
        let wakeups = |result| metrics::counter!("rethread_wakeups_total", "server" => name(), "result" => result);
        let changes =
            |outcome| metrics::counter!("rethread_invalidations_total", "server" => name(), "outcome" => outcome);
        for invalid in Invalid::ALL {
            refused_states(server, invalid).increment(0);
        }
        for kind in ForwardKind::ALL {
            for outcome in ForwardOutcome::ALL {
                forwards(server, kind, outcome).increment(0);
            }
        }
        NodeEvents {
            server: Arc::clone(server),
            events: NodeEvent::ALL.map(|event| metrics::counter!(event.metric(), "server" => name())),
            useful_wakeups: wakeups("useful"),
            idle_wakeups: wakeups("idle"),
            acked_changes: changes("acked"),
            late_changes: changes("late"),
        }
    }

    fn count(&self, event: NodeEvent, times: usize) {
        self.events[event as usize].increment(times as u64);
    }
}

/// The endpoint of a forwarded request.
#[derive(Clone, Copy)]
pub(crate) enum ForwardKind {
    Mcp,
    Messages,
}

impl ForwardKind {
    const ALL: [ForwardKind; 2] = [ForwardKind::Mcp, ForwardKind::Messages];

    const fn as_str(self) -> &'static str {
        match self {
            ForwardKind::Mcp => "mcp",
            ForwardKind::Messages => "messages",
        }
    }
}

/// How a forward ended.
#[derive(Clone, Copy)]
pub(crate) enum ForwardOutcome {
    Replied,
    NotRun,
    Died,
    LeaseEnded,
    Refused,
}

impl ForwardOutcome {
    const ALL: [ForwardOutcome; 5] = [
        ForwardOutcome::Replied,
        ForwardOutcome::NotRun,
        ForwardOutcome::Died,
        ForwardOutcome::LeaseEnded,
        ForwardOutcome::Refused,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            ForwardOutcome::Replied => "replied",
            ForwardOutcome::NotRun => "not_run",
            ForwardOutcome::Died => "died",
            ForwardOutcome::LeaseEnded => "lease_ended",
            ForwardOutcome::Refused => "refused",
        }
    }
}

fn refused_states(server: &Arc<str>, invalid: Invalid) -> Counter {
    metrics::counter!("rethread_request_states_refused_total",
        "server" => Arc::clone(server), "reason" => invalid.label())
}

fn forwards(server: &Arc<str>, kind: ForwardKind, outcome: ForwardOutcome) -> Counter {
    metrics::counter!("rethread_forwards_total",
        "server" => Arc::clone(server), "kind" => kind.as_str(), "outcome" => outcome.as_str())
}

impl NodeEvents {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.server)
    }

    fn server(&self) -> &str {
        &self.server
    }

    /// This node became the owner of a session whose owner had died or released it.
    pub(crate) fn session_claimed(&self, session: Tag) {
        self.count(NodeEvent::SessionClaimed, 1);
        tracing::info!(target: TARGET, server = self.server(), %session, "session claimed from another node");
    }

    pub(crate) fn lease_lost(&self) {
        self.count(NodeEvent::LeaseLost, 1);
        tracing::warn!(target: TARGET, server = self.server(), "the lease has ended: sessions are refused until this node has joined again");
    }

    /// The lease of this node and the nodes that it knows, after each look at them. Each server has a lease of its own.
    pub(crate) fn membership(&self, lease_left: Duration, live_nodes: usize) {
        metrics::gauge!("rethread_lease_seconds", "server" => self.name()).set(lease_left.as_secs_f64());
        metrics::gauge!("rethread_live_nodes", "server" => self.name()).set(live_nodes as f64);
    }

    /// The mailbox of this node, after each renewal of its lease.
    pub(crate) fn mailbox(&self, status: MailboxStatus) {
        metrics::gauge!("rethread_mailbox_messages", "server" => self.name()).set(status.messages as f64);
        metrics::gauge!("rethread_mailbox_age_seconds", "server" => self.name()).set(status.oldest.as_secs_f64());
    }

    /// A connection began or ended to read a stream of another node.
    pub(crate) fn remote_reader(&self, change: f64) {
        metrics::gauge!("rethread_remote_readers", "server" => self.name()).increment(change);
    }

    /// A remote reader was woken, and found something to read or nothing.
    pub(crate) fn woken(&self, is_useful: bool) {
        match is_useful {
            true => self.useful_wakeups.increment(1),
            false => self.idle_wakeups.increment(1),
        }
    }

    /// The wake-ups of other nodes arrive again after an interruption.
    pub(crate) fn reconnected(&self) {
        self.count(NodeEvent::SubscriberReconnected, 1);
    }

    /// Every view and every stream is read, because wake-ups may have been lost.
    pub(crate) fn read_again(&self) {
        self.count(NodeEvent::Reread, 1);
    }

    /// Whether every node with a view acknowledged a change of a session in time.
    pub(crate) fn change_seen(&self, in_time: bool) {
        match in_time {
            true => self.acked_changes.increment(1),
            false => self.late_changes.increment(1),
        }
    }

    /// A request was forwarded to another node.
    pub(crate) fn forwarded(&self, kind: ForwardKind, outcome: ForwardOutcome, took: Duration) {
        forwards(&self.server, kind, outcome).increment(1);
        metrics::histogram!("rethread_forward_seconds", "server" => self.name()).record(took.as_secs_f64());
    }

    /// A message in the mailbox was not sealed by a node of this cluster.
    pub(crate) fn mail_refused(&self) {
        self.count(NodeEvent::MailRefused, 1);
        tracing::warn!(target: TARGET, server = self.server(), "mail refused: it was not sealed with the secret of this cluster");
    }

    /// A stream continues after events that the store does not have.
    pub(crate) fn store_gap(&self) {
        self.count(NodeEvent::StoreGap, 1);
        tracing::warn!(target: TARGET, server = self.server(), "the store lacks events of a stream: it continues after a gap");
    }

    pub(crate) fn sessions_expired(&self, sessions: usize) {
        if sessions > 0 {
            self.count(NodeEvent::SessionExpired, sessions);
            tracing::info!(target: TARGET, server = self.server(), sessions, "sessions of an earlier life expired");
        }
    }

    /// Calls of a dead process were ended with an error.
    pub(crate) fn orphaned(&self, session: Tag, calls: usize) {
        self.count(NodeEvent::CallOrphaned, calls);
        tracing::info!(target: TARGET, server = self.server(), %session, calls, "calls that nobody works on any more were ended with an error");
    }

    pub(crate) fn fenced(&self, session: Tag, error: &StoreError) {
        self.count(NodeEvent::StreamFenced, 1);
        tracing::warn!(target: TARGET, server = self.server(), %session, %error, "stream stopped: the store refused its writer");
    }

    pub(crate) fn stalled(&self) {
        self.count(NodeEvent::ReaderStalled, 1);
    }

    pub(crate) fn overtaken(&self) {
        self.count(NodeEvent::ReaderOvertaken, 1);
    }

    pub(crate) fn push_dropped(&self, messages: usize) {
        if messages > 0 {
            self.count(NodeEvent::PushMessageDropped, messages);
            tracing::debug!(target: TARGET, server = self.server(), messages, "push queue full: oldest messages dropped");
        }
    }

    pub(crate) fn queue_not_stored(&self, error: &StoreError) {
        self.count(NodeEvent::PushQueueNotStored, 1);
        tracing::debug!(target: TARGET, server = self.server(), %error, "push queue not stored: the store failed");
    }

    pub(crate) fn panicked(&self, method: &str) {
        self.count(NodeEvent::HandlerPanicked, 1);
        tracing::error!(target: TARGET, server = self.server(), method, "handler panicked");
    }

    pub(crate) fn abandoned(&self) {
        self.count(NodeEvent::HandlerAbandoned, 1);
        tracing::warn!(target: TARGET, server = self.server(), "handler dropped: it did not stop within the grace after its call was cancelled");
    }

    /// Messages of a parked call that exceeded the limit for its retry.
    pub(crate) fn parked_messages_dropped(&self, messages: usize) {
        if messages > 0 {
            self.count(NodeEvent::ParkedMessageDropped, messages);
            tracing::debug!(target: TARGET, server = self.server(), messages, "messages of a parked call dropped: too many to keep for its retry");
        }
    }

    pub(crate) fn state_refused(&self, invalid: Invalid) {
        refused_states(&self.server, invalid).increment(1);
        tracing::debug!(target: TARGET, server = self.server(), reason = invalid.label(), "request state refused");
    }
}
