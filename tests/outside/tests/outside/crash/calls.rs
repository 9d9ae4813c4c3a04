//! Calls that must end correctly despite kills, and streams that must not change after their end.

use super::raw::{FINAL_ROUNDS, RECONNECT_INTERVAL, ReadOutcome, SETTLE_TIME, STEP_TIMEOUT, Session};
use super::received::{StreamEventId, field};
use crate::nodes::cluster::death_bound;
use rethread_testkit::proxy::SplitMix64;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Concurrent callers per session.
pub(super) const CALLERS_PER_SESSION: usize = 3;

/// On top of the bound of the design: the clients, three nodes and Redis share two cores.
const BUSY_MACHINE: Duration = Duration::from_secs(1);

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All events and the result arrived.
    Finished,
    /// A kill interrupted the call, and its error says so.
    Restarted,
    /// The server was down, or was killed before its first event.
    Unknown,
}

/// A call and its expected result.
struct Call {
    tool: &'static str,
    arguments: String,
    events: u64,
    text: String,
    /// Expected running time.
    duration: Duration,
}

/// Counters for the summary.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) ids: AtomicUsize,
    pub(super) resumed: AtomicUsize,
    finished: AtomicUsize,
    restarted: AtomicUsize,
    unknown: AtomicUsize,
    replays: AtomicUsize,
    /// Milliseconds from the death of a node until a client that waited for it got an error.
    longest_wait: AtomicUsize,
    /// Clients that were notified after the bound of the design.
    late: AtomicUsize,
}

impl Tally {
    /// Adds the counters of another tally.
    pub(super) fn merge(&self, other: &Tally) {
        let pairs = [
            (&self.ids, &other.ids),
            (&self.resumed, &other.resumed),
            (&self.finished, &other.finished),
            (&self.restarted, &other.restarted),
            (&self.unknown, &other.unknown),
            (&self.replays, &other.replays),
            (&self.late, &other.late),
        ];
        for (own, other) in pairs {
            own.fetch_add(other.load(Relaxed), Relaxed);
        }
        self.longest_wait.fetch_max(other.longest_wait.load(Relaxed), Relaxed);
    }

    /// The number of clients that were notified after the bound of the design.
    pub(super) fn late(&self) -> usize {
        self.late.load(Relaxed)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = [
            &self.finished,
            &self.restarted,
            &self.unknown,
            &self.resumed,
            &self.replays,
            &self.longest_wait,
            &self.late,
        ];
        let [finished, restarted, unknown, resumed, replays, longest_wait, late] = counters.map(|n| n.load(Relaxed));
        write!(
            f,
            "{finished} calls finished, {restarted} restarted (told within {longest_wait} ms, {late} late), {unknown} unknown; \
             {resumed} resumptions, {replays} replays of ended streams"
        )
    }
}

impl Session {
    /// Calls until the last kill, then `FINAL_ROUNDS` more times.
    pub(super) async fn call_until_end(&self, caller: u64) {
        let mut random = self.random(caller);
        while !self.server.kills_are_over() {
            let call = Call::draw(&mut random);
            if self.call(&call, &mut random).await == Outcome::Unknown {
                sleep(RECONNECT_INTERVAL).await;
            }
        }
        for _ in 0..FINAL_ROUNDS {
            let call = Call::draw(&mut random);
            let outcome = self.call(&call, &mut random).await;
            assert_eq!(
                outcome,
                Outcome::Finished,
                "{} {} after the last kill",
                call.tool,
                call.arguments
            );
        }
    }

    /// Makes one call over as many connections as necessary.
    async fn call(&self, call: &Call, random: &mut SplitMix64) -> Outcome {
        let outcome = self.call_to_its_end(call, random).await;
        let counter = match outcome {
            Outcome::Finished => &self.tally.finished,
            Outcome::Restarted => &self.tally.restarted,
            Outcome::Unknown => &self.tally.unknown,
        };
        counter.fetch_add(1, Relaxed);
        outcome
    }

