use crate::db::Db;
use crate::options::{Options, Sync};
use crate::place::Place;
use crate::queue::{Op, Outcome};
use crate::shared::Shared;
use crate::writer::Writer;
use crate::{OpenError, open, private, read};
use rethread_store::{
    Batch, Bus, EventStore, IsLive, Ordinal, Page, PushQueueStore, QueueUpdate, ReadLimit, Retention, Seq, SessionKey,
    SessionRecord, SessionStore, Signal, StoreError, StoreFuture, StoredQueue, StoredSession, StreamKey, StreamStatus,
    Subscription, Watch,
};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The store on the local disk. Cheap to clone: clones share everything. When the last one is dropped, everything that
/// was asked of it is done, synced, and the directory is free; that may take as long as a sync of the disk.
#[derive(Clone)]
pub struct EmbeddedStore(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// How much there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Sessions that have not ended.
    pub sessions: u64,
    /// Streams known, tombstones included, and those of ended sessions that are not deleted yet.
    pub streams: u64,
    /// Bytes of payload and bookkeeping held for replay, and of the records of sessions.
    pub held_bytes: u64,
    /// Bytes on the disk. The journal takes up to 64 MiB more than it seems to need.
    pub disk_bytes: u64,
    /// How often this process found a stream that lacked events. Such a stream is refused, not served with a hole.
    pub damaged: u64,
}

impl EmbeddedStore {
    /// Opens the store in a directory of its own, which is made if there is none, with every default.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Options::default().open(dir)
    }

    /// Whether the store in a directory can be opened now: no other process has it open, and its format is known.
    /// Makes and changes nothing; a directory that is not there can be opened. Damage below the marker is not looked for.
    pub fn inspect(dir: impl AsRef<Path>) -> Result<(), OpenError> {
        Place::inspect(dir.as_ref())
    }

    /// How to open a store.
    pub fn builder() -> Options {
        Options::default()
    }

    pub(crate) fn start(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let place = Place::take(dir, true)?;
        let options = Arc::new(options);
        let books = open::open(&place, Arc::clone(&options))?;
        let shared = Arc::new(Shared::new(options, place.database()));
        let thread = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(format!("rethread-{name}")).spawn(run);
            thread.map_err(|source| OpenError::Io {
                dir: dir.to_owned(),
                what: "a thread cannot be started",
                source,
            })
        };
        let writer = Writer::new(Arc::clone(&shared), place, books);
        let mut inner = Inner {
            shared: Arc::clone(&shared),
            threads: vec![thread("writer", Box::new(move || writer.run()))?],
        };
        if let Sync::Interval(interval) = shared.options.sync {
            let keep = move || shared.keeper.run(&shared, interval);
            inner.threads.push(thread("keeper", Box::new(keep))?);
        }
        Ok(EmbeddedStore(Arc::new(inner)))
    }

    /// How much there is.
    pub fn usage(&self) -> Usage {
        let totals = *self.shared().totals.lock();
        Usage {
            sessions: totals.sessions,
            streams: totals.streams,
            held_bytes: totals.held,
            disk_bytes: self.shared().db.read().as_ref().map_or(0, Db::disk_bytes),
            damaged: read::damaged(),
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    fn write(&self, op: Op) -> StoreFuture<Result<(), StoreError>> {
        let outcome = self.shared().queue.send(op);
        StoreFuture::later(async move { outcome.await.map(|_| ()) })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.shared.keeper.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        private::tighten(&self.shared.database);
    }
}

impl EventStore for EmbeddedStore {
    fn append(&self, key: &StreamKey, batch: Batch) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::Append(key.clone(), batch))
    }

    fn read_after(&self, key: &StreamKey, after: Seq, limit: ReadLimit) -> StoreFuture<Result<Page, StoreError>> {
        let key = key.clone();
        self.shared().read(move |view| read::page(view, &key, after, limit))
    }

    fn status(&self, key: &StreamKey) -> StoreFuture<Result<StreamStatus, StoreError>> {
        let key = key.clone();
        self.shared().read(move |view| read::status(view, &key))
    }

    fn open_streams(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Ordinal>, StoreError>> {
        let key = key.clone();
        self.shared().read(move |view| read::open_streams(view, &key))
    }

    fn forget_stream(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::ForgetStream(key.clone()))
    }

    fn forget_session(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::ForgetSession(key.clone()))
    }

    fn watch(&self, key: &StreamKey) -> Watch {
        let (watch, new) = self.shared().watches.watch(key);
        if new {
            self.shared().queue.nudge();
        }
        watch
    }

    fn retention(&self) -> Retention {
        self.shared().options.limits.stream
    }

    fn sweep(&self) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::Sweep)
    }
}

impl SessionStore for EmbeddedStore {
    fn create(&self, key: &SessionKey, record: SessionRecord) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::Create(key.clone(), record))
    }

    fn load(&self, key: &SessionKey) -> StoreFuture<Result<StoredSession, StoreError>> {
        let key = key.clone();
        let shared = Arc::clone(self.shared());
        self.shared()
            .read(move |view| read::load(view, &key, (shared.options.clock)()))
    }

    fn update(&self, key: &SessionKey, epoch: u64, record: SessionRecord) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::Update(key.clone(), epoch, record))
    }

    fn touch(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::Touch(key.clone()))
    }

    fn expire(&self, idle: Duration, is_live: IsLive) -> StoreFuture<Result<usize, StoreError>> {
        let shared = Arc::clone(self.shared());
        let now = (shared.options.clock)();
        let found = shared.read(move |view| read::idle(view, now, idle));
        StoreFuture::later(async move {
            let mut expired = 0;
            // The writer looks again at each: it may have been touched since.
            for some in found.await?.chunks(256) {
                let asked: Vec<StoreFuture<Outcome>> = some
                    .iter()
                    .map(|key| {
                        let key = key.clone();
                        shared.queue.send(match is_live(&key) {
                            true => Op::Touch(key),
                            false => Op::Expire(key, idle),
                        })
                    })
                    .collect();
                for outcome in asked {
                    match outcome.await {
                        Err(StoreError::SessionGone) => {} // it has ended meanwhile
                        outcome => expired += outcome?,
                    }
                }
            }
            Ok(expired)
        })
    }

    fn end(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::End(key.clone()))
    }
}

impl PushQueueStore for EmbeddedStore {
    fn update_queue(&self, key: &SessionKey, update: QueueUpdate) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::UpdateQueue(key.clone(), update))
    }

    fn queue(&self, key: &SessionKey) -> StoreFuture<Result<StoredQueue, StoreError>> {
        let key = key.clone();
        self.shared().read(move |view| read::queue(view, &key))
    }
}

impl Bus for EmbeddedStore {
    fn publish(&self, signal: Signal) -> StoreFuture<Result<(), StoreError>> {
        // No listener is no error: nobody wants to know.
        let _ = self.shared().bus.send(signal);
        StoreFuture::ready(Ok(()))
    }

    fn subscribe(&self) -> Subscription {
        Subscription::new(self.shared().bus.subscribe())
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore")
            .field("dir", &self.shared().database.parent())
            .field("usage", &self.usage())
            .finish()
    }
}
