//! The open stores, by the folder of their server. A shared store has one connection for all servers.

use crate::exit::Failure;
use crate::settings::{RedisSettings, StoreSettings, SyncMode};
use crate::shared_store;
use anyhow::Context as _;
use parking_lot::Mutex;
use rethread::MemoryStore;
use rethread::store::Store;
use rethread_store_embedded::{EmbeddedStore, OpenError, Sync};
use rethread_store_redis::{RedisCluster, RedisStore};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The pause between two attempts to open a store that another process holds.
const OPEN_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Stores by folder. A server that replaces another one takes over its open store, so that sessions continue. The new
/// server does not wait for the last connection of the old one.
#[derive(Default)]
pub(crate) struct StoreRegistry {
    open: Mutex<HashMap<String, Weak<dyn Store>>>,
    shared: Option<(RedisSettings, RedisCluster)>,
}

impl StoreRegistry {
    /// Connects to a shared store. Other stores are opened one by one.
    pub(crate) async fn new(settings: &StoreSettings) -> Result<Self, Failure> {
        let shared = match settings.redis() {
            Some(redis) => Some((redis.clone(), shared_store::connect(redis).await?)),
            None => None,
        };
        Ok(StoreRegistry {
            open: Mutex::default(),
            shared,
        })
    }

    /// Waits until a newer gateway has the name of this node. Never ends without a shared store.
    pub(crate) async fn replaced(&self) -> Failure {
        match &self.shared {
            Some((settings, cluster)) => {
                cluster.replaced().await;
                shared_store::replaced_failure(settings)
            }
            None => std::future::pending().await,
        }
    }

    /// Returns the open store of a folder, or opens it. Waits up to `lock_timeout` if the store is in use elsewhere.
    pub(crate) async fn open(
        &self,
        settings: &StoreSettings,
        folder: &str,
        lock_timeout: Duration,
    ) -> anyhow::Result<Arc<dyn Store>> {
        let open = self.open.lock().get(folder).and_then(Weak::upgrade);
        if let Some(store) = open {
            return Ok(store);
        }
        let store: Arc<dyn Store> = match settings {
            StoreSettings::Memory => Arc::new(MemoryStore::default()),
            StoreSettings::Embedded { data, sync } => {
                let sync = match sync {
                    SyncMode::Always => Sync::Always,
                    SyncMode::Interval => Sync::default(),
                    SyncMode::Os => Sync::Os,
                };
                Arc::new(open_embedded(&data.join(folder), sync, lock_timeout).await?)
            }
            StoreSettings::Redis(settings) => Arc::new(self.open_shared(settings, folder).await?),
        };
        let mut stores = self.open.lock();
        stores.retain(|_, store| store.strong_count() > 0);
        stores.insert(folder.to_owned(), Arc::downgrade(&store));
        Ok(store)
    }

    async fn open_shared(&self, settings: &RedisSettings, name: &str) -> anyhow::Result<RedisStore> {
        let (_, cluster) = self
            .shared
            .as_ref()
            .context("the gateway is not connected to its store")?;
        let opened = cluster.store(name).await;
        Ok(opened.map_err(|error| shared_store::connect_failure(settings, &error))?)
    }
}

async fn open_embedded(dir: &Path, sync: Sync, lock_timeout: Duration) -> anyhow::Result<EmbeddedStore> {
    let deadline = Instant::now() + lock_timeout;
    loop {
        let dir = dir.to_owned();
        let opening = tokio::task::spawn_blocking(move || EmbeddedStore::builder().sync(sync).open(dir));
        match opening.await? {
            Err(OpenError::InUse { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(OPEN_RETRY_INTERVAL).await;
            }
            opened => return Ok(opened?),
        }
    }
}
