//! Live bytes per segment.

use crate::record::Part;
use std::collections::BTreeMap;

/// Added to each live part, so that a segment with empty payloads counts as live too.
const PART_OVERHEAD_BYTES: u64 = 32;

/// The use of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentUse {
    /// Bytes in the file.
    pub(crate) len: u64,
    /// Bytes that something refers to.
    pub(crate) live: u64,
    /// The commit that removed the last reference.
    pub(crate) dead_since: u64,
    /// Whether a part is damaged. Compaction skips the segment; it is deleted when nothing refers to it.
    pub(crate) damaged: bool,
}

/// The use of all segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segments {
    table: BTreeMap<u32, SegmentUse>,
    /// The current commit.
    pub(crate) commit: u64,
}

impl Segments {
    pub(crate) fn add(&mut self, segment: u32, part: Part) {
        self.table.entry(segment).or_default().live += u64::from(part.len) + PART_OVERHEAD_BYTES;
    }

    pub(crate) fn sub(&mut self, segment: u32, part: Part) {
        let used = self.table.entry(segment).or_default();
        used.live = used.live.saturating_sub(u64::from(part.len) + PART_OVERHEAD_BYTES);
        used.dead_since = self.commit;
    }

    pub(crate) fn set_len(&mut self, segment: u32, len: u64) {
        self.table.entry(segment).or_default().len = len;
    }

    pub(crate) fn set_damaged(&mut self, segment: u32) {
        self.table.entry(segment).or_default().damaged = true;
    }

    pub(crate) fn remove(&mut self, segment: u32) {
        self.table.remove(&segment);
    }

    pub(crate) fn get(&self, segment: u32) -> SegmentUse {
        self.table.get(&segment).copied().unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, SegmentUse)> + '_ {
        self.table.iter().map(|(number, used)| (*number, *used))
    }

    /// Bytes of all files.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.table.values().map(|used| used.len).sum()
    }

    /// The segment to compact next: the oldest mostly dead one, if the total of dead bytes is large enough. Otherwise
    /// the oldest small one, if there are too many: each of several quick restarts leaves one. Never `head`, which is
    /// written to.
    pub(crate) fn next_victim(&self, head: u32, segment_bytes: u64) -> Option<u32> {
        let closed = || self.iter().filter(|(number, used)| *number != head && !used.damaged);
        let (len, live) = closed().fold((0, 0), |(len, live), (_, used)| (len + used.len, live + used.live));
        if len.saturating_sub(live) > live + 2 * segment_bytes {
            let mostly_dead = closed().find(|(_, used)| used.live > 0 && used.live < used.len / 2);
            if mostly_dead.is_some() {
                return mostly_dead.map(|(number, _)| number);
            }
        }
        let small = || closed().filter(|(_, used)| used.len < segment_bytes / 8 && used.live > 0);
        (small().count() > MAX_SMALL_SEGMENTS)
            .then(|| small().next())?
            .map(|(number, _)| number)
    }
}

/// With more small segments, the oldest is compacted.
const MAX_SMALL_SEGMENTS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(uses: &[(u64, u64)]) -> Segments {
        let mut segments = Segments::default();
        for (number, (len, live)) in (1..).zip(uses) {
            segments.set_len(number, *len);
            segments.table.get_mut(&number).unwrap().live = *live;
        }
        segments
    }

    #[test]
    fn oldest_mostly_dead_segment_is_compacted_first() {
        for (uses, victim) in [
            (&[(100, 90), (100, 10), (50, 1)][..], None),
            (&[(100, 90), (100, 10), (100, 10), (100, 10), (50, 1)], Some(2)),
            (&[(100, 10), (100, 10), (100, 10), (50, 1)], Some(1)),
            (&[(100, 0), (100, 0), (100, 0), (50, 1)], None),
        ] {
            assert_eq!(segments(uses).next_victim(uses.len() as u32, 50), victim, "{uses:?}");
        }
    }

    #[test]
    fn many_small_segments_are_merged() {
        let many = vec![(5, 5); MAX_SMALL_SEGMENTS + 2];
        assert_eq!(segments(&many).next_victim(many.len() as u32, 100), Some(1));
        assert_eq!(segments(&many[2..]).next_victim(many.len() as u32, 100), None);
    }

    #[test]
    fn damaged_segment_is_not_compacted() {
        let mut segments = segments(&[(100, 10), (100, 10), (100, 10), (50, 1)]);
        segments.set_damaged(1);
        assert_eq!(segments.next_victim(4, 20), Some(2));
    }
}
