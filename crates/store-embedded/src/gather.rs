//! Payloads: how they get to the disk, how they are given up, and how those that stay are moved together.

use crate::books::Books;
use crate::chunk::{self, Chunk, Data, Item, State};
use crate::db::ReadError;
use crate::keys;
use crate::options::Sync;
use crate::segments::{LABEL, Label};
use crate::upkeep::SLICE;
use bytes::Bytes;
use rethread_store::{Event, Retain, Seq};

/// Up to here payloads stay in their row.
const FEW: u64 = 512;
/// When every append waits for the disk, one file to be synced is better than two.
const FEW_SYNCED: u64 = chunk::BYTES as u64;
/// How much of a segment is read at once to look what is in it.
const PIECE: usize = 256 << 10;

impl Books {
    /// Stages the events of an append.
    pub(crate) fn put_events(&mut self, stream: u64, mut events: &[Event]) {
        while let Some(first) = events.first() {
            let (mut count, mut bytes) = (1, first.payload.len());
            for event in events.iter().skip(1).take(chunk::EVENTS - 1) {
                bytes += event.payload.len();
                if bytes > chunk::BYTES {
                    break;
                }
                count += 1;
            }
            let (some, rest) = events.split_at(count);
            let items = some.iter().map(|event| Item {
                len: event.payload.len() as u64,
                state: State::Held(event.retain),
            });
            let (seq, items) = (first.seq, items.collect());
            let payloads: Vec<Bytes> = some.iter().map(|event| event.payload.clone()).collect();
            let chunk = self.lay(stream, seq, items, &payloads);
            let (key, value) = (keys::chunk(stream, chunk.last()), chunk.encode());
            if some.iter().all(|event| event.retain == Retain::None) {
                self.put_blind(&key, &value);
            } else {
                self.put(key, &value); // it may be released before the group is committed
            }
            events = rest;
        }
    }

    /// Finds a place for payloads.
    fn lay(&mut self, stream: u64, first: Seq, items: Vec<Item>, payloads: &[Bytes]) -> Chunk {
        let mut chunk = Chunk {
            first,
            items,
            data: Data::Here(Bytes::new()),
        };
        let bytes = chunk.bytes();
        let few = if self.options.sync.waits() { FEW_SYNCED } else { FEW };
        chunk.data = if bytes <= few {
            let mut here = Vec::with_capacity(bytes as usize);
            payloads.iter().for_each(|payload| here.extend_from_slice(payload));
            Data::Here(here.into())
        } else {
            if self.shelf.is_full() {
                let number = self.take_id();
                self.shelf.begin(number);
            }
            let last = chunk.last().0;
            Data::There(self.shelf.add(Label { stream, last, bytes }, payloads))
        };
        chunk
    }

    /// Stages a row that has changed, or its end.
    pub(crate) fn put_chunk(&mut self, stream: u64, chunk: &Chunk) {
        let key = keys::chunk(stream, chunk.last());
        if chunk.is_empty() {
            self.remove(key);
            self.give_up(chunk);
        } else {
            self.put(key, &chunk.encode());
        }
    }

    /// Stages the end of a row.
    pub(crate) fn drop_chunk(&mut self, stream: u64, chunk: &Chunk) {
        self.remove_blind(&keys::chunk(stream, chunk.last()));
        self.give_up(chunk);
    }

    /// The payloads of a row are not wanted any more.
    fn give_up(&mut self, chunk: &Chunk) {
        if let Some(spot) = chunk.spot() {
            self.shelf.free(spot, LABEL as u64 + chunk.held_bytes());
        }
    }

    /// Marks an event of a row as evicted; `put_chunk` is still to come.
    pub(crate) fn evict_from(&mut self, chunk: &mut Chunk, seq: Seq) {
        let spot = chunk.spot();
        if let Some(item) = chunk.item_mut(seq).filter(|item| item.state != State::Gone) {
            item.state = State::Gone;
            if let Some(spot) = spot {
                self.shelf.free(spot, item.len);
            }
        }
    }

