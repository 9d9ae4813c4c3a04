//! The push queues of a store with one member. An append removes its message from the queue in the same step.

use super::Harness;
use super::fixture::*;
use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rethread_store::{
    Batch, EventStore as _, Ordinal, PushQueueStore, QueuePosition, QueueUpdate, Queued, Retention, Seq,
    SessionStore as _, Store, StoreError, StoredQueue, StreamKey,
};
use std::time::Duration;
use tokio::time::timeout;

const HISTORIES: u32 = 64;

/// A queued message at a position.
pub fn queued(position: u64) -> Queued {
    let queued = Queued::new(QueuePosition(position), Bytes::from(format!("message {position}")));
    if position.is_multiple_of(3) {
        queued.with_collapse(format!("list:{position}"))
    } else {
        queued
    }
}

/// A queue update in epoch 1.
pub fn update(positions: impl IntoIterator<Item = u64>, floor: u64) -> QueueUpdate {
    QueueUpdate::new(1, positions.into_iter().map(queued).collect(), QueuePosition(floor))
}

/// A batch with the message at `position`, which takes every position up to it.
fn taking(seq: u64, position: u64) -> Batch {
    let mut taking = batch(seq..seq + 1);
    taking.events[0].payload = queued(position).message;
    taking.taken = Some(QueuePosition(position));
    taking
}

impl<S: Store> StoreFixture<S> {
    /// Updates the queue of the session and asserts success.
    pub async fn update_queue(&self, update: QueueUpdate) {
        let updated = self.queues().update_queue(&self.session, update).await;
        updated.expect("the queue is updated");
    }

    /// Reads the queue of the session and asserts success.
    pub async fn queue(&self) -> StoredQueue {
        let queue = self.queues().queue(&self.session).await;
        queue.expect("the queue of a session can be read")
    }

    /// The push queues of a store with one member.
    fn queues(&self) -> &dyn PushQueueStore {
        self.store.push_queues().expect("the store has one member")
    }

    async fn positions(&self) -> Vec<u64> {
        self.queue().await.messages().map(|queued| queued.position.0).collect()
    }
}

/// Opens a session. `None` if the store has no queues of this kind: its nodes share the queues of its cluster part.
async fn open_with_queues<H: Harness>(harness: &H) -> Option<StoreFixture<H::Store>> {
    let fixture = StoreFixture::open(harness).await;
    fixture.store.push_queues().is_some().then_some(fixture)
}

/// Payloads are unchanged and ordered by position.
pub async fn queued_message_reads_back<H: Harness>(harness: &H) {
    let Some(fixture) = open_with_queues(harness).await else {
        return;
    };
    assert_eq!(fixture.queue().await, StoredQueue::default());
    let mut large = queued(2);
    large.message = Bytes::from(vec![b'x'; 300 << 10]);
    large.collapse = Some("".into());
    let written = [queued(1), large, queued(3), queued(1000)];
    for some in written.chunks(2) {
        let update = QueueUpdate::new(1, some.to_vec(), QueuePosition(0));
        fixture.update_queue(update).await;
    }
    let queue = fixture.queue().await;
    assert_eq!(queue.messages().cloned().collect::<Vec<_>>(), written);
    assert_eq!((queue.floor(), queue.last()), (QueuePosition(0), QueuePosition(1000)));
}

/// A floor removes lower positions, also those in its own update, and never falls.
pub async fn queue_floor_only_rises<H: Harness>(harness: &H) {
    let Some(fixture) = open_with_queues(harness).await else {
        return;
    };
    fixture.update_queue(update(1..6, 2)).await;
    assert_eq!(fixture.positions().await, [3, 4, 5]);
    fixture.update_queue(update(6..8, 1)).await;
    assert_eq!(fixture.positions().await, [3, 4, 5, 6, 7]);
    fixture.update_queue(update([], 6)).await;
    assert_eq!(fixture.positions().await, [7]);
    fixture.update_queue(update([], 20)).await;
    let queue = fixture.queue().await;
    assert_eq!((queue.messages().count(), queue.floor()), (0, QueuePosition(20)));
}

