//! The framing of the log: segments, groups and records. Pure. See `docs/store-format.md`.
//!
//! A segment file begins with a [`SegmentHeader`]. Groups follow, one per commit, each with the records of all callers
//! that share the commit. A group is valid as a whole or not at all.

use crate::coding::{Decoder, Wire, wire_struct};
use crate::record::{Item, Part, Record};
use bytes::Bytes;
use std::io::IoSlice;

/// The format of the data directory.
pub(crate) const FORMAT: u32 = 7;
/// Bytes of a segment header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
/// Bytes of a group before its records.
pub(crate) const GROUP_HEADER_BYTES: usize = 28;
/// Bytes of a record before its header.
pub(crate) const RECORD_PREFIX_BYTES: usize = 12;
/// Longer groups are invalid, so that a damaged length cannot exhaust the memory.
const MAX_GROUP_BYTES: u32 = 1 << 30;
/// Larger payloads are written with vectored IO. Smaller ones are copied after their header.
const VECTORED_FROM_BYTES: usize = 2048;

const SEGMENT_MAGIC: [u8; 8] = *b"rethread";
const GROUP_MAGIC: [u8; 4] = *b"rgrp";

/// An offset in a segment of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
}

wire_struct!(Location { segment, offset });

impl Location {
    pub(crate) fn plus(self, bytes: usize) -> Self {
        Location {
            offset: self.offset + bytes as u32,
            ..self
        }
    }
}

/// The first bytes of a segment. They identify its store and the end of the previous segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The random number of the store, which every checksum includes.
    pub(crate) store: u64,
    pub(crate) number: u32,
    /// The number of the first group.
    pub(crate) first_commit: u64,
    /// The length of the previous segment. Zero in the first segment.
    pub(crate) previous_end: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.store.to_le_bytes());
        bytes[24..32].copy_from_slice(&u64::from(self.number).to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first_commit.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.previous_end.to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Parses the header of a segment, of this or another store.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes: [u8; SEGMENT_HEADER_BYTES] = *bytes.first_chunk()?;
        let crc = std::mem::take(bytes[12..16].first_chunk_mut::<4>()?);
        let mut decoder = Decoder(&bytes[16..]);
        let header = SegmentHeader {
            store: fixed(&mut decoder)?,
            number: fixed(&mut decoder)?.try_into().ok()?,
            first_commit: fixed(&mut decoder)?,
            previous_end: fixed(&mut decoder)?,
        };
        let valid = bytes[..8] == SEGMENT_MAGIC
            && bytes[8..12] == FORMAT.to_le_bytes()
            && crc == crc32c::crc32c(&bytes).to_le_bytes();
        valid.then_some(header)
    }
}

/// The first bytes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    /// Bytes of the group, including this header.
    pub(crate) len: u32,
    /// Groups are numbered without gaps, over all segments.
    pub(crate) commit: u64,
    /// The highest commit that was durable when this group was written. It distinguishes damage from a torn tail.
    pub(crate) durable: u64,
}

impl GroupHeader {
    fn encode(&self, store: u64) -> [u8; GROUP_HEADER_BYTES] {
        let mut bytes = [0; GROUP_HEADER_BYTES];
        bytes[..4].copy_from_slice(&GROUP_MAGIC);
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.commit.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.durable.to_le_bytes());
        let crc = checksum(store, &bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], store: u64) -> Option<Self> {
        let bytes: &[u8; GROUP_HEADER_BYTES] = bytes.first_chunk()?;
        let mut decoder = Decoder(&bytes[4..]);
        let crc = decoder.array()?;
        let header = GroupHeader {
            len: u32::from_le_bytes(decoder.array()?),
            commit: fixed(&mut decoder)?,
            durable: fixed(&mut decoder)?,
        };
        let valid = bytes[..4] == GROUP_MAGIC
            && crc == checksum(store, &bytes[8..]).to_le_bytes()
            && (GROUP_HEADER_BYTES as u32..=MAX_GROUP_BYTES).contains(&header.len);
        valid.then_some(header)
    }

    /// The highest commits that the groups in `bytes` have and claim to be durable. Searches for the magic number, because
    /// after a damaged group the lengths cannot be followed. Payloads cannot forge a group: the checksum includes the
    /// random number of the store.
    pub(crate) fn find_claims(bytes: &[u8], store: u64) -> Claims {
        let starts = memchr::memmem::find_iter(bytes, &GROUP_MAGIC);
        let headers = starts.filter_map(|at| GroupHeader::decode(&bytes[at..], store));
        headers.fold(Claims::default(), |claims, header| {
            claims.max(Claims {
                commit: header.commit,
                durable: header.durable,
            })
        })
    }
}

/// The highest commits in a part of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    /// The highest commit of a group.
    pub(crate) commit: u64,
    /// The highest commit that a group claims to be durable.
    pub(crate) durable: u64,
}

impl Claims {
    pub(crate) fn max(self, other: Self) -> Self {
        Claims {
            commit: self.commit.max(other.commit),
            durable: self.durable.max(other.durable),
        }
    }
}

/// Eight bytes, little endian.
fn fixed(decoder: &mut Decoder<'_>) -> Option<u64> {
    decoder.array().map(u64::from_le_bytes)
}

/// A checksum that includes the random number of the store.
fn checksum(store: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&store.to_le_bytes()), bytes)
}

/// A record as it is in a group.
#[derive(Debug)]
pub(crate) struct Framed<'a> {
    pub(crate) record: Record,
    /// The offset of its body in the group.
    pub(crate) body_offset: usize,
    pub(crate) body: &'a [u8],
}

