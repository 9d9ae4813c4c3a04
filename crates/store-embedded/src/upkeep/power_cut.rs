//! Simulates power cuts, kills and failed syncs at random moments, on one thread. `FAULTS_SEED` repeats a failure.
//!
//! Each run opens the state that the previous run left. The recovered index must equal the index after some commit, not
//! older than the last guarantee, and every location in it must have its bytes.

use super::*;
use crate::index::stream::Stream;
use crate::record::Part;
use crate::rng::Rng;
use crate::simulated_disk::{self, PowerCut};
use crate::simulation::assert_same;
use crate::{Limits, Options};
use bytes::Bytes;
use rethread_proto::StreamKind;
use rethread_proto::clock::Wall;
use rethread_store::{
    Batch, Event, Ordinal, Principal, QueuePosition, QueueUpdate, Queued, Retain, Retention, Seq, SessionId,
    SessionKey, SessionRecord, StreamInfo, StreamKey,
};
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const HISTORIES: u64 = 60;
const RUNS: u64 = 5;
const SEGMENT_BYTES: u64 = 4096;
const TOTAL_BYTES: u64 = 24 << 10;

/// The commits that must survive.
#[derive(Clone, Copy, Debug, Default)]
struct Guarantees {
    /// The last commit that survives a power cut.
    durable: u64,
    /// The last commit that survives the end of the process.
    acknowledged: u64,
}

struct ProcessRun<'a> {
    sync: Sync,
    now: Arc<AtomicU64>,
    upkeep: Upkeep,
    guaranteed: &'a mut Guarantees,
    rng: &'a mut Rng,
}

fn options(sync: Sync, now: &Arc<AtomicU64>) -> Arc<Options> {
    let now = Arc::clone(now);
    let stream = Retention::default().with_events(8).with_age(Duration::from_secs(60));
    let limits = Limits::default()
        .with_stream(stream)
        .with_ended_streams_per_session(4)
        .with_total_bytes(TOTAL_BYTES);
    let options = Options::default().sync(sync).limits(limits).segment_size(SEGMENT_BYTES);
    Arc::new(options.clock(move || Wall::from_millis(now.load(Ordering::SeqCst))))
}

fn session_key(rng: &mut Rng) -> SessionKey {
    SessionKey {
        principal: Principal::anonymous(),
        session: SessionId::from_random([rng.below(4) as u8; 18]),
    }
}

fn bytes(rng: &mut Rng) -> Bytes {
    let len = *rng.pick(&[0, 1, 60, 200, 900, 2500]);
    let byte = rng.next() as u8;
    Bytes::from(vec![byte; len])
}

impl<'a> ProcessRun<'a> {
    /// Opens the store and checks the recovered state.
    fn begin(
        root: &Path,
        sync: Sync,
        guaranteed: &'a mut Guarantees,
        rng: &'a mut Rng,
        now: Arc<AtomicU64>,
    ) -> Result<Self, OpenError> {
        let options = options(sync, &now);
        let dir = Arc::new(DataDir::lock(root, true)?);
        let recovered = recovery::recover(&dir)?;
        let checkpoint = recovered.checkpoint;
        let (engine, log) = Engine::open(Arc::clone(&options), dir, recovered);
        let core = Arc::new(Core::new(options, root.to_owned(), engine, log));
        let mut run = ProcessRun {
            sync,
            now,
            upkeep: Upkeep::new(core, checkpoint),
            guaranteed,
            rng,
        };
        run.check_recovered();
        Ok(run)
    }

    fn core(&self) -> Arc<Core> {
        Arc::clone(&self.upkeep.core)
    }

