//! Building blocks of the cases: a store with one open session, and constructors of batches.

use super::Harness;
use bytes::Bytes;
use rethread_proto::{RequestId, StreamKind, Version};
use rethread_store::{
    Batch, Event, Ordinal, Page, Principal, ReadLimit, Retain, Retention, Seq, SessionId, SessionKey, SessionRecord,
    Store, StoreError, StreamInfo, StreamKey, StreamStatus,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Reads everything at once.
pub(super) const UNLIMITED_READ: ReadLimit = ReadLimit::new(usize::MAX >> 1, usize::MAX >> 1);
/// A step that takes longer has failed.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// A store with one open session.
#[derive(Clone, Debug)]
pub struct StoreFixture<S> {
    /// The store under test.
    pub store: S,
    /// The open session.
    pub session: SessionKey,
}

impl<S: Store> StoreFixture<S> {
    /// Opens a session in an empty store with default retention.
    pub(super) async fn open(harness: &impl Harness<Store = S>) -> Self {
        StoreFixture::with_retention(harness, Retention::default()).await
    }

    /// Opens a session in an empty store.
    pub(super) async fn with_retention(harness: &impl Harness<Store = S>, retention: Retention) -> Self {
        StoreFixture::new(harness.fresh(retention).await).await
    }

    /// Opens a session in `store`.
    pub async fn new(store: S) -> Self {
        let session = fresh_session(principal());
        store
            .create(&session, record(), false)
            .await
            .expect("a session can be created");
        StoreFixture { store, session }
    }

    /// The key of a stream of the session.
    pub fn stream(&self, ordinal: Ordinal) -> StreamKey {
        StreamKey {
            session: self.session.clone(),
            ordinal,
        }
    }

    /// The key of the first call stream.
    pub fn first_call_stream(&self) -> StreamKey {
        self.stream(Ordinal(1))
    }

    /// Appends a batch and asserts success.
    #[track_caller]
    pub fn append(&self, key: &StreamKey, batch: Batch) -> impl Future<Output = ()> {
        let (caller, text) = (std::panic::Location::caller(), format!("{batch:?}"));
        let appended = self.store.append(key, batch);
        async move {
            if let Err(refusal) = appended.await {
                panic!("{caller}: refused ({refusal:?}): {text:.200}");
            }
        }
    }

    /// Reads everything after a cursor and asserts success.
    pub async fn page(&self, key: &StreamKey, after: u64) -> Page {
        let page = self.store.read_after(key, Seq(after), UNLIMITED_READ).await;
        page.unwrap_or_else(|error| panic!("{key:?} cannot be read: {error:?}"))
    }

    /// Reads the status of a stream and asserts success.
    pub async fn status(&self, key: &StreamKey) -> StreamStatus {
        let status = self.store.status(key).await;
        status.unwrap_or_else(|error| panic!("{key:?} is not known: {error:?}"))
    }

    /// Asserts that a stream is unknown.
    pub async fn assert_unknown(&self, key: &StreamKey) {
        let read = self.store.read_after(key, Seq(0), UNLIMITED_READ).await;
        assert!(
            matches!(read, Err(StoreError::UnknownStream)),
            "{key:?} is known: {read:?}"
        );
        let status = self.store.status(key).await;
        assert!(
            matches!(status, Err(StoreError::UnknownStream)),
            "{key:?} is known: {status:?}"
        );
    }
}

/// Runs an actor on its own thread at once, so that actors are truly concurrent. It uses the runtime of the case, because
/// a backend may be bound to it.
pub(super) fn spawn_thread<T: Send + 'static>(
    actor: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> {
    let (runtime, (done, result)) = (Handle::current(), oneshot::channel());
    std::thread::spawn(move || {
        let _ = done.send(runtime.block_on(actor)); // an error means that the case has failed
    });
    async { result.await.expect("no actor panics; see the panic above") }
}

/// Waits for all actors and returns their results.
pub(super) async fn join_all<T>(actors: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut results = Vec::new();
    for actor in actors {
        results.push(actor.await);
    }
    results
}

/// A session key that is unique, also among processes that use the same engine.
pub(super) fn fresh_session(principal: Principal) -> SessionKey {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut bits = [0; 18];
    bits[..8].copy_from_slice(&(time.as_nanos() as u64).to_be_bytes());
    bits[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    bits[12..].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes()[2..]);
    SessionKey {
        principal,
        session: SessionId::from_random(bits),
    }
}

/// The principal of a [`StoreFixture`] session.
pub fn principal() -> Principal {
    Principal::new("https://issuer.example", "alice")
}

/// The record of a new session.
pub fn record() -> SessionRecord {
    SessionRecord::new(Version::V2025_11_25, Bytes::from_static(br#"{"capabilities":{}}"#))
}

/// The stream info in a [`batch`].
pub fn info() -> Arc<StreamInfo> {
    let calls = vec![RequestId::from(7), RequestId::from("7\u{1f9f5}\"")];
    StreamInfo::new(StreamKind::Call, calls, "node-a").into()
}

/// An ordinary event. Its payload contains its number.
pub fn event(seq: u64) -> Event {
    Event::new(
        Seq(seq),
        if seq == 0 {
            Bytes::new()
        } else {
            Bytes::from(format!("event {seq}"))
        },
    )
}

/// Events with these numbers in epoch 1. Includes the stream info if it may be the first batch.
pub fn batch(range: Range<u64>) -> Batch {
    let may_be_first = range.start <= 1;
    let batch = Batch::new(1, range.map(event).collect());
    if may_be_first { batch.with_info(info()) } else { batch }
}

/// A [`batch`] that seals the stream. Its last event is the answer.
pub fn last_batch(range: Range<u64>) -> Batch {
    let mut batch = batch(range);
    batch.seals = true;
    if let Some(last) = batch.events.last_mut() {
        last.retain = Retain::Answer;
    }
    batch
}

/// A batch with one open question.
pub fn question(seq: u64) -> Batch {
    let mut batch = batch(seq..seq + 1);
    batch.events[0].retain = Retain::Question;
    batch
}

/// A batch with one answer that does not seal the stream.
pub fn answer(seq: u64) -> Batch {
    let mut batch = batch(seq..seq + 1);
    batch.events[0].retain = Retain::Answer;
    batch
}

/// The event numbers of a page.
pub fn sequence(page: &Page) -> Vec<u64> {
    page.events.iter().map(|event| event.seq.0).collect()
}