/// The update is repeated, or arrives after its messages were taken.
pub async fn late_queue_update_changes_nothing<H: Harness>(harness: &H) {
    let Some(fixture) = open_with_queues(harness).await else {
        return;
    };
    for _ in 0..3 {
        fixture.update_queue(update(1..4, 0)).await;
    }
    fixture.update_queue(update(2..5, 0)).await;
    assert_eq!(fixture.positions().await, [1, 2, 3, 4]);
    fixture.append(&fixture.first_call_stream(), taking(1, 6)).await;
    fixture.update_queue(update(1..8, 0)).await;
    assert_eq!(
        fixture.positions().await,
        [7],
        "5 and 6 were taken before they were stored"
    );
}

/// A refused append takes nothing.
pub async fn append_takes_from_the_queue<H: Harness>(harness: &H) {
    let Some(fixture) = open_with_queues(harness).await else {
        return;
    };
    let (key, other) = (fixture.first_call_stream(), fixture.stream(Ordinal(2)));
    fixture.update_queue(update(1..7, 0)).await;
    fixture.append(&key, taking(1, 2)).await;
    assert_eq!(fixture.positions().await, [3, 4, 5, 6]);
    assert_eq!(fixture.page(&key, 0).await.events[0].payload, queued(2).message);
    for _ in 0..2 {
        fixture.append(&key, taking(1, 2)).await; // repeated: its acknowledgement was lost
    }
    let gap = fixture.store.append(&key, taking(5, 6)).await;
    assert!(matches!(gap, Err(StoreError::Conflict { .. })), "{gap:?}");
    let mut without_info = taking(1, 6);
    without_info.info = None;
    let unknown = fixture.store.append(&other, without_info).await;
    assert!(matches!(unknown, Err(StoreError::UnknownStream)), "{unknown:?}");
    assert_eq!(
        fixture.positions().await,
        [3, 4, 5, 6],
        "a refused append takes nothing"
    );
    fixture.append(&other, taking(1, 3)).await;
    let last = taking(2, 5).sealing();
    fixture.append(&key, last.clone()).await;
    let sealed = fixture.store.append(&key, taking(3, 6)).await;
    assert!(matches!(sealed, Err(StoreError::Sealed)), "{sealed:?}");
    assert_eq!(fixture.positions().await, [6]);
    assert_eq!(fixture.queue().await.floor(), QueuePosition(5));
}

/// D9: only the epoch of the session record may change the queue. An earlier process neither adds nor takes.
pub async fn earlier_epoch_cannot_change_a_queue<H: Harness>(harness: &H) {
    let Some(fixture) = open_with_queues(harness).await else {
        return;
    };
    fixture.update_queue(update(1..4, 0)).await;
    let view = fixture.store.open(&fixture.session).await.expect("opened");
    assert_eq!((view.record.epoch, view.revision), (2, 2));
    let fenced = |refusal: Option<&StoreError>| matches!(refusal, Some(StoreError::Conflict { epoch: 2, .. }));
    let added = fixture.queues().update_queue(&fixture.session, update(4..6, 2)).await;
    assert!(fenced(added.as_ref().err()), "{added:?}");
    // Also with a stream that the next process never opened.
    let taken = fixture.store.append(&fixture.stream(Ordinal(4)), taking(1, 3)).await;
    assert!(fenced(taken.as_ref().err()), "{taken:?}");
    fixture.assert_unknown(&fixture.stream(Ordinal(4))).await;
    assert_eq!(fixture.positions().await, [1, 2, 3]);
    let later = update(4..6, 1).with_epoch(2);
    fixture.update_queue(later).await;
    let taken = taking(1, 4).with_epoch(2);
    fixture.append(&fixture.first_call_stream(), taken).await;
    assert_eq!(fixture.positions().await, [5]);
}

