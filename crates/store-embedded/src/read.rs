//! Reads. Each looks at one state of the database, so that it never sees half of a commit; the writer's memory has no
//! part in it.

use crate::books::high_water;
use crate::coding::number;
use crate::db::{ReadError, View};
use crate::head::Head;
use crate::keys;
use crate::row::Row;
use crate::waiting;
use rethread_proto::clock::Wall;
use rethread_store::{
    Event, Ordinal, Page, ReadLimit, Retain, Seq, SessionKey, StoreError, StoredQueue, StoredSession, StreamKey,
    StreamStatus,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often a stream was found to be damaged, in this process.
static DAMAGED: AtomicU64 = AtomicU64::new(0);

/// How often a stream was found to be damaged, in this process.
pub(crate) fn damaged() -> u64 {
    DAMAGED.load(Ordering::Relaxed)
}

pub(crate) fn page(view: &View<'_>, key: &StreamKey, after: Seq, limit: ReadLimit) -> Result<Page, StoreError> {
    let head = find(view, key)?;
    let status = summarize(view, &head)?;
    let (mut events, mut total, mut whole) = (Vec::new(), 0, true);
    let mut continuity = Continuity::after(&head, after);
    let from = after.0.checked_add(1).map(|next| head.first.max(Seq(next)));
    let chunks = from.into_iter().flat_map(|from| view.chunks(head.stream, from));
    'chunks: for chunk in chunks {
        let chunk = chunk?;
        let mut payloads = None;
        for held in chunk.held().filter(|held| Some(held.seq) >= from) {
            let first = total == 0;
            total += held.range.len().max(1);
            if events.len() == limit.events || !(first || total <= limit.bytes) {
                whole = false;
                break 'chunks;
            }
            continuity.saw(held.seq).map_err(|gap| Damage::new(key, gap).report())?;
            let payloads = match &mut payloads {
                Some(payloads) => payloads,
                none => none.insert(
                    view.payloads(&chunk)?
                        .ok_or_else(|| Damage::new(key, (chunk.first.0, chunk.last().0)).report())?,
                ),
            };
            events.push(Event {
                seq: held.seq,
                payload: payloads.slice(held.range),
                // The end of a stream releases every question.
                retain: if status.sealed && held.retain == Retain::Question {
                    Retain::None
                } else {
                    held.retain
                },
            });
        }
    }
    if whole {
        continuity
            .ends_with(status.last)
            .map_err(|gap| Damage::new(key, gap).report())?;
    }
    Ok(Page { events, status })
}

pub(crate) fn status(view: &View<'_>, key: &StreamKey) -> Result<StreamStatus, StoreError> {
    summarize(view, &find(view, key)?)
}

fn find(view: &View<'_>, key: &StreamKey) -> Result<Head, StoreError> {
    let row = row(view, &key.session)?.ok_or(StoreError::UnknownStream)?;
    let head = view.get(&keys::head(row.sid, key.ordinal)).map_err(ReadError::from)?;
    let head = head.ok_or(StoreError::UnknownStream)?;
    Ok(Head::decode(&head).ok_or(ReadError::Garbled("a stream's head"))?)
}

fn row(view: &View<'_>, key: &SessionKey) -> Result<Option<Row>, ReadError> {
    let Some(key) = keys::row(key) else { return Ok(None) };
    let Some(value) = view.get(&key)? else { return Ok(None) };
    Row::decode(&value).map(Some).ok_or(ReadError::Garbled("a session"))
}

fn summarize(view: &View<'_>, head: &Head) -> Result<StreamStatus, StoreError> {
    let mut first_kept = None;
    if !head.buried {
        for chunk in view.chunks(head.stream, head.first) {
            first_kept = chunk?.held().map(|held| held.seq).find(|seq| *seq >= head.first);
            if first_kept.is_some() {
                break;
            }
        }
    }
    let mut last = head.last;
    if head.ended.is_none()
        && let Some(guard) = view.prefix(&keys::chunks(head.stream)).next_back()
    {
        let key = guard.key().map_err(ReadError::from)?;
        let [_, seq] = keys::parts(&key).ok_or(ReadError::Garbled("the key of events"))?;
        last = last.max(Some(Seq(seq)));
    }
    Ok(StreamStatus {
        info: head.info.clone(),
        epoch: head.epoch,
        last,
        purged: head.purged,
        first_kept,
        sealed: head.ended.is_some(),
        answers_lost: head.answers_lost,
    })
}

