//! The segments of the log in memory: their replay, compaction and deletion.

use super::{STORE, World};
use crate::compaction::Copied;
use crate::group::{GroupHeader, Location, SEGMENT_HEADER_BYTES, parse_records};
use crate::index::Index;
use crate::op::Op;
use bytes::Bytes;
use proptest::prelude::*;

impl World {
    /// Moves all live parts out of a segment.
    pub(super) fn compact(&mut self, segment: prop::sample::Index) {
        let closed: Vec<u32> = self
            .segments
            .keys()
            .copied()
            .filter(|n| *n != self.engine.end.segment)
            .collect();
        if closed.is_empty() {
            return;
        }
        let number = *segment.get(&closed);
        let bytes = Bytes::from(self.segments[&number].clone());
        let mut candidates = Vec::new();
        for (at, group) in groups(number, &bytes) {
            for framed in parse_records(&group, STORE).expect("a group is valid") {
                candidates.extend(Copied::parts(&framed, &group, at));
            }
        }
        self.commit(Op::Move(candidates)).expect("everything can be moved");
        assert_eq!(
            self.engine.index.segments.get(number).live,
            0,
            "segment {number} is empty after its compaction"
        );
    }

    /// Deletes the segments that the store may delete.
    pub(super) fn delete_dead(&mut self) {
        let Some((_, _, end)) = &self.checkpoint else { return };
        let segments = &self.engine.index.segments;
        let is_dead = |number: &u32| *number < end.segment && segments.get(*number).live == 0;
        let dead: Vec<u32> = self.segments.keys().copied().filter(is_dead).collect();
        for number in dead {
            self.segments.remove(&number);
            self.engine.index.segments.remove(number);
        }
    }

    /// Replays the log from `from`, with `index` as the state after `commit`.
    pub(super) fn replay(&self, mut index: Index, mut commit: u64, from: Location) -> Index {
        for (number, bytes) in self.segments.range(from.segment..) {
            for (at, group) in groups(*number, &Bytes::from(bytes.clone())) {
                if *number == from.segment && at.offset < from.offset {
                    continue;
                }
                let header = GroupHeader::decode(&group, STORE).expect("a group is valid");
                assert_eq!(header.commit, commit + 1);
                commit = header.commit;
                index.segments.commit = commit;
                for framed in parse_records(&group, STORE).expect("a group is valid") {
                    assert!(framed.damaged().is_empty());
                    index
                        .apply(framed.record, at.plus(framed.body_offset))
                        .expect("a record fits");
                }
            }
        }
        assert_eq!(commit, self.engine.commit);
        index
    }

    pub(super) fn bytes(&self, at: Location, part: crate::record::Part) -> Bytes {
        let segment = &self.segments[&at.segment];
        let bytes = &segment[at.offset as usize..at.offset as usize + part.len as usize];
        assert!(part.matches(bytes), "{at:?}");
        Bytes::copy_from_slice(bytes)
    }
}

/// The groups of a segment, each with its location.
fn groups(number: u32, bytes: &Bytes) -> Vec<(Location, Bytes)> {
    let mut groups = Vec::new();
    let mut offset = SEGMENT_HEADER_BYTES;
    while offset < bytes.len() {
        let header = GroupHeader::decode(&bytes[offset..], STORE).expect("a group is valid");
        let at = Location {
            segment: number,
            offset: offset as u32,
        };
        groups.push((at, bytes.slice(offset..offset + header.len as usize)));
        offset += header.len as usize;
    }
    groups
}
