//! Everything that the transports of one server share.

use super::forward::receiving::Forwards;
use crate::call::any_handler::AnyHandler;
use crate::call::call_scope::{ParkingTable, StatelessTables};
use crate::call::parked_calls::ParkedCalls;
use crate::node::Node;
use crate::session::registry::Registry;
use rethread_proto::SessionId;
use rethread_proto::gate::HeadPolicy;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) struct Server {
    pub(crate) node: Arc<Node>,
    pub(crate) sessions: Arc<Registry>,
    /// Stateless calls that wait for input.
    pub(crate) parked: Arc<ParkedCalls>,
    pub(crate) handler: Arc<dyn AnyHandler>,
    pub(crate) new_session_id: Box<dyn Fn() -> SessionId + Send + Sync>,
    pub(crate) background: AtomicBool,
    /// Requests that other nodes run for this one, and those that it runs for others.
    pub(crate) forwards: Arc<Forwards>,
    /// The rules for the heads of forwarded requests. Host and origin were checked where they were received.
    pub(crate) forwarded_policy: HeadPolicy,
}

impl Server {
    pub(crate) fn stateless_tables(&self) -> StatelessTables {
        StatelessTables {
            parked: Arc::clone(&self.parked) as Arc<dyn ParkingTable>,
            subscriptions: Arc::clone(&self.sessions.subscriptions),
        }
    }
}
