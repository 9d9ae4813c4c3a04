//! Random histories against a model of a few lines. The oracle: every cursor sees its own stream, in order, each event
//! once, and is told of every gap.

use super::Harness;
use super::scene::*;
use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rethread_store::{Batch, Event, Ordinal, ReadLimit, Retain, Retention, Seq, Store, StoreError, StreamKey};
use std::time::Duration;

/// Small, so that most histories evict.
const KEEP: Retention = Retention {
    events: 6,
    bytes: 8 << 20,
    age: Duration::from_secs(600),
};
const STREAMS: usize = 3;
const HISTORIES: u32 = 64;

/// One step of a history. Numbers are taken as far as they make sense when the step comes.
#[derive(Clone, Debug)]
enum Step {
    Append { count: u64, retain: Retain, takeover: bool },
    AppendAgain,
    AppendWrong { ahead: i64, count: u64 },
    AppendStale,
    Release,
    Seal { count: u64 },
    Forget,
    Read { after: u64, page: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let retain = prop_oneof![8 => Just(Retain::None), 1 => Just(Retain::Question), 1 => Just(Retain::Answer)];
    let append = (1u64..5, retain, prop::bool::weighted(0.1));
    let append = append.prop_map(|(count, retain, takeover)| Step::Append {
        count,
        retain,
        takeover,
    });
    prop_oneof![
        8 => append,
        2 => Just(Step::AppendAgain),
        2 => (-4i64..5, 1u64..4).prop_map(|(ahead, count)| Step::AppendWrong { ahead, count }),
        1 => Just(Step::AppendStale),
        1 => Just(Step::Release),
        1 => (0u64..3).prop_map(|count| Step::Seal { count }),
        1 => Just(Step::Forget),
        6 => (0u64..40, 1usize..9).prop_map(|(after, page)| Step::Read { after, page }),
    ]
}

/// What a stream should hold: everything that was ever taken, as if nothing were evicted.
#[derive(Debug)]
struct Model {
    key: StreamKey,
    events: Vec<Event>,
    epoch: u64,
    sealed: bool,
    latest: Option<Batch>,
}

impl Model {
    fn new(key: StreamKey) -> Self {
        Model {
            key,
            events: Vec::new(),
            epoch: 1,
            sealed: false,
            latest: None,
        }
    }

    fn last(&self) -> Option<Seq> {
        self.events.last().map(|event| event.seq)
    }

    fn next(&self) -> u64 {
        self.last().map_or(0, |last| last.0 + 1)
    }

    /// Events from `first` on that no other stream or number has.
    fn batch(&self, first: u64, count: u64) -> Batch {
        let payload = |n: u64| Bytes::from(format!("stream {}, event {n}", self.key.ordinal));
        Batch {
            epoch: self.epoch,
            info: self.events.is_empty().then(info),
            events: (first..first + count).map(|n| Event::new(Seq(n), payload(n))).collect(),
            released: Vec::new(),
            seals: false,
            taken: None,
        }
    }

