//! Data that several nodes share in addition to logs and records: members, mailboxes, remote readers, push queues and
//! broadcasts.

use crate::{
    Incarnation, Ordinal, Page, Principal, ReadLimit, ReaderToken, Seq, SessionKey, Signal, StoreError, StoreFuture,
    StreamInfo, StreamKey, StreamStatus,
};
use bytes::Bytes;
use rethread_proto::clock::Wall;
use rethread_proto::ordinals::OrdinalBlock;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The cluster part of a store. A store without it has one member: the process that opened it.
///
/// Every method that names no member acts as the member that this process joined as.
pub trait ClusterStore: Send + Sync + 'static {
    // ---- members ----

    /// Joins, or joins again after the lease of `previous` has ended. Several servers of one process share one
    /// membership: if the process has joined as another incarnation than `previous`, the result is that membership.
    /// Each server joins once without `previous`, and leaves once.
    fn join(&self, previous: Option<&Incarnation>) -> StoreFuture<Result<Membership, StoreError>>;

    /// Renews the lease of `member` and removes expired leases of others. [`StoreError::LeaseEnded`] if the lease has
    /// ended or was removed, [`StoreError::Replaced`] if a newer process has joined under the same name. Fails without
    /// a request while this process receives no wake-ups or cannot read its mailbox: such a node must not appear alive.
    fn renew(&self, member: &Incarnation) -> StoreFuture<Result<Renewal, StoreError>>;

    /// Whether the lease of `member` holds. Removes an expired lease, so `false` is final.
    fn is_alive(&self, member: &Incarnation) -> StoreFuture<Result<bool, StoreError>>;

    /// A server leaves. The last one of its process releases the lease, so that nobody waits for its end.
    fn leave(&self, member: &Incarnation) -> StoreFuture<Result<(), StoreError>>;

    // ---- mailboxes and wake-ups ----

    /// Appends a message to the mailbox of another node. [`StoreError::Full`] if the mailbox is full.
    fn deliver(&self, to: &Incarnation, mail: Bytes) -> StoreFuture<Result<MailId, StoreError>>;

    /// Removes a message from a mailbox. True for exactly one caller, which may then act on the message.
    fn claim_mail(&self, to: &Incarnation, mail: &MailId) -> StoreFuture<Result<bool, StoreError>>;

    /// Removes messages that need no claim, because the node that read them has acted on them.
    fn remove_mail(&self, of: &Incarnation, mail: Vec<MailId>) -> StoreFuture<Result<(), StoreError>>;

    /// The messages in a mailbox that nobody has claimed or removed.
    fn mailbox(&self, of: &Incarnation) -> StoreFuture<Result<MailboxStatus, StoreError>>;

    /// Subscribes to the events for this node. Several receivers get the same events: a service that replaces another
    /// one in the same process starts before the other one has ended.
    fn events(&self) -> ClusterEvents;

    // ---- sessions ----

    /// Draws a new epoch of the session, for a writer that takes over a stream.
    fn draw_epoch(&self, key: &SessionKey) -> StoreFuture<Result<u64, StoreError>>;

    /// Draws the next ordinals of this node in the session.
    fn draw_ordinals(&self, key: &SessionKey) -> StoreFuture<Result<OrdinalBlock, StoreError>>;

    /// The nodes that have a view of the session.
    fn views(&self, key: &SessionKey) -> StoreFuture<Result<OpenViews, StoreError>>;

    /// Closes the view with this epoch. Its node gets no more wake-ups for it.
    fn close_view(&self, key: &SessionKey, epoch: u64) -> StoreFuture<Result<(), StoreError>>;

    /// Restores the view of this node with this epoch in a store that may have lost its last writes: its entry, and the GETs
    /// of this node. `gets` are all of them, oldest first. A GET that the store lacks becomes the newest one, and a GET that
    /// is closed is removed. Beyond `max` GETs, removes the oldest ones as [`listen`](Self::listen) does. Returns the last
    /// broadcast that the queue has.
    fn restore_view(
        &self,
        key: &SessionKey,
        epoch: u64,
        gets: Vec<Ordinal>,
        max: usize,
    ) -> StoreFuture<Result<BroadcastId, StoreError>>;

    /// Makes this node the owner of a session, if the owner is still `from`. The caller must know that `from` is dead
    /// or `None`. Returns the resulting owner.
    fn claim(&self, key: &SessionKey, from: Option<&Incarnation>) -> StoreFuture<Result<Incarnation, StoreError>>;

    /// Releases a session, if this node owns it.
    fn release(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>>;

    /// Counts the sessions of all nodes. A session that is being created counts, so nodes that create sessions at once may
    /// see each other's.
    fn count_sessions(&self, principal: &Principal) -> StoreFuture<Result<SessionCounts, StoreError>>;

    // ---- readers of streams that another node writes ----

    /// Makes `token` the one reader of a stream. The previous reader is displaced (RES-06): a remote one by its next
    /// read, a local one by [`ClusterEvent::StreamChanged`] on the node of the writer.
    fn attach(&self, key: &StreamKey, token: &ReaderToken) -> StoreFuture<Result<StreamStatus, StoreError>>;

    /// Reads like [`EventStore::read_after`](crate::EventStore::read_after), and acknowledges to the writer everything
    /// up to `after`. [`StoreError::Displaced`] if the stream has another reader now.
    fn read_as(
        &self,
        key: &StreamKey,
        token: &ReaderToken,
        after: Seq,
        limit: ReadLimit,
    ) -> StoreFuture<Result<Page, StoreError>>;

    /// Detaches the reader. Changes nothing if the stream has another reader now.
    fn detach(&self, key: &StreamKey, token: &ReaderToken) -> StoreFuture<Result<(), StoreError>>;

    /// The remote reader of a stream. With `wake`, its next read is a [`ClusterEvent::StreamChanged`] for this node.
    fn remote_reader(&self, key: &StreamKey, wake: bool) -> StoreFuture<Result<Option<RemotePosition>, StoreError>>;

    // ---- push ----

    /// Adds messages to the push queue of a session, and wakes the node of its newest GET. The oldest messages are
    /// dropped beyond `limits`.
    fn enqueue(
        &self,
        key: &SessionKey,
        messages: Vec<PushMessage>,
        limits: PushQueueLimits,
    ) -> StoreFuture<Result<Enqueued, StoreError>>;

    /// Makes a stream of this node the newest GET, which takes messages. Beyond `max` GETs of the session, removes the oldest
    /// ones, and their nodes get [`ClusterEvent::GetRemoved`]. Returns the last broadcast that the queue has.
    fn listen(&self, key: &StreamKey, max: usize) -> StoreFuture<Result<BroadcastId, StoreError>>;

    /// Removes a closed GET. The next newest one takes messages.
    fn unlisten(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>>;

    /// Makes a GET the oldest one, because it does not take its messages.
    fn demote(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>>;

    /// Removes the GETs of a dead node. The next newest GET takes messages.
    fn remove_listeners(&self, key: &SessionKey, of: &Incarnation) -> StoreFuture<Result<(), StoreError>>;

    /// Moves waiting messages to a stream, in one atomic step: they get the numbers from `first` on. Moves none unless
    /// the stream is the newest listener.
    fn bind(&self, key: &StreamKey, request: BindRequest) -> StoreFuture<Result<Bound, StoreError>>;

    /// Adds the messages of broadcasts up to `last` to the queue of a session, each unless the queue has had its broadcast or a
    /// later one. Several nodes may try, each with other broadcasts.
    fn enqueue_broadcast(
        &self,
        key: &SessionKey,
        last: &BroadcastId,
        messages: Vec<(BroadcastId, PushMessage)>,
        limits: PushQueueLimits,
    ) -> StoreFuture<Result<usize, StoreError>>;

    /// The last broadcast that the queue of a session has.
    fn broadcasts_applied(&self, key: &SessionKey) -> StoreFuture<Result<BroadcastId, StoreError>>;

    /// The last broadcast. Empty if there was none.
    fn last_broadcast(&self) -> StoreFuture<Result<BroadcastId, StoreError>>;

    /// The broadcasts after `id`, in order. `None` if some of them were dropped: then everything may have changed.
    fn broadcasts_after(&self, id: &BroadcastId) -> StoreFuture<Result<Option<Broadcasts>, StoreError>>;
}

/// The membership of one start of a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Membership {
    /// The id of this start.
    pub incarnation: Incarnation,
    /// The lease holds for this time after each renewal.
    pub lease: Duration,
    /// A secret that all nodes share. It encrypts `requestState` and mail.
    pub secret: [u8; 32],
    /// The time of the store.
    pub now: Wall,
}

impl Membership {
    /// A membership.
    pub const fn new(incarnation: Incarnation, lease: Duration, secret: [u8; 32], now: Wall) -> Self {
        Membership {
            incarnation,
            lease,
            secret,
            now,
        }
    }
}

/// The result of a renewal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Renewal {
    /// All members whose leases hold.
    pub live: Vec<Incarnation>,
    /// The time of the store.
    pub now: Wall,
    /// Changes when the store has lost everything.
    pub born: Box<str>,
}

