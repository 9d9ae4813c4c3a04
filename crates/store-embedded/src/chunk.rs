//! Events as they are stored: those of one append together, in rows of at most [`EVENTS`] events and [`BYTES`] bytes.
//!
//! A row tells of each event how long it is and why it is kept. The payloads follow in the row itself when they are few
//! bytes, and lie in a segment otherwise (see `segments.rs`): what the database holds it writes several times, into its
//! journal, into a table, and again whenever tables are merged.

use crate::coding::Reader;
use crate::head::event_cost;
use bytes::Bytes;
use rethread_store::{Retain, Seq};
use std::ops::Range;

/// So many events a row has at most.
pub(crate) const EVENTS: usize = 256;
/// With so many bytes of payload a row takes no more events.
pub(crate) const BYTES: usize = 64 << 10;

/// A row of events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chunk {
    pub(crate) first: Seq,
    /// Without a gap, from `first` on.
    pub(crate) items: Vec<Item>,
    pub(crate) data: Data,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) len: u64,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    Held(Retain),
    /// It was evicted. What it said may still be there, and counts no more.
    Gone,
}

/// Where the payloads are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Here(Bytes),
    There(Spot),
}

/// A place in a segment, and what the bytes there add up to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spot {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) sum: u64,
}

/// An event of a row that was not evicted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    pub(crate) seq: Seq,
    pub(crate) retain: Retain,
    /// Where its payload is among the row's.
    pub(crate) range: Range<usize>,
}

impl Held {
    pub(crate) fn cost(&self) -> u64 {
        event_cost(self.range.len())
    }
}

impl Chunk {
    pub(crate) fn last(&self) -> Seq {
        Seq(self.first.0 + (self.items.len() as u64).saturating_sub(1))
    }

    /// How many bytes the payloads are, those of evicted events included.
    pub(crate) fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.len).sum()
    }

    pub(crate) fn spot(&self) -> Option<Spot> {
        match self.data {
            Data::Here(_) => None,
            Data::There(spot) => Some(spot),
        }
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = Held> + '_ {
        let mut end = 0;
        let placed = self.items.iter().zip(self.first.0..).map(move |(item, seq)| {
            let start = end;
            end += item.len as usize;
            (item.state, Seq(seq), start..end)
        });
        placed.filter_map(|(state, seq, range)| match state {
            State::Held(retain) => Some(Held { seq, retain, range }),
            State::Gone => None,
        })
    }

    /// What of it counts in a segment.
    pub(crate) fn held_bytes(&self) -> u64 {
        let held = self.items.iter().filter(|item| item.state != State::Gone);
        held.map(|item| item.len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.iter().all(|item| item.state == State::Gone)
    }

    pub(crate) fn item_mut(&mut self, seq: Seq) -> Option<&mut Item> {
        let at = usize::try_from(seq.0.checked_sub(self.first.0)?).ok()?;
        self.items.get_mut(at)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let here: &[u8] = match &self.data {
            Data::Here(bytes) => bytes,
            Data::There(_) => &[],
        };
        let mut value = Vec::with_capacity(32 + 3 * self.items.len() + here.len());
        match &self.data {
            Data::Here(_) => value.push(0),
            Data::There(spot) => {
                value.push(1);
                for number in [spot.segment, spot.offset, spot.sum] {
                    value.extend_from_slice(&number.to_le_bytes());
                }
            }
        }
        varint(&mut value, self.items.len() as u64);
        for item in &self.items {
            let state = match item.state {
                State::Held(Retain::None) => 0,
                State::Held(Retain::Question) => 1,
                State::Held(Retain::Answer) => 2,
                State::Gone => 3,
            };
            varint(&mut value, item.len << 2 | state);
        }
        value.extend_from_slice(here);
        value
    }

    /// The row whose last event this is.
    pub(crate) fn decode(last: Seq, value: &[u8]) -> Option<Self> {
        let mut reader = Reader(value);
        let spot = match reader.u8()? {
            0 => None,
            1 => Some(Spot {
                segment: reader.u64()?,
                offset: reader.u64()?,
                sum: reader.u64()?,
            }),
            _ => return None,
        };
        let count = reader.varint()?;
        // Every event takes a byte at least: a garbled count must not take memory.
        if count == 0 || count > reader.0.len() as u64 {
            return None;
        }
        let mut items = Vec::with_capacity(count as usize);
        let mut bytes = 0u64;
        for _ in 0..count {
            let packed = reader.varint()?;
            let len = packed >> 2;
            bytes = bytes.checked_add(len)?;
            let state = match packed & 3 {
                0 => State::Held(Retain::None),
                1 => State::Held(Retain::Question),
                2 => State::Held(Retain::Answer),
                _ => State::Gone,
            };
            items.push(Item { len, state });
        }
        let rest = reader.rest();
        let data = match spot {
            Some(spot) if rest.is_empty() => Data::There(spot),
            None if rest.len() as u64 == bytes => Data::Here(Bytes::copy_from_slice(rest)),
            _ => return None,
        };
        let first = Seq((last.0 + 1).checked_sub(count)?);
        Some(Chunk { first, items, data })
    }
}

/// Seven bits a byte, the lowest first.
fn varint(value: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        value.push(number as u8 | 0x80);
        number >>= 7;
    }
    value.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(len: u64, state: State) -> Item {
        Item { len, state }
    }

    #[test]
    fn a_row_survives_being_bytes() {
        let items = vec![
            item(0, State::Held(Retain::None)),
            item(300, State::Gone),
            item(2, State::Held(Retain::Answer)),
            item(1 << 40, State::Held(Retain::Question)),
        ];
        let spot = Spot {
            segment: 7,
            offset: 8,
            sum: u64::MAX,
        };
        let there = Chunk {
            first: Seq(5),
            items,
            data: Data::There(spot),
        };
        assert_eq!(there.last(), Seq(8));
        assert_eq!(Chunk::decode(Seq(8), &there.encode()), Some(there.clone()));
        let here = Chunk {
            first: Seq(0),
            items: vec![item(3, State::Held(Retain::None)), item(1, State::Held(Retain::Answer))],
            data: Data::Here(Bytes::from_static(b"abcd")),
        };
        assert_eq!(Chunk::decode(Seq(1), &here.encode()), Some(here.clone()));
        let held: Vec<_> = there.held().map(|held| (held.seq.0, held.range)).collect();
        assert_eq!(held, [(5, 0..0), (7, 300..302), (8, 302..302 + (1 << 40))]);
        assert_eq!(there.held_bytes() + 300, there.bytes());
    }

    #[test]
    fn garbage_is_no_row() {
        let whole = Chunk {
            first: Seq(1),
            items: vec![item(3, State::Held(Retain::None))],
            data: Data::Here(Bytes::from_static(b"abc")),
        };
        let whole = whole.encode();
        assert!(Chunk::decode(Seq(1), &whole).is_some());
        for cut in 0..whole.len() {
            assert_eq!(Chunk::decode(Seq(1), &whole[..cut]), None, "{cut}");
        }
        assert_eq!(Chunk::decode(Seq(1), b"\x02\x01\x0cabc"), None);
        assert_eq!(
            Chunk::decode(Seq(1), b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            None
        );
        assert_eq!(Chunk::decode(Seq(0), b"\0\x02\0\0"), None, "more events than numbers");
    }
}
