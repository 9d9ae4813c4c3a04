//! Messages outside of calls, and a client that listens for them.

use super::raw::{FINAL_ROUNDS, RECONNECT_INTERVAL, STEP_TIMEOUT, Session};
use super::received::{StreamEventId, field};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// A trivial request that takes longer shows that the server is overloaded.
const SLOW_RESPONSE: Duration = Duration::from_millis(100);
/// Messages per request.
const BATCH_MESSAGES: usize = 5;

/// Messages of one request.
pub(super) struct Batch {
    tag: String,
    /// The lifetime of the server that confirmed the request.
    life: Option<usize>,
    /// The request was answered.
    is_confirmed: bool,
}

impl Session {
    /// Listens until the last kill is over and all later messages have arrived.
    pub(super) async fn listen_until_end(&self) {
        let mut random = self.random(100);
        let mut cursor: Option<StreamEventId> = None;
        let mut alone = None;
        while !self.all_received() {
            if self.server.kills_are_over() {
                let since: &mut Instant = alone.get_or_insert_with(Instant::now);
                assert!(
                    since.elapsed() < STEP_TIMEOUT,
                    "messages after the last kill are missing"
                );
            }
            let answer = match cursor {
                Some(cursor) => self.resume(cursor).await,
                None => self.get(None).await,
            };
            let Some(answer) = answer else {
                sleep(RECONNECT_INTERVAL).await;
                continue;
            };
            assert_eq!((answer.status, answer.is_stream), (200, true), "a push stream");
            let mut connection = answer.connection;
            let mut at = match cursor {
                Some(cursor) => cursor,
                None => match self.read_priming_event(&mut connection).await {
                    Some(ordinal) => StreamEventId::first_of(ordinal),
                    None => continue,
                },
            };
            let since = Instant::now();
            let limit = Duration::from_millis(300 + random.below(2_000));
            // Sometimes disconnect during a batch, before all its messages are stored.
            let most = if random.below(2) == 0 {
                1 + random.below(7)
            } else {
                u64::MAX
            };
            let started = at;
            let _ = timeout(limit, self.read(&mut connection, &mut at, most, since)).await;
            // Sometimes resume from an older cursor: all events must be repeated unchanged.
            let furthest = self.received().last_event(at.ordinal);
            assert!(at >= started && at <= furthest);
            let back = if random.below(3) == 0 { random.below(20) } else { 0 };
            cursor = Some(StreamEventId {
                seq: at.seq - back.min(at.seq),
                ..at
            });
        }
    }

    /// Whether the last kill is over and all messages requested after it have arrived.
    fn all_received(&self) -> bool {
        if !self.server.kills_are_over() {
            return false;
        }
        let received = self.received();
        let last: Vec<String> = (0..FINAL_ROUNDS)
            .map(|n| format!("\"last{n} {BATCH_MESSAGES} "))
            .collect();
        last.iter()
            .all(|last| received.pushed().any(|payload| payload.contains(last)))
    }

    /// Requests pushes until the last kill, then `FINAL_ROUNDS` more times.
    pub(super) async fn push_until_end(&self) {
        let mut random = self.random(200);
        let mut number = 0;
        while !self.server.kills_are_over() {
            self.push(format!("batch{number}")).await;
            number += 1;
            sleep(Duration::from_millis(50 + random.below(200))).await;
        }
        for number in 0..FINAL_ROUNDS {
            assert!(self.push(format!("last{number}")).await, "no more kills");
        }
    }

