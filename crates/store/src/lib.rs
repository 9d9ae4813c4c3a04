//! The storage interface of Rethread: an event log, session records, push queues, and a bus between nodes. Contains the
//! memory backend.
//!
//! A backend sees keys, numbers and bytes. It does not know the protocol. Its contract is documented at each method of
//! [`EventStore`], [`SessionStore`], [`PushQueueStore`] and [`Bus`]. The suite in `rethread-testkit` checks it.
//!
//! Every key starts with the principal and the session. No method takes a stream or an event id alone, so that the events of
//! one session never reach another (design D3, T-14).

mod bus;
mod error;
mod event;
mod future;
mod memory;
mod queue;
mod session;

pub use bus::{Bus, BusEvent, ListKind, Signal, Subscription};
pub use error::StoreError;
pub use event::{EventStore, ReadLimit, Watch};
pub use future::StoreFuture;
pub use memory::{MemoryLimits, MemoryStore};
pub use queue::PushQueueStore;
pub use session::{IsLive, SessionRecord, SessionStore, StoredSession};
use std::hash::{Hash, Hasher};

pub use rethread_proto::push::{QueuePosition, QueueUpdate, Queued, StoredQueue};
pub use rethread_proto::stream::{Batch, Event, Page, Retain, Retention, StreamInfo, StreamStatus};
pub use rethread_proto::{Ordinal, Principal, Seq, SessionId};

/// A complete storage backend.
pub trait Store: EventStore + SessionStore + PushQueueStore + Bus + std::fmt::Debug {}

impl<T: EventStore + SessionStore + PushQueueStore + Bus + std::fmt::Debug> Store for T {}

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