impl Renewal {
    /// A renewal.
    pub const fn new(live: Vec<Incarnation>, now: Wall, born: Box<str>) -> Self {
        Renewal { live, now, born }
    }
}

/// The views of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenViews {
    /// The last epoch that was drawn.
    pub last_epoch: u64,
    /// The views that are not closed: their epochs and nodes.
    pub open: Vec<(u64, Incarnation)>,
}

impl OpenViews {
    /// The views of a session.
    pub const fn new(last_epoch: u64, open: Vec<(u64, Incarnation)>) -> Self {
        OpenViews { last_epoch, open }
    }
}

/// The sessions of all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionCounts {
    /// The sessions of all principals.
    pub total: usize,
    /// The sessions of one principal.
    pub of_principal: usize,
}

impl SessionCounts {
    /// The sessions of all nodes.
    pub const fn new(total: usize, of_principal: usize) -> Self {
        SessionCounts { total, of_principal }
    }
}

/// A message in a mailbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MailId(pub Box<str>);

/// The messages in a mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MailboxStatus {
    /// The number of messages.
    pub messages: usize,
    /// The age of the oldest one, by the clock of the store. Zero without messages.
    pub oldest: Duration,
}

impl MailboxStatus {
    /// A status.
    pub const fn new(messages: usize, oldest: Duration) -> Self {
        MailboxStatus { messages, oldest }
    }
}

