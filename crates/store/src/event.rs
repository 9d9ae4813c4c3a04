use crate::{Batch, Ordinal, Page, Retention, Seq, SessionKey, StoreError, StoreFuture, StreamKey, StreamStatus};
use tokio::sync::watch;

/// How much one read may return.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    /// How many events.
    pub events: usize,
    /// How many bytes of payload, unless the first event alone is larger.
    pub bytes: usize,
}

impl ReadLimit {
    /// A number of events and of payload bytes.
    pub const fn new(events: usize, bytes: usize) -> Self {
        ReadLimit { events, bytes }
    }
}

impl Default for ReadLimit {
    fn default() -> Self {
        ReadLimit::new(256, 1 << 20)
    }
}

/// The log of every stream. The seeds' `EventStore`.
pub trait EventStore: Send + Sync + 'static {
    /// Appends a batch to a stream, durably in the sense of this backend by the time it returns.
    ///
    /// The writer proposes numbers and the store refuses what does not fit (design D2): numbers must follow the last one
    /// without a gap, the epoch must not be lower than the last writer's, a sealed stream takes no more
    /// ([`StoreError::Sealed`]), a session that has no record takes nothing at all ([`StoreError::SessionGone`]). The
    /// first append creates the stream and must bring its info. Appending the same batch again is harmless, so that a
    /// lost acknowledgement can be retried; a repeat is known by its epoch and its last number, so an epoch belongs to one
    /// writer. All or nothing: a batch is never stored in part. A batch without events takes the stream for its epoch: from
    /// then on the writers before it are refused.
    ///
    /// A batch with [`Batch::taken`] raises the floor of the session's push queue in the same step
    /// ([`PushQueueStore`](crate::PushQueueStore)). Its epoch must be that of the session's record, or it is refused
    /// ([`StoreError::Conflict`]): the queue has one owner.
    ///
    /// Eviction (design D4) happens here or in the background; it passes over pinned events and never takes the newest.
    fn append(&self, key: &StreamKey, batch: Batch) -> StoreFuture<Result<(), StoreError>>;

    /// Reads events after `after`, in order, and how the stream stood at that moment. Events that were evicted are
    /// missing; [`Page::status`] tells how far. [`StoreError::UnknownStream`] if nothing at all is known of the stream.
    fn read_after(&self, key: &StreamKey, after: Seq, limit: ReadLimit) -> StoreFuture<Result<Page, StoreError>>;

    /// How a stream stands, without its events.
    fn status(&self, key: &StreamKey) -> StoreFuture<Result<StreamStatus, StoreError>>;

    /// The streams of a session that have not ended, lowest ordinal first: what the next life of a session takes over.
    fn open_streams(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Ordinal>, StoreError>>;

    /// Forgets a stream wholly. Forgetting what is not there is no error.
    fn forget_stream(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>>;

    /// Forgets every stream of a session, and its push queue. Together with [`SessionStore::end`](crate::SessionStore::end), nothing of it
    /// comes back to life.
    fn forget_session(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>>;

    /// A hint that the stream has grown, for a reader whose writer is elsewhere. May wake for nothing, must not miss the
    /// last append: a reader reads again after each wake-up.
    fn watch(&self, key: &StreamKey) -> Watch;

    /// How much of a stream is kept: a writer waits for its reader rather than let it be overtaken.
    fn retention(&self) -> Retention;

    /// Lets the backend forget what is past its age. Called every now and then by the server; a backend that does so on
    /// its own does nothing here.
    fn sweep(&self) -> StoreFuture<Result<(), StoreError>>;
}

/// Wakes when a watched stream may have grown. A stream that is forgotten, or that never was, wakes once and then no
/// more.
#[derive(Clone, Debug)]
pub struct Watch(watch::Receiver<u64>);

impl Watch {
    /// A watch over a counter that the backend raises with every append.
    pub fn new(counter: watch::Receiver<u64>) -> Self {
        Watch(counter)
    }

    /// Waits for the next hint. False if none can ever come again.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}