    fn takes(&mut self, batch: Batch) {
        self.epoch = batch.epoch;
        self.sealed = batch.seals;
        self.events.extend(batch.events.iter().cloned());
        for event in &mut self.events {
            if event.retain == Retain::Question && (batch.seals || batch.released.contains(&event.seq)) {
                event.retain = Retain::None;
            }
        }
        self.latest = Some(batch);
    }
}

/// Random histories of appends, repeated, wrong and stale appends, evictions, seals and forgetting, with reads from
/// random cursors in between.
pub async fn a_random_history_reads_as_the_model_says<H: Harness>(harness: &H) {
    let store = harness.fresh(KEEP).await;
    let histories = prop::collection::vec((0..STREAMS, step()), 1..80);
    // One store for all histories, a session for each: an engine is not set up anew for every one of them.
    let mut runner = TestRunner::new(Config::default());
    for _ in 0..HISTORIES {
        let mut tree = histories.new_tree(&mut runner).expect("a history can always be made");
        if let Err(failure) = play(store.clone(), tree.current()).await {
            let (history, failure) = shrunk(&store, &mut tree, failure).await;
            panic!("{failure}\nthe shortest such history: {history:#?}");
        }
    }
}

/// Looks for a shorter history that fails too. By hand, since the runner of proptest cannot wait for a store.
async fn shrunk<S: Store + Clone>(
    store: &S,
    tree: &mut impl ValueTree<Value = Vec<(usize, Step)>>,
    failure: TestCaseError,
) -> (Vec<(usize, Step)>, TestCaseError) {
    let mut shortest = (tree.current(), failure);
    let mut more = tree.simplify();
    for _ in 0..1000 {
        if !more {
            break;
        }
        more = match play(store.clone(), tree.current()).await {
            Ok(()) => tree.complicate(),
            Err(failure) => {
                shortest = (tree.current(), failure);
                tree.simplify()
            }
        };
    }
    shortest
}

async fn play<S: Store>(store: S, history: Vec<(usize, Step)>) -> Result<(), TestCaseError> {
    let scene = Scene::over(store).await;
    let mut ordinals = (1..).map(Ordinal);
    let mut born = || Model::new(scene.stream(ordinals.next().expect("there are numbers enough")));
    let mut models: [Model; STREAMS] = std::array::from_fn(|_| born());
    let mut forgotten = Vec::new();
    for (at, step) in history {
        let model = &mut models[at];
        match step {
            Step::Forget => {
                let old = std::mem::replace(model, born()); // an ordinal is never used again
                prop_assert!(scene.store.forget_stream(&old.key).await.is_ok());
                forgotten.push(old.key);
            }
            Step::Read { after, page } => read(&scene, model, after, page).await?,
            write => append(&scene, model, write).await?,
        }
    }
    for model in &models {
        read(&scene, model, 0, 100).await?;
    }
    for key in &forgotten {
        let status = scene.store.status(key).await;
        prop_assert!(
            matches!(status, Err(StoreError::UnknownStream)),
            "{key:?} is back: {status:?}"
        );
    }
    // The model's sessions pile up in the one store otherwise.
    prop_assert!(scene.store.end(&scene.session).await.is_ok());
    prop_assert!(scene.store.forget_session(&scene.session).await.is_ok());
    Ok(())
}

async fn append<S: Store>(scene: &Scene<S>, model: &mut Model, step: Step) -> Result<(), TestCaseError> {
    let (next, last) = (model.next(), model.last());
    let mut batch = match step {
        Step::Append {
            count,
            retain,
            takeover,
        } => {
            let mut batch = model.batch(next, count);
            batch.events[0].retain = retain;
            batch.epoch += u64::from(takeover);
            batch
        }
        Step::AppendAgain => {
            if let Some(batch) = model.latest.clone() {
                let again = scene.store.append(&model.key, batch).await;
                prop_assert!(again.is_ok(), "a repeated append: {again:?}");
            }
            return Ok(());
        }
        Step::AppendWrong { ahead, count } => model.batch(next.saturating_add_signed(ahead), count),
        Step::AppendStale if last.is_none() => return Ok(()), // nobody was there before
        Step::AppendStale => Batch {
            epoch: model.epoch - 1,
            ..model.batch(next, 1)
        },
        Step::Release => {
            let questions = model.events.iter().filter(|event| event.retain == Retain::Question);
            let released = questions.map(|event| event.seq).take(1).collect();
            Batch {
                released,
                ..model.batch(next, 1)
            }
        }
        Step::Seal { count } => {
            let mut batch = Batch {
                seals: true,
                ..model.batch(next, count)
            };
            if let Some(last) = batch.events.last_mut() {
                last.retain = Retain::Answer;
            }
            batch
        }
        Step::Forget | Step::Read { .. } => return Ok(()),
    };
    let first = batch.events.first().map_or(next, |event| event.seq.0);
    if batch.events.last().map(|event| event.seq) == last && last.is_some() {
        batch.events.pop(); // it would pass for a repeated append, and is none
        if batch.events.is_empty() {
            return Ok(());
        }
    }
    let fits = first == next || (last.is_none() && first <= 1);
    let answer = scene.store.append(&model.key, batch.clone()).await;
    if model.sealed && batch.events.is_empty() && batch.epoch == model.epoch {
        prop_assert!(answer.is_ok(), "ended again: {answer:?}"); // the end is a repeated append too
    } else if model.sealed {
        prop_assert!(matches!(answer, Err(StoreError::Sealed)), "sealed: {answer:?}");
    } else if fits && batch.epoch >= model.epoch {
        prop_assert!(answer.is_ok(), "fits: {answer:?}");
        model.takes(batch);
    } else {
        let told = matches!(&answer, Err(StoreError::Conflict { epoch, last: told })
            if *told == last && (*epoch == model.epoch || last.is_none()));
        prop_assert!(told, "does not fit: {answer:?}");
    }
    Ok(())
}

async fn read<S: Store>(scene: &Scene<S>, model: &Model, after: u64, size: usize) -> Result<(), TestCaseError> {
    if model.latest.is_none() {
        let read = scene.store.read_after(&model.key, Seq(after), ALL).await;
        prop_assert!(matches!(read, Err(StoreError::UnknownStream)), "{read:?}");
        return Ok(());
    }
    let (mut cursor, mut seen, mut gap) = (Seq(after), Vec::new(), false);
    let purged = loop {
        let page = scene
            .store
            .read_after(
                &model.key,
                cursor,
                ReadLimit {
                    events: size,
                    bytes: 1 << 20,
                },
            )
            .await;
        let Ok(page) = page else {
            return Err(TestCaseError::fail(format!("{:?} cannot be read: {page:?}", model.key)));
        };
        let status = &page.status;
        prop_assert_eq!(
            (status.last, status.epoch, status.sealed),
            (model.last(), model.epoch, model.sealed)
        );
        prop_assert!(!status.answers_lost && status.info == info());
        prop_assert!(page.events.len() <= size);
        gap |= page.has_gap_after(cursor);
        let Some(last) = page.events.last() else {
            break status.purged;
        };
        prop_assert!(last.seq > cursor, "a page makes progress");
        cursor = last.seq;
        seen.extend(page.events);
    };
    prop_assert!(
        seen.windows(2).all(|pair| pair[0].seq < pair[1].seq),
        "out of order: {seen:?}"
    );
    let is_seen = |seq: Seq| seen.binary_search_by_key(&seq, |event| event.seq).is_ok();
    for event in &seen {
        let written = model.events.iter().find(|written| written.seq == event.seq);
        let same = event.seq.0 > after && written.is_some_and(|written| written.payload == event.payload);
        prop_assert!(same, "{event:?} after {after} was never written here");
    }
    let mut missing = false;
    for event in model
        .events
        .iter()
        .filter(|event| event.seq.0 > after && !is_seen(event.seq))
    {
        missing = true;
        prop_assert!(event.retain == Retain::None, "{event:?} was pinned and is gone");
        prop_assert!(Some(event.seq) <= purged, "nobody was told that {event:?} is gone");
        prop_assert!(Some(event.seq) != model.last(), "the newest event is gone");
    }
    prop_assert_eq!(gap, missing, "a gap is told if and only if there is one");
    Ok(())
}
