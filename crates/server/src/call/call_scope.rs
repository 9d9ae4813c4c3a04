//! The owner of a call: a session, or a sequence of stateless requests.

use crate::session::Session;
use crate::session::subscriptions::Subscriptions;
use rethread_proto::Principal;
use rethread_proto::jsonrpc::{Method, Params};
use std::sync::Arc;

/// The owner of the calls of a response.
#[allow(clippy::large_enum_variant)] // it is allocated together with the exchange
pub(crate) enum CallScope {
    /// A session, whose streams outlive connections.
    Session(Arc<Session>),
    /// One request after another, each of which repeats the same arguments.
    Stateless(StatelessScope),
}

/// The facts of a stateless call that no retry changes (MRTR-04).
pub(crate) struct StatelessScope {
    pub(crate) method: Method,
    pub(crate) params: Params,
    pub(crate) principal: Principal,
    /// How often the handler has asked for input in replies of its own.
    pub(crate) round: u32,
    /// A request of the session era without a session: its reply has the form of that era, and nothing can be asked.
    pub(crate) is_sessionless: bool,
    pub(crate) tables: StatelessTables,
}

/// The tables that stateless calls share.
#[derive(Clone)]
pub(crate) struct StatelessTables {
    pub(crate) parked: Arc<dyn ParkingTable>,
    pub(crate) subscriptions: Arc<Subscriptions>,
}

/// The table of parked calls, as a call sees it.
pub(crate) trait ParkingTable: Send + Sync {
    /// The parked call `id` has ended.
    fn forget(&self, id: u128);

    /// The parked call `id` keeps `bytes` more.
    fn grow(&self, id: u128, bytes: usize);
}
