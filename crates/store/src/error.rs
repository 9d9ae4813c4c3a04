use rethread_proto::Seq;
use rethread_proto::stream::Refused;
use std::sync::Arc;

/// Why the store did not do what it was asked. Each kind asks for another answer from the server, so they stay apart.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The stream does not exist: it never did, or it is wholly forgotten.
    #[error("no such stream")]
    UnknownStream,
    /// The session does not exist: it never did, it has ended, or it has expired.
    #[error("no such session")]
    SessionGone,
    /// Somebody else wrote: what is stored does not fit what was proposed.
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
    /// There is no room, even after everything that may be evicted was.
    #[error("the store is full")]
    Full,
    /// The store cannot be reached or failed. Trying again later makes sense.
    #[error("the store is unavailable")]
    Unavailable(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// The store failed for a reason of its own.
    pub fn unavailable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        StoreError::Unavailable(Arc::from(source.into()))
    }

    /// Whether the store as such is in trouble, rather than the request at odds with what is stored.
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
