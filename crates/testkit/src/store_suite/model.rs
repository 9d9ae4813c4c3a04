//! Random histories against a small model. The oracle: every cursor sees its own stream, in order, each event once, and
//! learns of every gap.

use super::Harness;
use super::fixture::*;
use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rethread_store::{Batch, Event, Ordinal, ReadLimit, Retain, Retention, Seq, Store, StoreError, StreamKey};
use std::time::Duration;

/// Small, so that most histories evict.
const SMALL_RETENTION: Retention = Retention::new(6, 8 << 20, Duration::from_secs(600));
const STREAMS: usize = 3;
const HISTORIES: u32 = 64;

/// One step of a history. A number is reduced to the valid range when its step runs.
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

/// The expected stream: every accepted event, without eviction.
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

    /// Events from `first` on, with payloads that are unique in the test.
    fn batch(&self, first: u64, count: u64) -> Batch {
        let payload = |n: u64| Bytes::from(format!("stream {}, event {n}", self.key.ordinal));
        let events = (first..first + count).map(|n| Event::new(Seq(n), payload(n)));
        let mut batch = Batch::new(self.epoch, events.collect());
        batch.info = self.events.is_empty().then(info);
        batch
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

/// Appends (new, repeated, wrong and stale), eviction, seals and forgets, with reads from random cursors in between.
pub async fn random_history_matches_the_model<H: Harness>(harness: &H) {
    let store = harness.fresh(SMALL_RETENTION).await;
    let histories = prop::collection::vec((0..STREAMS, step()), 1..80);
    // One store for all histories and one session per history: setting up an engine is slow.
    let mut runner = TestRunner::new(Config::default());
    for _ in 0..HISTORIES {
        let mut tree = histories.new_tree(&mut runner).expect("a history can always be made");
        if let Err(failure) = play(store.clone(), tree.current()).await {
            let (history, failure) = shrink(&store, &mut tree, failure).await;
            panic!("{failure}\nthe shortest such history: {history:#?}");
        }
    }
}

/// Finds a shorter failing history. proptest's runner cannot await a store, so this is done by hand.
async fn shrink<S: Store + Clone>(
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
    let fixture = StoreFixture::new(store).await;
    let mut ordinals = (1..).map(Ordinal);
    let mut new_stream = || Model::new(fixture.stream(ordinals.next().expect("an infinite iterator")));
    let mut models: [Model; STREAMS] = std::array::from_fn(|_| new_stream());
    let mut forgotten = Vec::new();
    for (at, step) in history {
        let model = &mut models[at];
        match step {
            Step::Forget => {
                let old = std::mem::replace(model, new_stream()); // ordinals are never reused
                prop_assert!(fixture.store.forget_stream(&old.key).await.is_ok());
                forgotten.push(old.key);
            }
            Step::Read { after, page } => read(&fixture, model, after, page).await?,
            write => append(&fixture, model, write).await?,
        }
    }
    for model in &models {
        read(&fixture, model, 0, 100).await?;
    }
    for key in &forgotten {
        let status = fixture.store.status(key).await;
        prop_assert!(
            matches!(status, Err(StoreError::UnknownStream)),
            "{key:?} is back: {status:?}"
        );
    }
    // End the session, so that the store does not fill up.
    prop_assert!(fixture.store.end(&fixture.session).await.is_ok());
    prop_assert!(fixture.store.forget_session(&fixture.session).await.is_ok());
    Ok(())
}

async fn append<S: Store>(fixture: &StoreFixture<S>, model: &mut Model, step: Step) -> Result<(), TestCaseError> {
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
                let again = fixture.store.append(&model.key, batch).await;
                prop_assert!(again.is_ok(), "a repeated append: {again:?}");
            }
            return Ok(());
        }
        Step::AppendWrong { ahead, count } => model.batch(next.saturating_add_signed(ahead), count),
        Step::AppendStale if last.is_none() => return Ok(()), // no earlier writer exists
        Step::AppendStale => model.batch(next, 1).with_epoch(model.epoch - 1),
        Step::Release => {
            let questions = model.events.iter().filter(|event| event.retain == Retain::Question);
            let released = questions.map(|event| event.seq).take(1).collect();
            model.batch(next, 1).with_released(released)
        }
        Step::Seal { count } => {
            let mut batch = model.batch(next, count).sealing();
            if let Some(last) = batch.events.last_mut() {
                last.retain = Retain::Answer;
            }
            batch
        }
        Step::Forget | Step::Read { .. } => return Ok(()),
    };
    let first = batch.events.first().map_or(next, |event| event.seq.0);
    if batch.events.last().map(|event| event.seq) == last && last.is_some() {
        batch.events.pop(); // otherwise it would be a valid repeated append
        if batch.events.is_empty() {
            return Ok(());
        }
    }
    let fits = first == next || (last.is_none() && first <= 1);
    let answer = fixture.store.append(&model.key, batch.clone()).await;
    if model.sealed && batch.events.is_empty() && batch.epoch == model.epoch {
        prop_assert!(answer.is_ok(), "ended again: {answer:?}"); // a repeated seal is a repeated append
    } else if model.sealed {
        prop_assert!(matches!(answer, Err(StoreError::Sealed)), "sealed: {answer:?}");
    } else if fits && batch.epoch >= model.epoch {
        prop_assert!(answer.is_ok(), "fits: {answer:?}");
        model.takes(batch);
    } else {
        let matches_model = matches!(&answer, Err(StoreError::Conflict { epoch, last: reported })
            if *reported == last && (*epoch == model.epoch || last.is_none()));
        prop_assert!(matches_model, "wrong conflict: {answer:?}");
    }
    Ok(())
}

async fn read<S: Store>(
    fixture: &StoreFixture<S>,
    model: &Model,
    after: u64,
    size: usize,
) -> Result<(), TestCaseError> {
    if model.latest.is_none() {
        let read = fixture.store.read_after(&model.key, Seq(after), UNLIMITED_READ).await;
        prop_assert!(matches!(read, Err(StoreError::UnknownStream)), "{read:?}");
        return Ok(());
    }
    let (mut cursor, mut seen, mut gap) = (Seq(after), Vec::new(), false);
    let purged = loop {
        let page = fixture
            .store
            .read_after(&model.key, cursor, ReadLimit::new(size, 1 << 20))
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
        prop_assert!(same, "{event:?} after {after} was never written to this stream");
    }
    let mut missing = false;
    for event in model
        .events
        .iter()
        .filter(|event| event.seq.0 > after && !is_seen(event.seq))
    {
        missing = true;
        prop_assert!(event.retain == Retain::None, "{event:?} must be retained but is gone");
        prop_assert!(Some(event.seq) <= purged, "{event:?} is missing without a gap");
        prop_assert!(Some(event.seq) != model.last(), "the newest event is gone");
    }
    prop_assert_eq!(gap, missing, "a gap is reported if and only if events are missing");
    Ok(())
}
