//! Calls that end as they must, whatever happens to the server, and streams that stay as they ended.

use super::raw::{KNOCK, LAST, Left, MARGIN, PATIENCE, Session};
use super::record::{Place, field};
use rethread_testkit::proxy::SplitMix64;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Who call at the same time, in each session.
pub(super) const CALLERS: usize = 3;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Its result came, and all before it.
    Finished,
    /// It was running when the server was killed, and said so.
    Restarted,
    /// The server was dead, or died before it said anything: nobody can know.
    Unborn,
}

/// A call, and what must come of it.
struct Call {
    tool: &'static str,
    arguments: String,
    events: u64,
    text: String,
    /// How long it works.
    takes: Duration,
}

/// How many there were of everything.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) ids: AtomicUsize,
    pub(super) resumed: AtomicUsize,
    finished: AtomicUsize,
    restarted: AtomicUsize,
    unborn: AtomicUsize,
    replays: AtomicUsize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = [
            &self.finished,
            &self.restarted,
            &self.unborn,
            &self.resumed,
            &self.replays,
        ];
        let [finished, restarted, unborn, resumed, replays] = counters.map(|n| n.load(Relaxed));
        write!(
            f,
            "{finished} calls finished, {restarted} restarted, {unborn} unborn; {resumed} resumptions, {replays} replays \
             of ended streams"
        )
    }
}

impl Session {
    /// Calls until the last kill is over, and a little longer.
    pub(super) async fn keep_calling(&self, caller: u64) {
        let mut dice = self.dice(caller);
        while !self.server.survived() {
            let call = Call::draw(&mut dice);
            if self.call(&call, &mut dice).await == Outcome::Unborn {
                sleep(KNOCK).await;
            }
        }
        for _ in 0..LAST {
            let call = Call::draw(&mut dice);
            let outcome = self.call(&call, &mut dice).await;
            assert_eq!(
                outcome,
                Outcome::Finished,
                "{} {} after the last kill",
                call.tool,
                call.arguments
            );
        }
    }

    /// One call, over as many connections as it takes.
    async fn call(&self, call: &Call, dice: &mut SplitMix64) -> Outcome {
        let outcome = self.call_to_its_end(call, dice).await;
        let counter = match outcome {
            Outcome::Finished => &self.tally.finished,
            Outcome::Restarted => &self.tally.restarted,
            Outcome::Unborn => &self.tally.unborn,
        };
        counter.fetch_add(1, Relaxed);
        outcome
    }

    async fn call_to_its_end(&self, call: &Call, dice: &mut SplitMix64) -> Outcome {
        let id = self.new_id();
        let Some(answer) = self.tool(id, call.tool, &call.arguments).await else {
            return Outcome::Unborn;
        };
        assert_eq!(
            (answer.status, answer.is_stream),
            (200, true),
            "call {id} of {}",
            call.tool
        );
        let mut connection = answer.connection;
        let Some(ordinal) = self.primed(&mut connection).await else {
            return Outcome::Unborn;
        };
        assert_eq!(ordinal % 2, 1, "the stream of a call has an odd number");
        let begun = Instant::now();
        let mut cursor = Place::start_of(ordinal);
        let mut connection = Some(connection);
        let answer = loop {
            if let Some(mut connection) = connection.take() {
                let most = if dice.below(3) == 0 { dice.below(8) } else { u64::MAX };
                match self.read(&mut connection, &mut cursor, most, begun).await {
                    Left::Answered(answer) => break answer,
                    Left::Cut => {}
                }
                drop(connection);
                sleep(Duration::from_millis(dice.below(400))).await; // some answers come while nobody listens
            }
            assert!(begun.elapsed() < call.takes + PATIENCE, "call {id} hangs at {cursor}");
            connection = self.resume(cursor).await;
        };
        self.record().answered(cursor);
        assert_eq!(
            field(&answer, "id"),
            Some(id.to_string().as_str()),
            "its own answer: {answer}"
        );
        if answer.contains("\"result\":") {
            assert_eq!(field(&answer, "text"), Some(call.text.as_str()), "{answer}");
            assert_eq!(cursor.seq, call.events + 1, "all progress and the answer at {cursor}");
            return Outcome::Finished;
        }
        assert_eq!(field(&answer, "code"), Some("-32603"), "{answer}");
        assert_eq!(field(&answer, "reason"), Some("restarted"), "{answer}");
        assert!(cursor.seq <= call.events + 1, "{cursor} is behind the last progress");
        let death = self.server.death_after(begun);
        let death = death.unwrap_or_else(|| panic!("call {id} said that the server was restarted, and it was not"));
        let spare = death.from.saturating_duration_since(begun + call.takes);
        assert!(
            spare < MARGIN || !self.server.was_quick(begun, death.from),
            "call {id} ended about {spare:?} before the kill, and its result is lost: {answer}"
        );
        Outcome::Restarted
    }

    /// Resumes streams that ended long ago, from anywhere: they are as they were.
    pub(super) async fn keep_looking_back(&self) {
        let mut dice = self.dice(300);
        while !self.server.survived() {
            sleep(Duration::from_millis(dice.below(60))).await;
            let ends = self.record().ends();
            // Mostly the latest: they are the ones that the kill may have caught on their way to the disk.
            let reach = if dice.below(3) == 0 { ends.len() } else { 4 };
            let Some(end) = ends.iter().nth_back(dice.below(reach.min(ends.len()) as u64) as usize) else {
                continue;
            };
            self.replay(*end, dice.below(end.seq + 1)).await;
        }
    }

    /// Reads an ended stream again, behind `from`.
    async fn replay(&self, end: Place, from: u64) {
        let begun = Instant::now();
        let mut cursor = Place { seq: from, ..end };
        loop {
            assert!(begun.elapsed() < PATIENCE, "the replay of {end} hangs at {cursor}");
            if cursor == end {
                // Seen to its end. An empty 200 would make clients ask for ever (RES-07).
                if self.get(Some(cursor)).await.is_some_and(|answer| answer.status == 400) {
                    break;
                }
                sleep(KNOCK).await;
                continue;
            }
            let Some(mut connection) = self.resume(cursor).await else {
                continue;
            };
            if let Left::Answered(_) = self.read(&mut connection, &mut cursor, u64::MAX, begun).await {
                assert_eq!(cursor, end, "where it ended the first time");
                break;
            }
        }
        self.tally.replays.fetch_add(1, Relaxed);
    }

    /// Every call that ever ended, from its beginning.
    pub(super) async fn replay_all_calls(&self) {
        let ends = self.record().ends();
        for end in ends {
            self.replay(end, 0).await;
        }
    }
}

impl Call {
    fn draw(dice: &mut SplitMix64) -> Self {
        if dice.below(4) == 0 {
            let ms = 20 + dice.below(300);
            return Call {
                tool: "close_connection",
                arguments: format!(r#"{{"ms":{ms}}}"#),
                events: 0,
                text: "reconnected".to_owned(),
                takes: Duration::from_millis(ms),
            };
        }
        let (events, delay) = (1 + dice.below(40), dice.below(15_000));
        Call {
            tool: "burst",
            arguments: format!(r#"{{"events":{events},"bytes":48,"delay_us":{delay}}}"#),
            events,
            text: format!("burst {events} done"),
            takes: Duration::from_micros(events * (delay + 3_000) * 2), // a timer and an append each, at most twice as slow
        }
    }
}
