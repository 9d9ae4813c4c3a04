//! The state that all parts of one node share: store, limits, clock, counters.

pub(crate) mod acknowledgements;
pub(crate) mod clock;
pub(crate) mod current_limits;
pub(crate) mod handler_options;
pub(crate) mod limits;
pub(crate) mod membership;
pub(crate) mod observe;
mod random;
pub(crate) mod restore_policy;
pub(crate) mod server_info;
pub(crate) mod session_end;
pub(crate) mod snapshot;
pub(crate) mod stats;
mod stream_constants;
pub(crate) mod telemetry;
pub(crate) mod unused_sessions;

pub(crate) use random::random;

use acknowledgements::Acknowledgements;
use clock::Clock;
use current_limits::CurrentLimits;
use handler_options::HandlerOptions;
use limits::{Limits, Timing};
use membership::Membership;
use observe::Observe;
use parking_lot::{Mutex, RwLock};
use restore_policy::Restore;
use rethread_proto::auth::{MessageRates, PrincipalCounts};
use rethread_proto::cluster::mail::MailSeal;
use rethread_proto::event_id::EventIdFormat;
use rethread_proto::exchange::SseUpgradeDelay;
use rethread_proto::mrtr::Seal;
use rethread_proto::refusal::Reason;
use rethread_proto::stream::{ConnectionId, Framing, StreamLimits, StreamParams};
use rethread_proto::{Principal, Revisions, SessionId};
use rethread_store::{ClusterStore, Retention, Store};
use server_info::ServerInfo;
use stats::ConnectionCounts;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use stream_constants::StreamConstants;
use telemetry::ServerMetrics;
use tokio::sync::{Notify, watch};
use unused_sessions::UnusedSessions;

/// Notifies a handler that a session has ended.
pub(crate) type SessionClosedHook = Box<dyn Fn(&SessionId) + Send + Sync>;

/// The parts of a [`Node`] that its builder chooses.
pub(crate) struct NodeConfig {
    pub(crate) name: Arc<str>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) limits: Limits,
    pub(crate) timing: Timing,
    pub(crate) upgrade_after: SseUpgradeDelay,
    pub(crate) ids: Arc<dyn EventIdFormat>,
    pub(crate) revisions: Revisions,
    pub(crate) disable_proxy_buffering: bool,
    pub(crate) restore: Restore,
    pub(crate) unused: UnusedSessions,
    pub(crate) sessionless: bool,
    pub(crate) behind_gateway: bool,
    pub(crate) info: ServerInfo,
    pub(crate) handler: HandlerOptions,
    pub(crate) closed: SessionClosedHook,
    pub(crate) seal: Seal,
    pub(crate) metrics: ServerMetrics,
    pub(crate) observer: Option<Arc<dyn Observe>>,
}

pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) store: Arc<dyn Store>,
    /// Whether the store may have other nodes. Every request asks several times.
    is_in_cluster: bool,
    pub(crate) retention: Retention,
    streams: RwLock<StreamConstants>,
    pub(crate) limits: CurrentLimits,
    pub(crate) timing: Timing,
    pub(crate) upgrade_after: SseUpgradeDelay,
    pub(crate) ids: Arc<dyn EventIdFormat>,
    pub(crate) revisions: Revisions,
    pub(crate) disable_proxy_buffering: AtomicBool,
    pub(crate) restore: Restore,
    pub(crate) unused: UnusedSessions,
    /// Whether requests of the session era are served without a session.
    pub(crate) sessionless: bool,
    /// The client on stdio is a gateway of this project, which supports more than an ordinary client.
    pub(crate) behind_gateway: bool,
    pub(crate) info: ServerInfo,
    /// The `_meta` member that names this server in every result of the stateless era.
    pub(crate) named: String,
    /// The tasks that the handler takes over from the transport.
    pub(crate) handler: HandlerOptions,
    /// Notifies the handler that a session has ended.
    pub(crate) closed: SessionClosedHook,
    pub(crate) clock: Clock,
    pub(crate) calls: CallCount,
    /// Calls that run, and recent messages. Nothing is locked below these.
    calls_per_principal: Mutex<PrincipalCounts>,
    message_rates: Mutex<MessageRates>,
    pub(crate) connections: ConnectionCounts,
    /// The connections that read streams of other nodes. They are among `connections`.
    pub(crate) remote_readers: LimitedCount,
    pub(crate) draining: AtomicBool,
    /// Requests of a cluster without a response that began before the drain, and those that began after it.
    pub(crate) early_requests: AtomicUsize,
    pub(crate) late_requests: AtomicUsize,
    /// Notified when a call or a connection ends. A drain waits for it.
    pub(crate) work_ended: Notify,
    /// Set when a drain has reached its deadline. Calls that still run then end with an error.
    pub(crate) closing: watch::Sender<bool>,
    /// Encrypts the request states that clients hold, until the nodes of the cluster share a secret.
    own_seal: Seal,
    shared_seal: OnceLock<Seal>,
    mail_seal: OnceLock<MailSeal>,
    pub(crate) membership: Membership,
    pub(crate) metrics: ServerMetrics,
    pub(crate) observer: Option<Arc<dyn Observe>>,
    pub(crate) acknowledgements: Acknowledgements,
    next_connection: AtomicU64,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Node {
    pub(crate) fn new(config: NodeConfig) -> Self {
        let NodeConfig {
            name,
            store,
            limits,
            timing,
            upgrade_after,
            ids,
            revisions,
            disable_proxy_buffering,
            restore,
            unused,
            sessionless,
            behind_gateway,
            info,
            handler,
            closed,
            seal,
            metrics,
            observer,
        } = config;
        let retention = store.retention();
        let membership = match store.cluster() {
            Some(_) => Membership::outside(),
            None => Membership::alone(),
        };
        Node {
            streams: RwLock::new(StreamConstants::new(&limits, retention, &name)),
            name,
            retention,
            is_in_cluster: store.cluster().is_some(),
            store,
            limits: CurrentLimits::new(&limits),
            timing,
            upgrade_after,
            ids,
            revisions,
            disable_proxy_buffering: AtomicBool::new(disable_proxy_buffering),
            restore,
            unused,
            sessionless,
            behind_gateway,
            named: info.meta_member(),
            info,
            handler,
            closed,
            clock: Clock::start(),
            calls: CallCount::default(),
            calls_per_principal: Mutex::default(),
            message_rates: Mutex::default(),
            connections: ConnectionCounts::default(),
            remote_readers: LimitedCount::default(),
            draining: AtomicBool::new(false),
            early_requests: AtomicUsize::new(0),
            late_requests: AtomicUsize::new(0),
            work_ended: Notify::new(),
            closing: watch::Sender::new(false),
            own_seal: seal,
            shared_seal: OnceLock::new(),
            mail_seal: OnceLock::new(),
            membership,
            metrics,
            observer,
            acknowledgements: Acknowledgements::default(),
            next_connection: AtomicU64::new(1),
        }
    }

    /// A connection id, unique in this process.
    pub(crate) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes the permits of a new call. [`end_call`](Self::end_call) returns them.
    pub(crate) fn begin_call(&self, principal: &Principal) -> Result<(), Reason> {
        if !self.calls.enter(self.limits.calls()) {
            return Err(Reason::Overloaded("calls"));
        }
        // Anonymous callers have no count of their own: they need not take the lock that all calls share.
        let limit = self.limits.calls_per_principal();
        if principal.is_anonymous() || self.calls_per_principal.lock().enter(principal, limit) {
            return Ok(());
        }
        self.calls.leave();
        Err(Reason::TooMany("running calls of this caller"))
    }

    pub(crate) fn end_call(&self, principal: &Principal) {
        self.calls.leave();
        if !principal.is_anonymous() {
            self.calls_per_principal.lock().leave(principal);
        }
    }

    /// A call waits for input: it no longer counts for its principal.
    pub(crate) fn park_call(&self, principal: &Principal) {
        self.calls.park();
        self.calls_per_principal.lock().leave(principal);
    }

    /// A call has its input. It runs even if its principal has reached a limit meanwhile.
    pub(crate) fn unpark_call(&self, principal: &Principal) {
        self.calls.unpark();
        self.calls_per_principal.lock().enter(principal, usize::MAX);
    }

    /// Takes permits for the messages of one request.
    pub(crate) fn take_messages(&self, principal: &Principal, messages: usize) -> Result<(), Reason> {
        let Some(rate) = self.limits.rate() else { return Ok(()) };
        let taken = (self.message_rates.lock()).take(principal, messages, rate, self.clock.now());
        taken.map_err(|wait| Reason::RateLimited {
            retry_after: u32::try_from(wait.as_millis().div_ceil(1000))
                .unwrap_or(u32::MAX)
                .max(1),
        })
    }

    /// The cluster part of the store, if there may be other nodes.
    pub(crate) fn cluster(&self) -> Option<&dyn ClusterStore> {
        match self.is_in_cluster {
            true => self.store.cluster(),
            false => None,
        }
    }

    /// Whether the handler is a relay, and there may be other nodes with the same server behind them.
    pub(crate) fn relays_in_cluster(&self) -> bool {
        self.handler.relays && self.cluster().is_some()
    }

    /// Encrypts the request states that clients hold.
    pub(crate) fn seal(&self) -> &Seal {
        self.shared_seal.get().unwrap_or(&self.own_seal)
    }

    /// The nodes of the cluster share a secret. The first one counts: it never changes while a node lives.
    pub(crate) fn share_secret(&self, secret: [u8; 32]) {
        self.shared_seal.get_or_init(|| self.own_seal.with_key(secret));
        self.mail_seal.get_or_init(|| MailSeal::new(secret));
    }

    /// Seals messages between nodes. `None` before this node has joined.
    pub(crate) fn mail_seal(&self) -> Option<&MailSeal> {
        self.mail_seal.get()
    }

    /// Refuses requests of sessions while another node may act for this one.
    pub(crate) fn check_lease(&self) -> Result<(), Reason> {
        if self.membership.holds() {
            Ok(())
        } else {
            Err(Reason::StoreUnavailable)
        }
    }

    /// Whether every stream asks proxies not to buffer it (SSE-03).
    pub(crate) fn disables_proxy_buffering(&self) -> bool {
        self.disable_proxy_buffering.load(Ordering::Relaxed)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Refuses work that was not routed while the server drains. In a cluster the routing decides: it passes a request on, or
    /// the request began before the drain, which waits for it (T-38).
    pub(crate) fn accept_routed_work(&self) -> Result<(), Reason> {
        match self.cluster() {
            Some(_) => Ok(()),
            None => self.accept_work(),
        }
    }

    /// Counts a request of a cluster until the guard is dropped.
    ///
    /// A request that begins after the drain sees it: it starts nothing here but calls of sessions that are still open here. The
    /// drain waits for the others.
    pub(crate) fn begin_request(self: &Arc<Self>) -> RequestGuard {
        // Counted first: the drain sees the request, or the request sees the drain.
        self.early_requests.fetch_add(1, Ordering::SeqCst);
        let is_early = !self.draining.load(Ordering::SeqCst);
        if !is_early {
            self.late_requests.fetch_add(1, Ordering::SeqCst);
            self.early_requests.fetch_sub(1, Ordering::SeqCst);
        }
        RequestGuard {
            node: Arc::clone(self),
            is_early,
        }
    }

    /// Refuses new work while the server drains (T-38).
    pub(crate) fn accept_work(&self) -> Result<(), Reason> {
        if self.is_draining() {
            return Err(Reason::ShuttingDown);
        }
        Ok(())
    }

    /// The constants of a stream without a log in this framing.
    pub(crate) fn direct_stream(&self, framing: Framing) -> Arc<StreamParams> {
        let streams = self.streams.read();
        Arc::clone(match framing {
            Framing::Line => &streams.direct_lines,
            _ => &streams.direct_events,
        })
    }

    /// The bounds of a stream that is opened now.
    pub(crate) fn stream_limits(&self) -> Arc<StreamLimits> {
        Arc::clone(&self.streams.read().limits)
    }

    /// Puts other limits in force. Streams and sessions that exist keep the bounds of their buffers.
    pub(crate) fn set_limits(&self, limits: &Limits) {
        *self.streams.write() = StreamConstants::new(limits, self.retention, &self.name);
        self.limits.set(limits);
    }

    /// Wakes a waiting drain after a call or a connection has ended.
    pub(crate) fn notify_drain(&self) {
        if self.is_draining() {
            self.work_ended.notify_waiters();
        }
    }
}

/// A request without a response.
pub(crate) struct RequestGuard {
    node: Arc<Node>,
    is_early: bool,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let count = match self.is_early {
            true => &self.node.early_requests,
            false => &self.node.late_requests,
        };
        count.fetch_sub(1, Ordering::SeqCst);
        self.node.notify_drain();
    }
}

