//! What the writer knows of an open database, and what it is about to change.
//!
//! Only the writer has this. Whatever is in memory can be read from the disk again, so after a failed commit the books
//! are thrown away and made anew: what is on the disk is the truth.

use crate::coding::{number, numbers};
use crate::db::{Changes, Db, ReadError};
use crate::head::Head;
use crate::keys::{self, Key};
use crate::options::Options;
use crate::row::Row;
use crate::shelf::{Shelf, Stat};
use crate::upkeep::Upkeep;
use crate::waiting::QueueIndex;
use crate::watches::Effect;
use fjall::Slice;
use rethread_proto::clock::Wall;
use rethread_store::{Ordinal, Retain, Seq, SessionKey, StoreError};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Numbers for sessions and streams are promised in blocks, so that not every one is written down.
const ID_BLOCK: u64 = 1024;
/// The chain is cut in steps like this.
const CHAIN_STEP: u64 = 4096;
/// When so many sessions are in memory, those that have no open stream go; when this many more, all go.
const MANY_SESSIONS: usize = 1 << 16;

pub(crate) struct Books {
    pub(crate) db: Db,
    pub(crate) options: Arc<Options>,
    pub(crate) sessions: HashMap<SessionKey, Session>,
    /// How many ended streams a session in memory has, by its `sid`.
    pub(crate) ended: HashMap<u64, u64>,
    pub(crate) upkeep: Upkeep,
    pub(crate) shelf: Shelf,
    pub(crate) totals: Totals,
    pub(crate) effects: Vec<Effect>,
    changes: Changes,
    /// What `changes` does to rows, heads and pinned events: what was decided in this group is true for the rest of it.
    overlay: BTreeMap<Key, Option<Slice>>,
    ids: Ids,
    chain: Chain,
}

/// A session that was in use lately.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) sid: u64,
    pub(crate) high_water: Ordinal,
    /// Those that have not ended.
    pub(crate) open: BTreeMap<Ordinal, Live>,
    /// The epoch of its record, if that was looked at.
    pub(crate) epoch: Option<u64>,
    /// Its push queue, if that was looked at.
    pub(crate) queue: Option<QueueIndex>,
}

/// An open stream: its head as it is by now, and how far eviction has come.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) head: Head,
    /// Below this number nothing is left but `kept`.
    pub(crate) floor: Seq,
    /// The events that eviction passed over, in order.
    pub(crate) kept: Vec<Kept>,
    /// Whether it waits to be trimmed.
    pub(crate) queued: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) seq: Seq,
    pub(crate) retain: Retain,
    pub(crate) cost: u64,
}

/// What there is. Written with every commit, so that it need not be counted when the database is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) held: u64,
    pub(crate) sessions: u64,
    pub(crate) streams: u64,
    /// The part of `held` that push queues have.
    pub(crate) queued: u64,
}

/// What else the value of a commit tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    /// How many commits were on the disk for sure when it was made.
    pub(crate) durable: u64,
    /// The segment to which it wrote, and from where on; none has the number 0.
    pub(crate) segment: u64,
    pub(crate) start: u64,
}

impl Trace {
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut reader = crate::coding::Reader(value);
        for _ in 0..3 {
            reader.u64()?;
        }
        Some(Trace {
            durable: reader.u64()?,
            segment: reader.u64()?,
            start: reader.u64()?,
        })
    }
}

