use crate::{QueueUpdate, SessionKey, StoreError, StoreFuture, StoredQueue};

/// The push queue of every session: messages that wait for a GET (design D6).
///
/// A message leaves its queue in one of two ways: it is dropped, which [`update_queue`](Self::update_queue) says, or it is
/// taken by a stream, which [`Batch::taken`](crate::Batch::taken) says. The second is one atomic step with the append: at
/// any moment, and after any crash, the message is in the queue or in the stream, never in both or in neither.
pub trait PushQueueStore: Send + Sync + 'static {
    /// Adds messages to a session's queue and raises its floor, all or nothing, as durable as an append.
    ///
    /// The session's owner proposes positions. The store remembers the floor, the highest position that was dropped or
    /// taken, as long as the session: a message at or below it is passed over, and so is one whose position is in the
    /// queue. A floor below the stored one changes nothing. So an update may be repeated, or arrive after the append that
    /// takes its messages.
    ///
    /// The bounds of one queue are the server's. The bytes count against the limits of the store; all queues together may
    /// take a share of it ([`StoreError::Full`]).
    /// [`StoreError::SessionGone`] if the session has ended, [`StoreError::Conflict`] if its record is of another epoch.
    fn update_queue(&self, key: &SessionKey, update: QueueUpdate) -> StoreFuture<Result<(), StoreError>>;

    /// Reads a queue; [`StoreError::SessionGone`] if the session has ended. It is empty if there never was a message.
    fn queue(&self, key: &SessionKey) -> StoreFuture<Result<StoredQueue, StoreError>>;
}
