//! Retention and deletion: what the writer does between commits, a little at a time.
//!
//! Nothing here has to be durable at once, and nothing is lost with the process: what is to be deleted is written down,
//! and what is too much is found again.

use crate::books::{Books, Live};
use crate::chunk::Chunk;
use crate::db::ReadError;
use crate::head::Head;
use crate::keys::{self, Key};
use rethread_store::{Ordinal, Retention, Seq, StreamKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many keys one slice changes, more or less.
pub(crate) const SLICE: usize = 512;
/// How many streams one slice gives up.
const STREAMS: usize = 64;

/// What waits to be done.
#[derive(Default)]
pub(crate) struct Upkeep {
    pub(crate) trims: VecDeque<StreamKey>,
    /// A stream is so far over its limit that it should not wait for a quiet moment.
    pub(crate) urgent: bool,
    /// Sessions that have more ended streams than they may.
    crowded: BTreeSet<u64>,
    /// Sessions whose streams are to be deleted, and which stream comes next.
    dead_sessions: BTreeMap<u64, Ordinal>,
    /// Streams whose events are to be deleted, and which event comes next.
    dead_streams: VecDeque<(u64, Seq)>,
    /// Where the oldest ended stream is searched: not at the very start, where only deleted ones are.
    ended_from: Key,
    tombs_from: Key,
    /// Room is scarce, but no ended stream has events left: it makes no sense to search again.
    nothing_to_bury: bool,
}

impl Upkeep {
    /// A stream has grown: is it too long now?
    pub(crate) fn has_grown(&mut self, key: &StreamKey, live: &mut Live, limits: &Retention) {
        let (count, bytes) = (live.head.count, live.head.bytes);
        let (most, most_bytes) = (limits.events as u64, limits.bytes as u64);
        if count <= most && bytes <= most_bytes {
            return;
        }
        // To trim one event costs nearly as much as to trim many, so a little too much waits for a quiet moment.
        self.urgent |= count > most + (most / 16).max(16) || bytes > most_bytes + most_bytes / 16;
        if !live.queued {
            live.queued = true;
            self.trims.push_back(key.clone());
        }
    }

    pub(crate) fn has_ended(&mut self, by_age: Key) {
        self.nothing_to_bury = false;
        if by_age < self.ended_from {
            self.ended_from = by_age; // the clock was set back
        }
    }

    pub(crate) fn too_many_ended(&mut self, sid: u64) {
        self.crowded.insert(sid);
    }

    pub(crate) fn dead_session(&mut self, sid: u64) {
        self.dead_sessions.insert(sid, Ordinal(0));
    }

    pub(crate) fn dead_stream(&mut self, stream: u64, first: Seq) {
        self.dead_streams.push_back((stream, first));
    }

    /// Whether something can be done that need not wait for the clock.
    fn is_pending(&self) -> bool {
        !(self.trims.is_empty()
            && self.crowded.is_empty()
            && self.dead_sessions.is_empty()
            && self.dead_streams.is_empty())
    }
}

impl Books {
    /// Whether [`Books::slice`] has something to do that need not wait for the clock.
    pub(crate) fn has_work(&self) -> bool {
        self.upkeep.is_pending() || (self.is_tight() && !self.upkeep.nothing_to_bury) || self.shelf.littered().is_some()
    }

    fn is_tight(&self) -> bool {
        let total = self.options.limits.total_bytes;
        self.totals.held > total - total / 32
    }

    /// Does a little of what waits, and commits it. False if there is nothing left to do. Nothing may be staged.
    pub(crate) fn slice(&mut self) -> Result<bool, ReadError> {
        self.drop_empty()?;
        // A little of each: under load there is always more of one, and the others must not wait until there is not.
        let mut done = self.relieve()? || self.relieve_crowded()?;
        self.commit(false)?;
        done |= self.trim_some(SLICE)?;
        self.commit(false)?;
        done |= self.delete_dead_session()? || self.delete_dead_stream()?;
        self.commit(false)?;
        done |= self.gather()? || self.prune_chain();
        self.commit(false)?;
        Ok(done)
    }

    /// Trims every stream that waits for it.
    pub(crate) fn trim_all(&mut self) -> Result<(), ReadError> {
        while self.trim_some(SLICE)? {
            self.commit(false)?;
        }
        Ok(())
    }

    fn trim_some(&mut self, budget: usize) -> Result<bool, ReadError> {
        let mut left = budget;
        while left > 0 {
            let Some(key) = self.upkeep.trims.pop_front() else {
                self.upkeep.urgent = false;
                break;
            };
            let limits = self.options.limits.stream;
            let used = self.trim(&key, &limits, left)?;
            if used == left {
                self.upkeep.trims.push_front(key);
            }
            left -= used;
        }
        Ok(left < budget)
    }

    /// Streams that ended so long ago that they are forgotten. True if there may be more.
    pub(crate) fn forget_aged(&mut self) -> Result<bool, ReadError> {
        let age = u64::try_from(self.options.limits.stream.age.as_millis()).unwrap_or(u64::MAX);
        let Some(until) = self.now().as_millis().checked_sub(age) else {
            return Ok(false);
        };
        for tombs in [true, false] {
            if self.forget_oldest(tombs, |_, at| at <= until)? {
                self.commit(false)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keeps some room before it is needed: burying many streams at once would make somebody wait.
    fn relieve(&mut self) -> Result<bool, ReadError> {
        if !self.is_tight() {
            return Ok(false);
        }
        let total = self.options.limits.total_bytes;
        let buried = self.bury_oldest(total - total / 16)?;
        self.upkeep.nothing_to_bury = !buried;
        Ok(buried)
    }

    /// Frees room for `size` more bytes: first what is deleted anyway, then events of streams that ended longest ago, then
    /// their tombstones, and at last the oldest events of the stream that needs it. False if that is not enough. Nothing may
    /// be staged.
    pub(crate) fn make_room(&mut self, stream: Option<&StreamKey>, size: u64) -> Result<bool, ReadError> {
        let total = self.options.limits.total_bytes;
        let Some(most) = total.checked_sub(size) else {
            return Ok(false);
        };
        while self.totals.held > most {
            let freed = self.delete_dead_session()?
                || self.bury_oldest(most.saturating_sub(total / 16))?
                || self.forget_oldest(true, |books, _| books.totals.held > most)?;
            if !freed {
                break;
            }
            self.commit(false)?;
        }
        if self.totals.held > most
            && let Some(key) = stream
        {
            let bytes = self
                .sessions
                .get(&key.session)
                .and_then(|session| session.open.get(&key.ordinal));
            let bytes = bytes.map_or(0, |live| live.head.bytes);
            let tight = Retention {
                bytes: bytes.saturating_sub(self.totals.held - most) as usize,
                ..self.options.limits.stream
            };
            self.trim(key, &tight, usize::MAX)?;
            self.commit(false)?;
        }
        Ok(self.totals.held <= most)
    }

    /// Makes tombstones of the streams that ended longest ago until no more than `most` bytes are held.
    fn bury_oldest(&mut self, most: u64) -> Result<bool, ReadError> {
        let mut buried = 0;
        for (at, ticket, sid, ordinal) in self.oldest(false)? {
            if self.totals.held <= most {
                break;
            }
            self.upkeep.ended_from = beyond(keys::ended(at, ticket));
            buried += 1;
            if self.upkeep.dead_sessions.contains_key(&sid) {
                continue; // it goes anyway, and is counted there
            }
            self.remove_blind(&keys::ended(at, ticket));
            let Ok(Some(mut head)) = self.head(sid, ordinal) else {
                continue;
            };
            self.totals.held = self.totals.held.saturating_sub(head.bytes);
            self.put_blind(&keys::dead_stream(head.stream), b"");
            self.upkeep.dead_stream(head.stream, head.first);
            head.bury();
            self.put_head(sid, ordinal, &head);
            let tomb = keys::tomb(at, ticket);
            self.upkeep.tombs_from = std::mem::take(&mut self.upkeep.tombs_from).min(tomb.clone());
            self.put_blind(&tomb, &crate::coding::numbers([sid, ordinal.0]));
        }
        Ok(buried > 0)
    }

    /// Forgets the streams that ended longest ago, as long as `also` says so.
    fn forget_oldest(&mut self, tombs: bool, also: impl Fn(&Self, u64) -> bool) -> Result<bool, ReadError> {
        let mut forgotten = 0;
        for (at, ticket, sid, ordinal) in self.oldest(tombs)? {
            if !also(self, at) {
                break;
            }
            forgotten += 1;
            let (key, from) = match tombs {
                true => (keys::tomb(at, ticket), &mut self.upkeep.tombs_from),
                false => (keys::ended(at, ticket), &mut self.upkeep.ended_from),
            };
            *from = beyond(key.clone());
            if self.upkeep.dead_sessions.contains_key(&sid) {
                continue;
            }
            self.remove_blind(&key);
            if let Ok(Some(head)) = self.head(sid, ordinal) {
                self.drop_stream(sid, ordinal, &head)?;
            }
        }
        Ok(forgotten > 0)
    }

    /// Some streams that ended longest ago: when, their ticket, session and ordinal.
    fn oldest(&self, tombs: bool) -> Result<Vec<(u64, u64, u64, Ordinal)>, ReadError> {
        let (prefix, from): (&[u8], _) = match tombs {
            true => (b"t", &self.upkeep.tombs_from),
            false => (b"e", &self.upkeep.ended_from),
        };
        let mut streams = Vec::new();
        for guard in self.db.view().prefix_from(prefix, from).take(STREAMS) {
            let (key, value) = guard.into_inner()?;
            let [at, ticket] = keys::parts(&key).ok_or(ReadError::Garbled("the key of an ended stream"))?;
            let (sid, ordinal) = whose(&value)?;
            streams.push((at, ticket, sid, ordinal));
        }
        Ok(streams)
    }

    /// Sessions with too many ended streams forget those that ended longest ago.
    fn relieve_crowded(&mut self) -> Result<bool, ReadError> {
        let Some(sid) = self.upkeep.crowded.pop_first() else {
            return Ok(false);
        };
        let most = self.options.limits.ended_streams_per_session as u64;
        let Some(count) = self.ended.get(&sid).copied() else {
            return Ok(true); // it is gone, or not in memory: the next stream that ends counts again
        };
        let ended: Result<Vec<_>, _> = self
            .db
            .view()
            .prefix(&keys::all_ended_of(sid))
            .take(
                usize::try_from(count.saturating_sub(most))
                    .unwrap_or(usize::MAX)
                    .min(STREAMS),
            )
            .map(fjall::Guard::into_inner)
            .collect();
        for (key, value) in ended? {
            let (sid, ordinal) = whose(&value)?;
            match self.head(sid, ordinal) {
                Ok(Some(head)) => self.drop_stream(sid, ordinal, &head)?,
                _ => self.remove_blind(&key),
            }
        }
        if self.ended.get(&sid).is_some_and(|count| *count > most) {
            self.upkeep.crowded.insert(sid);
        }
        Ok(true)
    }

    /// Deletes some of the streams of a session that is gone.
    fn delete_dead_session(&mut self) -> Result<bool, ReadError> {
        let Some((&sid, &next)) = self.upkeep.dead_sessions.first_key_value() else {
            return Ok(false);
        };
        let mut left = SLICE;
        let view_of = self.db.clone();
        let heads = view_of.view().prefix_from(&keys::heads(sid), &keys::head(sid, next));
        for guard in heads {
            if left == 0 {
                return Ok(true);
            }
            let (key, value) = guard.into_inner()?;
            let [_, ordinal] = keys::parts(&key).ok_or(ReadError::Garbled("the key of a head"))?;
            self.upkeep.dead_sessions.insert(sid, Ordinal(ordinal));
            let mut fixed_cost = 0;
            if let Some(head) = Head::decode(&value) {
                fixed_cost = head.fixed_cost();
                let mut whole = true;
                // The events of a tombstone have a list of their own, and were counted when it was made.
                let chunks = (!head.buried).then(|| view_of.view().chunks(head.stream, head.first));
                for chunk in chunks.into_iter().flatten() {
                    if left == 0 {
                        whole = false;
                        break;
                    }
                    let chunk = chunk?;
                    self.drop_chunk(head.stream, &chunk);
                    let cost: u64 = chunk.held().map(|held| held.cost()).sum();
                    self.totals.held = self.totals.held.saturating_sub(cost);
                    left -= 1;
                }
                if !whole {
                    return Ok(true);
                }
                if let Some(ended) = head.ended {
                    let by_age = if head.buried { keys::tomb } else { keys::ended };
                    self.remove_blind(&by_age(ended.at, ended.ticket));
                    self.remove_blind(&keys::ended_of(sid, ended.ticket));
                }
            }
            self.remove_blind(&key);
            self.totals.streams = self.totals.streams.saturating_sub(1);
            self.totals.held = self.totals.held.saturating_sub(fixed_cost);
            left = left.saturating_sub(1);
        }
        if self.delete_dead_queue(sid)? {
            return Ok(true);
        }
        self.remove_blind(&keys::high_water(sid));
        self.remove_blind(&keys::dead_session(sid));
        self.upkeep.dead_sessions.remove(&sid);
        Ok(true)
    }

    /// Deletes some of the events of a stream that is gone.
    fn delete_dead_stream(&mut self) -> Result<bool, ReadError> {
        let mut left = SLICE;
        while left > 0 {
            let Some((stream, first)) = self.upkeep.dead_streams.pop_front() else {
                break;
            };
            let chunks: Result<Vec<Chunk>, _> = self.db.view().chunks(stream, first).take(left).collect();
            let chunks = chunks?;
            for chunk in &chunks {
                self.drop_chunk(stream, chunk);
            }
            match chunks.last() {
                Some(last) if chunks.len() == left => {
                    self.upkeep.dead_streams.push_front((stream, last.last().next()));
                }
                _ => self.remove_blind(&keys::dead_stream(stream)),
            }
            left = left.saturating_sub(chunks.len() + 1);
        }
        Ok(left < SLICE)
    }
}

/// The first key after this one.
fn beyond(mut key: Key) -> Key {
    key.push(0);
    key
}

fn whose(value: &[u8]) -> Result<(u64, Ordinal), ReadError> {
    let mut reader = crate::coding::Reader(value);
    let numbers = reader.u64().zip(reader.u64());
    let (sid, ordinal) = numbers.ok_or(ReadError::Garbled("an ended stream"))?;
    Ok((sid, Ordinal(ordinal)))
}