/// The number of calls that hold a permit, and how many of them are parked. One word holds both, so that a drain reads them
/// at one moment: the low half counts calls, the high half parked calls.
#[derive(Debug, Default)]
pub(crate) struct CallCount(AtomicU64);

impl CallCount {
    const CALL: u64 = 1;
    const PARKED: u64 = 1 << 32;

    /// Adds a call, unless there are `limit` already.
    pub(crate) fn enter(&self, limit: usize) -> bool {
        let limit = limit.min(u32::MAX as usize) as u64;
        let entered = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            (word % Self::PARKED < limit).then_some(word + Self::CALL)
        });
        entered.is_ok()
    }

    /// Returns the permit of a call.
    pub(crate) fn leave(&self) {
        self.0.fetch_sub(Self::CALL, Ordering::Relaxed);
    }

    /// Returns the permit of a parked call.
    pub(crate) fn leave_parked(&self) {
        self.0.fetch_sub(Self::CALL + Self::PARKED, Ordering::Relaxed);
    }

    /// A call that holds a permit begins to wait for input.
    pub(crate) fn park(&self) {
        self.0.fetch_add(Self::PARKED, Ordering::Relaxed);
    }

    /// A parked call that holds a permit continues.
    pub(crate) fn unpark(&self) {
        self.0.fetch_sub(Self::PARKED, Ordering::Relaxed);
    }

    /// The number of calls that hold a permit.
    pub(crate) fn now(&self) -> usize {
        (self.0.load(Ordering::Relaxed) % Self::PARKED) as usize
    }

    /// The number of calls that hold a permit and are not parked.
    pub(crate) fn at_work(&self) -> usize {
        let word = self.0.load(Ordering::Relaxed);
        (word % Self::PARKED).saturating_sub(word / Self::PARKED) as usize
    }
}