/// It also ends when the session forgets its streams.
pub async fn queue_ends_with_its_session<H: Harness>(harness: &H) {
    let Some(fixture) = open_with_queues(harness).await else {
        return;
    };
    fixture.update_queue(update(1..4, 1)).await;
    fixture.store.forget_session(&fixture.session).await.expect("forgotten");
    assert_eq!(fixture.queue().await, StoredQueue::default());
    fixture.update_queue(update(1..4, 0)).await;
    assert_eq!(fixture.positions().await, [1, 2, 3], "the queue is usable again");
    fixture.store.end(&fixture.session).await.expect("ended");
    let gone = fixture.queues().queue(&fixture.session).await;
    assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
    let late = fixture.queues().update_queue(&fixture.session, update(4..5, 0)).await;
    assert!(matches!(late, Err(StoreError::SessionGone)), "{late:?}");
    fixture
        .store
        .create(&fixture.session, record(), false)
        .await
        .expect("created");
    assert_eq!(fixture.queue().await, StoredQueue::default());

    let idle = StoreFixture::new(fixture.store.clone()).await;
    idle.update_queue(update(1..4, 0)).await;
    if harness.advance(&idle.store, Duration::from_secs(100)) {
        idle.store
            .expire(Duration::from_secs(100), std::sync::Arc::new(|_| false))
            .await
            .expect("expired");
        let gone = idle.queues().queue(&idle.session).await;
        assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
    }
}

/// Updates and takes in one session do not affect another.
pub async fn queues_of_sessions_stay_separate<H: Harness>(harness: &H) {
    let Some(one) = open_with_queues(harness).await else {
        return;
    };
    let other = StoreFixture::new(one.store.clone()).await;
    let stranger = StoreFixture {
        session: rethread_store::SessionKey {
            principal: rethread_store::Principal::new("https://issuer.example", "mallory"),
            ..one.session.clone()
        },
        ..one.clone()
    };
    one.update_queue(update(1..4, 0)).await;
    other.update_queue(update(2..9, 3)).await;
    other.append(&other.first_call_stream(), taking(1, 5)).await;
    assert_eq!(one.positions().await, [1, 2, 3]);
    assert_eq!(other.positions().await, [6, 7, 8]);
    let read = stranger.queues().queue(&stranger.session).await;
    assert!(matches!(read, Err(StoreError::SessionGone)), "{read:?}");
    let written = stranger
        .queues()
        .update_queue(&stranger.session, update(9..10, 9))
        .await;
    assert!(matches!(written, Err(StoreError::SessionGone)), "{written:?}");
    assert_eq!(one.positions().await, [1, 2, 3]);
}

