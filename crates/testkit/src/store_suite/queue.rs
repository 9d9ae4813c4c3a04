//! Push queues: messages wait in them, and leave them in one step with the append that takes them.

use super::Harness;
use super::scene::*;
use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rethread_store::{
    Batch, EventStore as _, Ordinal, PushQueueStore as _, QueuePosition, QueueUpdate, Queued, Retention, Seq,
    SessionRecord, SessionStore as _, Store, StoreError, StoredQueue, StreamKey,
};
use std::time::Duration;
use tokio::time::timeout;

const HISTORIES: u32 = 64;

/// A message at a position.
pub fn queued(position: u64) -> Queued {
    Queued {
        position: QueuePosition(position),
        message: Bytes::from(format!("message {position}")),
        collapse: position.is_multiple_of(3).then(|| format!("list:{position}").into()),
    }
}

/// An update in epoch 1.
pub fn update(positions: impl IntoIterator<Item = u64>, floor: u64) -> QueueUpdate {
    QueueUpdate {
        epoch: 1,
        messages: positions.into_iter().map(queued).collect(),
        floor: QueuePosition(floor),
    }
}

/// A batch of one event, which is the message at `position`, and which takes everything up to it.
fn taking(seq: u64, position: u64) -> Batch {
    let mut taking = batch(seq..seq + 1);
    taking.events[0].payload = queued(position).message;
    taking.taken = Some(QueuePosition(position));
    taking
}

impl<S: Store> Scene<S> {
    /// Updates the queue of the session, which must be taken.
    pub async fn update_queue(&self, update: QueueUpdate) {
        let updated = self.store.update_queue(&self.session, update).await;
        updated.expect("the queue is updated");
    }

    /// The queue of the session, which must be known.
    pub async fn queue(&self) -> StoredQueue {
        let queue = self.store.queue(&self.session).await;
        queue.expect("the queue of a session can be read")
    }

    async fn positions(&self) -> Vec<u64> {
        self.queue().await.messages().map(|queued| queued.position.0).collect()
    }
}

/// Messages are read back as they were written, in the order of their positions.
pub async fn a_waiting_message_is_read_back<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    assert_eq!(scene.queue().await, StoredQueue::default());
    let mut large = queued(2);
    large.message = Bytes::from(vec![b'x'; 300 << 10]);
    large.collapse = Some("".into());
    let written = [queued(1), large, queued(3), queued(1000)];
    for some in written.chunks(2) {
        let update = QueueUpdate {
            messages: some.to_vec(),
            ..update([], 0)
        };
        scene.update_queue(update).await;
    }
    let queue = scene.queue().await;
    assert_eq!(queue.messages().cloned().collect::<Vec<_>>(), written);
    assert_eq!((queue.floor(), queue.last()), (QueuePosition(0), QueuePosition(1000)));
}

/// A floor removes what is below it, also in the update that brings it, and is never lowered.
pub async fn a_floor_of_a_queue_only_rises<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    scene.update_queue(update(1..6, 2)).await;
    assert_eq!(scene.positions().await, [3, 4, 5]);
    scene.update_queue(update(6..8, 1)).await;
    assert_eq!(scene.positions().await, [3, 4, 5, 6, 7]);
    scene.update_queue(update([], 6)).await;
    assert_eq!(scene.positions().await, [7]);
    scene.update_queue(update([], 20)).await;
    let queue = scene.queue().await;
    assert_eq!((queue.messages().count(), queue.floor()), (0, QueuePosition(20)));
}

/// An update that is repeated, or arrives after its messages were taken, changes nothing.
pub async fn a_late_update_of_a_queue_changes_nothing<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    for _ in 0..3 {
        scene.update_queue(update(1..4, 0)).await;
    }
    scene.update_queue(update(2..5, 0)).await;
    assert_eq!(scene.positions().await, [1, 2, 3, 4]);
    scene.append(&scene.first(), taking(1, 6)).await;
    scene.update_queue(update(1..8, 0)).await;
    assert_eq!(
        scene.positions().await,
        [7],
        "5 and 6 were taken before they were stored"
    );
}