    /// The row that holds an event, as it will be when the group is committed. Rows of the group itself are found if they
    /// hold a pinned event.
    pub(crate) fn chunk_with(&self, stream: u64, seq: Seq) -> Result<Option<Chunk>, ReadError> {
        let garbled = || ReadError::Garbled("a row of events");
        if let Some((key, value)) = self.staged_from(&keys::chunks(stream), &keys::chunk(stream, seq))
            && let Some([_, last]) = keys::parts(key)
        {
            let chunk = Chunk::decode(Seq(last), value).ok_or_else(garbled)?;
            if chunk.first <= seq {
                return Ok(Some(chunk));
            }
        }
        let Some(chunk) = self.db.view().chunks(stream, seq).next().transpose()? else {
            return Ok(None);
        };
        let there = chunk.first <= seq && self.staged(&keys::chunk(stream, chunk.last())) != Some(None);
        Ok(there.then_some(chunk))
    }

    /// Deletes the segments that nothing points to, in two steps. First that must be on the disk: what comes back when the
    /// power fails may point to them. Then a commit that says so must be: a commit of which nobody knows that it was on
    /// the disk, and whose payloads are missing, is taken for a torn one.
    pub(crate) fn drop_empty(&mut self) -> Result<(), ReadError> {
        if self.awaits_sync() && !matches!(self.options.sync, Sync::Interval(_)) {
            self.db.sync()?; // nobody else does, unless something is appended
        }
        let synced = self.db.progress.synced();
        while let Some(number) = self.shelf.next_leaving(synced) {
            if let Err(error) = self.db.segments.remove(number) {
                // When the store is opened the next time, it goes.
                tracing::warn!(number, reason = %error, "a segment that is not needed any more cannot be deleted");
            }
        }
        if self.shelf.let_go(synced, self.next_commit()) {
            self.put_blind(keys::META_TIDIED, b"");
        }
        Ok(())
    }

    /// Whether a segment could be deleted if what was committed was on the disk.
    pub(crate) fn awaits_sync(&self) -> bool {
        self.shelf.awaits_more_than(self.db.progress.synced())
    }

    /// Gives up the segments that no row tells of: they were made by a commit that never was, or should be gone.
    pub(crate) fn give_up_strays(&mut self) {
        for number in self.db.segments.numbers() {
            if !self.shelf.knows(number) {
                self.shelf.is_empty(number);
            }
        }
    }

    /// Moves some of what is wanted out of a segment of which most is not, so that it can be deleted. Nothing may be
    /// staged.
    pub(crate) fn gather(&mut self) -> Result<bool, ReadError> {
        let Some((number, begin)) = self.shelf.littered() else {
            return Ok(false);
        };
        let written = self.shelf.written(number);
        let db = self.db.clone();
        let view = db.view();
        let piece = view.piece(number, begin, PIECE)?;
        let mut at = 0;
        for _ in 0..SLICE {
            let Some(label) = piece.get(at..).and_then(Label::decode) else {
                break;
            };
            let offset = begin + (at + LABEL) as u64;
            if offset.checked_add(label.bytes).is_none_or(|end| end > written) {
                // It is garbled, and nobody knows where the next begins.
                self.shelf.is_gathered(number);
                return Ok(true);
            }
            let last = Seq(label.last);
            let row = view.get(&keys::chunk(label.stream, last))?;
            let row = row.and_then(|value| Chunk::decode(last, &value));
            if let Some(chunk) = row
                && chunk
                    .spot()
                    .is_some_and(|spot| (spot.segment, spot.offset) == (number, offset))
                && let Some(payloads) = view.payloads(&chunk)?
            {
                self.relocate(label.stream, &chunk, &payloads);
            }
            at += LABEL + label.bytes as usize;
        }
        let next = begin + at as u64;
        if at == 0 || next >= written {
            self.shelf.is_gathered(number);
        } else {
            self.shelf.gathering = Some((number, next));
        }
        Ok(true)
    }

    /// Stages a row with its payloads elsewhere, without those that nobody wants.
    fn relocate(&mut self, stream: u64, old: &Chunk, payloads: &Bytes) {
        let items = old.items.iter().map(|item| match item.state {
            State::Held(_) => *item,
            State::Gone => Item { len: 0, ..*item },
        });
        let held: Vec<Bytes> = old.held().map(|held| payloads.slice(held.range)).collect();
        let chunk = self.lay(stream, old.first, items.collect(), &held);
        self.put_blind(&keys::chunk(stream, chunk.last()), &chunk.encode());
        self.give_up(old);
    }
}
