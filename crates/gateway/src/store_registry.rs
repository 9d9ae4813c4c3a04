//! The open stores, by the folder of their server.

use crate::settings::{StoreSettings, SyncMode};
use parking_lot::Mutex;
use rethread::MemoryStore;
use rethread::store::Store;
use rethread_store_embedded::{EmbeddedStore, OpenError, Sync};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The pause between two attempts to open a store that another process holds.
const OPEN_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Stores by folder. A server that replaces another one takes over its open store, so that sessions continue. The new
/// server does not wait for the last connection of the old one.
#[derive(Default)]
pub(crate) struct StoreRegistry(Mutex<HashMap<String, Weak<dyn Store>>>);

impl StoreRegistry {
    /// Returns the open store of a folder, or opens it. Waits up to `lock_timeout` if the store is in use elsewhere.
    pub(crate) async fn open(
        &self,
        settings: &StoreSettings,
        folder: &str,
        lock_timeout: Duration,
    ) -> anyhow::Result<Arc<dyn Store>> {
        let open = self.0.lock().get(folder).and_then(Weak::upgrade);
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
        };
        let mut stores = self.0.lock();
        stores.retain(|_, store| store.strong_count() > 0);
        stores.insert(folder.to_owned(), Arc::downgrade(&store));
        Ok(store)
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
