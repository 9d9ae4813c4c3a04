use crate::{QueueUpdate, SessionKey, StoreError, StoreFuture, StoredQueue};

/// The push queues of all sessions: messages that wait for a GET (D6).
///
/// A message leaves its queue in one of two ways. [`update_queue`](Self::update_queue) drops it, or an append with
/// [`Batch::taken`](crate::Batch::taken) moves it to a stream. The append and the removal are one atomic step: at any moment,
/// and after any crash, the message is in the queue or in the stream, never in both or in neither.
pub trait PushQueueStore: Send + Sync + 'static {
    /// Adds messages to a session's queue and raises its floor, atomically, as durable as an append.
    ///
    /// The session's owner proposes positions. The floor is the highest position that was dropped or taken. The store keeps
    /// it as long as the session. It ignores a message at or below the floor, and a message whose position is already in the
    /// queue. A floor below the stored one changes nothing. An update may thus be repeated, or arrive after the append that
    /// takes its messages.
    ///
    /// The server bounds each queue. The bytes count against the limits of the store, and all queues together may use a share
    /// of them ([`StoreError::Full`]). [`StoreError::SessionGone`] if the session has ended, [`StoreError::Conflict`] if its
    /// record has another epoch.
    fn update_queue(&self, key: &SessionKey, update: QueueUpdate) -> StoreFuture<Result<(), StoreError>>;

    /// Reads a queue. It is empty if no message was ever added. [`StoreError::SessionGone`] if the session has ended.
    fn queue(&self, key: &SessionKey) -> StoreFuture<Result<StoredQueue, StoreError>>;
}
