//! Change notifications from outside of calls.

use crate::node::Node;
use rethread_proto::jsonrpc::write_notification;
use rethread_store::{ListKind, Signal};
use serde::Serialize;
use std::sync::Arc;

/// Sends change notifications to every session, on every node that shares the store.
///
/// Clients of the legacy era get them on one of their GET streams, or on the next one they open.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Node>);

impl Notifier {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Notifier(node)
    }

    /// A list changed. Reaches clients only if the server declares `listChanged` for it.
    pub fn list_changed(&self, list: ListKind) {
        self.publish(Signal::ListChanged(list));
    }

    /// A resource changed. Reaches the clients that subscribed to it, or to a URI above it.
    pub fn resource_updated(&self, uri: &str) {
        self.publish(Signal::ResourceUpdated(uri.into()));
    }

    /// A custom notification for every session.
    pub fn broadcast(&self, method: &str, params: impl Serialize) {
        let mut message = Vec::new();
        match write_notification(&mut message, method, &params) {
            Ok(()) => self.publish(Signal::Broadcast(message.into())),
            Err(error) => {
                tracing::error!(target: crate::node::telemetry::TARGET, %error, method, "broadcast dropped: its params are not JSON");
            }
        }
    }

    fn publish(&self, signal: Signal) {
        if let Err(later) = self.0.store.publish(signal).now() {
            tokio::spawn(later);
        }
    }
}
