//! The records of the log: every change of the store. See `docs/store-format.md`.
//!
//! A record has a header and a body. The header describes the change. The body has the bytes that reads return:
//! payloads, session records and push messages. The header has a checksum of each part of the body, so a read verifies
//! exactly the bytes that it returns.

use crate::coding::{Decoder, Wire, wire_struct};
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
    /// Replaces the record of a session. The body is the new one. Compaction writes the same record again.
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
    /// Raises the floor of a push queue and adds messages. A message at an occupied position is a copy by compaction.
    /// The body has the messages, each after its collapse key.
    10 Queue { session: u64, floor: QueuePosition, messages: Vec<Message>, }
    /// Compaction: the body has copies of these events.
    11 Move { session: u64, ordinal: Ordinal, events: NumberedParts, }
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

/// The payloads of events.
pub(crate) type NumberedParts = Vec<(Seq, Part)>;

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
    pub(crate) fn parts(&self) -> Vec<Part> {
        match self {
            Record::Create { body, .. } | Record::Update { body, .. } => vec![*body],
            Record::Append { append } => append.events.iter().map(|event| event.part).collect(),
            Record::Move { events, .. } => events.iter().map(|(_, part)| *part).collect(),
            Record::Queue { messages, .. } => messages.iter().map(|message| message.body).collect(),
            _ => Vec::new(),
        }
    }

    /// The session, the stream and the events in the body.
    pub(crate) fn events(&self) -> Option<(u64, Ordinal, NumberedParts)> {
        match self {
            Record::Append { append } => {
                let events = append.events.iter().zip(append.first.0..);
                let events = events.map(|(event, seq)| (Seq(seq), event.part)).collect();
                Some((append.session, append.ordinal, events))
            }
            Record::Move {
                session,
                ordinal,
                events,
            } => Some((*session, *ordinal, events.clone())),
            _ => None,
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
