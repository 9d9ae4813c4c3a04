use crate::{StoreError, StoreFuture};
use bytes::Bytes;
use rethread_proto::subscription::Change;
use tokio::sync::broadcast;

/// What every node hears.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// A list of the server changed.
    ListChanged(ListKind),
    /// A resource changed: for those who subscribed to it.
    ResourceUpdated(Box<str>),
    /// A notification for every session: the whole JSON-RPC message.
    Broadcast(Bytes),
}

/// The lists a server can offer.
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

    /// The notification that says that this list changed.
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

/// Carries signals to every node, the publishing one included.
pub trait Bus: Send + Sync + 'static {
    /// Tells every subscriber.
    fn publish(&self, signal: Signal) -> StoreFuture<Result<(), StoreError>>;

    /// Hears every signal published from now on.
    fn subscribe(&self) -> Subscription;
}

/// One listener on the bus.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<Signal>);

/// What a listener heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusEvent {
    /// A signal.
    Signal(Signal),
    /// Signals came faster than they were heard, and some are lost: assume that everything changed.
    Lagged,
}

impl Subscription {
    /// A listener on a bounded channel of the backend.
    pub fn new(channel: broadcast::Receiver<Signal>) -> Self {
        Subscription(channel)
    }

    /// The next signal; `None` when the bus is gone.
    pub async fn next(&mut self) -> Option<BusEvent> {
        match self.0.recv().await {
            Ok(signal) => Some(BusEvent::Signal(signal)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(BusEvent::Lagged),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