pub(crate) fn open_streams(view: &View<'_>, key: &SessionKey) -> Result<Vec<Ordinal>, StoreError> {
    let Some(row) = row(view, key)? else {
        return Ok(Vec::new());
    };
    let mut open = Vec::new();
    for guard in view.prefix(&keys::heads(row.sid)) {
        let (key, value) = guard.into_inner().map_err(ReadError::from)?;
        let [_, ordinal] = keys::parts(&key).ok_or(ReadError::Garbled("the key of a head"))?;
        if !Head::has_ended(&value) {
            open.push(Ordinal(ordinal));
        }
    }
    Ok(open)
}

pub(crate) fn load(view: &View<'_>, key: &SessionKey, now: Wall) -> Result<StoredSession, StoreError> {
    let row = row(view, key)?.ok_or(StoreError::SessionGone)?;
    Ok(StoredSession {
        record: row.record().ok_or(ReadError::Garbled("a session's record"))?,
        high_water: high_water(view, row.sid)?,
        idle: now.since(touched(view, key)?),
    })
}

pub(crate) fn queue(view: &View<'_>, key: &SessionKey) -> Result<StoredQueue, StoreError> {
    let row = row(view, key)?.ok_or(StoreError::SessionGone)?;
    Ok(waiting::load(view, row.sid)?)
}

/// When a session that is there was last used.
fn touched(view: &View<'_>, key: &SessionKey) -> Result<Wall, ReadError> {
    let key = keys::touched(key).ok_or(ReadError::Garbled(TOUCHED))?;
    let value = view.get(&key)?.ok_or(ReadError::Garbled(TOUCHED))?;
    used_at(&value)
}

const TOUCHED: &str = "the time of a session's last use";

/// What a [`keys::touched`] says.
pub(crate) fn used_at(value: &[u8]) -> Result<Wall, ReadError> {
    let millis = number(value).ok_or(ReadError::Garbled(TOUCHED))?;
    Ok(Wall::from_millis(millis))
}

/// The sessions that nobody used for `idle`, and those touched in the future: the clock was set back.
pub(crate) fn idle(view: &View<'_>, now: Wall, idle: Duration) -> Result<Vec<SessionKey>, StoreError> {
    let mut sessions = Vec::new();
    for guard in view.prefix(keys::TOUCHED) {
        let (key, value) = guard.into_inner().map_err(ReadError::from)?;
        let touched = used_at(&value)?;
        if now.since(touched) >= idle || touched > now {
            sessions.push(keys::session(&key).ok_or(ReadError::Garbled("the key of a session"))?);
        }
    }
    Ok(sessions)
}

/// Checks that nothing is missing but what was evicted: a stream with a hole is never served.
pub(crate) struct Continuity {
    purged: Option<Seq>,
    expected: Option<u64>,
}

/// The numbers that are missing: the first and the last.
pub(crate) type Gap = (u64, u64);

impl Continuity {
    /// Over all events of a stream.
    pub(crate) fn over(head: &Head) -> Self {
        Continuity {
            purged: head.purged,
            expected: head.purged.map(|purged| purged.0 + 1),
        }
    }

    /// Over the events after a cursor.
    pub(crate) fn after(head: &Head, cursor: Seq) -> Self {
        let purged = head.purged.unwrap_or_default();
        Continuity {
            purged: head.purged,
            expected: Some(cursor.max(purged).0.saturating_add(1)),
        }
    }