/// A position in the broadcast log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BroadcastId(pub Box<str>);

/// Broadcasts with their positions, in order.
pub type Broadcasts = Vec<(BroadcastId, Signal)>;

/// An event for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// A message in this node's mailbox.
    Mail(MailId, Bytes),
    /// Another node changed or ended a session. The view of this node is out of date. `by` waits for an
    /// acknowledgement.
    SessionChanged {
        /// The session.
        key: SessionKey,
        /// The node that changed it.
        by: Incarnation,
    },
    /// Messages wait for a GET of this node.
    PushWaiting(SessionKey),
    /// A GET of this node was removed, because the session has too many. It takes no more messages.
    GetRemoved(StreamKey),
    /// A stream that this node writes has another reader, or its reader has read on.
    StreamChanged(StreamKey),
    /// Wake-ups may be lost from now on. A view must be checked against the store before use.
    Disconnected,
    /// Wake-ups arrive again. Everything must be read once.
    Reconnected,
}

/// The events for one node, in a bounded channel. While it is full, mail waits in the store and wake-ups are dropped.
/// [`ClusterEvent::Reconnected`] follows dropped wake-ups.
#[derive(Debug)]
pub struct ClusterEvents(mpsc::Receiver<ClusterEvent>);

impl ClusterEvents {
    /// The receiving end of a bounded channel of the backend.
    pub fn new(channel: mpsc::Receiver<ClusterEvent>) -> Self {
        ClusterEvents(channel)
    }

    /// The next event. `None` when the store is closed.
    pub async fn next(&mut self) -> Option<ClusterEvent> {
        self.0.recv().await
    }
}

/// A reader on another node than the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemotePosition {
    /// The reader.
    pub token: ReaderToken,
    /// The last event that it has seen.
    pub seen: Seq,
}

impl RemotePosition {
    /// The position of a reader.
    pub const fn new(token: ReaderToken, seen: Seq) -> Self {
        RemotePosition { token, seen }
    }
}

/// A message that waits for a GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushMessage {
    /// The JSON-RPC message, on one line.
    pub payload: Bytes,
    /// A waiting message with the same key is equivalent, and one of them suffices (GET-04).
    pub collapse: Option<Box<str>>,
}

impl PushMessage {
    /// A message. Without a `collapse` key it is never left out.
    pub const fn new(payload: Bytes, collapse: Option<Box<str>>) -> Self {
        PushMessage { payload, collapse }
    }
}

/// A push queue after messages were added to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    /// Messages that were dropped.
    pub dropped: usize,
    /// Messages that an open GET has not taken yet. Zero without a GET. A sender of many messages waits for them.
    pub waiting: usize,
}

impl Enqueued {
    /// The result of an addition.
    pub const fn new(dropped: usize, waiting: usize) -> Self {
        Enqueued { dropped, waiting }
    }
}

/// The bounds of one push queue.
#[derive(Clone, Copy, Debug)]
pub struct PushQueueLimits {
    /// The number of messages.
    pub messages: usize,
    /// Their payload in bytes.
    pub bytes: usize,
}

impl PushQueueLimits {
    /// The bounds of one push queue.
    pub const fn new(messages: usize, bytes: usize) -> Self {
        PushQueueLimits { messages, bytes }
    }
}

/// A request to move waiting messages to a stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BindRequest {
    /// The epoch of the stream's writer.
    pub epoch: u64,
    /// The number of the first message.
    pub first: Seq,
    /// The maximum number of messages.
    pub max: usize,
    /// The description of the stream, if the store does not know it yet.
    pub info: Option<Arc<StreamInfo>>,
}

impl BindRequest {
    /// A request of the writer with this epoch. `info` is the description of a stream that the store does not know yet.
    pub const fn new(epoch: u64, first: Seq, max: usize, info: Option<Arc<StreamInfo>>) -> Self {
        BindRequest {
            epoch,
            first,
            max,
            info,
        }
    }
}

/// Messages that a bind has moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bound {
    /// The messages, in order. They have consecutive numbers.
    pub messages: Vec<Bytes>,
    /// Whether more messages wait for the same stream.
    pub more: bool,
}

impl Bound {
    /// The messages of a bind.
    pub const fn new(messages: Vec<Bytes>, more: bool) -> Self {
        Bound { messages, more }
    }
}