/// Parses the records of a group. `None` if one is invalid. Bodies are not verified.
pub(crate) fn parse_records(group: &[u8], store: u64) -> Option<Vec<Framed<'_>>> {
    let mut records = Vec::new();
    let mut rest = Decoder(group.get(GROUP_HEADER_BYTES..)?);
    while !rest.0.is_empty() {
        let start = rest;
        let [crc, header_len, body_len]: [u32; 3] =
            [rest.array()?, rest.array()?, rest.array()?].map(u32::from_le_bytes);
        let header = rest.take(header_len as usize)?;
        let record = Record::parse(header)?;
        let body_offset = group.len() - rest.0.len();
        let body = rest.take(body_len as usize)?;
        let covered = &start.0[4..RECORD_PREFIX_BYTES + header.len()];
        let parts = record.parts().iter().map(|(_, part)| u64::from(part.len)).sum::<u64>();
        if crc != checksum(store, covered) || parts != u64::from(body_len) {
            return None;
        }
        records.push(Framed {
            record,
            body_offset,
            body,
        });
    }
    Some(records)
}

impl<'a> Framed<'a> {
    /// The parts of the body, each with its offset in the group and its bytes.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Item, Part, usize, &'a [u8])> {
        let (mut rest, end) = (self.body, self.body_offset + self.body.len());
        self.record.parts().into_iter().map(move |(item, part)| {
            let offset = end - rest.len();
            let (bytes, after) = rest.split_at(part.len as usize);
            rest = after;
            (item, part, offset, bytes)
        })
    }

    /// The parts of the body that do not match their checksums in the header.
    pub(crate) fn damaged(&self) -> Vec<Item> {
        let damaged = self.parts().filter(|(_, part, _, bytes)| !part.matches(bytes));
        damaged.map(|(item, ..)| item).collect()
    }
}

/// A group under construction at a known location.
#[derive(Debug)]
pub(crate) struct GroupBuffer {
    store: u64,
    /// The location of the group.
    start: Location,
    /// Everything but large payloads. The first bytes are a segment header if the segment begins here.
    bytes: Vec<u8>,
    /// Large payloads, each with its offset in `bytes`.
    large: Vec<(usize, Bytes)>,
    /// Bytes of the large payloads.
    large_bytes: usize,
    header_at: usize,
}

impl GroupBuffer {
    pub(crate) fn new(store: u64) -> Self {
        GroupBuffer {
            store,
            start: Location { segment: 0, offset: 0 },
            bytes: Vec::new(),
            large: Vec::new(),
            large_bytes: 0,
            header_at: 0,
        }
    }

    /// Begins a group at `end`, the end of its segment. Writes the header of a new segment first.
    pub(crate) fn begin(&mut self, end: Location, segment: Option<&SegmentHeader>) {
        self.bytes.clear();
        self.large.clear();
        self.large_bytes = 0;
        if let Some(header) = segment {
            self.bytes.extend_from_slice(&header.encode());
        }
        self.start = end;
        self.header_at = self.bytes.len();
        self.bytes.resize(self.header_at + GROUP_HEADER_BYTES, 0);
    }

    /// Whether the group has no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.len() == self.header_at + GROUP_HEADER_BYTES
    }

    /// Adds a record. Returns the location of its body.
    pub(crate) fn push<'a>(&mut self, record: &Record, body: impl Iterator<Item = &'a Bytes>) -> Location {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_PREFIX_BYTES]);
        record.encode(&mut self.bytes);
        let body_at = self.bytes.len();
        let location = self.start.plus(body_at + self.large_bytes);
        let mut body_len = 0;
        for part in body {
            body_len += part.len();
            if part.len() < VECTORED_FROM_BYTES {
                self.bytes.extend_from_slice(part);
            } else {
                self.large_bytes += part.len();
                self.large.push((self.bytes.len(), part.clone()));
            }
        }
        let header_len = (body_at - at - RECORD_PREFIX_BYTES) as u32;
        self.bytes[at + 4..at + 8].copy_from_slice(&header_len.to_le_bytes());
        self.bytes[at + 8..at + 12].copy_from_slice(&(body_len as u32).to_le_bytes());
        let crc = checksum(self.store, &self.bytes[at + 4..body_at]);
        self.bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        location
    }

    /// Completes the header. The group is ready to be written.
    pub(crate) fn finish(&mut self, commit: u64, durable: u64) {
        let len = self.len() - self.header_at as u64;
        let header = GroupHeader {
            len: u32::try_from(len).expect("a group is far smaller than 4 GiB"),
            commit,
            durable,
        };
        let header = header.encode(self.store);
        self.bytes[self.header_at..self.header_at + GROUP_HEADER_BYTES].copy_from_slice(&header);
    }

    /// The offset of the bytes in their segment.
    pub(crate) fn offset(&self) -> u64 {
        self.start.offset.into()
    }

    /// Bytes to write, including a segment header.
    pub(crate) fn len(&self) -> u64 {
        (self.bytes.len() + self.large_bytes) as u64
    }

    /// The bytes to write, if they are contiguous. Most groups have no large payload.
    pub(crate) fn contiguous(&self) -> Option<&[u8]> {
        self.large.is_empty().then_some(&self.bytes)
    }

    /// The bytes to write, in order.
    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(1 + 2 * self.large.len());
        let mut from = 0;
        for (at, payload) in &self.large {
            slices.push(IoSlice::new(&self.bytes[from..*at]));
            slices.push(IoSlice::new(payload));
            from = *at;
        }
        slices.push(IoSlice::new(&self.bytes[from..]));
        slices
    }
}

#[cfg(test)]
mod tests;
