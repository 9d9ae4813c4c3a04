use crate::{
    Batch, Ordinal, Page, RemotePosition, Retention, Seq, SessionKey, StoreError, StoreFuture, StreamKey, StreamStatus,
};
use tokio::sync::watch;

/// Limits of one read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReadLimit {
    /// Maximum number of events.
    pub events: usize,
    /// Maximum bytes of payload, unless the first event alone is larger.
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

/// The acknowledgement of an append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Appended {
    /// The reader of the stream on another node. The writer waits for it as for a local one.
    pub remote_reader: Option<Box<RemotePosition>>,
}

impl Appended {
    /// An append to a stream with this reader on another node.
    pub fn read_by(remote_reader: Option<RemotePosition>) -> Self {
        Appended {
            remote_reader: remote_reader.map(Box::new),
        }
    }
}

/// The event logs of all streams.
pub trait EventStore: Send + Sync + 'static {
    /// Appends a batch to a stream. When it returns, the batch has the durability of this backend.
    ///
    /// The writer proposes numbers, and the store refuses those that do not fit (D2). Numbers must follow the
    /// last one without a gap. The epoch must not be lower than that of the last writer. A sealed stream refuses
    /// appends ([`StoreError::Sealed`]), and so does a session without a record ([`StoreError::SessionGone`]). The
    /// first append creates the stream and must contain its info.
    ///
    /// Appending the same batch again changes nothing, so a writer may retry after a lost acknowledgement. The store
    /// recognises a repetition by its epoch and its last number. An epoch therefore belongs to one writer.
    ///
    /// An append is atomic: a batch is never stored in part. A batch without events claims the stream for its epoch.
    /// After it, the store refuses writers of earlier epochs.
    ///
    /// A batch with [`Batch::taken`] also raises the floor of the session's push queue
    /// ([`PushQueueStore`](crate::PushQueueStore)), in the same atomic step. The queue has one owner: the epoch of the
    /// batch must be that of the session's record ([`StoreError::Conflict`] otherwise).
    ///
    /// Eviction (D4) happens here or in the background. It skips retained events and never removes the newest
    /// event.
    fn append(&self, key: &StreamKey, batch: Batch) -> StoreFuture<Result<Appended, StoreError>>;

    /// Reads events after `after`, in order, and the status of the stream at that moment. Evicted events are missing;
    /// [`Page::status`] has the highest evicted number. [`StoreError::UnknownStream`] if the store does not know the
    /// stream.
    fn read_after(&self, key: &StreamKey, after: Seq, limit: ReadLimit) -> StoreFuture<Result<Page, StoreError>>;

    /// The status of a stream, without its events.
    fn status(&self, key: &StreamKey) -> StoreFuture<Result<StreamStatus, StoreError>>;

    /// The streams of a session that are not sealed, lowest ordinal first. A restored session takes them over.
    fn open_streams(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Ordinal>, StoreError>>;

    /// Forgets a stream completely. Succeeds if there is none.
    fn forget_stream(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>>;

    /// Forgets every stream of a session, and its push queue. After [`SessionStore::end`](crate::SessionStore::end)
    /// none of them can be created again.
    fn forget_session(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>>;

    /// A hint that the stream has grown, for a reader on another node than the writer. It may wake without reason, but
    /// must wake after the last append: a reader reads again after each wake-up.
    fn watch(&self, key: &StreamKey) -> Watch;

    /// The limits of each stream. A writer waits for a reader that would otherwise lose events to eviction.
    fn retention(&self) -> Retention;

    /// Bytes of events that are retained, for metrics. `None` if the store does not count them.
    fn retained_bytes(&self) -> Option<usize> {
        None
    }

    /// Forgets everything past its age. The server calls this periodically. A backend that expires data by itself does
    /// nothing here.
    fn sweep(&self) -> StoreFuture<Result<(), StoreError>>;
}

/// Wakes when a watched stream may have grown. The watch of an unknown or forgotten stream wakes once.
#[derive(Clone, Debug)]
pub struct Watch(watch::Receiver<u64>);

impl Watch {
    /// A watch of a counter that the backend increments with every append.
    pub fn new(counter: watch::Receiver<u64>) -> Self {
        Watch(counter)
    }

    /// Waits for the next hint. False if no further hint can come.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}
