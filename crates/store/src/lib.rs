//! The storage interface of Rethread: an event log, session records, push queues, and a bus between nodes. Contains the
//! memory backend.
//!
//! A backend sees keys, numbers and bytes. It does not know the protocol. Each method of [`EventStore`],
//! [`SessionStore`], [`PushQueueStore`], [`Bus`] and [`ClusterStore`] documents its contract. The suite in
//! `rethread-testkit` checks it.
//!
//! Every key starts with the principal and the session. No method takes a stream or an event id alone, so that the
//! events of one session never reach another (D3, T-14).

mod bus;
mod cluster;
mod error;
mod event;
mod future;
mod memory;
mod queue;
mod session;

pub use bus::{Bus, BusEvent, ListKind, Signal, Subscription};
pub use cluster::{
    BindRequest, Bound, BroadcastId, Broadcasts, ClusterEvent, ClusterEvents, ClusterStore, Enqueued, MailId,
    MailboxStatus, Membership, OpenViews, PushMessage, PushQueueLimits, RemotePosition, Renewal, SessionCounts,
};
pub use error::StoreError;
pub use event::{Appended, EventStore, ReadLimit, Watch};
pub use future::StoreFuture;
pub use memory::{MemoryLimits, MemoryStore};
pub use queue::PushQueueStore;
pub use session::{IsLive, SessionRecord, SessionStore, SessionView, StoredSession, Updated};
use std::hash::{Hash, Hasher};

pub use rethread_proto::cluster::{Incarnation, ReaderToken};
pub use rethread_proto::ordinals::OrdinalBlock;
pub use rethread_proto::push::{QueuePosition, QueueUpdate, Queued, StoredQueue};
pub use rethread_proto::stream::{Batch, Event, Page, Retain, Retention, StreamInfo, StreamStatus};
pub use rethread_proto::{Ordinal, Principal, Seq, SessionId};

/// A complete storage backend.
pub trait Store: EventStore + SessionStore + Bus + std::fmt::Debug {
    /// The push queues of a store with one member: the process holds each queue, and the store has a copy. `None` if
    /// the store has a [cluster part](Self::cluster), whose queues all nodes share.
    fn push_queues(&self) -> Option<&dyn PushQueueStore>;

    /// The cluster part. `None` if one process at a time may use the store.
    fn cluster(&self) -> Option<&dyn ClusterStore> {
        None
    }
}

/// A session and its principal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// The principal that opened the session.
    pub principal: Principal,
    /// The session id.
    pub session: SessionId,
}

/// Session ids are unique, so only they are hashed. Principals are compared.
impl Hash for SessionKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.session.hash(state);
    }
}

/// A stream of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// The session.
    pub session: SessionKey,
    /// The number of the stream in the session.
    pub ordinal: Ordinal,
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
