//! The stores that are open, by the folder of their server.

use crate::settings::{StoreSettings, SyncMode};
use parking_lot::Mutex;
use rethread::MemoryStore;
use rethread::store::Store;
use rethread_store_embedded::{EmbeddedStore, OpenError, Sync};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often a store that is in use is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Stores by folder. A server that takes another's place takes its store as it is: nobody has to wait until the last
/// connection of the old server has let go of it, and its sessions go on.
#[derive(Default)]
pub(crate) struct Stores(Mutex<HashMap<String, Weak<dyn Store>>>);

impl Stores {
    /// The store of a folder: the one that is open, or else it is opened. If it is in use elsewhere, waits for it with
    /// `patience`.
    pub(crate) async fn open(
        &self,
        settings: &StoreSettings,
        folder: &str,
        patience: Duration,
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
                Arc::new(open_embedded(&data.join(folder), sync, patience).await?)
            }
        };
        let mut stores = self.0.lock();
        stores.retain(|_, store| store.strong_count() > 0);
        stores.insert(folder.to_owned(), Arc::downgrade(&store));
        Ok(store)
    }
}

async fn open_embedded(dir: &Path, sync: Sync, patience: Duration) -> anyhow::Result<EmbeddedStore> {
    let deadline = Instant::now() + patience;
    loop {
        let dir = dir.to_owned();
        let opening = tokio::task::spawn_blocking(move || EmbeddedStore::builder().sync(sync).open(dir));
        match opening.await? {
            Err(OpenError::InUse { .. }) if Instant::now() < deadline => tokio::time::sleep(RETRY_PAUSE).await,
            opened => return Ok(opened?),
        }
    }
}
