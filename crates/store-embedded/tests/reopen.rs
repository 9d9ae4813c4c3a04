//! The state survives a restart of the process.

mod common;

use bytes::Bytes;
use common::{Home, one_session};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use rethread_proto::stream::{Log, Refused};
use rethread_store::{
    Batch, Event, EventStore, Ordinal, ReadLimit, Retain, Retention, Seq, SessionKey, SessionStore, StoreError,
    StreamKey,
};
use rethread_store_embedded::{EmbeddedStore, Limits, Sync};
use rethread_testkit::store_suite::{StoreFixture, answer, batch, info, last_batch, question, sequence};
use std::sync::Arc;
use std::time::Duration;

const ALL: ReadLimit = ReadLimit::new(usize::MAX >> 1, usize::MAX >> 1);

/// Closes the store and reopens it with the same session.
fn reopened(home: &Home, fixture: StoreFixture<EmbeddedStore>, limits: Limits) -> StoreFixture<EmbeddedStore> {
    let session = fixture.session.clone();
    drop(fixture);
    StoreFixture {
        store: home.open(limits),
        session,
    }
}

fn retaining(events: usize) -> Limits {
    Limits::default().with_stream(Retention::default().with_events(events))
}

#[tokio::test]
async fn streams_survive_a_restart_and_accept_appends() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(Limits::default())).await;
    let (open, ended) = (fixture.first_call_stream(), fixture.stream(Ordinal(3)));
    fixture.append(&open, batch(0..3)).await;
    fixture.append(&open, batch(3..5).with_epoch(4)).await;
    fixture.append(&ended, last_batch(1..4)).await;
    let before = [fixture.page(&open, 0).await, fixture.page(&ended, 0).await];
    let fixture = reopened(&home, fixture, Limits::default());
    for (before, key) in before.into_iter().zip([&open, &ended]) {
        let after = fixture.page(key, 0).await;
        assert_eq!((after.events, after.status), (before.events, before.status));
    }
    assert_eq!(fixture.status(&open).await.info, info());
    let stale = fixture.store.append(&open, batch(5..6)).await;
    assert!(
        matches!(
            stale,
            Err(StoreError::Conflict {
                epoch: 4,
                last: Some(Seq(4))
            })
        ),
        "{stale:?}"
    );
    let sealed = fixture.store.append(&ended, batch(4..5)).await;
    assert!(matches!(sealed, Err(StoreError::Sealed)), "{sealed:?}");
    fixture.append(&open, batch(3..5).with_epoch(4)).await; // repeats the last batch
    fixture.append(&open, batch(5..6).with_epoch(4)).await;
    assert_eq!(sequence(&fixture.page(&open, 0).await), [1, 2, 3, 4, 5]);
    assert_eq!(
        fixture.store.open_streams(&fixture.session).await.unwrap(),
        [Ordinal(1)]
    );
    assert_eq!((fixture.store.usage().sessions, fixture.store.usage().streams), (1, 2));
}

#[tokio::test]
async fn session_records_survive_a_restart() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(Limits::default())).await;
    let mut second = fixture.store.open(&fixture.session).await.unwrap().record;
    second.initialized = true;
    fixture.store.update(&fixture.session, 2, second.clone()).await.unwrap();
    fixture.append(&fixture.stream(Ordinal(8)), last_batch(1..3)).await;
    fixture.append(&fixture.first_call_stream(), last_batch(1..3)).await;
    fixture.store.forget_stream(&fixture.stream(Ordinal(8))).await.unwrap();
    home.advance(Duration::from_secs(100));
    let mut fixture = reopened(&home, fixture, Limits::default());
    for _ in 0..2 {
        let loaded = fixture.store.load(&fixture.session).await.unwrap();
        assert_eq!((loaded.record, loaded.high_water), (second.clone(), Ordinal(8)));
        assert_eq!(loaded.idle, Duration::from_secs(100));
        fixture.store.forget_session(&fixture.session).await.unwrap();
        fixture = reopened(&home, fixture, Limits::default());
    }
    fixture.assert_unknown(&fixture.first_call_stream()).await;
    fixture.store.touch(&fixture.session).await.unwrap();
    home.advance(Duration::from_secs(50));
    let fixture = reopened(&home, fixture, Limits::default());
    let expire = |idle| fixture.store.expire(Duration::from_secs(idle), Arc::new(|_| false));
    assert_eq!(expire(60).await.unwrap(), 0);
    assert_eq!(expire(50).await.unwrap(), 1);
    let fixture = reopened(&home, fixture, Limits::default());
    let gone = fixture.store.load(&fixture.session).await;
    assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
}

