//! The store of one server.

use crate::cluster::Inner;
use crate::events::EventChannel;
use crate::keys::{ServerKeys, SessionDigest};
use crate::reply::Reply;
use crate::scripts::Script;
use crate::views::Views;
use crate::watches::Watches;
use crate::{ConnectError, broadcasts};
use parking_lot::Mutex;
use redis::Cmd;
use rethread_store::{
    BroadcastId, ClusterStore, PushQueueStore, SessionKey, Signal, Store, StoreError, StoreFuture, StreamKey,
};
use std::fmt;
use std::sync::Arc;
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::AbortHandle;

/// Signals in the buffer of a subscriber. Beyond this, the subscriber learns that it has missed some.
const MAX_QUEUED_SIGNALS: usize = 1024;
/// Lua numbers are floating point and exact up to this value.
const MAX_NUMBER: u64 = 1 << 53;

/// The store of one server on a [`RedisCluster`](crate::RedisCluster). Clones share their data.
#[derive(Clone)]
pub struct RedisStore(pub(crate) Arc<StoreInner>);

pub(crate) struct StoreInner {
    pub(crate) cluster: Arc<Inner>,
    pub(crate) keys: ServerKeys,
    pub(crate) views: Views,
    pub(crate) watches: Watches,
    pub(crate) events: EventChannel,
    pub(crate) bus: broadcast::Sender<(BroadcastId, Signal)>,
    /// The last broadcast that subscribers have.
    pub(crate) bus_position: watch::Sender<BroadcastId>,
    /// Notified when the broadcast log may have grown.
    pub(crate) bus_grew: Arc<Notify>,
    bus_task: Mutex<Option<AbortHandle>>,
}

impl StoreInner {
    pub(crate) async fn new(cluster: Arc<Inner>, keys: ServerKeys) -> Result<Arc<Self>, ConnectError> {
        let position = broadcasts::last(&cluster, &keys)
            .await
            .map_err(ConnectError::unreachable)?;
        let store = Arc::new(StoreInner {
            cluster,
            keys,
            views: Views::default(),
            watches: Watches::default(),
            events: EventChannel::default(),
            bus: broadcast::Sender::new(MAX_QUEUED_SIGNALS),
            bus_position: watch::Sender::new(position),
            bus_grew: Arc::default(),
            bus_task: Mutex::default(),
        });
        let task = store.cluster.runtime.spawn(broadcasts::forward(Arc::downgrade(&store)));
        *store.bus_task.lock() = Some(task.abort_handle());
        Ok(store)
    }

    /// A call of a script about a session. Its own arguments follow.
    pub(crate) fn call(&self, script: &Script, session: SessionDigest) -> Cmd {
        let mut call = script.call(&self.keys.session(session));
        call.arg(self.cluster.keys.wake_channel());
        call.arg(self.keys.subject_of(session));
        call.arg(self.cluster.me().as_str()).arg(self.cluster.skew());
        call
    }

    pub(crate) async fn run(&self, script: &Script, call: &Cmd) -> Result<Reply, StoreError> {
        self.cluster.connection.run(script, call).await
    }
}

impl Drop for StoreInner {
    fn drop(&mut self) {
        if let Some(task) = self.bus_task.lock().take() {
            task.abort();
        }
    }
}

impl RedisStore {
    /// The future of a step that owns its arguments.
    pub(crate) fn later<T, Fut>(&self, step: impl FnOnce(Arc<StoreInner>) -> Fut) -> StoreFuture<Result<T, StoreError>>
    where
        Fut: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        StoreFuture::later(step(Arc::clone(&self.0)))
    }
}

/// The digest of a session.
pub(crate) fn digest(key: &SessionKey) -> SessionDigest {
    SessionDigest::new(key)
}

/// The digest of the session of a stream.
pub(crate) fn digest_of(key: &StreamKey) -> SessionDigest {
    SessionDigest::new(&key.session)
}

/// Refuses a number that scripts cannot represent exactly. No counter reaches it.
pub(crate) fn check_number(number: u64) -> Result<u64, StoreError> {
    if number < MAX_NUMBER {
        Ok(number)
    } else {
        Err(StoreError::unavailable("a number is too large for this store"))
    }
}

impl Store for RedisStore {
    fn push_queues(&self) -> Option<&dyn PushQueueStore> {
        None
    }

    fn cluster(&self) -> Option<&dyn ClusterStore> {
        Some(self)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.0.keys.subject).finish()
    }
}