    async fn push(&self, tag: String) -> bool {
        let id = self.new_id();
        let arguments = format!(r#"{{"events":{BATCH_MESSAGES},"tag":"{tag}"}}"#);
        let (asked, life) = (Instant::now(), self.server.current());
        let said = self.json(id, "notify_self", &arguments).await;
        if asked.elapsed() > SLOW_RESPONSE {
            self.server.record_slow_response();
        }
        if let Some(said) = &said {
            assert_eq!(
                field(said, "text"),
                Some(format!("notified {BATCH_MESSAGES}").as_str()),
                "{said}"
            );
        }
        let life = life.filter(|life| said.is_some() && self.server.current() == Some(*life));
        let is_confirmed = said.is_some();
        self.batches().push(Batch {
            tag,
            life,
            is_confirmed,
        });
        said.is_some()
    }

    /// Replays every push stream from its start.
    pub(super) async fn replay_all_pushed(&self) {
        let streams = self.received().push_streams();
        for ordinal in streams {
            let (mut cursor, last) = (StreamEventId::first_of(ordinal), self.received().last_event(ordinal));
            if last == cursor {
                continue;
            }
            let mut connection = self.resume(cursor).await.expect("no more kills").connection;
            let most = last.seq;
            self.read(&mut connection, &mut cursor, most, Instant::now()).await;
            assert_eq!(cursor, last, "the same push stream as before");
        }
        self.check_batches();
    }

    /// Checks that each message arrived once, in order, without gaps. A kill may only remove the last messages, which were
    /// still in memory.
    fn check_batches(&self) {
        let (received, batches) = (self.received(), self.batches());
        let data = received.pushed().filter_map(|payload| field(payload, "data"));
        let received: Vec<String> = data
            .map(|data| data.split(' ').take(2).collect::<Vec<_>>().join(" "))
            .collect();
        if self.server.has_nodes {
            return check_confirmed_batches(&received, &batches);
        }
        let mut rest = received.iter().map(String::as_str).peekable();
        let mut cut_short = None;
        for Batch { tag, life, .. } in batches.iter() {
            let mut came = 0;
            while rest.peek().is_some_and(|next| *next == format!("{tag} {}", came + 1)) {
                rest.next();
                came += 1;
            }
            if let Some((life_before, before)) = &cut_short
                && came > 0
                && life_before == life
            {
                panic!("messages of {before} are missing, and {tag} of the same lifetime arrived; all: {received:?}");
            }
            if came < BATCH_MESSAGES {
                assert!(
                    !tag.starts_with("last"),
                    "only {came} of {BATCH_MESSAGES} messages of {tag} arrived"
                );
                cut_short = life.map(|life| (Some(life), tag)).or(cut_short);
            }
        }
        assert_eq!(
            rest.next(),
            None,
            "repeated, out of order or unexpected; all: {received:?}"
        );
    }
}

/// With several nodes, an answered request has stored its messages: they arrived once, in order. The others may be missing
/// from the last one on, and may be among those of later requests.
fn check_confirmed_batches(received: &[String], batches: &[Batch]) {
    let messages =
        |batch: &Batch| -> Vec<String> { (1..=BATCH_MESSAGES).map(|n| format!("{} {n}", batch.tag)).collect() };
    let is_unconfirmed = |message: &&String| {
        let of = |batch: &&Batch| message.split(' ').next() == Some(&batch.tag);
        batches
            .iter()
            .filter(|batch| !batch.is_confirmed)
            .any(|batch| of(&batch))
    };
    let (unconfirmed, confirmed): (Vec<&String>, Vec<&String>) = received.iter().partition(is_unconfirmed);
    let expected: Vec<String> = batches
        .iter()
        .filter(|batch| batch.is_confirmed)
        .flat_map(messages)
        .collect();
    assert!(
        confirmed.iter().copied().eq(&expected),
        "lost, repeated or out of order: {confirmed:?} instead of {expected:?}"
    );
    for batch in batches.iter().filter(|batch| !batch.is_confirmed) {
        let came = unconfirmed
            .iter()
            .copied()
            .filter(|message| message.split(' ').next() == Some(&batch.tag));
        let came: Vec<_> = came.cloned().collect();
        assert!(messages(batch).starts_with(&came), "repeated or out of order: {came:?}");
    }
}
