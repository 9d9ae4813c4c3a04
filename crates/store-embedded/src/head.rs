//! What is kept of a stream beside its events.

use crate::coding::Reader;
use rethread_proto::stream::Refused;
use rethread_store::{Batch, Event, Retain, Seq, StreamInfo};

/// What a stream costs beside its events and its info, tombstones included.
const STREAM_OVERHEAD: u64 = 512;

/// A stream's head. It is written when the stream is made, sealed or trimmed and when its writer changes, not with every
/// event: of a stream that is open, `last`, `count`, `bytes` and `answers` are as of then, and the events tell the rest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    /// Under which number its events are found.
    pub(crate) stream: u64,
    pub(crate) info: StreamInfo,
    pub(crate) epoch: u64,
    pub(crate) last: Option<Seq>,
    pub(crate) purged: Option<Seq>,
    /// No event below this one is left: where a search starts, so that it does not walk over what was deleted.
    pub(crate) first: Seq,
    pub(crate) answers_lost: bool,
    pub(crate) ended: Option<Ended>,
    /// Whether it is a tombstone: it had events, and they were given up.
    pub(crate) buried: bool,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    /// How many answers are among the events.
    pub(crate) answers: u64,
}

/// When a stream ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ended {
    /// In milliseconds, by the wall clock.
    pub(crate) at: u64,
    /// Unique, and rising in the order in which streams end.
    pub(crate) ticket: u64,
}

/// What is to be done about a batch that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Take,
    /// It is stored already.
    Repeat,
}

const LAST: u8 = 1;
const PURGED: u8 = 2;
const ENDED: u8 = 4;
const ANSWERS_LOST: u8 = 8;
const BURIED: u8 = 16;

impl Head {
    /// A stream without events.
    pub(crate) fn new(stream: u64, info: StreamInfo, epoch: u64) -> Self {
        Head {
            stream,
            info,
            epoch,
            last: None,
            purged: None,
            first: Seq::PRIMING,
            answers_lost: false,
            ended: None,
            buried: false,
            count: 0,
            bytes: 0,
            answers: 0,
        }
    }

    /// Whether a batch fits: the rules of [`Log::append`](rethread_proto::stream::Log::append).
    pub(crate) fn judge(&self, batch: &Batch) -> Result<Verdict, Refused> {
        let sealed = self.ended.is_some();
        let next = self.last.map_or(Seq::PRIMING, Seq::next);
        let (first, end) = match (batch.events.first(), batch.events.last()) {
            (Some(first), Some(last)) => (first.seq, last.seq),
            _ => (next, self.last.unwrap_or_default()),
        };
        let stored = if batch.events.is_empty() {
            batch.seals
        } else {
            self.last == Some(end)
        };
        if stored && batch.epoch == self.epoch && batch.seals == sealed {
            return Ok(Verdict::Repeat);
        }
        if sealed {
            return Err(Refused::Sealed);
        }
        let gapless = batch.events.windows(2).all(|pair| pair[1].seq == pair[0].seq.next());
        let follows = first == next || (self.last.is_none() && first <= Seq::FIRST);
        if batch.epoch < self.epoch || !follows || !gapless {
            return Err(Refused::Conflict {
                epoch: self.epoch,
                last: self.last,
            });
        }
        Ok(Verdict::Take)
    }

    /// Takes note of an event that is appended.
    pub(crate) fn count(&mut self, event: &Event) {
        if self.last.is_none() {
            self.first = event.seq;
        }
        self.last = Some(event.seq);
        self.count += 1;
        self.bytes += event.cost() as u64;
        self.answers += u64::from(event.retain == Retain::Answer);
    }

    /// What it counts against the total.
    pub(crate) fn cost(&self) -> u64 {
        self.bytes + self.fixed_cost()
    }

    /// What it counts when its events are gone.
    pub(crate) fn fixed_cost(&self) -> u64 {
        STREAM_OVERHEAD + self.info.cost() as u64
    }

    /// Gives the events up: what remains known of them. They are deleted elsewhere.
    pub(crate) fn bury(&mut self) {
        // The loss of a priming event alone is no gap: it says nothing.
        self.purged = self.purged.max(self.last.filter(|last| *last > Seq::PRIMING));
        self.answers_lost |= self.answers > 0;
        self.first = self.last.map_or(Seq::PRIMING, Seq::next);
        self.buried = true;
        (self.count, self.bytes, self.answers) = (0, 0, 0);
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut flags = 0;
        let mut flag = |bit: u8, set: bool| flags |= if set { bit } else { 0 };
        flag(LAST, self.last.is_some());
        flag(PURGED, self.purged.is_some());
        flag(ENDED, self.ended.is_some());
        flag(ANSWERS_LOST, self.answers_lost);
        flag(BURIED, self.buried);
        let ended = self.ended.unwrap_or(Ended { at: 0, ticket: 0 });
        let mut value = vec![flags];
        for number in [
            self.stream,
            self.epoch,
            self.last.unwrap_or_default().0,
            self.purged.unwrap_or_default().0,
            self.first.0,
            ended.at,
            ended.ticket,
            self.count,
            self.bytes,
            self.answers,
        ] {
            value.extend_from_slice(&number.to_le_bytes());
        }
        serde_json::to_writer(&mut value, &self.info).expect("info are plain JSON, and a vector takes all");
        value
    }

    /// Whether an encoded head is of a stream that has ended.
    pub(crate) fn has_ended(value: &[u8]) -> bool {
        value.first().is_some_and(|flags| flags & ENDED != 0)
    }

    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut reader = Reader(value);
        let flags = reader.u8()?;
        let mut number = || reader.u64();
        let given = |bit: u8, seq: u64| (flags & bit != 0).then_some(Seq(seq));
        Some(Head {
            stream: number()?,
            epoch: number()?,
            last: given(LAST, number()?),
            purged: given(PURGED, number()?),
            first: Seq(number()?),
            ended: {
                let (at, ticket) = (number()?, number()?);
                (flags & ENDED != 0).then_some(Ended { at, ticket })
            },
            answers_lost: flags & ANSWERS_LOST != 0,
            buried: flags & BURIED != 0,
            count: number()?,
            bytes: number()?,
            answers: number()?,
            info: serde_json::from_slice(reader.rest()).ok()?,
        })
    }
}

/// What an event with a payload of such a length counts: [`Event::cost`].
pub(crate) fn event_cost(payload: usize) -> u64 {
    let bare = Event::new(Seq::PRIMING, bytes::Bytes::new());
    (bare.cost() + payload) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rethread_proto::StreamKind;

    #[test]
    fn a_head_survives_being_bytes() {
        let info = StreamInfo {
            kind: StreamKind::Call,
            calls: vec![7.into()],
            node: "n".into(),
        };
        let mut head = Head::new(3, info, 9);
        assert_eq!(Head::decode(&head.encode()), Some(head.clone()));
        head.count(&Event::new(Seq(0), "abc".into()));
        head.count(&Event {
            retain: Retain::Answer,
            ..Event::new(Seq(1), "d".into())
        });
        head.ended = Some(Ended { at: 5, ticket: 6 });
        assert_eq!(Head::decode(&head.encode()), Some(head.clone()));
        assert_eq!(head.bytes, event_cost(3) + event_cost(1));
        head.bury();
        assert_eq!((head.purged, head.answers_lost, head.bytes), (Some(Seq(1)), true, 0));
        assert_eq!(Head::decode(&head.encode()), Some(head));
        assert_eq!(Head::decode(b"\0short"), None);
    }
}
