//! The encoding of stream entries, stream infos and signals.

use crate::reply::{Reply, unexpected};
use bytes::{Buf as _, BufMut as _, Bytes};
use rethread_store::{Event, ListKind, Page, ReadLimit, Retain, Seq, Signal, StoreError, StreamInfo, StreamStatus};

/// The events of one append in one entry. Each has a length of four bytes and its payload. The id of the entry is the
/// number of its first event. The priming event is not stored: it has no message, and no read returns it (STO-03).
#[derive(Debug, Default)]
pub(crate) struct Packed {
    pub(crate) count: usize,
    pub(crate) cost: usize,
    pub(crate) last_cost: usize,
    pub(crate) blob: Vec<u8>,
    /// The retained events: a letter and a number each.
    pub(crate) pins: String,
}

impl Packed {
    pub(crate) fn new(events: &[Event]) -> Self {
        let size = events.iter().map(|event| event.payload.len() + 4).sum();
        let mut packed = Packed {
            blob: Vec::with_capacity(size),
            ..Packed::default()
        };
        for event in events.iter().filter(|event| event.seq > Seq::PRIMING) {
            packed.count += 1;
            packed.last_cost = event.cost();
            packed.cost += event.cost();
            packed.blob.put_u32(event.payload.len() as u32);
            packed.blob.put_slice(&event.payload);
            let letter = match event.retain {
                Retain::None => continue,
                Retain::Question => 'q',
                Retain::Answer => 'a',
            };
            packed.pins.push(letter);
            packed.pins.push_str(&event.seq.0.to_string());
        }
        packed
    }
}

/// The payloads of an entry.
pub(crate) fn unpack(mut blob: Bytes) -> Result<Vec<Bytes>, StoreError> {
    let mut payloads = Vec::new();
    while blob.has_remaining() {
        let length = blob.try_get_u32().map_err(|_| unexpected())? as usize;
        if length > blob.len() {
            return Err(unexpected());
        }
        payloads.push(blob.split_to(length));
    }
    Ok(payloads)
}

pub(crate) fn encode_info(info: Option<&StreamInfo>) -> Vec<u8> {
    info.map_or_else(Vec::new, |info| {
        serde_json::to_vec(info).expect("stream info serializes")
    })
}

/// The head of a stream: its status and the retained events.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: StreamStatus,
    /// Retained events. Some have outlived their entries.
    pins: Vec<(Seq, Retain, Option<Bytes>)>,
}

impl Head {
    /// Parses the fields of a head.
    pub(crate) fn new(mut fields: Reply) -> Result<Self, StoreError> {
        let mut info = None;
        let mut head = Head {
            status: StreamStatus::new(StreamInfo::new(rethread_proto::StreamKind::Call, Vec::new(), ""), 0),
            pins: Vec::new(),
        };
        let status = &mut head.status;
        while !fields.is_empty() {
            match fields.text()?.as_str() {
                "f" => info = serde_json::from_slice(&fields.bytes()?).ok(),
                "e" => status.epoch = fields.number()?,
                "n" => status.last = Some(Seq(fields.number()?)),
                "g" => status.purged = Some(Seq(fields.number()?)).filter(|seq| *seq > Seq::PRIMING),
                "c" => {
                    fields.bytes()?;
                    status.sealed = true;
                }
                "of" => status.first_kept = Some(Seq(fields.number()?)),
                "w" => status.writer = fields.member()?,
                field => match field.strip_prefix('p').and_then(|seq| seq.parse().ok()) {
                    Some(seq) => head.pins.push(parse_pin(Seq(seq), fields.bytes()?)?),
                    None => drop(fields.next()),
                },
            }
        }
        head.status.info = info.ok_or_else(unexpected)?;
        let outlived = head.pins.iter().filter(|(_, _, payload)| payload.is_some());
        let oldest = outlived.map(|(seq, _, _)| *seq).min();
        head.status.first_kept = oldest.or(head.status.first_kept);
        Ok(head)
    }

