//! A store that fails on demand: what does the server do when its storage is slow, gone, or does not say that it has
//! done what it was asked?
//!
//! ```
//! use rethread_store::MemoryStore;
//! use rethread_testkit::flaky::FlakyStore;
//!
//! let store = FlakyStore::new(MemoryStore::default());
//! let switches = store.switches();
//! switches.fail_appends(true); // from here on every append is refused, until it is switched off again
//! switches.lose_acknowledgements(1); // and then the next one is stored, but reported as failed
//! ```

use rethread_store::{
    Batch, Bus, EventStore, IsLive, Ordinal, Page, PushQueueStore, QueueUpdate, ReadLimit, Retention, Seq, SessionKey,
    SessionRecord, SessionStore, Signal, StoreError, StoreFuture, StoredQueue, StoredSession, StreamKey, StreamStatus,
    Subscription, Watch,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Any store, with switches.
#[derive(Debug)]
pub struct FlakyStore<S> {
    inner: Arc<S>,
    switches: Arc<Switches>,
}

/// What goes wrong. Every switch acts on the calls that follow it; a failure is [`StoreError::Unavailable`], and the
/// store behind was not asked.
#[derive(Debug, Default)]
pub struct Switches {
    appends: AtomicBool,
    reads: AtomicBool,
    sessions: AtomicBool,
    bus: AtomicBool,
    queues: AtomicBool,
    queues_delay_micros: AtomicU64,
    delay_micros: AtomicU64,
    sessions_delay_micros: AtomicU64,
    summaries_delay_micros: AtomicU64,
    late_micros: AtomicU64,
    unacknowledged: AtomicUsize,
    asked: AtomicUsize,
    queues_asked: AtomicUsize,
    failed: AtomicUsize,
    observer: Observer,
}

type Observe = Arc<dyn Fn(&StreamKey, &Batch) + Send + Sync>;

#[derive(Default)]
struct Observer(Mutex<Option<Observe>>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl Switches {
    /// Calls `observe` with every append, on the thread that asks for it, before the store does.
    pub fn observe_appends(&self, observe: impl Fn(&StreamKey, &Batch) + Send + Sync + 'static) {
        let mut observer = self.observer.0.lock().unwrap_or_else(PoisonError::into_inner);
        *observer = Some(Arc::new(observe));
    }

    /// Appends fail, and so does forgetting.
    pub fn fail_appends(&self, fail: bool) {
        self.appends.store(fail, Ordering::SeqCst);
    }

    /// Reads and summaries fail.
    pub fn fail_reads(&self, fail: bool) {
        self.reads.store(fail, Ordering::SeqCst);
    }

    /// Every operation on session records fails.
    pub fn fail_sessions(&self, fail: bool) {
        self.sessions.store(fail, Ordering::SeqCst);
    }

    /// Publishing fails.
    pub fn fail_bus(&self, fail: bool) {
        self.bus.store(fail, Ordering::SeqCst);
    }

    /// Updates of push queues fail.
    pub fn fail_queues(&self, fail: bool) {
        self.queues.store(fail, Ordering::SeqCst);
    }

    /// Everything fails: the store cannot be reached.
    pub fn fail_everything(&self, fail: bool) {
        self.fail_appends(fail);
        self.fail_reads(fail);
        self.fail_sessions(fail);
        self.fail_bus(fail);
        self.fail_queues(fail);
    }

    /// Every append takes this long before it is made or fails, and its result comes later rather than at once. Zero
    /// switches it off.
    pub fn delay_appends(&self, by: Duration) {
        self.delay_micros.store(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// Every append is made at once, and acknowledged only after this long: others can read it before its writer knows.
    /// Zero switches it off.
    pub fn delay_acknowledgements(&self, by: Duration) {
        self.late_micros.store(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// Reading and replacing a session record takes this long; a record is replaced at the end of it. Zero switches it off.
    pub fn delay_sessions(&self, by: Duration) {
        self.sessions_delay_micros
            .store(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// An update of a push queue takes this long before it is made or fails. Zero switches it off.
    pub fn delay_queues(&self, by: Duration) {
        self.queues_delay_micros.store(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// Looking a stream up takes this long. Zero switches it off.
    pub fn delay_summaries(&self, by: Duration) {
        self.summaries_delay_micros
            .store(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// The next `appends` appends are made and then reported as failed: the acknowledgement is lost on its way.
    pub fn lose_acknowledgements(&self, appends: usize) {
        self.unacknowledged.store(appends, Ordering::SeqCst);
    }

    /// How many appends were asked for.
    pub fn appends_asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// How many updates of push queues were asked for.
    pub fn queue_updates_asked(&self) -> usize {
        self.queues_asked.load(Ordering::SeqCst)
    }

    /// How many operations were made to fail.
    pub fn failures(&self) -> usize {
        self.failed.load(Ordering::SeqCst)
    }

    fn unless<T>(
        &self,
        off: &AtomicBool,
        ask: impl FnOnce() -> StoreFuture<Result<T, StoreError>>,
    ) -> StoreFuture<Result<T, StoreError>> {
        if off.load(Ordering::SeqCst) {
            StoreFuture::ready(Err(self.failure("switched off by the test")))
        } else {
            ask()
        }
    }

    fn failure(&self, why: &'static str) -> StoreError {
        self.failed.fetch_add(1, Ordering::SeqCst);
        StoreError::unavailable(why)
    }

    fn loses_this_one(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        self.unacknowledged
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
            .is_ok()
    }

    fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_micros.load(Ordering::SeqCst))
    }

    fn sessions_delayed<T: Send + Unpin + 'static>(&self, result: StoreFuture<T>) -> StoreFuture<T> {
        delayed(&self.sessions_delay_micros, result)
    }
}

fn delayed<T: Send + Unpin + 'static>(by: &AtomicU64, result: StoreFuture<T>) -> StoreFuture<T> {
    let delay = Duration::from_micros(by.load(Ordering::SeqCst));
    if delay.is_zero() {
        return result;
    }
    StoreFuture::later(async move {
        tokio::time::sleep(delay).await;
        result.await
    })
}

impl<S> FlakyStore<S> {
    /// A store that works, until a switch says otherwise.
    pub fn new(inner: S) -> Self {
        FlakyStore {
            inner: Arc::new(inner),
            switches: Arc::default(),
        }
    }

    /// The switches; they go on working after the store was given away.
    pub fn switches(&self) -> Arc<Switches> {
        Arc::clone(&self.switches)
    }

    /// The store behind, which works whatever the switches say.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

/// Clones share the store behind and the switches.
impl<S> Clone for FlakyStore<S> {
    fn clone(&self) -> Self {
        FlakyStore {
            inner: Arc::clone(&self.inner),
            switches: Arc::clone(&self.switches),
        }
    }
}

impl<S: EventStore> FlakyStore<S> {
    fn append_now(&self, key: &StreamKey, batch: Batch) -> StoreFuture<Result<(), StoreError>> {
        self.switches.unless(&self.switches.appends, || {
            let appended = self.inner.append(key, batch);
            let late = Duration::from_micros(self.switches.late_micros.load(Ordering::SeqCst));
            let appended = if late.is_zero() {
                appended
            } else {
                StoreFuture::later(async move {
                    tokio::time::sleep(late).await;
                    appended.await
                })
            };
            if !self.switches.loses_this_one() {
                return appended;
            }
            let switches = self.switches();
            StoreFuture::later(async move {
                appended.await?; // a refusal did nothing, so that it makes no difference whether it is lost
                Err(switches.failure("the acknowledgement was lost"))
            })
        })
    }
}

impl<S: EventStore> EventStore for FlakyStore<S> {
    fn append(&self, key: &StreamKey, batch: Batch) -> StoreFuture<Result<(), StoreError>> {
        self.switches.asked.fetch_add(1, Ordering::SeqCst);
        let observer = self.switches.observer.0.lock().unwrap_or_else(PoisonError::into_inner);
        let observe = observer.clone();
        drop(observer); // an observer may append
        if let Some(observe) = observe {
            observe(key, &batch);
        }
        let delay = self.switches.delay();
        if delay.is_zero() {
            return self.append_now(key, batch);
        }
        let (store, key) = (self.clone(), key.clone());
        StoreFuture::later(async move {
            tokio::time::sleep(delay).await;
            store.append_now(&key, batch).await
        })
    }

    fn read_after(&self, key: &StreamKey, after: Seq, limit: ReadLimit) -> StoreFuture<Result<Page, StoreError>> {
        self.switches
            .unless(&self.switches.reads, || self.inner.read_after(key, after, limit))
    }

    fn status(&self, key: &StreamKey) -> StoreFuture<Result<StreamStatus, StoreError>> {
        let found = self.switches.unless(&self.switches.reads, || self.inner.status(key));
        delayed(&self.switches.summaries_delay_micros, found)
    }

    fn open_streams(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Ordinal>, StoreError>> {
        self.switches
            .unless(&self.switches.reads, || self.inner.open_streams(key))
    }

    fn forget_stream(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>> {
        self.switches
            .unless(&self.switches.appends, || self.inner.forget_stream(key))
    }

    fn forget_session(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.switches
            .unless(&self.switches.appends, || self.inner.forget_session(key))
    }

    fn watch(&self, key: &StreamKey) -> Watch {
        self.inner.watch(key)
    }

    fn retention(&self) -> Retention {
        self.inner.retention()
    }

    fn sweep(&self) -> StoreFuture<Result<(), StoreError>> {
        self.inner.sweep()
    }
}

impl<S: SessionStore> FlakyStore<S> {
    fn update_now(&self, key: &SessionKey, epoch: u64, record: SessionRecord) -> StoreFuture<Result<(), StoreError>> {
        self.switches
            .unless(&self.switches.sessions, || self.inner.update(key, epoch, record))
    }
}

impl<S: SessionStore> SessionStore for FlakyStore<S> {
    fn create(&self, key: &SessionKey, record: SessionRecord) -> StoreFuture<Result<(), StoreError>> {
        self.switches
            .unless(&self.switches.sessions, || self.inner.create(key, record))
    }

    fn load(&self, key: &SessionKey) -> StoreFuture<Result<StoredSession, StoreError>> {
        self.switches.unless(&self.switches.sessions, || {
            self.switches.sessions_delayed(self.inner.load(key))
        })
    }

    fn update(&self, key: &SessionKey, epoch: u64, record: SessionRecord) -> StoreFuture<Result<(), StoreError>> {
        let delay = Duration::from_micros(self.switches.sessions_delay_micros.load(Ordering::SeqCst));
        if delay.is_zero() {
            return self.update_now(key, epoch, record);
        }
        let (store, key) = (self.clone(), key.clone());
        StoreFuture::later(async move {
            tokio::time::sleep(delay).await;
            store.update_now(&key, epoch, record).await
        })
    }

    fn touch(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.switches.unless(&self.switches.sessions, || self.inner.touch(key))
    }

    fn expire(&self, idle: Duration, is_live: IsLive) -> StoreFuture<Result<usize, StoreError>> {
        self.switches
            .unless(&self.switches.sessions, || self.inner.expire(idle, is_live))
    }

    fn end(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.switches.unless(&self.switches.sessions, || self.inner.end(key))
    }
}

impl<S: PushQueueStore> PushQueueStore for FlakyStore<S> {
    fn update_queue(&self, key: &SessionKey, update: QueueUpdate) -> StoreFuture<Result<(), StoreError>> {
        self.switches.queues_asked.fetch_add(1, Ordering::SeqCst);
        let (store, key) = (self.clone(), key.clone());
        let update = move || {
            let switches = &store.switches;
            switches.unless(&switches.queues, || store.inner.update_queue(&key, update))
        };
        let delay = Duration::from_micros(self.switches.queues_delay_micros.load(Ordering::SeqCst));
        if delay.is_zero() {
            return update();
        }
        StoreFuture::later(async move {
            tokio::time::sleep(delay).await;
            update().await
        })
    }

    fn queue(&self, key: &SessionKey) -> StoreFuture<Result<StoredQueue, StoreError>> {
        self.switches.unless(&self.switches.sessions, || self.inner.queue(key))
    }
}

impl<S: Bus> Bus for FlakyStore<S> {
    fn publish(&self, signal: Signal) -> StoreFuture<Result<(), StoreError>> {
        self.switches.unless(&self.switches.bus, || self.inner.publish(signal))
    }

    fn subscribe(&self) -> Subscription {
        self.inner.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_suite::{Scene, batch};
    use rethread_store::MemoryStore;

    async fn flaky() -> (FlakyStore<MemoryStore>, StreamKey) {
        let scene = Scene::over(MemoryStore::default()).await;
        (FlakyStore::new(scene.store.clone()), scene.stream(Ordinal(1)))
    }

    #[tokio::test]
    async fn what_is_switched_off_fails_and_what_is_not_goes_on() {
        let (store, key) = flaky().await;
        let switches = store.switches();
        store.append(&key, batch(0..2)).await.unwrap();
        switches.fail_appends(true);
        assert!(store.append(&key, batch(2..3)).await.unwrap_err().is_outage());
        assert_eq!(store.status(&key).await.unwrap().last, Some(Seq(1)));
        switches.fail_everything(true);
        assert!(store.status(&key).await.unwrap_err().is_outage());
        assert!(store.load(&key.session).await.unwrap_err().is_outage());
        assert!(store.publish(Signal::ResourceUpdated("a".into())).await.is_err());
        switches.fail_everything(false);
        store.append(&key, batch(2..3)).await.unwrap();
        assert_eq!((switches.appends_asked(), switches.failures()), (3, 4));
    }

    #[tokio::test]
    async fn a_lost_acknowledgement_leaves_the_event_stored() {
        let (store, key) = flaky().await;
        store.switches().lose_acknowledgements(1);
        assert!(store.append(&key, batch(0..2)).await.unwrap_err().is_outage());
        assert_eq!(store.inner().status(&key).await.unwrap().last, Some(Seq(1)));
        store.append(&key, batch(0..2)).await.unwrap();
        store.append(&key, batch(2..3)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_append_comes_later() {
        let (store, key) = flaky().await;
        store.switches().delay_appends(Duration::from_secs(3));
        let start = tokio::time::Instant::now();
        let later = store.append(&key, batch(0..2)).now().unwrap_err();
        assert!(store.status(&key).await.is_err());
        later.await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(3));
        assert!(store.status(&key).await.is_ok());
    }
}
