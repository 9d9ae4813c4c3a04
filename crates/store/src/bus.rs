use crate::{BroadcastId, StoreError, StoreFuture};
use bytes::Bytes;
use rethread_proto::subscription::Change;
use tokio::sync::broadcast;

/// A message to every node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// A list of the server changed.
    ListChanged(ListKind),
    /// A resource changed. Concerns the sessions that subscribed to it.
    ResourceUpdated(Box<str>),
    /// A notification for every session, as a complete JSON-RPC message.
    Broadcast(Bytes),
}

/// The kinds of lists that a server can offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
}

impl ListKind {
    /// Every list.
    pub const ALL: [ListKind; 3] = [ListKind::Tools, ListKind::Prompts, ListKind::Resources];

    /// The notification about a change of this list.
    pub const fn changed(self) -> &'static str {
        match self {
            ListKind::Tools => "notifications/tools/list_changed",
            ListKind::Prompts => "notifications/prompts/list_changed",
            ListKind::Resources => "notifications/resources/list_changed",
        }
    }

    /// The capability under which `listChanged` is declared.
    pub const fn capability(self) -> &'static str {
        match self {
            ListKind::Tools => "tools",
            ListKind::Prompts => "prompts",
            ListKind::Resources => "resources",
        }
    }
}

impl From<ListKind> for Change {
    fn from(list: ListKind) -> Self {
        match list {
            ListKind::Tools => Change::Tools,
            ListKind::Prompts => Change::Prompts,
            ListKind::Resources => Change::Resources,
        }
    }
}

/// Carries signals to every node, including the publishing one.
pub trait Bus: Send + Sync + 'static {
    /// Sends a signal to every subscriber.
    fn publish(&self, signal: Signal) -> StoreFuture<Result<(), StoreError>>;

    /// Subscribes to every signal that is published from now on.
    fn subscribe(&self) -> Subscription;
}

/// One subscriber of the bus.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<(BroadcastId, Signal)>);

/// The next event of a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusEvent {
    /// A signal, and its position in the broadcast log. The position is empty in a store with one member.
    Signal(BroadcastId, Signal),
    /// The subscriber was too slow, and signals are lost. It must assume that everything changed.
    Lagged,
}

impl Subscription {
    /// A subscriber on a bounded channel of the backend.
    pub fn new(channel: broadcast::Receiver<(BroadcastId, Signal)>) -> Self {
        Subscription(channel)
    }

    /// The next event. `None` when the bus is closed.
    pub async fn next(&mut self) -> Option<BusEvent> {
        match self.0.recv().await {
            Ok((id, signal)) => Some(BusEvent::Signal(id, signal)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(BusEvent::Lagged),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