/// While messages are added and taken, a reader finds each in the queue or in the stream.
pub async fn taken_message_is_in_queue_or_stream_never_both<H: Harness>(harness: &H) {
    const MESSAGES: u64 = 120;
    let Some(fixture) = open_with_queues(harness).await else {
        return;
    };
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..1)).await;
    fixture.update_queue(update(1..MESSAGES + 1, 0)).await;
    let (store, session, stream) = (harness.peer(&fixture.store).await, fixture.session.clone(), key.clone());
    let looking = spawn_thread(async move {
        let watching = StoreFixture { store, session };
        loop {
            let before = in_stream(&watching, &stream).await;
            let queue = watching.positions().await;
            let after = in_stream(&watching, &stream).await;
            for n in 1..=MESSAGES {
                let (queued, early, late) = (queue.contains(&n), before.contains(&n), after.contains(&n));
                assert!(queued || late, "{n} is in neither");
                assert!(!(queued && early), "{n} is in both");
            }
            if queue.is_empty() {
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    for n in 1..=MESSAGES {
        fixture.append(&key, taking(n, n)).await;
        fixture.update_queue(update(n..MESSAGES + 1, 0)).await; // a late repetition
        tokio::task::yield_now().await;
    }
    timeout(STEP_TIMEOUT, looking).await.expect("the queue drains");
}

async fn in_stream<S: Store>(fixture: &StoreFixture<S>, key: &StreamKey) -> Vec<u64> {
    let page = fixture.page(key, 0).await;
    page.events.iter().map(|event| event.seq.0).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Update {
        positions: Vec<u64>,
        floor: u64,
        stale: bool,
    },
    Take {
        position: u64,
        stale: bool,
        repeated: bool,
    },
    Claim,
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    let (position, stale) = (1u64..30, || prop::bool::weighted(0.1));
    let floor = prop_oneof![3 => Just(0), 1 => 0u64..30];
    let update = (prop::collection::btree_set(1u64..30, 0..5), floor, stale());
    let update = update.prop_map(|(positions, floor, stale)| Step::Update {
        positions: positions.into_iter().collect(),
        floor,
        stale,
    });
    let take = (position, stale(), any::<bool>());
    let take = take.prop_map(|(position, stale, repeated)| Step::Take {
        position,
        stale,
        repeated,
    });
    prop_oneof![6 => update, 4 => take, 1 => Just(Step::Claim), 1 => Just(Step::Forget)]
}

/// Random updates and takes, also stale and repeated ones, against the model of `rethread-proto`.
pub async fn random_queue_history_matches_the_model<H: Harness>(harness: &H) {
    let store = harness.fresh(Retention::default()).await;
    if store.push_queues().is_none() {
        return;
    }
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    let histories = prop::collection::vec(step(), 1..40);
    for _ in 0..HISTORIES {
        let steps = histories.new_tree(&mut runner).expect("a history").current();
        let fixture = StoreFixture::new(store.clone()).await;
        let result = follow(&fixture, &steps).await;
        assert!(result.is_ok(), "{result:?}\n{steps:#?}");
    }
}

async fn follow<S: Store>(fixture: &StoreFixture<S>, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut model, mut epoch, mut last) = (StoredQueue::default(), 1, 0);
    let refused = |refusal: Option<&StoreError>, epoch: u64| matches!(refusal, Some(StoreError::Conflict { epoch: stored, .. }) if *stored == epoch);
    for step in steps {
        match step.clone() {
            Step::Update {
                positions,
                floor,
                stale,
            } => {
                let update = update(positions, floor).with_epoch(epoch - u64::from(stale));
                let result = fixture.queues().update_queue(&fixture.session, update.clone()).await;
                if stale {
                    prop_assert!(refused(result.as_ref().err(), epoch), "{result:?}");
                } else {
                    prop_assert!(result.is_ok(), "{result:?}");
                    model.update(update.messages, update.floor);
                }
            }
            Step::Take {
                position,
                stale,
                repeated,
            } => {
                let batch = taking(last + 1, position)
                    .with_epoch(epoch - u64::from(stale))
                    .with_info(info());
                let result = fixture.store.append(&fixture.first_call_stream(), batch.clone()).await;
                if stale {
                    prop_assert!(refused(result.as_ref().err(), epoch), "{result:?}");
                    continue;
                }
                prop_assert!(result.is_ok(), "{result:?}");
                last += 1;
                model.raise_floor(QueuePosition(position));
                if repeated {
                    let again = fixture.store.append(&fixture.first_call_stream(), batch).await;
                    prop_assert!(again.is_ok(), "{again:?}");
                }
            }
            Step::Claim => {
                let view = fixture.store.open(&fixture.session).await;
                let opened = view.map(|view| view.record.epoch);
                prop_assert!(opened.as_ref().is_ok_and(|opened| *opened == epoch + 1), "{opened:?}");
                epoch += 1;
            }
            Step::Forget => {
                let forgotten = fixture.store.forget_session(&fixture.session).await;
                prop_assert!(forgotten.is_ok(), "{forgotten:?}");
                (model, last) = (StoredQueue::default(), 0);
            }
        }
        let queue = fixture.queue().await;
        prop_assert_eq!(&queue, &model);
        let events = fixture
            .store
            .read_after(&fixture.first_call_stream(), Seq(0), UNLIMITED_READ)
            .await;
        let stored = events.map_or(0, |page| page.events.len() as u64);
        prop_assert_eq!(stored, last);
    }
    Ok(())
}
