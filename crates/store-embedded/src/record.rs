//! The records of the log: every change of the store. See `docs/store-format.md`.
//!
//! A record has a header and a body. The header describes the change. The body has the bytes that reads return:
//! payloads, session records and push messages. The header has a checksum of each part of the body, so a read verifies
//! exactly the bytes that it returns.

use crate::coding::{Decoder, Wire, wire_as, wire_struct};
use rethread_proto::clock::Wall;
use rethread_store::{Ordinal, QueuePosition, Retain, Seq, SessionKey, StreamInfo};
use std::sync::Arc;

/// Defines [`Record`] and its encoding: the number of the kind, then the fields in order.
macro_rules! records {
    ($( $(#[$doc:meta])* $kind:literal $name:ident { $( $(#[$field_doc:meta])* $field:ident: $type:ty, )* } )*) => {
        /// A change of the store. Records name sessions by numbers, which are never reused.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) enum Record {
            $( $(#[$doc])* $name { $( $(#[$field_doc])* $field: $type, )* }, )*
        }

        impl Wire for Record {
            fn encode(&self, buffer: &mut Vec<u8>) {
                match self {
                    $( Record::$name { $( $field, )* } => {
                        u64::encode(&$kind, buffer);
                        $( $field.encode(buffer); )*
                    } )*
                }
            }

            fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
                Some(match u64::decode(decoder)? {
                    $( $kind => Record::$name { $( $field: Wire::decode(decoder)?, )* }, )*
                    _ => return None,
                })
            }
        }
    };
}

records! {
    /// Opens a session. Replaces a session with the same key. The body is the session's record.
    1 Create { session: u64, key: SessionKey, at: Wall, epoch: u64, body: Part, }
    /// Replaces the record of a session. The body is the new one.
    2 Update { session: u64, at: Wall, epoch: u64, body: Part, }
    /// Records that a session is in use.
    3 Touch { session: u64, at: Wall, }
    /// Ends a session and removes its streams and its push queue.
    4 End { session: u64, }
    /// Appends events to a stream. The body has their payloads.
    5 Append { append: Append, }
    /// Removes events of a stream that exceeds its limits. A range is its first number and its length.
    6 Evict { session: u64, ordinal: Ordinal, ranges: Vec<(Seq, u64)>, }
    /// Removes all events of an ended stream and leaves a tombstone.
    7 Bury { session: u64, ordinal: Ordinal, }
    /// Forgets a stream.
    8 ForgetStream { session: u64, ordinal: Ordinal, }
    /// Forgets all streams of a session, and its push queue.
    9 ForgetSession { session: u64, }
    /// Raises the floor of a push queue and adds messages. The body has the messages, each after its collapse key.
    10 Queue { session: u64, floor: QueuePosition, messages: Vec<Message>, }
    /// Compaction: the body has copies of these parts.
    11 Move { parts: Vec<(Item, Part)>, }
}

/// New events of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Append {
    pub(crate) session: u64,
    pub(crate) ordinal: Ordinal,
    pub(crate) epoch: u64,
    /// The number of the first event. The others follow without a gap.
    pub(crate) first: Seq,
    pub(crate) events: Vec<NewEvent>,
    /// In the first append of a stream.
    pub(crate) info: Option<Arc<StreamInfo>>,
    /// The time of the seal, if this append seals the stream.
    pub(crate) sealed_at: Option<Wall>,
    pub(crate) taken: Option<QueuePosition>,
    pub(crate) released: Vec<Seq>,
    /// Ended streams of the session that the seal displaces.
    pub(crate) forgotten: Vec<Ordinal>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NewEvent {
    pub(crate) retain: Retain,
    pub(crate) part: Part,
}

/// The length and the checksum of a part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) len: u32,
    pub(crate) crc: u32,
}

/// A value of the store whose bytes are a part of a body. The first number is its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// The record of the session.
    Record(u64),
    Event(u64, Ordinal, Seq),
    Message(u64, QueuePosition),
}

/// A message of a push queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) position: QueuePosition,
    /// The length of the collapse key before the message, plus one. Zero if it has none.
    pub(crate) collapse: u32,
    pub(crate) body: Part,
}

wire_struct!(Append {
    session,
    ordinal,
    epoch,
    first,
    events,
    info,
    sealed_at,
    taken,
    released,
    forgotten
});
wire_struct!(NewEvent { retain, part });
wire_struct!(Message {
    position,
    collapse,
    body
});

impl Record {
    /// Parses a header.
    pub(crate) fn parse(header: &[u8]) -> Option<Self> {
        let mut decoder = Decoder(header);
        let record = Record::decode(&mut decoder)?;
        decoder.0.is_empty().then_some(record)
    }

    /// The parts of the body, in order.
    pub(crate) fn parts(&self) -> Vec<(Item, Part)> {
        match self {
            Record::Create { session, body, .. } | Record::Update { session, body, .. } => {
                vec![(Item::Record(*session), *body)]
            }
            Record::Append { append } => {
                // A damaged first number must not overflow.
                let seq = |offset| Seq(append.first.0.wrapping_add(offset));
                let item = |offset| Item::Event(append.session, append.ordinal, seq(offset));
                let events = (0..).zip(&append.events);
                events.map(|(offset, event)| (item(offset), event.part)).collect()
            }
            Record::Queue { session, messages, .. } => {
                let item = |message: &Message| Item::Message(*session, message.position);
                messages.iter().map(|message| (item(message), message.body)).collect()
            }
            Record::Move { parts } => parts.clone(),
            _ => Vec::new(),
        }
    }
}

impl Part {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Part {
            len: u32::try_from(bytes.len()).expect("an operation is far smaller than 4 GiB"),
            crc: crc32c::crc32c(bytes),
        }
    }

    pub(crate) fn matches(self, bytes: &[u8]) -> bool {
        bytes.len() == self.len as usize && crc32c::crc32c(bytes) == self.crc
    }
}

wire_as! {
    Item as ((u64, u64), (u64, u64)): |item| match *item {
        Item::Record(session) => ((0, session), (0, 0)),
        Item::Event(session, ordinal, seq) => ((1, session), (ordinal.0, seq.0)),
        Item::Message(session, position) => ((2, session), (0, position.0)),
    }, |item| match item {
        ((0, session), (0, 0)) => Some(Item::Record(session)),
        ((1, session), (ordinal, seq)) => Some(Item::Event(session, Ordinal(ordinal), Seq(seq))),
        ((2, session), (0, position)) => Some(Item::Message(session, QueuePosition(position))),
        _ => None,
    };
}

impl Wire for Part {
    fn encode(&self, buffer: &mut Vec<u8>) {
        self.len.encode(buffer);
        buffer.extend_from_slice(&self.crc.to_le_bytes());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let len = Wire::decode(decoder)?;
        let crc = u32::from_le_bytes(decoder.array()?);
        Some(Part { len, crc })
    }
}

#[cfg(test)]
mod tests;
