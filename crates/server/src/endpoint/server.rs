//! Everything that the transports of one server share.

use super::background;
use crate::call::call_scope::{ParkingTable, StatelessTables};
use crate::call::handler::Handler;
use crate::call::parked_calls::ParkedCalls;
use crate::node::Node;
use crate::session::registry::Registry;
use rethread_proto::SessionId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Server<H> {
    pub(crate) node: Arc<Node>,
    pub(crate) sessions: Arc<Registry>,
    /// Stateless calls that wait for input.
    pub(crate) parked: Arc<ParkedCalls>,
    pub(crate) handler: Arc<H>,
    pub(crate) new_session_id: Box<dyn Fn() -> SessionId + Send + Sync>,
    pub(crate) background: AtomicBool,
}

impl<H> Server<H> {
    pub(crate) fn stateless_tables(&self) -> StatelessTables {
        StatelessTables {
            parked: Arc::clone(&self.parked) as Arc<dyn ParkingTable>,
            subscriptions: Arc::clone(&self.sessions.subscriptions),
        }
    }
}

impl<H: Handler> Server<H> {
    /// Starts the node's tasks, with the first request: before that there may be no runtime to start them on.
    pub(crate) fn start_background(&self) {
        if !self.background.swap(true, Ordering::Relaxed) {
            background::start(&self.node, &self.sessions, &self.parked);
        }
    }
}