    /// Compares the recovered index with the index after the same commit.
    fn check_recovered(&mut self) {
        let core = self.core();
        let checked = core.read(|engine, log| {
            let commit = engine.commit;
            assert!(
                commit >= self.guaranteed.acknowledged,
                "{commit}, {:?}",
                self.guaranteed
            );
            let expected = simulated_disk::with(|disk| {
                disk.commits.retain(|known, _| *known <= commit);
                disk.commits.get(&commit).cloned()
            });
            assert_same(&engine.index, &expected.flatten().unwrap_or_default());
            let has_bytes = |at: crate::group::Location, part: Part| {
                let mut bytes = vec![0; part.len as usize];
                let file = log.file(at.segment).expect("the segment is open");
                file.read_exact_at(&mut bytes, at.offset.into())
                    .expect("the bytes exist");
                assert!(part.matches(&bytes), "{at:?}");
            };
            for session in engine.index.sessions.values() {
                has_bytes(session.record.at, session.record.part);
                for (_, stream) in &session.streams {
                    assert!(stream.damaged.is_none());
                    stream.events.iter().for_each(|event| has_bytes(event.at, event.part));
                }
                for (message, at) in session.queue.iter().flat_map(|queue| &queue.messages) {
                    has_bytes(*at, message.body);
                }
            }
            commit
        });
        let commit = checked.expect("the store is open");
        *self.guaranteed = Guarantees {
            durable: commit,
            acknowledged: commit,
        };
    }

    fn step(&mut self) {
        if self.core().read(|_, _| ()).is_err() {
            return self.open_again();
        }
        if self.rng.chance(30) {
            return self.upkeep_step();
        }
        let op = self.op();
        let core = self.core();
        let outcome = core.commit_alone(&op);
        if !outcome.is_err_and(|error| error.is_outage()) {
            self.update_guarantees();
        }
    }

    /// Raises the guarantees after an acknowledged commit or a round of upkeep.
    fn update_guarantees(&mut self) {
        let progress = self.core().read(|engine, log| (engine.commit, log.durable()));
        if let Ok((commit, durable)) = progress {
            self.guaranteed.acknowledged = commit;
            self.guaranteed.durable = if self.sync == Sync::Always { commit } else { durable };
        }
    }

    fn open_again(&mut self) {
        if let Some(outage) = &mut self.upkeep.outage {
            outage.retry = Instant::now();
        }
        self.upkeep.round();
        if self.core().read(|_, _| ()).is_ok() {
            self.check_recovered();
        }
    }

    fn upkeep_step(&mut self) {
        let soon = |is_soon| Instant::now() + if is_soon { Duration::ZERO } else { TICK };
        self.upkeep.next_sync = soon(self.rng.chance(40));
        self.upkeep.next_tick = soon(self.rng.chance(20));
        if self.rng.chance(15) {
            self.upkeep.checkpoint.bytes = 0; // a checkpoint is due
        }
        self.upkeep.round();
        self.update_guarantees();
    }

    fn op(&mut self) -> Op {
        let key = session_key(self.rng);
        let core = self.core();
        let epoch = core.read(|engine, _| engine.index.session(&key).map(|session| session.epoch));
        let Some(epoch) = epoch.ok().flatten() else {
            let record = SessionRecord::new(rethread_proto::Version::V2025_11_25, bytes(self.rng));
            return Op::Create(key, record);
        };
        match self.rng.below(20) {
            0 => Op::End(key),
            1 => Op::ForgetSession(key),
            2 => {
                let record = SessionRecord::new(rethread_proto::Version::V2025_11_25, bytes(self.rng));
                Op::Update(key, epoch, record.with_epoch(epoch + 1))
            }
            3 => Op::Touch(key),
            4 => {
                self.now.fetch_add(20_000, Ordering::SeqCst);
                Op::Sweep
            }
            5 | 6 => self.queue_update(key, epoch),
            _ => self.append(key),
        }
    }

    fn queue_update(&mut self, key: SessionKey, epoch: u64) -> Op {
        let core = self.core();
        let floor = core.read(|engine, _| {
            let queue = engine.index.session(&key).and_then(|session| session.queue.clone());
            queue.map_or((0, 0), |queue| {
                let last = queue.messages.back().map(|(message, _)| message.position.0);
                (queue.floor.0, last.unwrap_or(queue.floor.0))
            })
        });
        let (floor, last) = floor.expect("the store works");
        let messages = (last + 1..=last + self.rng.below(3)).map(|n| Queued::new(QueuePosition(n), bytes(self.rng)));
        let messages = messages.collect();
        let floor = QueuePosition(floor + self.rng.below(3));
        Op::UpdateQueue(key, QueueUpdate::new(epoch, messages, floor))
    }