    /// The events after `after`, from the retained ones and from `entries`, which are pairs of an id and packed events.
    pub(crate) fn page(self, mut entries: Reply, after: Seq, limit: ReadLimit) -> Result<Page, StoreError> {
        let mut events = Vec::new();
        let retain = |seq: Seq| self.pins.iter().find(|(pinned, _, _)| *pinned == seq);
        for (seq, retain, payload) in &self.pins {
            events.extend(
                payload
                    .clone()
                    .map(|payload| Event::new(*seq, payload).with_retain(*retain)),
            );
        }
        events.sort_by_key(|event| event.seq);
        while !entries.is_empty() {
            let id = entries.text()?;
            let first = id.split_once('-').and_then(|(first, _)| first.parse().ok());
            let first: u64 = first.ok_or_else(unexpected)?;
            for (seq, payload) in (first..).map(Seq).zip(unpack(entries.bytes()?)?) {
                let retain = retain(seq).map_or(Retain::None, |(_, retain, _)| *retain);
                events.push(Event::new(seq, payload).with_retain(retain));
            }
        }
        events.retain(|event| event.seq > after);
        // The same rule as in `Log::read_after`.
        let mut bytes = 0;
        let fits = events.iter().take(limit.events).take_while(|event| {
            let is_first = bytes == 0;
            bytes += event.payload.len().max(1);
            is_first || bytes <= limit.bytes
        });
        let count = fits.count();
        events.truncate(count);
        Ok(Page::new(events, self.status))
    }
}

/// Lower case: the event is in its entry. Upper case: its payload follows.
fn parse_pin(seq: Seq, mut value: Bytes) -> Result<(Seq, Retain, Option<Bytes>), StoreError> {
    let letter = value.try_get_u8().map_err(|_| unexpected())?;
    let payload = letter.is_ascii_uppercase().then_some(value);
    match letter.to_ascii_lowercase() {
        b'q' => Ok((seq, Retain::Question, payload)),
        b'a' => Ok((seq, Retain::Answer, payload)),
        _ => Err(unexpected()),
    }
}

/// A signal in the broadcast log: a letter and its content.
pub(crate) fn encode_signal(signal: &Signal) -> Vec<u8> {
    let (letter, content): (u8, &[u8]) = match signal {
        Signal::ListChanged(ListKind::Tools) => (b't', b""),
        Signal::ListChanged(ListKind::Prompts) => (b'p', b""),
        Signal::ListChanged(ListKind::Resources) => (b'r', b""),
        Signal::ResourceUpdated(uri) => (b'u', uri.as_bytes()),
        Signal::Broadcast(message) => (b'm', message),
        _ => (b'?', b""),
    };
    let mut encoded = Vec::with_capacity(content.len() + 1);
    encoded.push(letter);
    encoded.extend_from_slice(content);
    encoded
}

/// `None` for a signal of a later version.
pub(crate) fn decode_signal(mut encoded: Bytes) -> Option<Signal> {
    match encoded.try_get_u8().ok()? {
        b't' => Some(Signal::ListChanged(ListKind::Tools)),
        b'p' => Some(Signal::ListChanged(ListKind::Prompts)),
        b'r' => Some(Signal::ListChanged(ListKind::Resources)),
        b'u' => Some(Signal::ResourceUpdated(std::str::from_utf8(&encoded).ok()?.into())),
        b'm' => Some(Signal::Broadcast(encoded)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_events_round_trip(payloads: Vec<Vec<u8>>, primed: bool) {
            let first = if primed { 0 } else { 1 };
            let events: Vec<_> = (first..).map(Seq).zip(&payloads)
                .map(|(seq, payload)| Event::new(seq, payload.clone().into())).collect();
            let packed = Packed::new(&events);
            let stored = &payloads[payloads.len().min(usize::from(primed))..];
            prop_assert_eq!(packed.count, stored.len());
            prop_assert_eq!(unpack(packed.blob.into()).unwrap(), stored);
        }

        #[test]
        fn unpack_of_arbitrary_bytes_does_not_panic(blob: Vec<u8>) {
            let _ = unpack(blob.into());
        }
    }

    #[test]
    fn signals_round_trip() {
        let signals = [
            Signal::ListChanged(ListKind::Tools),
            Signal::ListChanged(ListKind::Prompts),
            Signal::ListChanged(ListKind::Resources),
            Signal::ResourceUpdated("file:///\u{1f9f5}".into()),
            Signal::Broadcast(Bytes::from_static(b"{}")),
        ];
        for signal in signals {
            assert_eq!(decode_signal(encode_signal(&signal).into()), Some(signal));
        }
        assert_eq!(decode_signal(Bytes::from_static(b"?")), None);
        assert_eq!(decode_signal(Bytes::new()), None);
    }
}