#[tokio::test]
async fn retained_events_survive_a_restart() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(retaining(5))).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..1)).await;
    for n in 1..4 {
        fixture.append(&key, question(n)).await;
    }
    fixture.append(&key, answer(4)).await;
    let released = batch(5..6).with_released(vec![Seq(2)]);
    fixture.append(&key, released).await;
    let fixture = reopened(&home, fixture, retaining(5));
    fixture.append(&key, batch(6..30)).await;
    fixture.store.sweep().await.unwrap();
    let page = fixture.page(&key, 0).await;
    assert_eq!(sequence(&page), [1, 3, 4, 28, 29]);
    assert_eq!(
        page.events.iter().map(|event| event.retain).collect::<Vec<_>>()[..3],
        [Retain::Question, Retain::Question, Retain::Answer]
    );
    let fixture = reopened(&home, fixture, retaining(5));
    fixture.append(&key, batch(30..31).with_released(vec![Seq(3)])).await;
    fixture.store.sweep().await.unwrap();
    assert_eq!(sequence(&fixture.page(&key, 0).await), [1, 4, 28, 29, 30]);
    fixture.append(&key, last_batch(31..32)).await;
    let fixture = reopened(&home, fixture, retaining(5));
    let page = fixture.page(&key, 0).await;
    let question = page.events.iter().find(|event| event.retain == Retain::Question);
    assert!(question.is_none(), "the seal releases every question: {question:?}");
}

#[tokio::test]
async fn next_process_completes_pending_deletions() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(Limits::default())).await;
    let other = StoreFixture::new(fixture.store.clone()).await;
    for ordinal in 1..40 {
        fixture.append(&fixture.stream(Ordinal(ordinal)), batch(0..100)).await;
    }
    other.append(&other.first_call_stream(), batch(0..100)).await;
    other.append(&other.stream(Ordinal(3)), batch(0..2)).await;
    fixture.store.end(&fixture.session).await.unwrap();
    fixture.store.forget_stream(&other.first_call_stream()).await.unwrap();
    drop(fixture);
    let other = reopened(&home, other, Limits::default());
    let one_stream = other.store.usage();
    let mut attempts = 200;
    while other.store.usage().streams > 1 {
        attempts -= 1;
        assert!(attempts > 0, "not deleted: {:?}", other.store.usage());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let usage = other.store.usage();
    assert!(usage.held_bytes < one_stream.held_bytes.max(2000), "{usage:?}");
    assert_eq!((usage.sessions, usage.streams), (1, 1));
    let again = reopened(&home, other, Limits::default());
    assert_eq!(again.store.usage().held_bytes, usage.held_bytes);
    assert_eq!(sequence(&again.page(&again.stream(Ordinal(3)), 0).await), [1]);
}

