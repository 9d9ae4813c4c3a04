//! Messages that belong to no call, and the one who listens for them.

use super::raw::{KNOCK, LAST, PATIENCE, Session};
use super::record::{Place, field};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// A server that is not overloaded is much quicker with an answer for which it has nothing to do.
const SLOW: Duration = Duration::from_millis(100);
/// Messages asked for at once.
const BATCH: usize = 5;

/// Messages that were asked for.
pub(super) struct Batch {
    tag: String,
    /// The life of the server that said that they are under way.
    life: Option<usize>,
}

impl Session {
    /// Listens until the last kill is over and all was heard that was said after it.
    pub(super) async fn keep_listening(&self) {
        let mut dice = self.dice(100);
        let mut cursor: Option<Place> = None;
        let mut alone = None;
        while !self.all_heard() {
            if self.server.survived() {
                let since: &mut Instant = alone.get_or_insert_with(Instant::now);
                assert!(since.elapsed() < PATIENCE, "messages after the last kill do not come");
            }
            let connection = match cursor {
                Some(cursor) => self.resume(cursor).await,
                None => self.get(None).await.map(|answer| {
                    assert_eq!((answer.status, answer.is_stream), (200, true), "a push stream");
                    answer.connection
                }),
            };
            let Some(mut connection) = connection else {
                sleep(KNOCK).await;
                continue;
            };
            let mut at = match cursor {
                Some(cursor) => cursor,
                None => match self.primed(&mut connection).await {
                    Some(ordinal) => Place::start_of(ordinal),
                    None => continue,
                },
            };
            let since = Instant::now();
            let limit = Duration::from_millis(300 + dice.below(2_000));
            // Sometimes left in the middle of a batch, when the rest is still on its way to the store.
            let most = if dice.below(2) == 0 {
                1 + dice.below(7)
            } else {
                u64::MAX
            };
            let begun = at;
            let _ = timeout(limit, self.read(&mut connection, &mut at, most, since)).await;
            // A listener that forgets: everything must come once more, and be the same.
            let furthest = self.record().last_of(at.ordinal);
            assert!(at >= begun && at <= furthest);
            let back = if dice.below(3) == 0 { dice.below(20) } else { 0 };
            cursor = Some(Place {
                seq: at.seq - back.min(at.seq),
                ..at
            });
        }
    }

    /// Whether the last kill is over, and every message came that was asked for after it.
    fn all_heard(&self) -> bool {
        if !self.server.survived() {
            return false;
        }
        let record = self.record();
        let last: Vec<String> = (0..LAST).map(|n| format!("\"last{n} {BATCH} ")).collect();
        last.iter()
            .all(|last| record.pushed().any(|payload| payload.contains(last)))
    }

    /// Has the server say something unasked until the last kill is over, and a little longer.
    pub(super) async fn keep_pushing(&self) {
        let mut dice = self.dice(200);
        let mut number = 0;
        while !self.server.survived() {
            self.push(format!("batch{number}")).await;
            number += 1;
            sleep(Duration::from_millis(50 + dice.below(200))).await;
        }
        for number in 0..LAST {
            assert!(self.push(format!("last{number}")).await, "the server is alive for good");
        }
    }

    async fn push(&self, tag: String) -> bool {
        let id = self.new_id();
        let arguments = format!(r#"{{"events":{BATCH},"tag":"{tag}"}}"#);
        let (asked, life) = (Instant::now(), self.server.life());
        let said = self.json(id, "notify_self", &arguments).await;
        if asked.elapsed() > SLOW {
            self.server.is_slow();
        }
        if let Some(said) = &said {
            assert_eq!(
                field(said, "text"),
                Some(format!("notified {BATCH}").as_str()),
                "{said}"
            );
        }
        let life = life.filter(|life| said.is_some() && self.server.life() == Some(*life));
        self.batches().push(Batch { tag, life });
        said.is_some()
    }

    /// Every push stream, from its beginning.
    pub(super) async fn replay_all_pushed(&self) {
        let streams = self.record().push_streams();
        for ordinal in streams {
            let (mut cursor, last) = (Place::start_of(ordinal), self.record().last_of(ordinal));
            if last == cursor {
                continue;
            }
            let connection = self.resume(cursor).await;
            let mut connection = connection.expect("the server is alive for good");
            let most = last.seq;
            self.read(&mut connection, &mut cursor, most, Instant::now()).await;
            assert_eq!(cursor, last, "a push stream comes once more as it came");
        }
        self.check_batches();
    }

    /// Each message once, in order, and none missing from the middle: a kill takes what it finds in memory, which is
    /// the last.
    fn check_batches(&self) {
        let (record, batches) = (self.record(), self.batches());
        let data = record.pushed().filter_map(|payload| field(payload, "data"));
        let heard: Vec<String> = data
            .map(|data| data.split(' ').take(2).collect::<Vec<_>>().join(" "))
            .collect();
        let mut rest = heard.iter().map(String::as_str).peekable();
        let mut cut_short = None;
        for Batch { tag, life } in batches.iter() {
            let mut came = 0;
            while rest.peek().is_some_and(|next| *next == format!("{tag} {}", came + 1)) {
                rest.next();
                came += 1;
            }
            if let Some((life_before, before)) = &cut_short
                && came > 0
                && life_before == life
            {
                panic!("messages of {before} are missing, and {tag} of the same life came; all: {heard:?}");
            }
            if came < BATCH {
                assert!(
                    !tag.starts_with("last"),
                    "only {came} of {BATCH} messages of {tag} came"
                );
                cut_short = life.map(|life| (Some(life), tag)).or(cut_short);
            }
        }
        assert_eq!(
            rest.next(),
            None,
            "twice, out of order, or from nowhere; all: {heard:?}"
        );
    }
}
