//! What the writer and the callers share.

use crate::books::Totals;
use crate::db::{Db, View};
use crate::keeper::Keeper;
use crate::options::Options;
use crate::queue::{Queue, closed};
use crate::watches::Watches;
use parking_lot::{Mutex, RwLock};
use rethread_store::{Signal, StoreError, StoreFuture};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Semaphore, broadcast};

/// Signals that a slow listener may be behind before it has to assume that everything changed.
const BUS_DEPTH: usize = 1024;
/// How many reads go to the disk at once.
const READS: usize = 16;

pub(crate) struct Shared {
    pub(crate) options: Arc<Options>,
    /// The database's directory.
    pub(crate) database: PathBuf,
    /// `None` while the disk fails. Who reads holds the lock, so that the database is not closed under them.
    pub(crate) db: RwLock<Option<Db>>,
    /// Why there is none.
    pub(crate) outage: Mutex<Option<StoreError>>,
    pub(crate) totals: Mutex<Totals>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) watches: Watches,
    pub(crate) keeper: Keeper,
    pub(crate) bus: broadcast::Sender<Signal>,
    reads: Semaphore,
}

impl Shared {
    pub(crate) fn new(options: Arc<Options>, database: PathBuf) -> Self {
        Shared {
            options,
            database,
            db: RwLock::new(None),
            outage: Mutex::new(None),
            totals: Mutex::default(),
            queue: Arc::default(),
            watches: Watches::default(),
            keeper: Keeper::default(),
            bus: broadcast::Sender::new(BUS_DEPTH),
            reads: Semaphore::new(READS),
        }
    }

    /// Reads on a thread that may wait for the disk.
    pub(crate) fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&View<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<Result<T, StoreError>> {
        let shared = Arc::clone(self);
        StoreFuture::later(async move {
            let Ok(_turn) = shared.reads.acquire().await else {
                return Err(closed());
            };
            let beside = Arc::clone(&shared);
            let done = tokio::task::spawn_blocking(move || match &*beside.db.read() {
                Some(db) => read(&db.view()),
                None => Err(beside.outage.lock().clone().unwrap_or_else(closed)),
            });
            done.await.unwrap_or_else(|panic| Err(StoreError::unavailable(panic)))
        })
    }
}