#[tokio::test]
async fn ended_streams_expire_after_a_restart() {
    let limits = Limits::default().with_ended_streams_per_session(3);
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(limits)).await;
    for ordinal in [9, 1, 7] {
        fixture
            .append(&fixture.stream(Ordinal(ordinal)), last_batch(1..3))
            .await;
    }
    let fixture = reopened(&home, fixture, limits);
    home.advance(Duration::from_secs(400));
    for ordinal in [5, 3] {
        fixture
            .append(&fixture.stream(Ordinal(ordinal)), last_batch(1..3))
            .await;
    }
    fixture.store.sweep().await.unwrap();
    let known = async |fixture: &StoreFixture<EmbeddedStore>, ordinal| {
        fixture.store.status(&fixture.stream(Ordinal(ordinal))).await.is_ok()
    };
    for (ordinal, expected) in [(9, false), (1, false), (7, true), (5, true), (3, true)] {
        assert_eq!(known(&fixture, ordinal).await, expected, "stream {ordinal}");
    }
    let fixture = reopened(&home, fixture, limits);
    home.advance(Duration::from_secs(300));
    fixture.store.sweep().await.unwrap();
    for (ordinal, expected) in [(7, false), (5, true), (3, true)] {
        assert_eq!(known(&fixture, ordinal).await, expected, "stream {ordinal}");
    }
    home.advance(Duration::from_secs(600));
    let fixture = reopened(&home, fixture, limits);
    fixture.store.sweep().await.unwrap();
    let usage = fixture.store.usage();
    assert_eq!((usage.streams, usage.held_bytes), (0, one_session() as u64));
    assert_eq!(
        fixture.store.load(&fixture.session).await.unwrap().high_water,
        Ordinal(9)
    );
}

#[derive(Clone, Debug)]
enum Step {
    Append { count: u64, retain: Retain, takeover: bool },
    AppendAgain,
    AppendWrong { ahead: i64 },
    Release,
    Seal { count: u64 },
    ForgetStream,
    ForgetSession,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let retain = prop_oneof![6 => Just(Retain::None), 1 => Just(Retain::Question), 1 => Just(Retain::Answer)];
    let append = (1u64..6, retain, prop::bool::weighted(0.1));
    prop_oneof![
        20 => append.prop_map(|(count, retain, takeover)| Step::Append { count, retain, takeover }),
        3 => Just(Step::AppendAgain),
        2 => (-3i64..4).prop_map(|ahead| Step::AppendWrong { ahead }),
        4 => Just(Step::Release),
        3 => (0u64..3).prop_map(|count| Step::Seal { count }),
        2 => Just(Step::ForgetStream),
        1 => Just(Step::ForgetSession),
        4 => Just(Step::Reopen),
    ]
}

/// A stream in the reference implementation [`Log`].
struct Model {
    key: StreamKey,
    log: Option<Log>,
    latest: Option<Batch>,
}

impl Model {
    fn batch(&self, first: u64, count: u64) -> Batch {
        let epoch = self.log.as_ref().map_or(1, |log| log.status().epoch);
        let payload =
            |n: u64| Bytes::from(format!("stream {}, event {n}", self.key.ordinal).repeat(1 + n as usize % 3));
        Batch::new(
            epoch,
            (first..first + count).map(|n| Event::new(Seq(n), payload(n))).collect(),
        )
        .with_info(info())
    }

    fn next(&self) -> u64 {
        let last = self.log.as_ref().and_then(|log| log.status().last);
        last.map_or(0, |last| last.0 + 1)
    }

    fn append(&mut self, batch: Batch, limits: &Retention) -> Result<(), Refused> {
        let mut fresh = None;
        let log = match &mut self.log {
            Some(log) => log,
            None => fresh.insert(Log::new(info(), batch.epoch)),
        };
        log.append(batch.clone())?;
        log.evict(limits);
        self.log = self.log.take().or(fresh);
        self.latest = Some(batch);
        Ok(())
    }
}

/// Compares random operations and restarts with [`Log`].
#[test]
fn random_operations_survive_restarts() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut runner = TestRunner::new(Config::default());
    let histories = prop::collection::vec((0..3usize, step()), 20..120);
    for n in 0..12 {
        let history = histories.new_tree(&mut runner).unwrap().current();
        runtime.block_on(async {
            play(history.clone(), if n % 4 == 0 { Sync::Always } else { Sync::Os })
                .await
                .unwrap_or_else(|failure| panic!("{failure}\n{history:#?}"));
        });
    }
}

