//! The part of compaction that changes the log: copies live parts of records.

use crate::engine::Engine;
use crate::group::Location;
use crate::record::{Part, Record};
use bytes::Bytes;
use rethread_store::StoreError;

impl Engine {
    /// Copies the live parts of a record to the end of the log.
    pub(crate) fn move_live(&mut self, record: &Record, at: Location, body: &Bytes) -> Result<(), StoreError> {
        let moved = match record {
            Record::Create { session, .. } | Record::Update { session, .. } => self.moved_record(*session, at, body),
            Record::Queue { session, .. } => self.moved_messages(*session, at, body),
            _ => self.moved_events(record, at, body),
        };
        match moved {
            Some((record, bodies)) => self.log(record, &bodies),
            None => Ok(()),
        }
    }

    /// The part at `from` of a body at `at`, if it is undamaged. A damaged part is not moved, and its segment stays.
    fn whole_part(&mut self, body: &Bytes, at: Location, from: Location, part: Part) -> Option<Bytes> {
        let start = (from.offset - at.offset) as usize;
        let range = start..start + part.len as usize;
        let is_whole = body.get(range.clone()).is_some_and(|bytes| part.matches(bytes));
        if !is_whole {
            self.index.segments.set_damaged(at.segment);
        }
        is_whole.then(|| body.slice(range))
    }

    fn moved_record(&mut self, session: u64, at: Location, body: &Bytes) -> Option<(Record, Vec<Bytes>)> {
        let stored = self
            .index
            .sessions
            .get(&session)
            .filter(|stored| stored.record.at == at)?;
        let (part, touched, epoch) = (stored.record.part, stored.touched, stored.epoch);
        let bytes = self.whole_part(body, at, at, part)?;
        let record = Record::Update {
            session,
            at: touched,
            epoch,
            body: part,
        };
        Some((record, vec![bytes]))
    }

    fn moved_messages(&mut self, session: u64, at: Location, body: &Bytes) -> Option<(Record, Vec<Bytes>)> {
        let queue = self.index.sessions.get(&session)?.queue.as_deref()?;
        // The range includes the end, for an empty message. No other body begins there, because a header precedes it.
        let held = queue
            .messages
            .iter()
            .filter(|(_, held)| (at..=at.plus(body.len())).contains(held));
        let (floor, held): (_, Vec<_>) = (queue.floor, held.copied().collect());
        let (mut messages, mut bodies) = (Vec::new(), Vec::new());
        for (message, from) in held {
            bodies.push(self.whole_part(body, at, from, message.body)?);
            messages.push(message);
        }
        let record = Record::Queue {
            session,
            floor,
            messages,
        };
        (!bodies.is_empty()).then_some((record, bodies))
    }

    fn moved_events(&mut self, record: &Record, at: Location, body: &Bytes) -> Option<(Record, Vec<Bytes>)> {
        let (session, ordinal, recorded) = record.events()?;
        let (mut events, mut bodies, mut from) = (Vec::new(), Vec::new(), at);
        for (seq, part) in recorded {
            if self.index.stream(session, ordinal)?.holds(seq, from) {
                let Some(payload) = self.whole_part(body, at, from, part) else {
                    self.index.mark_damaged(session, ordinal, seq);
                    return None;
                };
                events.push((seq, part));
                bodies.push(payload);
            }
            from = from.plus(part.len as usize);
        }
        let record = Record::Move {
            session,
            ordinal,
            events,
        };
        (!bodies.is_empty()).then_some((record, bodies))
    }
}
