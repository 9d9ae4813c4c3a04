//! Where the writer puts payloads: which segments there are, and how much of each is still wanted.

use crate::chunk::Spot;
use crate::segments::{LABEL, Label};
use crate::tail::Tail;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A segment is full at this share of everything that may be held, within bounds: many small files can be given up one
/// by one, few large ones need few handles.
const SHARE: u64 = 64;
const SMALLEST: u64 = 1 << 20;
const LARGEST: u64 = 1 << 30;
/// So much may be unwanted beside half of what is wanted, before what is wanted is moved together.
pub(crate) const LITTER: u64 = 16 << 20;

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    stats: BTreeMap<u64, Stat>,
    /// All of them together.
    sum: Stat,
    /// Those whose row is not true any more.
    changed: BTreeSet<u64>,
    active: Option<u64>,
    full: u64,
    tail: Tail,
    /// Where in its segment the tail begins.
    start: u64,
    /// Those that nothing points to any more, and how many commits it takes to say so.
    empty: VecDeque<(u64, u64)>,
    /// Those of which that is on the disk, and how many commits it takes to say that.
    leaving: VecDeque<(u64, u64)>,
    /// The one from which what is wanted is moved, and how far that has come.
    pub(crate) gathering: Option<(u64, u64)>,
    /// Those that hold something that cannot be moved.
    stuck: BTreeSet<u64>,
}

/// In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stat {
    pub(crate) written: u64,
    pub(crate) wanted: u64,
}

impl Shelf {
    /// For a store that may hold so much, with the segments that were found.
    pub(crate) fn new(total: u64, found: BTreeMap<u64, Stat>) -> Self {
        let mut shelf = Shelf {
            full: (total / SHARE).clamp(SMALLEST, LARGEST),
            ..Shelf::default()
        };
        for (number, stat) in &found {
            shelf.sum.written += stat.written;
            shelf.sum.wanted += stat.wanted;
            if stat.wanted == 0 {
                shelf.changed.insert(*number);
            }
        }
        shelf.stats = found;
        shelf
    }

    pub(crate) fn knows(&self, number: u64) -> bool {
        self.stats.contains_key(&number)
    }

    pub(crate) fn written(&self, number: u64) -> u64 {
        self.stats.get(&number).map_or(0, |stat| stat.written)
    }

    /// What is still wanted, of all segments.
    pub(crate) fn wanted(&self) -> u64 {
        self.sum.wanted
    }

    /// Whether a new segment is needed before anything can be added: all that one commit brings goes to one segment.
    pub(crate) fn is_full(&self) -> bool {
        let full = self.active.is_none_or(|number| self.written(number) >= self.full);
        full && self.tail.is_empty()
    }

    pub(crate) fn begin(&mut self, number: u64) {
        self.changed.extend(self.active);
        self.active = Some(number);
        self.stats.insert(number, Stat::default());
    }

    /// Adds payloads to what the next commit writes.
    pub(crate) fn add(&mut self, label: Label, payloads: &[Bytes]) -> Spot {
        let number = self.active.unwrap_or_default();
        let stat = self.stats.entry(number).or_default();
        if self.tail.is_empty() {
            (self.tail.segment, self.start) = (number, stat.written);
        }
        self.tail.copy(&label.encode());
        let offset = self.start + self.tail.len();
        let sum = self.tail.add(payloads);
        let size = LABEL as u64 + label.bytes;
        for stat in [stat, &mut self.sum] {
            stat.written += size;
            stat.wanted += size;
        }
        self.changed.insert(number);
        Spot {
            segment: number,
            offset,
            sum,
        }
    }

    /// So many bytes at a spot are not wanted any more.
    pub(crate) fn free(&mut self, spot: Spot, bytes: u64) {
        if let Some(stat) = self.stats.get_mut(&spot.segment) {
            let bytes = bytes.min(stat.wanted);
            stat.wanted -= bytes;
            self.sum.wanted -= bytes;
            self.changed.insert(spot.segment);
        }
    }

    /// The segments whose rows change with the `n`th commit; `None` if one goes.
    pub(crate) fn settle(&mut self, n: u64) -> Vec<(u64, Option<Stat>)> {
        let mut rows = Vec::with_capacity(self.changed.len());
        for number in std::mem::take(&mut self.changed) {
            let Some(stat) = self.stats.get(&number).copied() else {
                continue;
            };
            if stat.wanted > 0 || self.active == Some(number) {
                rows.push((number, Some(stat)));
                continue;
            }
            self.stats.remove(&number);
            self.stuck.remove(&number);
            self.sum.written -= stat.written;
            self.gathering.take_if(|(gathering, _)| *gathering == number);
            self.empty.push_back((number, n));
            rows.push((number, None));
        }
        rows
    }

    /// What the next commit writes, and where in its segment that begins.
    pub(crate) fn tail(&self) -> (&Tail, u64) {
        (&self.tail, self.start)
    }

    /// It is written.
    pub(crate) fn is_committed(&mut self) {
        self.tail.clear();
    }

    /// Nothing points to this segment, and never did since the store was opened.
    pub(crate) fn is_empty(&mut self, number: u64) {
        self.empty.push_front((number, 0));
    }

    /// Whether a segment that nothing points to has to wait, if so many commits are on the disk.
    pub(crate) fn awaits_more_than(&self, commits: u64) -> bool {
        let last = [self.empty.back(), self.leaving.back()];
        last.into_iter().flatten().any(|(_, n)| *n > commits)
    }

    /// Takes note that the `n`th commit will say which segments are empty for good, if so many commits are on the disk.
    /// False if there is none.
    pub(crate) fn let_go(&mut self, commits: u64, n: u64) -> bool {
        let ready = self.empty.iter().take_while(|(_, n)| *n <= commits).count();
        self.leaving
            .extend(self.empty.drain(..ready).map(|(number, _)| (number, n)));
        ready > 0
    }

    /// A segment that can be deleted when so many commits are on the disk.
    pub(crate) fn next_leaving(&mut self, commits: u64) -> Option<u64> {
        self.leaving.front().filter(|(_, n)| *n <= commits)?;
        self.leaving.pop_front().map(|(number, _)| number)
    }

    /// The segment from which to move what is wanted, and from where on, if too much is not.
    pub(crate) fn littered(&self) -> Option<(u64, u64)> {
        if self.gathering.is_some() {
            return self.gathering;
        }
        let Stat { written, wanted } = self.sum;
        if written - wanted <= wanted / 2 + LITTER {
            return None;
        }
        let candidates = self.stats.iter().filter(|(number, stat)| {
            self.active != Some(**number) && !self.stuck.contains(number) && stat.wanted < stat.written / 4 * 3
        });
        let worst = candidates.min_by_key(|(_, stat)| stat.wanted * 1024 / stat.written.max(1));
        worst.map(|(number, _)| (*number, 0))
    }

    /// All of a segment was looked at. If something is still wanted there, that cannot be moved.
    pub(crate) fn is_gathered(&mut self, number: u64) {
        self.gathering = None;
        if self.stats.get(&number).is_some_and(|stat| stat.wanted > 0) {
            self.stuck.insert(number);
        }
    }
}