    async fn call_to_its_end(&self, call: &Call, random: &mut SplitMix64) -> Outcome {
        let id = self.new_id();
        let Some(answer) = self.tool(id, call.tool, &call.arguments).await else {
            return Outcome::Unknown;
        };
        assert_eq!(
            (answer.status, answer.is_stream),
            (200, true),
            "call {id} of {}",
            call.tool
        );
        let node = answer.node;
        let (mut reader_node, mut connected) = (node, Instant::now());
        let mut connection = answer.connection;
        let Some(ordinal) = self.read_priming_event(&mut connection).await else {
            return Outcome::Unknown;
        };
        assert_eq!(ordinal % 2, 1, "the stream of a call has an odd number");
        let started = Instant::now();
        let mut cursor = StreamEventId::first_of(ordinal);
        let mut connection = Some(connection);
        let answer = loop {
            if let Some(mut connection) = connection.take() {
                let most = if random.below(3) == 0 {
                    random.below(8)
                } else {
                    u64::MAX
                };
                match self.read(&mut connection, &mut cursor, most, started).await {
                    ReadOutcome::Answered(answer) => break answer,
                    ReadOutcome::Disconnected => {}
                }
                drop(connection);
                sleep(Duration::from_millis(random.below(400))).await; // some answers are ready while no client is connected
            }
            assert!(
                started.elapsed() < call.duration + STEP_TIMEOUT,
                "call {id} hangs at {cursor}"
            );
            let resumed = self.resume(cursor).await;
            connected = Instant::now();
            connection = resumed.map(|resumed| {
                reader_node = resumed.node;
                resumed.connection
            });
        };
        let answered = Instant::now();
        self.received().end_stream(cursor);
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
        assert!(cursor.seq <= call.events + 1, "{cursor} is after the last progress");
        let outage = self.server.next_outage_after(started, node);
        let outage = outage.unwrap_or_else(|| panic!("call {id} reports a restart that did not happen"));
        if self.server.has_nodes {
            // A paused node cannot notify its own clients.
            let reader_runs = self.server.end_of_outage_during(reader_node, connected, answered);
            let waiting = connected.max(outage.from).max(reader_runs.unwrap_or(connected));
            let waited = answered.saturating_duration_since(waiting);
            self.tally.longest_wait.fetch_max(waited.as_millis() as usize, Relaxed);
            self.tally.late.fetch_add(usize::from(waited >= death_bound()), Relaxed);
            assert!(
                waited < death_bound() + BUSY_MACHINE,
                "call {id} of {node} was told by {reader_node} after {waited:?}, {:?} after it connected",
                answered - connected
            );
        }
        let spare = outage.from.saturating_duration_since(started + call.duration);
        assert!(
            spare < SETTLE_TIME || !self.server.was_responsive(started, outage.from),
            "call {id} ended about {spare:?} before the kill, and its result is lost: {answer}"
        );
        Outcome::Restarted
    }

    /// Resumes ended streams from random positions. They must not have changed.
    pub(super) async fn replay_until_end(&self) {
        let mut random = self.random(300);
        while !self.server.kills_are_over() {
            sleep(Duration::from_millis(random.below(60))).await;
            let ends = self.received().call_stream_ends();
            // Mostly the latest ones: a kill may have hit them before they reached the disk.
            let reach = if random.below(3) == 0 { ends.len() } else { 4 };
            let Some(end) = ends
                .iter()
                .nth_back(random.below(reach.min(ends.len()) as u64) as usize)
            else {
                continue;
            };
            self.replay(*end, random.below(end.seq + 1)).await;
        }
    }

    /// Reads an ended stream again after `from`.
    async fn replay(&self, end: StreamEventId, from: u64) {
        let started = Instant::now();
        let mut cursor = StreamEventId { seq: from, ..end };
        loop {
            assert!(
                started.elapsed() < STEP_TIMEOUT,
                "the replay of {end} hangs at {cursor}"
            );
            if cursor == end {
                // The cursor is at the end. An empty 200 would make clients resume for ever (RES-07).
                if self.get(Some(cursor)).await.is_some_and(|answer| answer.status == 400) {
                    break;
                }
                sleep(RECONNECT_INTERVAL).await;
                continue;
            }
            let Some(mut resumed) = self.resume(cursor).await else {
                continue;
            };
            if let ReadOutcome::Answered(_) = self.read(&mut resumed.connection, &mut cursor, u64::MAX, started).await {
                assert_eq!(cursor, end, "the same end as before");
                break;
            }
        }
        self.tally.replays.fetch_add(1, Relaxed);
    }

    /// Replays every ended call from its start.
    pub(super) async fn replay_all_calls(&self) {
        let ends = self.received().call_stream_ends();
        for end in ends {
            self.replay(end, 0).await;
        }
    }
}

impl Call {
    fn draw(random: &mut SplitMix64) -> Self {
        if random.below(4) == 0 {
            let ms = 20 + random.below(300);
            return Call {
                tool: "close_connection",
                arguments: format!(r#"{{"ms":{ms}}}"#),
                events: 0,
                text: "reconnected".to_owned(),
                duration: Duration::from_millis(ms),
            };
        }
        let (events, delay) = (1 + random.below(40), random.below(15_000));
        Call {
            tool: "burst",
            arguments: format!(r#"{{"events":{events},"bytes":48,"delay_us":{delay}}}"#),
            events,
            text: format!("burst {events} done"),
            duration: Duration::from_micros(events * (delay + 3_000) * 2), // a timer and an append per event, with a factor of two
        }
    }
}
