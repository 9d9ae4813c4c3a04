use crate::commit::{Core, State};
use crate::data_dir::DataDir;
use crate::engine::{Engine, SWEEP_STREAMS};
use crate::op::Op;
use crate::options::Options;
use crate::upkeep::Upkeep;
use crate::watches::Watches;
use crate::{OpenError, checkpoint, read, recovery};
use rethread_store::{
    Appended, Batch, BroadcastId, Bus, EventStore, Incarnation, IsLive, Ordinal, Page, PushQueueStore, QueueUpdate,
    ReadLimit, Retention, Seq, SessionKey, SessionRecord, SessionStore, SessionView, Signal, Store, StoreError,
    StoreFuture, StoredQueue, StoredSession, StreamKey, StreamStatus, Subscription, Updated, Watch,
};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// The store on the local disk. Clones are cheap and share all state. Dropping the last clone completes and syncs every
/// operation and unlocks the directory. That may take as long as a sync of the disk.
#[derive(Clone)]
pub struct EmbeddedStore(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
}

/// The amount of data in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Sessions that have not ended.
    pub sessions: u64,
    /// Known streams, including tombstones.
    pub streams: u64,
    /// Bytes of payload and bookkeeping that count against [`Limits::total_bytes`](crate::Limits::total_bytes).
    pub held_bytes: u64,
    /// Bytes of the files.
    pub disk_bytes: u64,
    /// Reads of this process that failed because of damaged events.
    pub damaged: u64,
}