    fn append(&mut self, session: SessionKey) -> Op {
        let ordinal = Ordinal(1 + self.rng.below(40));
        let core = self.core();
        let last = core.read(|engine, _| {
            let session = engine.index.session(&session);
            let stream = session.and_then(|session| session.stream(ordinal));
            stream.map(|stream: &Stream| (stream.epoch, stream.last))
        });
        let known = last.expect("the store works");
        let first = known.and_then(|(_, last)| last).map_or(0, |last| last.0 + 1);
        let count = 1 + self.rng.below(3);
        let retain = *self
            .rng
            .pick(&[Retain::None, Retain::None, Retain::Question, Retain::Answer]);
        let events = (first..first + count).map(|seq| Event::new(Seq(seq), bytes(self.rng)).with_retain(retain));
        let mut batch = Batch::new(known.map_or(1, |(epoch, _)| epoch), events.collect());
        batch.info = known
            .is_none()
            .then(|| StreamInfo::new(StreamKind::Call, vec![7.into()], "node").into());
        batch.seals = self.rng.chance(30);
        Op::Append(StreamKey { session, ordinal }, batch)
    }
}

/// Runs one process until a power cut, a kill or a clean close. True if the power was cut.
fn run_process(root: &Path, sync: Sync, guaranteed: &mut Guarantees, rng: &mut Rng, now: &Arc<AtomicU64>) -> bool {
    let (cut_after, fail_after) = (rng.below(80) as u32, rng.below(40) as u32);
    let (cuts, fails) = (rng.chance(60), rng.chance(40));
    simulated_disk::with(|disk| {
        disk.cut_after = cuts.then_some(cut_after);
        disk.fail_after = fails.then_some(fail_after);
    });
    let steps = 20 + rng.below(150);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let mut run = match ProcessRun::begin(root, sync, guaranteed, rng, Arc::clone(now)) {
            Ok(run) => run,
            Err(OpenError::Io { source, .. }) if source.to_string().contains("simulated") => return,
            Err(error) => panic!("the store does not open: {}", chain(&error)),
        };
        for _ in 0..steps {
            run.step();
        }
        if run.rng.chance(50) {
            run.upkeep.close();
        }
    }));
    match ended {
        Ok(()) => rng.chance(60) || has_lost_pages(root),
        Err(payload) if payload.is::<PowerCut>() => true,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Whether a file lost pages in a failed sync. The next process cannot detect that.
fn has_lost_pages(root: &Path) -> bool {
    [root, &root.join("log")]
        .into_iter()
        .any(simulated_disk::has_lost_pages)
}

fn history(home: &Path, mut rng: Rng) {
    let sync = *rng.pick(&[Sync::Always, Sync::Interval(Duration::from_millis(50)), Sync::Os]);
    let now = Arc::new(AtomicU64::new(1_000_000));
    let mut root = home.join("0");
    fs::create_dir(&root).unwrap();
    simulated_disk::install(&root, BTreeMap::new());
    let mut guaranteed = Guarantees::default();
    for number in 1..=RUNS {
        let is_cut = run_process(&root, sync, &mut guaranteed, &mut rng, &now);
        if is_cut || number == RUNS {
            let after = home.join(number.to_string());
            let commits = simulated_disk::cut(&root, &after, &mut rng);
            guaranteed.acknowledged = guaranteed.durable;
            root = after;
            simulated_disk::install(&root, commits);
        }
    }
    simulated_disk::with(|disk| (disk.cut_after, disk.fail_after) = (None, None));
    let last = ProcessRun::begin(&root, sync, &mut guaranteed, &mut rng, now);
    drop(last.expect("the store opens"));
}

#[test]
fn guaranteed_commits_survive_power_cuts_kills_and_failed_syncs() {
    let mut rng = Rng::seeded("simulated power cuts");
    let histories = std::env::var("FAULTS_HISTORIES").map_or(HISTORIES, |count| count.parse().unwrap());
    for number in 0..histories {
        let home = tempfile::tempdir().unwrap();
        let seed = rng.next();
        let result = catch_unwind(AssertUnwindSafe(|| history(home.path(), Rng::new(seed))));
        if let Err(failure) = result {
            eprintln!("history {number} failed");
            std::panic::resume_unwind(failure);
        }
    }
}