    pub(crate) fn saw(&mut self, seq: Seq) -> Result<(), Gap> {
        if self.purged.is_some_and(|purged| seq <= purged) {
            return Ok(()); // one that eviction passed over
        }
        let expected = self.expected.unwrap_or(seq.0.min(Seq::FIRST.0)); // the priming event may be missing
        self.expected = Some(seq.0 + 1);
        if seq.0 == expected {
            Ok(())
        } else {
            Err((expected, seq.0.saturating_sub(1)))
        }
    }

    pub(crate) fn ends_with(&self, last: Option<Seq>) -> Result<(), Gap> {
        let expected = self.expected.unwrap_or(Seq::FIRST.0);
        match last {
            Some(last) if expected <= last.0 => Err((expected, last.0)),
            _ => Ok(()),
        }
    }
}

/// A stream lacks events that were never evicted.
#[derive(Debug, thiserror::Error)]
#[error("stream {ordinal} of session {session}… is damaged: {} missing", missing(.gap))]
pub(crate) struct Damage {
    session: String,
    ordinal: Ordinal,
    gap: Gap,
}

fn missing(gap: &Gap) -> String {
    match gap {
        (first, last) if first == last => format!("event {first} is"),
        (first, last) => format!("events {first} to {last} are"),
    }
}

impl Damage {
    pub(crate) fn new(key: &StreamKey, gap: Gap) -> Self {
        Damage {
            session: key.session.session.short().to_owned(),
            ordinal: key.ordinal,
            gap,
        }
    }

    /// Says it aloud, and makes a refusal of it.
    pub(crate) fn report(self) -> StoreError {
        DAMAGED.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            session = self.session,
            stream = self.ordinal.0,
            missing = keys::span(self.gap.0, self.gap.1),
            "a stream in the store is damaged and will not be served"
        );
        StoreError::unavailable(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rethread_proto::StreamKind;
    use rethread_store::StreamInfo;

    fn head(purged: Option<u64>) -> Head {
        let info = StreamInfo {
            kind: StreamKind::Call,
            calls: Vec::new(),
            node: "n".into(),
        };
        Head {
            purged: purged.map(Seq),
            ..Head::new(1, info, 1)
        }
    }

    fn gap(mut continuity: Continuity, seen: &[u64], last: Option<u64>) -> Option<Gap> {
        let seen = seen.iter().try_for_each(|seq| continuity.saw(Seq(*seq)));
        seen.and_then(|()| continuity.ends_with(last.map(Seq))).err()
    }

    #[test]
    fn a_hole_is_found_and_an_eviction_is_none() {
        let (whole, trimmed) = (head(None), head(Some(7)));
        assert_eq!(gap(Continuity::over(&whole), &[], None), None);
        assert_eq!(gap(Continuity::over(&whole), &[0, 1, 2], Some(2)), None);
        assert_eq!(gap(Continuity::over(&whole), &[1, 2], Some(2)), None);
        assert_eq!(gap(Continuity::over(&whole), &[2, 3], Some(3)), Some((1, 1)));
        assert_eq!(gap(Continuity::over(&whole), &[1, 5], Some(5)), Some((2, 4)));
        assert_eq!(gap(Continuity::over(&whole), &[1, 2], Some(4)), Some((3, 4)));
        assert_eq!(gap(Continuity::over(&trimmed), &[2, 5, 8, 9], Some(9)), None);
        assert_eq!(gap(Continuity::over(&trimmed), &[2, 9], Some(9)), Some((8, 8)));
        assert_eq!(gap(Continuity::over(&trimmed), &[], Some(7)), None);
        assert_eq!(gap(Continuity::after(&whole, Seq(3)), &[4, 5], Some(5)), None);
        assert_eq!(gap(Continuity::after(&whole, Seq(9)), &[], Some(5)), None);
        assert_eq!(gap(Continuity::after(&trimmed, Seq(3)), &[5, 8], Some(8)), None);
        assert_eq!(gap(Continuity::after(&whole, Seq(u64::MAX)), &[], Some(5)), None);
    }
}
