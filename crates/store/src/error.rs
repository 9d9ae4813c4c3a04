use rethread_proto::Seq;
use rethread_proto::stream::Refused;
use std::sync::Arc;

/// Why a store operation failed. The server handles each kind differently.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The stream does not exist: it was never created, or it is completely forgotten.
    #[error("no such stream")]
    UnknownStream,
    /// The session does not exist: it was never created, it has ended, or it has expired.
    #[error("no such session")]
    SessionGone,
    /// Another writer has appended. The proposed numbers do not continue the stored ones.
    #[error("another writer was here (epoch {epoch}, last number {last:?})")]
    Conflict {
        /// The epoch of the last writer.
        epoch: u64,
        /// The last number stored.
        last: Option<Seq>,
    },
    /// The stream has ended.
    #[error("the stream has ended")]
    Sealed,
    /// The lease of this node has ended: other nodes may act for it. It must join again.
    #[error("the lease of this node has ended")]
    LeaseEnded,
    /// A newer process has joined under the name of this node.
    #[error("a newer process uses the name of this node")]
    Replaced,
    /// Another connection reads the stream now.
    #[error("another connection reads the stream")]
    Displaced,
    /// The store is full, even after everything evictable was evicted.
    #[error("the store is full")]
    Full,
    /// The store failed or cannot be reached. A later retry may succeed.
    #[error("the store is unavailable")]
    Unavailable(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// The store failed for this reason.
    pub fn unavailable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        StoreError::Unavailable(Arc::from(source.into()))
    }

    /// Whether the store itself failed. Otherwise the request conflicts with the stored state.
    pub fn is_outage(&self) -> bool {
        matches!(self, StoreError::Unavailable(_) | StoreError::Full)
    }
}

impl From<Refused> for StoreError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Conflict { epoch, last } => StoreError::Conflict { epoch, last },
            Refused::Sealed => StoreError::Sealed,
            Refused::Unknown => StoreError::UnknownStream,
        }
    }
}