/// An append takes its messages with it; one that is refused takes nothing.
pub async fn an_append_takes_from_the_queue<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let (key, other) = (scene.first(), scene.stream(Ordinal(2)));
    scene.update_queue(update(1..7, 0)).await;
    scene.append(&key, taking(1, 2)).await;
    assert_eq!(scene.positions().await, [3, 4, 5, 6]);
    assert_eq!(scene.page(&key, 0).await.events[0].payload, queued(2).message);
    for _ in 0..2 {
        scene.append(&key, taking(1, 2)).await; // once more: its acknowledgement was lost
    }
    let gap = scene.store.append(&key, taking(5, 6)).await;
    assert!(matches!(gap, Err(StoreError::Conflict { .. })), "{gap:?}");
    let no_facts = Batch {
        info: None,
        ..taking(1, 6)
    };
    let unknown = scene.store.append(&other, no_facts).await;
    assert!(matches!(unknown, Err(StoreError::UnknownStream)), "{unknown:?}");
    assert_eq!(scene.positions().await, [3, 4, 5, 6], "a refused append takes nothing");
    scene.append(&other, taking(1, 3)).await;
    let last = Batch {
        seals: true,
        ..taking(2, 5)
    };
    scene.append(&key, last.clone()).await;
    let sealed = scene.store.append(&key, taking(3, 6)).await;
    assert!(matches!(sealed, Err(StoreError::Sealed)), "{sealed:?}");
    assert_eq!(scene.positions().await, [6]);
    assert_eq!(scene.queue().await.floor(), QueuePosition(5));
}

/// D9: a session's queue changes only in the epoch of its record: an earlier process neither adds nor takes.
pub async fn an_earlier_epoch_does_not_change_a_queue<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    scene.update_queue(update(1..4, 0)).await;
    let next = SessionRecord { epoch: 2, ..record() };
    scene.store.update(&scene.session, 1, next).await.expect("claimed");
    let fenced = |result: &Result<(), StoreError>| matches!(result, Err(StoreError::Conflict { epoch: 2, .. }));
    let added = scene.store.update_queue(&scene.session, update(4..6, 2)).await;
    assert!(fenced(&added), "{added:?}");
    // On a stream that the next process never heard of, too.
    let taken = scene.store.append(&scene.stream(Ordinal(4)), taking(1, 3)).await;
    assert!(fenced(&taken), "{taken:?}");
    scene.assert_unknown(&scene.stream(Ordinal(4))).await;
    assert_eq!(scene.positions().await, [1, 2, 3]);
    let later = QueueUpdate {
        epoch: 2,
        ..update(4..6, 1)
    };
    scene.update_queue(later).await;
    let taken = Batch {
        epoch: 2,
        ..taking(1, 4)
    };
    scene.append(&scene.first(), taken).await;
    assert_eq!(scene.positions().await, [5]);
}

/// A queue goes with its session, or when that forgets its streams.
pub async fn a_queue_ends_with_its_session<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    scene.update_queue(update(1..4, 1)).await;
    scene.store.forget_session(&scene.session).await.expect("forgotten");
    assert_eq!(scene.queue().await, StoredQueue::default());
    scene.update_queue(update(1..4, 0)).await;
    assert_eq!(scene.positions().await, [1, 2, 3], "it goes on");
    scene.store.end(&scene.session).await.expect("ended");
    let gone = scene.store.queue(&scene.session).await;
    assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
    let late = scene.store.update_queue(&scene.session, update(4..5, 0)).await;
    assert!(matches!(late, Err(StoreError::SessionGone)), "{late:?}");
    scene.store.create(&scene.session, record()).await.expect("created");
    assert_eq!(scene.queue().await, StoredQueue::default());

    let idle = Scene::over(scene.store.clone()).await;
    idle.update_queue(update(1..4, 0)).await;
    if harness.advance(&idle.store, Duration::from_secs(100)) {
        idle.store
            .expire(Duration::from_secs(100), std::sync::Arc::new(|_| false))
            .await
            .expect("expired");
        let gone = idle.store.queue(&idle.session).await;
        assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
    }
}

