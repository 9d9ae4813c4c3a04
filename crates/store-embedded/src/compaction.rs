//! Compaction: copies the live parts of a mostly dead segment to the end of the log, so that the file can be deleted.

use crate::commit::Core;
use crate::group::{Location, SEGMENT_HEADER_BYTES, parse_records};
use crate::log::Log;
use crate::op::Op;
use crate::record::Record;
use crate::segment::SegmentFile;
use bytes::Bytes;
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
        let mut records = Vec::new();
        let mut bytes = 0;
        while bytes < SLICE_BYTES && u64::from(self.at.offset) < self.len {
            match self.next_group(log.dir.store(), &mut records) {
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
        let moved = records.is_empty() || core.commit_alone(&Op::Move(records)).is_ok();
        moved && u64::from(self.at.offset) < self.len
    }

    /// Reads a group. Returns its length.
    fn next_group(&mut self, store: u64, records: &mut Vec<(Record, Location, Bytes)>) -> io::Result<usize> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a group is damaged");
        let mut group = Vec::new();
        let header = self.file.read_group(self.at, self.len, store, &mut group)?;
        let header = header.ok_or_else(damaged)?;
        let group = Bytes::from(group);
        for framed in parse_records(&group, store).ok_or_else(damaged)? {
            let body = group.slice_ref(framed.body);
            records.push((framed.record, self.at.plus(framed.body_offset), body));
        }
        self.at = self.at.plus(header.len as usize);
        Ok(header.len as usize)
    }
}