/// A count with a limit.
#[derive(Debug, Default)]
pub(crate) struct LimitedCount(AtomicUsize);

impl LimitedCount {
    /// Adds one, unless there are `limit` already.
    pub(crate) fn enter(&self, limit: usize) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1))
            .is_ok()
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T-38: the drain waits for requests that began before it, and not for those that are passed on.
    #[test]
    fn t_38_drain_knows_the_requests_that_began_before_it() {
        let service = crate::McpService::builder(crate::Catalog::new("a", "1")).build();
        let node = &service.inner.node;
        let counts = || {
            let early = node.early_requests.load(Ordering::SeqCst);
            (early, node.late_requests.load(Ordering::SeqCst))
        };
        let early = node.begin_request();
        node.draining.store(true, Ordering::SeqCst);
        let late = node.begin_request();
        assert_eq!(counts(), (1, 1));
        drop(early);
        assert_eq!(counts(), (0, 1));
        drop(late);
        assert_eq!(counts(), (0, 0));
    }

    /// T-38: a call is at work unless it is parked. A parked call that ends returns its permit at once.
    #[test]
    fn t_38_parked_calls_hold_permits_and_are_not_at_work() {
        let calls = CallCount::default();
        assert!(calls.enter(2) && calls.enter(2) && !calls.enter(2));
        calls.park();
        assert_eq!((calls.now(), calls.at_work()), (2, 1));
        assert!(!calls.enter(2), "a parked call holds its permit");
        calls.unpark();
        assert_eq!((calls.now(), calls.at_work()), (2, 2));
        calls.park();
        calls.leave_parked();
        assert_eq!((calls.now(), calls.at_work()), (1, 1));
        calls.leave();
        assert_eq!((calls.now(), calls.at_work()), (0, 0));
    }
}