/// One session's queue is nobody else's.
pub async fn queues_of_sessions_stay_apart<H: Harness>(harness: &H) {
    let one = Scene::open(harness).await;
    let other = Scene::over(one.store.clone()).await;
    let stranger = Scene {
        session: rethread_store::SessionKey {
            principal: rethread_store::Principal::new("https://issuer.example", "mallory"),
            ..one.session.clone()
        },
        ..one.clone()
    };
    one.update_queue(update(1..4, 0)).await;
    other.update_queue(update(2..9, 3)).await;
    other.append(&other.first(), taking(1, 5)).await;
    assert_eq!(one.positions().await, [1, 2, 3]);
    assert_eq!(other.positions().await, [6, 7, 8]);
    let read = stranger.store.queue(&stranger.session).await;
    assert!(matches!(read, Err(StoreError::SessionGone)), "{read:?}");
    let written = stranger.store.update_queue(&stranger.session, update(9..10, 9)).await;
    assert!(matches!(written, Err(StoreError::SessionGone)), "{written:?}");
    assert_eq!(one.positions().await, [1, 2, 3]);
}

/// While messages are added and taken, whoever looks finds each in the queue or in the stream.
pub async fn a_taken_message_is_never_in_both_or_neither<H: Harness>(harness: &H) {
    const MESSAGES: u64 = 120;
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..1)).await;
    scene.update_queue(update(1..MESSAGES + 1, 0)).await;
    let (store, session, stream) = (harness.peer(&scene.store).await, scene.session.clone(), key.clone());
    let looking = beside(async move {
        let watching = Scene { store, session };
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
        scene.append(&key, taking(n, n)).await;
        scene.update_queue(update(n..MESSAGES + 1, 0)).await; // late
        tokio::task::yield_now().await;
    }
    timeout(PATIENCE, looking).await.expect("the queue is empty at last");
}

async fn in_stream<S: Store>(scene: &Scene<S>, key: &StreamKey) -> Vec<u64> {
    let page = scene.page(key, 0).await;
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

/// Random updates and takes, stale and repeated ones too, against the model of `rethread-proto`.
pub async fn a_random_history_of_a_queue_is_as_the_model_says<H: Harness>(harness: &H) {
    let store = harness.fresh(Retention::default()).await;
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    let histories = prop::collection::vec(step(), 1..40);
    for _ in 0..HISTORIES {
        let steps = histories.new_tree(&mut runner).expect("a history").current();
        let scene = Scene::over(store.clone()).await;
        let result = follow(&scene, &steps).await;
        assert!(result.is_ok(), "{result:?}\n{steps:#?}");
    }
}

async fn follow<S: Store>(scene: &Scene<S>, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut model, mut epoch, mut last) = (StoredQueue::default(), 1, 0);
    let refused = |result: &Result<(), StoreError>, epoch: u64| matches!(result, Err(StoreError::Conflict { epoch: stored, .. }) if *stored == epoch);
    for step in steps {
        match step.clone() {
            Step::Update {
                positions,
                floor,
                stale,
            } => {
                let update = QueueUpdate {
                    epoch: epoch - u64::from(stale),
                    ..update(positions, floor)
                };
                let result = scene.store.update_queue(&scene.session, update.clone()).await;
                if stale {
                    prop_assert!(refused(&result, epoch), "{result:?}");
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
                let batch = Batch {
                    epoch: epoch - u64::from(stale),
                    info: Some(info()),
                    ..taking(last + 1, position)
                };
                let result = scene.store.append(&scene.first(), batch.clone()).await;
                if stale {
                    prop_assert!(refused(&result, epoch), "{result:?}");
                    continue;
                }
                prop_assert!(result.is_ok(), "{result:?}");
                last += 1;
                model.raise_floor(QueuePosition(position));
                if repeated {
                    let again = scene.store.append(&scene.first(), batch).await;
                    prop_assert!(again.is_ok(), "{again:?}");
                }
            }
            Step::Claim => {
                let next = SessionRecord {
                    epoch: epoch + 1,
                    ..record()
                };
                let claimed = scene.store.update(&scene.session, epoch, next).await;
                prop_assert!(claimed.is_ok(), "{claimed:?}");
                epoch += 1;
            }
            Step::Forget => {
                let forgotten = scene.store.forget_session(&scene.session).await;
                prop_assert!(forgotten.is_ok(), "{forgotten:?}");
                (model, last) = (StoredQueue::default(), 0);
            }
        }
        let queue = scene.queue().await;
        prop_assert_eq!(&queue, &model);
        let events = scene.store.read_after(&scene.first(), Seq(0), ALL).await;
        let stored = events.map_or(0, |page| page.events.len() as u64);
        prop_assert_eq!(stored, last);
    }
    Ok(())
}
