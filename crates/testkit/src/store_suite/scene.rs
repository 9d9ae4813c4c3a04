//! What the cases are made of: a store with one open session, and short words for batches.

use super::Harness;
use bytes::Bytes;
use rethread_proto::{RequestId, StreamKind, Version};
use rethread_store::{
    Batch, Event, Ordinal, Page, Principal, ReadLimit, Retain, Retention, Seq, SessionId, SessionKey, SessionRecord,
    Store, StoreError, StreamInfo, StreamKey, StreamStatus,
};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Everything in one read.
pub(super) const ALL: ReadLimit = ReadLimit {
    events: usize::MAX >> 1,
    bytes: usize::MAX >> 1,
};
/// Longer than anything takes that happens at all.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A store with one open session.
#[derive(Clone, Debug)]
pub struct Scene<S> {
    /// The store.
    pub store: S,
    /// The session.
    pub session: SessionKey,
}

impl<S: Store> Scene<S> {
    /// Opens a session in an empty store that keeps as much as it does by default.
    pub(super) async fn open(harness: &impl Harness<Store = S>) -> Self {
        Scene::keeping(harness, Retention::default()).await
    }

    /// Opens a session in an empty store.
    pub(super) async fn keeping(harness: &impl Harness<Store = S>, retention: Retention) -> Self {
        Scene::over(harness.fresh(retention).await).await
    }

    /// Opens a session in `store`.
    pub async fn over(store: S) -> Self {
        let session = fresh_session(principal());
        store
            .create(&session, record())
            .await
            .expect("a session can be created");
        Scene { store, session }
    }

    /// A stream of the session.
    pub fn stream(&self, ordinal: Ordinal) -> StreamKey {
        StreamKey {
            session: self.session.clone(),
            ordinal,
        }
    }

    /// The first call stream of the session.
    pub fn first(&self) -> StreamKey {
        self.stream(Ordinal(1))
    }

    /// Appends what must be taken.
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

    /// Everything after a cursor that must be known.
    pub async fn page(&self, key: &StreamKey, after: u64) -> Page {
        let page = self.store.read_after(key, Seq(after), ALL).await;
        page.unwrap_or_else(|error| panic!("{key:?} cannot be read: {error:?}"))
    }

    /// The status of a stream that must be known.
    pub async fn status(&self, key: &StreamKey) -> StreamStatus {
        let status = self.store.status(key).await;
        status.unwrap_or_else(|error| panic!("{key:?} is not known: {error:?}"))
    }

    /// Asserts that nothing at all is known of a stream.
    pub async fn assert_unknown(&self, key: &StreamKey) {
        let read = self.store.read_after(key, Seq(0), ALL).await;
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

/// Runs an actor of a case on a thread of its own, at once, so that it is truly beside the others. The runtime stays
/// the one of the case, for what a backend has bound to it.
pub(super) fn beside<T: Send + 'static>(actor: impl Future<Output = T> + Send + 'static) -> impl Future<Output = T> {
    let (runtime, (done, result)) = (Handle::current(), oneshot::channel());
    std::thread::spawn(move || {
        let _ = done.send(runtime.block_on(actor)); // nobody waits any more if the case has failed
    });
    async {
        result
            .await
            .expect("every actor of the case ends well; see the panic above")
    }
}

/// What all actors return.
pub(super) async fn everyone<T>(actors: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut results = Vec::new();
    for actor in actors {
        results.push(actor.await);
    }
    results
}

/// A session that no other case knows, in this process or in another that uses the same engine.
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

/// Whom the session of a [`Scene`] belongs to.
pub fn principal() -> Principal {
    Principal::new("https://issuer.example", "alice")
}

/// A record of a new session.
pub fn record() -> SessionRecord {
    SessionRecord {
        version: Version::V2025_11_25,
        initialize_params: Bytes::from_static(br#"{"capabilities":{}}"#),
        initialized: false,
        log_level: None,
        subscriptions: Default::default(),
        epoch: 1,
    }
}

/// The info that [`batch`] brings.
pub fn info() -> StreamInfo {
    StreamInfo {
        kind: StreamKind::Call,
        calls: vec![RequestId::from(7), RequestId::from("7\u{1f9f5}\"")],
        node: "node-a".into(),
    }
}

/// An ordinary event; its payload tells its number.
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

/// Events numbered as the range says, written in epoch 1. Brings the info if it could be the first of its stream.
pub fn batch(range: Range<u64>) -> Batch {
    Batch {
        epoch: 1,
        info: (range.start <= 1).then(info),
        events: range.map(event).collect(),
        released: Vec::new(),
        seals: false,
        taken: None,
    }
}

/// A [`batch`] that ends the stream, its last event the answer.
pub fn last_batch(range: Range<u64>) -> Batch {
    let mut batch = batch(range);
    batch.seals = true;
    if let Some(last) = batch.events.last_mut() {
        last.retain = Retain::Answer;
    }
    batch
}

/// A batch of one open question.
pub fn question(seq: u64) -> Batch {
    let mut batch = batch(seq..seq + 1);
    batch.events[0].retain = Retain::Question;
    batch
}

/// A batch of one answer that does not end the stream.
pub fn answer(seq: u64) -> Batch {
    let mut batch = batch(seq..seq + 1);
    batch.events[0].retain = Retain::Answer;
    batch
}

/// The numbers on a page.
pub fn sequence(page: &Page) -> Vec<u64> {
    page.events.iter().map(|event| event.seq.0).collect()
}