impl Totals {
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut reader = crate::coding::Reader(value);
        let (held, sessions, streams) = (reader.u64()?, reader.u64()?, reader.u64()?);
        for _ in 0..3 {
            reader.u64()?; // see `Trace`
        }
        Some(Totals {
            held,
            sessions,
            streams,
            queued: reader.u64().unwrap_or(0), // commits before push queues were stored end here
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids {
    pub(crate) next: u64,
    pub(crate) promised: u64,
}

impl Ids {
    /// Passes over the numbers of segment files. After a power cut such a file can exist although the commit that promised
    /// its number is lost.
    pub(crate) fn exceed(&mut self, files: &[u64]) {
        // No store has counted so far: files with such names are not ours, and must not exhaust the numbers.
        let ours = files.iter().filter(|number| **number < u64::MAX / 2);
        let highest = ours.max().map_or(0, |number| number + 1);
        self.promised = self.promised.max(highest);
        self.next = self.promised;
    }
}

/// The chain of commits: each leaves its number, and none may be missing. The database cuts a broken journal without a
/// word; if another follows it, what opens would have a hole, and here it shows.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) next: u64,
    pub(crate) pruned: u64,
    /// Some commits, and what the database had written by then.
    pub(crate) marks: VecDeque<(u64, u64)>,
}

impl Books {
    pub(crate) fn new(db: Db, options: Arc<Options>, found: Found) -> Self {
        db.progress.is_synced(found.chain.next); // the database syncs what it finds
        Books {
            changes: db.batch(),
            shelf: Shelf::new(options.limits.total_bytes, found.segments),
            db,
            options,
            sessions: HashMap::new(),
            ended: HashMap::new(),
            upkeep: found.upkeep,
            totals: found.totals,
            effects: Vec::new(),
            overlay: BTreeMap::new(),
            ids: found.ids,
            chain: found.chain,
        }
    }

    pub(crate) fn now(&self) -> Wall {
        (self.options.clock)()
    }

    /// A number that nobody has had.
    pub(crate) fn take_id(&mut self) -> u64 {
        if self.ids.next == self.ids.promised {
            self.ids.promised += ID_BLOCK;
            self.changes.put(keys::META_IDS, &numbers([self.ids.promised]));
        }
        self.ids.next += 1;
        self.ids.next - 1
    }

    /// A row, a head or a pinned event, as it will be when the group is committed.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Slice>, ReadError> {
        match self.overlay.get(key) {
            Some(staged) => Ok(staged.clone()),
            None => Ok(self.db.view().get(key)?),
        }
    }

    pub(crate) fn put(&mut self, key: Key, value: &[u8]) {
        self.changes.put(&key, value);
        self.overlay.insert(key, Some(value.into()));
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.changes.remove(&key);
        self.overlay.insert(key, None);
    }

    /// The first row from `from` on that is staged and starts with `prefix`.
    pub(crate) fn staged_from(&self, prefix: &[u8], from: &Key) -> Option<(&Key, &Slice)> {
        let (key, value) = self.overlay.range::<Key, _>(from..).next()?;
        let value = value.as_ref().filter(|_| key.starts_with(prefix))?;
        Some((key, value))
    }

    /// What the group does to a row; `None` within if it removes it.
    pub(crate) fn staged(&self, key: &Key) -> Option<Option<&Slice>> {
        self.overlay.get(key).map(Option::as_ref)
    }

    /// Writes what nobody looks up again within the group.
    pub(crate) fn put_blind(&mut self, key: &[u8], value: &[u8]) {
        self.changes.put(key, value);
    }

    /// Removes what nobody looks up again within the group.
    pub(crate) fn remove_blind(&mut self, key: &[u8]) {
        self.changes.remove(key);
    }

    pub(crate) fn row(&self, session: &SessionKey) -> Result<Option<Row>, ReadError> {
        let Some(key) = keys::row(session) else {
            return Ok(None);
        };
        let Some(value) = self.get(&key)? else { return Ok(None) };
        Row::decode(&value).map(Some).ok_or(ReadError::Garbled("a session"))
    }

    pub(crate) fn head(&self, sid: u64, ordinal: Ordinal) -> Result<Option<Head>, ReadError> {
        let Some(value) = self.get(&keys::head(sid, ordinal))? else {
            return Ok(None);
        };
        Head::decode(&value)
            .map(Some)
            .ok_or(ReadError::Garbled("a stream's head"))
    }

    pub(crate) fn put_head(&mut self, sid: u64, ordinal: Ordinal, head: &Head) {
        self.put(keys::head(sid, ordinal), &head.encode());
    }

    /// Whether there is anything to commit.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Commits what was staged. After an error nothing here is true any more.
    pub(crate) fn commit(&mut self, sync: bool) -> Result<(), fjall::Error> {
        if !self.is_dirty() {
            return Ok(());
        }
        let mut changes = std::mem::replace(&mut self.changes, self.db.batch());
        let Totals {
            held,
            sessions,
            streams,
            queued,
        } = self.totals;
        for (number, stat) in self.shelf.settle(self.chain.next + 1) {
            match stat {
                Some(Stat { written, wanted }) => changes.put(&keys::segment(number), &numbers([written, wanted])),
                None => changes.remove(&keys::segment(number)),
            }
        }
        let (tail, start) = self.shelf.tail();
        let synced = self.db.progress.synced();
        let segment = if tail.is_empty() { 0 } else { tail.segment };
        let value = numbers([held, sessions, streams, synced, segment, start, queued]);
        changes.put(&keys::commit(self.chain.next), &value);
        self.db.commit(changes, tail, self.chain.next + 1, sync)?;
        self.shelf.is_committed();
        self.chain.next += 1;
        if self.chain.next.is_multiple_of(CHAIN_STEP) {
            self.chain.marks.push_back((self.chain.next, self.db.written()));
        }
        self.overlay.clear();
        Ok(())
    }

    /// How many commits there will be with the next one.
    pub(crate) fn next_commit(&self) -> u64 {
        self.chain.next + 1
    }

    /// Cuts the chain at its old end, as far as the tables hold everything: of that no journal can take anything away.
    pub(crate) fn prune_chain(&mut self) -> bool {
        let in_tables = self.db.in_tables();
        let Some(&(until, _)) = self.chain.marks.front().filter(|(_, written)| *written <= in_tables) else {
            return false;
        };
        self.chain.marks.pop_front();
        for n in self.chain.pruned..until {
            self.changes.remove(&keys::commit(n));
        }
        self.chain.pruned = until;
        self.changes.put(keys::META_PRUNED, &numbers([until]));
        true
    }

    /// Lets go of what can be read again, if there is much of it.
    pub(crate) fn slim(&mut self) {
        if self.sessions.len() > MANY_SESSIONS {
            self.sessions.retain(|_, session| !session.open.is_empty());
            if self.sessions.len() > 2 * MANY_SESSIONS {
                self.sessions.clear();
            }
            let kept: std::collections::HashSet<u64> = self.sessions.values().map(|session| session.sid).collect();
            self.ended.retain(|sid, _| kept.contains(sid));
        }
    }

    /// The highest ordinal that any stream of a session ever had. Nothing of the session may be staged.
    pub(crate) fn stored_high_water(&self, sid: u64) -> Result<Ordinal, ReadError> {
        high_water(&self.db.view(), sid)
    }
}

/// The highest ordinal that any stream of a session ever had: of those that are there the last one, of those that are
/// not the one that was written down when it went.
pub(crate) fn high_water(view: &crate::db::View<'_>, sid: u64) -> Result<Ordinal, ReadError> {
    let forgotten = view.get(&keys::high_water(sid))?;
    let forgotten = forgotten.map(|value| number(&value).ok_or(ReadError::Garbled("a high-water mark")));
    let last = view.prefix(&keys::heads(sid)).next_back();
    let last = last.map(|guard| {
        let [_, ordinal] = keys::parts(&guard.key()?).ok_or(ReadError::Garbled("the key of a head"))?;
        Ok::<_, ReadError>(ordinal)
    });
    let highest = forgotten.transpose()?.max(last.transpose()?);
    Ok(Ordinal(highest.unwrap_or(0)))
}

/// What was found when the database was opened.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) totals: Totals,
    pub(crate) ids: Ids,
    pub(crate) chain: Chain,
    pub(crate) upkeep: Upkeep,
    pub(crate) segments: BTreeMap<u64, Stat>,
}

impl Default for Ids {
    fn default() -> Self {
        Ids { next: 1, promised: 1 }
    }
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> Self {
        StoreError::unavailable(error)
    }
}