impl EmbeddedStore {
    /// Opens the store with default options in its own directory, which is created if it is missing.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Options::default().open(dir)
    }

    /// Whether the store in a directory can be opened now: no other process has it open, and its format is supported. A
    /// missing directory can be opened. Creates and changes nothing, and does not check the log for damage.
    pub fn inspect(dir: impl AsRef<Path>) -> Result<(), OpenError> {
        DataDir::inspect(dir.as_ref())
    }

    /// Options for opening a store.
    pub fn builder() -> Options {
        Options::default()
    }

    pub(crate) fn start(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let (path, options) = (dir, Arc::new(options));
        let dir = Arc::new(DataDir::lock(path, true)?);
        let recovered = recovery::recover(&dir)?;
        let checkpoint = recovered.checkpoint;
        let (engine, log) = Engine::open(Arc::clone(&options), dir, recovered);
        let core = Arc::new(Core::new(options, path.to_owned(), engine, log));
        let thread = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(format!("rethread-{name}")).spawn(run);
            thread.map_err(|source| OpenError::Io {
                dir: path.to_owned(),
                what: "a thread cannot be started",
                source,
            })
        };
        let mut inner = Inner {
            core: Arc::clone(&core),
            threads: Vec::new(),
        };
        let committer = Arc::clone(&core);
        inner.threads.push(thread("commit", Box::new(move || committer.run()))?);
        let upkeep = Upkeep::new(core, checkpoint);
        inner.threads.push(thread("upkeep", Box::new(move || upkeep.run()))?);
        Ok(EmbeddedStore(Arc::new(inner)))
    }

    /// The amount of data.
    pub fn usage(&self) -> Usage {
        let core = self.core();
        let read = core.read(|engine, log| {
            let index = &engine.index;
            let usage = Usage {
                sessions: index.sessions.len() as u64,
                streams: index.totals.streams,
                held_bytes: index.totals.held,
                disk_bytes: index.segments.disk_bytes(),
                damaged: 0,
            };
            (usage, Arc::clone(log))
        });
        let mut usage = match read {
            Ok((mut usage, log)) => {
                // Without the lock of the index.
                usage.disk_bytes += log.spare_bytes() + checkpoint::disk_bytes(log.dir.log());
                usage
            }
            Err(_) => Usage::default(),
        };
        usage.damaged = core.damaged.load(Ordering::Relaxed);
        usage
    }

    fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    fn write(&self, op: Op) -> StoreFuture<Result<(), StoreError>> {
        self.write_then(op, || ())
    }

    /// Commits an operation and returns `done` on success.
    fn write_then<T: Send + 'static>(
        &self,
        op: Op,
        done: impl FnOnce() -> T + Send + 'static,
    ) -> StoreFuture<Result<T, StoreError>> {
        match self.core().submit(op).now() {
            Ok(outcome) => StoreFuture::ready(outcome.map(|_| done())),
            Err(outcome) => StoreFuture::later(async move { outcome.await.map(|_| done()) }),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The commit thread ends first, then upkeep makes the final sync and checkpoint.
        self.core.close();
        let mut threads = self.threads.drain(..);
        if let Some(commit) = threads.next() {
            let _ = commit.join();
        }
        self.core.upkeep.close();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl EventStore for EmbeddedStore {
    fn append(&self, key: &StreamKey, batch: Batch) -> StoreFuture<Result<Appended, StoreError>> {
        self.write_then(Op::Append(key.clone(), batch), Appended::default)
    }

    fn read_after(&self, key: &StreamKey, after: Seq, limit: ReadLimit) -> StoreFuture<Result<Page, StoreError>> {
        read::page(self.core(), key, after, limit)
    }

    fn status(&self, key: &StreamKey) -> StoreFuture<Result<StreamStatus, StoreError>> {
        read::status(self.core(), key)
    }

    fn open_streams(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Ordinal>, StoreError>> {
        read::open_streams(self.core(), key)
    }

    fn forget_stream(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::ForgetStream(key.clone()))
    }

    fn forget_session(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::ForgetSession(key.clone()))
    }

    fn watch(&self, key: &StreamKey) -> Watch {
        match &mut *self.core().state.lock() {
            State::Up { engine, .. } => match engine.index.watches(key) {
                Some(watches) => watches.watch(),
                None => Watches::default().watch(), // ends at once
            },
            State::Down { watches, .. } => watches.entry(key.clone()).or_default().watch(), // recovery wakes or ends it
        }
    }

    fn retention(&self) -> Retention {
        self.core().options.limits.stream
    }

    fn retained_bytes(&self) -> Option<usize> {
        self.core().read(|engine, _| engine.index.totals.held as usize).ok()
    }

    fn sweep(&self) -> StoreFuture<Result<(), StoreError>> {
        let core = Arc::clone(self.core());
        StoreFuture::later(async move {
            while core.submit(Op::Sweep).await? >= SWEEP_STREAMS {}
            Ok(())
        })
    }
}

impl SessionStore for EmbeddedStore {
    fn create(
        &self,
        key: &SessionKey,
        record: SessionRecord,
        _owned: bool,
    ) -> StoreFuture<Result<SessionView, StoreError>> {
        let view = SessionView::first(record.clone());
        self.write_then(Op::Create(key.clone(), record), || view)
    }

    fn open(&self, key: &SessionKey) -> StoreFuture<Result<SessionView, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        StoreFuture::later(async move {
            loop {
                let mut stored = store.load(&key).await?;
                let epoch = stored.record.epoch;
                stored.record.epoch += 1;
                match store.write(Op::Update(key.clone(), epoch, stored.record.clone())).await {
                    Ok(()) => return Ok(SessionView::restored(stored)),
                    Err(StoreError::Conflict { .. }) => {} // another request opened a view concurrently
                    Err(error) => return Err(error),
                }
            }
        })
    }

    fn load(&self, key: &SessionKey) -> StoreFuture<Result<StoredSession, StoreError>> {
        read::load(self.core(), key)
    }

    fn update(
        &self,
        key: &SessionKey,
        revision: u64,
        record: SessionRecord,
    ) -> StoreFuture<Result<Updated, StoreError>> {
        let op = Op::Update(key.clone(), revision, record.with_epoch(revision));
        self.write_then(op, move || Updated::new(revision, Vec::new()))
    }

    fn touch(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::Touch(key.clone()))
    }

    fn expire(&self, idle: Duration, is_live: IsLive) -> StoreFuture<Result<usize, StoreError>> {
        let core = Arc::clone(self.core());
        StoreFuture::later(async move {
            let mut expired = 0;
            for key in core.read(|engine, _| engine.idle_sessions(idle))? {
                let op = match is_live(&key) {
                    true => Op::Touch(key),
                    false => Op::Expire(key, idle), // checks again, because the session may have been touched
                };
                match core.submit(op).await {
                    Err(StoreError::SessionGone) => {} // ended concurrently
                    outcome => expired += outcome?,
                }
            }
            Ok(expired)
        })
    }

    fn end(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Incarnation>, StoreError>> {
        self.write_then(Op::End(key.clone()), Vec::new)
    }
}

impl Store for EmbeddedStore {
    fn push_queues(&self) -> Option<&dyn PushQueueStore> {
        Some(self)
    }
}

impl PushQueueStore for EmbeddedStore {
    fn update_queue(&self, key: &SessionKey, update: QueueUpdate) -> StoreFuture<Result<(), StoreError>> {
        self.write(Op::UpdateQueue(key.clone(), update))
    }

    fn queue(&self, key: &SessionKey) -> StoreFuture<Result<StoredQueue, StoreError>> {
        read::queue(self.core(), key)
    }
}

impl Bus for EmbeddedStore {
    fn publish(&self, signal: Signal) -> StoreFuture<Result<(), StoreError>> {
        let _ = self.core().bus.send((BroadcastId::default(), signal)); // fails only without subscribers
        StoreFuture::ready(Ok(()))
    }

    fn subscribe(&self) -> Subscription {
        Subscription::new(self.core().bus.subscribe())
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore")
            .field("dir", &self.core().dir)
            .field("usage", &self.usage())
            .finish()
    }
}
