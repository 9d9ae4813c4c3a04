//! The part of a process that all its servers share: connections, membership and mailbox.

use crate::connection::Connection;
use crate::error::ConnectError;
use crate::keys::{Keys, hex};
use crate::link::Connector;
use crate::members::{Health, SharedMembership};
use crate::options::RedisOptions;
use crate::promises::{self, Promises};
use crate::store::{RedisStore, StoreInner};
use crate::{mailbox, subscriber};
use parking_lot::Mutex;
use rethread_store::{ClusterEvent, Incarnation};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The connections of one process to Redis or Valkey. Each server of the process has a [`RedisStore`] on top of it.
///
/// One connection carries all commands, one receives wake-ups and one reads the mailbox, independent of the number of
/// sessions and streams. Lost connections are restored.
#[derive(Clone)]
pub struct RedisCluster(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) options: RedisOptions,
    pub(crate) keys: Keys,
    pub(crate) connector: Arc<Connector>,
    pub(crate) connection: Connection,
    promises: Promises,
    /// The id of this process. It stays the same when the process joins again.
    pub(crate) process: Box<str>,
    /// The name of this process in the store. Before the process joins, a name that is never a member.
    pub(crate) identity: watch::Sender<Incarnation>,
    pub(crate) membership: tokio::sync::Mutex<SharedMembership>,
    /// Set when a newer process has joined under the same name.
    pub(crate) replaced: watch::Sender<bool>,
    pub(crate) health: Health,
    servers: Mutex<HashMap<Box<str>, Weak<StoreInner>>>,
    pub(crate) runtime: Handle,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl RedisCluster {
    /// Connects to the store. Must run in a tokio runtime, which the connections use from then on.
    ///
    /// Refuses a server that would lose data silently: a `maxmemory-policy` other than `noeviction`, a replica, a
    /// version before 6.2.
    pub async fn connect(mut options: RedisOptions) -> Result<Self, ConnectError> {
        // After a failed step there must be time for another one before the lease ends.
        options.timeout = options.timeout.min(options.lease / 2);
        let connector = Arc::new(Connector::new(&options.url, options.timeout)?);
        let promises = promises::read(&connector, &options.url.mode, options.timeout).await?;
        let connection = Connection::new(Arc::clone(&connector), options.timeout).await?;
        let inner = Arc::new(Inner {
            keys: Keys::new(&options.url.prefix),
            connector,
            connection,
            promises,
            process: random_token().into(),
            identity: watch::Sender::new(Incarnation::new(0, random_u32())),
            membership: tokio::sync::Mutex::default(),
            replaced: watch::Sender::new(false),
            health: Health::default(),
            servers: Mutex::default(),
            runtime: Handle::current(),
            tasks: Mutex::default(),
            options,
        });
        for task in [
            inner.runtime.spawn(subscriber::run(Arc::downgrade(&inner))),
            inner.runtime.spawn(mailbox::run(Arc::downgrade(&inner))),
            inner.runtime.spawn(subscriber::tick(Arc::downgrade(&inner))),
        ] {
            inner.tasks.lock().push(task.abort_handle());
        }
        let identity = inner.identity.borrow().clone();
        let subscribed = inner.health.wait_subscribed(&identity, inner.options.timeout).await;
        subscribed.map_err(ConnectError::unreachable)?;
        Ok(RedisCluster(inner))
    }

    /// The store of the server with this name. Clones and calls with the same name share their data.
    pub async fn store(&self, name: &str) -> Result<RedisStore, ConnectError> {
        let keys = self.0.keys.server(name);
        if let Some(known) = self.0.server(&keys.subject) {
            return Ok(RedisStore(known));
        }
        let store = StoreInner::new(Arc::clone(&self.0), keys).await?;
        let mut servers = self.0.servers.lock();
        if let Some(known) = servers.get(&store.keys.subject).and_then(Weak::upgrade) {
            return Ok(RedisStore(known)); // another task created it concurrently
        }
        servers.insert(store.keys.subject.clone(), Arc::downgrade(&store));
        Ok(RedisStore(store))
    }

    /// The guarantees of the store with its current settings.
    pub fn promises(&self) -> &Promises {
        &self.0.promises
    }

    /// Waits until a newer process has joined under the same name. This process must then exit.
    pub async fn replaced(&self) {
        let mut replaced = self.0.replaced.subscribe();
        let _ = replaced.wait_for(|replaced| *replaced).await; // `self` owns the sender
    }
}

impl fmt::Debug for RedisCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisCluster").field(&self.0.options).finish()
    }
}

impl Inner {
    /// The store of a server, if this process has one.
    pub(crate) fn server(&self, subject: &str) -> Option<Arc<StoreInner>> {
        self.servers.lock().get(subject).and_then(Weak::upgrade)
    }

    pub(crate) fn servers(&self) -> Vec<Arc<StoreInner>> {
        self.servers.lock().values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn skew(&self) -> i64 {
        self.options.skew.load(Ordering::SeqCst)
    }

    pub(crate) fn me(&self) -> Incarnation {
        self.identity.borrow().clone()
    }

    /// Notifies all servers that wake-ups may be lost from now on.
    pub(crate) fn disconnected(&self) {
        for store in self.servers() {
            store.events.wake(&ClusterEvent::Disconnected);
        }
    }

    /// Makes all servers read everything once, because wake-ups may have been lost.
    pub(crate) fn reconnected(&self) {
        for store in self.servers() {
            store.watches.reset();
            store.bus_grew.notify_one();
            store.events.wake(&ClusterEvent::Reconnected);
            store.sweep_watches();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
    }
}

/// A token that is unique to one call.
pub(crate) fn random_token() -> String {
    let mut bytes = [0; 12];
    fill_random(&mut bytes);
    hex(&bytes)
}

pub(crate) fn random_u32() -> u32 {
    let mut bytes = [0; 4];
    fill_random(&mut bytes);
    u32::from_be_bytes(bytes)
}

pub(crate) fn fill_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system provides random bytes");
}