async fn play(history: Vec<(usize, Step)>, sync: Sync) -> Result<(), String> {
    let limits = retaining(6);
    let home = Home::default();
    let open = || {
        home.options()
            .limits(limits)
            .sync(sync)
            .open(home.dir.path())
            .expect("the store opens")
    };
    let mut store = open();
    let session = StoreFixture::new(store.clone()).await.session;
    let mut ordinals = (1..).map(Ordinal);
    let mut born = |session: &SessionKey| Model {
        key: StreamKey {
            session: session.clone(),
            ordinal: ordinals.next().expect("the range is unbounded"),
        },
        log: None,
        latest: None,
    };
    let mut models: Vec<Model> = (0..3).map(|_| born(&session)).collect();
    let (mut forgotten, mut highest) = (Vec::new(), 0);
    for (at, step) in history {
        let model = &mut models[at];
        let next = model.next();
        let batch = match step {
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
            Step::AppendAgain => match &model.latest {
                Some(batch) => batch.clone(),
                None => continue,
            },
            Step::AppendWrong { ahead } => model.batch(next.saturating_add_signed(ahead), 2),
            Step::Release => {
                let page = model.log.as_ref().map(|log| log.read_after(Seq(0), 100, usize::MAX));
                let pinned = page
                    .into_iter()
                    .flat_map(|page| page.events)
                    .filter(|event| event.retain != Retain::None);
                model.batch(next, 1).with_released(
                    pinned
                        .map(|event| event.seq)
                        .take(1)
                        .chain([Seq(next), Seq(999)])
                        .collect(),
                )
            }
            Step::Seal { count } => model.batch(next, count).sealing(),
            Step::ForgetStream => {
                store
                    .forget_stream(&model.key)
                    .await
                    .map_err(|error| format!("{error:?}"))?;
                let fresh = born(&session);
                forgotten.push(std::mem::replace(model, fresh).key);
                continue;
            }
            Step::ForgetSession => {
                store
                    .forget_session(&session)
                    .await
                    .map_err(|error| format!("{error:?}"))?;
                for model in &mut models {
                    let fresh = born(&session);
                    forgotten.push(std::mem::replace(model, fresh).key);
                }
                continue;
            }
            Step::Reopen => {
                drop(store);
                store = open();
                continue;
            }
        };
        let answer = store.append(&model.key, batch.clone()).await.map(drop);
        let expected = model.append(batch.clone(), &limits.stream).map_err(StoreError::from);
        if format!("{answer:?}") != format!("{expected:?}") {
            return Err(format!("{batch:?}: {answer:?}, expected {expected:?}"));
        }
        if answer.is_ok() {
            highest = highest.max(model.key.ordinal.0);
        }
        // The model evicts with every append, so the store sweeps after every append.
        store.sweep().await.map_err(|error| format!("{error:?}"))?;
        check(&store, model).await?;
    }
    drop(store);
    let store = open();
    for model in &models {
        check(&store, model).await?;
    }
    for key in &forgotten {
        if !matches!(store.status(key).await, Err(StoreError::UnknownStream)) {
            return Err(format!("{key:?} is back"));
        }
    }
    let held: usize = models
        .iter()
        .filter_map(|model| model.log.as_ref())
        .map(|log| log.bytes() + 512 + log.status().info.cost())
        .sum();
    let held = held + one_session();
    let mut attempts = 100;
    while store.usage().held_bytes != held as u64 && attempts > 0 {
        attempts -= 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let high_water = store
        .load(&session)
        .await
        .map_err(|error| format!("{error:?}"))?
        .high_water;
    if (store.usage().held_bytes, high_water) != (held as u64, Ordinal(highest)) {
        return Err(format!(
            "{:?}, {high_water:?}: expected {held} bytes and {highest}",
            store.usage()
        ));
    }
    Ok(())
}

async fn check(store: &EmbeddedStore, model: &Model) -> Result<(), String> {
    let found = store.read_after(&model.key, Seq(0), ALL).await;
    let (Some(log), found) = (&model.log, found) else {
        return Ok(());
    };
    let expected = log.read_after(Seq(0), usize::MAX, usize::MAX);
    let found = found.map_err(|error| format!("{:?}: {error:?}", model.key))?;
    if (&found.events, &found.status) != (&expected.events, &expected.status) {
        return Err(format!("{:?}: {found:?}\nexpected {expected:?}", model.key));
    }
    Ok(())
}
