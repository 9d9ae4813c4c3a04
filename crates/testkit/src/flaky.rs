//! A store with switchable faults: slow, unavailable, or losing acknowledgements.
//!
//! ```
//! use rethread_store::MemoryStore;
//! use rethread_testkit::flaky::FlakyStore;
//!
//! let store = FlakyStore::new(MemoryStore::default());
//! let switches = store.switches();
//! switches.fail_appends(true); // every append fails until this is switched off
//! switches.lose_acknowledgements(1); // then the next one is stored but reported as failed
//! ```

mod cluster;

pub use cluster::ClusterSwitches;

use rethread_store::{
    Appended, Batch, Bus, ClusterStore, EventStore, Incarnation, IsLive, Ordinal, Page, PushQueueStore, QueueUpdate,
    ReadLimit, Retention, Seq, SessionKey, SessionRecord, SessionStore, SessionView, Signal, Store, StoreError,
    StoreFuture, StoredQueue, StoredSession, StreamKey, StreamStatus, Subscription, Updated, Watch,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Wraps a store and adds switchable faults.
#[derive(Debug)]
pub struct FlakyStore<S> {
    inner: Arc<S>,
    switches: Arc<Switches>,
}

/// The faults of a [`FlakyStore`]. A switch affects later calls.
///
/// A failed call returns [`StoreError::Unavailable`] and does not reach the inner store.
#[derive(Debug, Default)]
pub struct Switches {
    appends: AtomicBool,
    reads: AtomicBool,
    sessions: AtomicBool,
    bus: AtomicBool,
    queues: AtomicBool,
    queues_delay_micros: AtomicU64,
    append_delay_micros: AtomicU64,
    sessions_delay_micros: AtomicU64,
    status_delay_micros: AtomicU64,
    acknowledgement_delay_micros: AtomicU64,
    acknowledgements_to_lose: AtomicUsize,
    append_count: AtomicUsize,
    queue_update_count: AtomicUsize,
    failure_count: AtomicUsize,
    observer: Observer,
    cluster: ClusterSwitches,
}

type AppendHook = Arc<dyn Fn(&StreamKey, &Batch) + Send + Sync>;

#[derive(Default)]
struct Observer(Mutex<Option<AppendHook>>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl Switches {
    /// The faults of leases and mail.
    pub fn cluster(&self) -> &ClusterSwitches {
        &self.cluster
    }

    /// Calls `observe` before every append, on the thread of the caller.
    pub fn observe_appends(&self, observe: impl Fn(&StreamKey, &Batch) + Send + Sync + 'static) {
        let mut observer = self.observer.0.lock().unwrap_or_else(PoisonError::into_inner);
        *observer = Some(Arc::new(observe));
    }

    /// Makes appends and forgets fail.
    pub fn fail_appends(&self, fail: bool) {
        self.appends.store(fail, Ordering::SeqCst);
    }

    /// Makes reads and status calls fail.
    pub fn fail_reads(&self, fail: bool) {
        self.reads.store(fail, Ordering::SeqCst);
    }

    /// Makes every operation on session records fail.
    pub fn fail_sessions(&self, fail: bool) {
        self.sessions.store(fail, Ordering::SeqCst);
    }

    /// Makes publishing fail.
    pub fn fail_bus(&self, fail: bool) {
        self.bus.store(fail, Ordering::SeqCst);
    }

    /// Makes push queue updates fail.
    pub fn fail_queues(&self, fail: bool) {
        self.queues.store(fail, Ordering::SeqCst);
    }

    /// Makes every operation fail.
    pub fn fail_everything(&self, fail: bool) {
        self.fail_appends(fail);
        self.fail_reads(fail);
        self.fail_sessions(fail);
        self.fail_bus(fail);
        self.fail_queues(fail);
    }

    /// Delays every append before it is executed. Zero switches the delay off.
    pub fn delay_appends(&self, by: Duration) {
        self.append_delay_micros.store(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// Delays the result of every append. Others can read the events before the writer knows. Zero switches it off.
    pub fn delay_acknowledgements(&self, by: Duration) {
        self.acknowledgement_delay_micros
            .store(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// Delays loads and updates of session records. An update takes effect after the delay. Zero switches it off.
    pub fn delay_sessions(&self, by: Duration) {
        self.sessions_delay_micros
            .store(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// Delays push queue updates before they are executed. Zero switches the delay off.
    pub fn delay_queues(&self, by: Duration) {
        self.queues_delay_micros.store(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// Delays status calls. Zero switches the delay off.
    pub fn delay_status(&self, by: Duration) {
        self.status_delay_micros.store(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// Executes the next `appends` appends but reports them as failed.
    pub fn lose_acknowledgements(&self, appends: usize) {
        self.acknowledgements_to_lose.store(appends, Ordering::SeqCst);
    }

    /// Number of append calls.
    pub fn append_count(&self) -> usize {
        self.append_count.load(Ordering::SeqCst)
    }

    /// Number of push queue updates.
    pub fn queue_update_count(&self) -> usize {
        self.queue_update_count.load(Ordering::SeqCst)
    }

    /// Number of operations that failed because of a switch.
    pub fn failure_count(&self) -> usize {
        self.failure_count.load(Ordering::SeqCst)
    }

    fn fail_if<T>(
        &self,
        fails: &AtomicBool,
        call: impl FnOnce() -> StoreFuture<Result<T, StoreError>>,
    ) -> StoreFuture<Result<T, StoreError>> {
        if fails.load(Ordering::SeqCst) {
            StoreFuture::ready(Err(self.failure("failed by the test")))
        } else {
            call()
        }
    }

    fn failure(&self, reason: &'static str) -> StoreError {
        self.failure_count.fetch_add(1, Ordering::SeqCst);
        StoreError::unavailable(reason)
    }

    fn loses_acknowledgement(&self) -> bool {
        let decrement = |left: usize| left.checked_sub(1);
        self.acknowledgements_to_lose
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement)
            .is_ok()
    }

    fn append_delay(&self) -> Duration {
        Duration::from_micros(self.append_delay_micros.load(Ordering::SeqCst))
    }

    fn delay_session_result<T: Send + Unpin + 'static>(&self, result: StoreFuture<T>) -> StoreFuture<T> {
        delay_result(&self.sessions_delay_micros, result)
    }
}

fn delay_result<T: Send + Unpin + 'static>(by: &AtomicU64, result: StoreFuture<T>) -> StoreFuture<T> {
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
    /// Wraps `inner` with all faults off.
    pub fn new(inner: S) -> Self {
        FlakyStore {
            inner: Arc::new(inner),
            switches: Arc::default(),
        }
    }

    /// The switches. They keep working after the store was moved.
    pub fn switches(&self) -> Arc<Switches> {
        Arc::clone(&self.switches)
    }

    /// The inner store, without faults.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

/// Clones share the inner store and the switches.
impl<S> Clone for FlakyStore<S> {
    fn clone(&self) -> Self {
        FlakyStore {
            inner: Arc::clone(&self.inner),
            switches: Arc::clone(&self.switches),
        }
    }
}

impl<S: EventStore> FlakyStore<S> {
    fn append_now(&self, key: &StreamKey, batch: Batch) -> StoreFuture<Result<Appended, StoreError>> {
        self.switches.fail_if(&self.switches.appends, || {
            let appended = self.inner.append(key, batch);
            let delay = Duration::from_micros(self.switches.acknowledgement_delay_micros.load(Ordering::SeqCst));
            let appended = if delay.is_zero() {
                appended
            } else {
                StoreFuture::later(async move {
                    tokio::time::sleep(delay).await;
                    appended.await
                })
            };
            if !self.switches.loses_acknowledgement() {
                return appended;
            }
            let switches = self.switches();
            StoreFuture::later(async move {
                appended.await?; // a refusal is reported unchanged, because nothing was stored
                Err(switches.failure("the acknowledgement was lost"))
            })
        })
    }
}

impl<S: EventStore> EventStore for FlakyStore<S> {
    fn append(&self, key: &StreamKey, batch: Batch) -> StoreFuture<Result<Appended, StoreError>> {
        self.switches.append_count.fetch_add(1, Ordering::SeqCst);
        let observer = self.switches.observer.0.lock().unwrap_or_else(PoisonError::into_inner);
        let observe = observer.clone();
        drop(observer); // an observer may append
        if let Some(observe) = observe {
            observe(key, &batch);
        }
        let delay = self.switches.append_delay();
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
            .fail_if(&self.switches.reads, || self.inner.read_after(key, after, limit))
    }

    fn status(&self, key: &StreamKey) -> StoreFuture<Result<StreamStatus, StoreError>> {
        let status = self.switches.fail_if(&self.switches.reads, || self.inner.status(key));
        delay_result(&self.switches.status_delay_micros, status)
    }

    fn open_streams(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Ordinal>, StoreError>> {
        self.switches
            .fail_if(&self.switches.reads, || self.inner.open_streams(key))
    }

    fn forget_stream(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>> {
        self.switches
            .fail_if(&self.switches.appends, || self.inner.forget_stream(key))
    }

    fn forget_session(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.switches
            .fail_if(&self.switches.appends, || self.inner.forget_session(key))
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
    fn update_now(
        &self,
        key: &SessionKey,
        revision: u64,
        record: SessionRecord,
    ) -> StoreFuture<Result<Updated, StoreError>> {
        self.switches
            .fail_if(&self.switches.sessions, || self.inner.update(key, revision, record))
    }
}

impl<S: SessionStore> SessionStore for FlakyStore<S> {
    fn create(
        &self,
        key: &SessionKey,
        record: SessionRecord,
        owned: bool,
    ) -> StoreFuture<Result<SessionView, StoreError>> {
        self.switches
            .fail_if(&self.switches.sessions, || self.inner.create(key, record, owned))
    }

    fn open(&self, key: &SessionKey) -> StoreFuture<Result<SessionView, StoreError>> {
        self.switches.fail_if(&self.switches.sessions, || {
            self.switches.delay_session_result(self.inner.open(key))
        })
    }

    fn load(&self, key: &SessionKey) -> StoreFuture<Result<StoredSession, StoreError>> {
        self.switches.fail_if(&self.switches.sessions, || {
            self.switches.delay_session_result(self.inner.load(key))
        })
    }

    fn update(
        &self,
        key: &SessionKey,
        revision: u64,
        record: SessionRecord,
    ) -> StoreFuture<Result<Updated, StoreError>> {
        let delay = Duration::from_micros(self.switches.sessions_delay_micros.load(Ordering::SeqCst));
        if delay.is_zero() {
            return self.update_now(key, revision, record);
        }
        let (store, key) = (self.clone(), key.clone());
        StoreFuture::later(async move {
            tokio::time::sleep(delay).await;
            store.update_now(&key, revision, record).await
        })
    }

    fn touch(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.switches.fail_if(&self.switches.sessions, || self.inner.touch(key))
    }

    fn expire(&self, idle: Duration, is_live: IsLive) -> StoreFuture<Result<usize, StoreError>> {
        self.switches
            .fail_if(&self.switches.sessions, || self.inner.expire(idle, is_live))
    }

    fn end(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Incarnation>, StoreError>> {
        self.switches.fail_if(&self.switches.sessions, || self.inner.end(key))
    }
}

impl<S: Store> FlakyStore<S> {
    fn queues(&self) -> &dyn PushQueueStore {
        self.inner.push_queues().expect("the store has one member")
    }
}

impl<S: Store> PushQueueStore for FlakyStore<S> {
    fn update_queue(&self, key: &SessionKey, update: QueueUpdate) -> StoreFuture<Result<(), StoreError>> {
        self.switches.queue_update_count.fetch_add(1, Ordering::SeqCst);
        let (store, key) = (self.clone(), key.clone());
        let update = move || {
            let switches = &store.switches;
            switches.fail_if(&switches.queues, || store.queues().update_queue(&key, update))
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
        self.switches
            .fail_if(&self.switches.sessions, || self.queues().queue(key))
    }
}

impl<S: Store> Store for FlakyStore<S> {
    fn push_queues(&self) -> Option<&dyn PushQueueStore> {
        self.inner.push_queues().is_some().then_some(self)
    }

    fn cluster(&self) -> Option<&dyn ClusterStore> {
        self.inner.cluster().is_some().then_some(self)
    }
}

impl<S: Bus> Bus for FlakyStore<S> {
    fn publish(&self, signal: Signal) -> StoreFuture<Result<(), StoreError>> {
        self.switches.fail_if(&self.switches.bus, || self.inner.publish(signal))
    }

    fn subscribe(&self) -> Subscription {
        self.inner.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_suite::{StoreFixture, batch};
    use rethread_store::MemoryStore;

    async fn flaky_store() -> (FlakyStore<MemoryStore>, StreamKey) {
        let fixture = StoreFixture::new(MemoryStore::default()).await;
        (FlakyStore::new(fixture.store.clone()), fixture.stream(Ordinal(1)))
    }

    #[tokio::test]
    async fn only_switched_operations_fail() {
        let (store, key) = flaky_store().await;
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
        assert_eq!((switches.append_count(), switches.failure_count()), (3, 4));
    }

    #[tokio::test]
    async fn lost_acknowledgement_leaves_the_event_stored() {
        let (store, key) = flaky_store().await;
        store.switches().lose_acknowledgements(1);
        assert!(store.append(&key, batch(0..2)).await.unwrap_err().is_outage());
        assert_eq!(store.inner().status(&key).await.unwrap().last, Some(Seq(1)));
        store.append(&key, batch(0..2)).await.unwrap();
        store.append(&key, batch(2..3)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_append_takes_effect_later() {
        let (store, key) = flaky_store().await;
        store.switches().delay_appends(Duration::from_secs(3));
        let start = tokio::time::Instant::now();
        let later = store.append(&key, batch(0..2)).now().unwrap_err();
        assert!(store.status(&key).await.is_err());
        later.await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(3));
        assert!(store.status(&key).await.is_ok());
    }
}
