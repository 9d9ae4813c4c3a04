//! Compaction: copies the live parts of a mostly dead segment to the end of the log, so that the file can be deleted.

use crate::commit::Core;
use crate::engine::Engine;
use crate::group::{Framed, Location, SEGMENT_HEADER_BYTES, parse_records};
use crate::log::Log;
use crate::op::Op;
use crate::record::{Item, Part, Record};
use crate::segment::SegmentFile;
use bytes::Bytes;
use rethread_store::StoreError;
use std::io;
use std::sync::Arc;

/// Bytes of the segment that one slice reads. Callers can commit between slices.
const SLICE_BYTES: usize = 256 << 10;

/// The compaction of one segment, from its first group to its last.
pub(crate) struct Compaction {
    file: Arc<SegmentFile>,
    /// The next group.
    at: Location,
    len: u64,
}

/// A part that was read from a segment.
#[derive(Debug)]
pub(crate) struct Copied {
    item: Item,
    part: Part,
    from: Location,
    pub(crate) bytes: Bytes,
}

impl Copied {
    /// The parts of a record in `group`, which is at `at`.
    pub(crate) fn parts(framed: &Framed<'_>, group: &Bytes, at: Location) -> impl Iterator<Item = Self> {
        framed.parts().map(move |(item, part, offset, bytes)| Copied {
            item,
            part,
            from: at.plus(offset),
            bytes: group.slice_ref(bytes),
        })
    }
}

impl Engine {
    /// Writes the live ones of these parts to the end of the log. A damaged part is not moved, and its segment stays.
    pub(crate) fn move_live(&mut self, copies: &[Copied]) -> Result<(), StoreError> {
        let (mut parts, mut bodies) = (Vec::new(), Vec::new());
        for copied in copies {
            if self.index.locate(copied.item) != Some(copied.from) {
                continue;
            }
            if copied.part.matches(&copied.bytes) {
                parts.push((copied.item, copied.part));
                bodies.push(copied.bytes.clone());
            } else {
                self.index.segments.set_damaged(copied.from.segment);
                self.index.mark_damaged(copied.item);
            }
        }
        if parts.is_empty() {
            return Ok(());
        }
        self.log(Record::Move { parts }, &bodies)
    }
}

impl Compaction {
    /// The compaction of the segment that needs it most.
    pub(crate) fn choose(core: &Core, log: &Log) -> Option<Self> {
        let segment_bytes = core.options.segment_bytes();
        let chosen = core.read(|engine, _| {
            let segments = &engine.index.segments;
            let number = segments.next_victim(engine.end.segment, segment_bytes)?;
            Some((number, segments.get(number).len))
        });
        let (number, len) = chosen.ok()??;
        tracing::debug!(segment = number, "compaction of a segment");
        Some(Compaction {
            file: log.file(number)?,
            at: Location {
                segment: number,
                offset: SEGMENT_HEADER_BYTES as u32,
            },
            len,
        })
    }

    /// Moves the live parts of the next groups. False if the segment is done.
    pub(crate) fn slice(&mut self, core: &Core, log: &Log) -> bool {
        let mut copies = Vec::new();
        let mut bytes = 0;
        while bytes < SLICE_BYTES && u64::from(self.at.offset) < self.len {
            match self.next_group(log.dir.store(), &mut copies) {
                Ok(read) => bytes += read,
                Err(error) => {
                    tracing::error!(
                        segment = self.at.segment,
                        offset = self.at.offset,
                        reason = %error,
                        "a segment of the store is damaged and cannot be compacted"
                    );
                    core.exclude_segment(self.at.segment);
                    return false;
                }
            }
        }
        // The store is down after an error. The next log chooses again.
        let moved = copies.is_empty() || core.commit_alone(&Op::Move(copies)).is_ok();
        moved && u64::from(self.at.offset) < self.len
    }

    /// Reads a group. Returns its length.
    fn next_group(&mut self, store: u64, copies: &mut Vec<Copied>) -> io::Result<usize> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a group is damaged");
        let mut group = Vec::new();
        let header = self.file.read_group(self.at, self.len, store, &mut group)?;
        let header = header.ok_or_else(damaged)?;
        let group = Bytes::from(group);
        for framed in parse_records(&group, store).ok_or_else(damaged)? {
            copies.extend(Copied::parts(&framed, &group, self.at));
        }
        self.at = self.at.plus(header.len as usize);
        Ok(header.len as usize)
    }
}
