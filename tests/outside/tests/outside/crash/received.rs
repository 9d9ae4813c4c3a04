//! The oracle: all events that one session received. A repeated event must have the same bytes, and a number is never
//! reused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// An event id: `<ordinal>-<number>` (RES-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamEventId {
    pub(super) ordinal: u64,
    pub(super) seq: u64,
}

impl StreamEventId {
    /// The id of the priming event of a stream.
    pub(super) fn first_of(ordinal: u64) -> Self {
        StreamEventId { ordinal, seq: 0 }
    }

    pub(super) fn next(self) -> Self {
        let seq = self.seq + 1;
        StreamEventId { seq, ..self }
    }
}

impl fmt::Display for StreamEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ordinal, self.seq)
    }
}

impl FromStr for StreamEventId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-').and_then(|(ordinal, seq)| {
            let (ordinal, seq) = (ordinal.parse().ok()?, seq.parse().ok()?);
            Some(StreamEventId { ordinal, seq })
        });
        parts.ok_or_else(|| format!("{text:?} is not an event id"))
    }
}

/// The events of one session.
#[derive(Default)]
pub(super) struct ReceivedEvents {
    events: BTreeMap<StreamEventId, String>,
    streams: BTreeSet<u64>,
    /// The last event of each ended call stream.
    ends: BTreeMap<u64, StreamEventId>,
    /// Number of repeated events.
    pub(super) repeated: usize,
}

impl ReceivedEvents {
    /// Records a new stream. Asserts that its number is new.
    pub(super) fn start_stream(&mut self, ordinal: u64) {
        assert!(
            self.streams.insert(ordinal),
            "the number of stream {ordinal} was reused"
        );
    }

    /// Records an event. Asserts that a repeated one is unchanged.
    pub(super) fn add(&mut self, place: StreamEventId, payload: &str) {
        assert!(
            self.streams.contains(&place.ordinal),
            "{place} belongs to an unknown stream"
        );
        if let Some(first) = self.events.get(&place) {
            assert_eq!(payload, first, "{place} has another payload than before");
            self.repeated += 1;
            return;
        }
        let end = self.ends.get(&place.ordinal);
        assert_eq!(end, None, "{place} follows the answer: {payload}");
        self.events.insert(place, payload.to_owned());
    }

    /// Records the answer of a call.
    pub(super) fn end_stream(&mut self, place: StreamEventId) {
        let first = *self.ends.entry(place.ordinal).or_insert(place);
        assert_eq!(place, first, "a second answer");
    }

    /// The last events of all ended call streams.
    pub(super) fn call_stream_ends(&self) -> Vec<StreamEventId> {
        self.ends.values().copied().collect()
    }

    /// The last received event of a stream.
    pub(super) fn last_event(&self, ordinal: u64) -> StreamEventId {
        let stream = StreamEventId::first_of(ordinal)..StreamEventId::first_of(ordinal + 1);
        self.events
            .range(stream)
            .next_back()
            .map_or(StreamEventId::first_of(ordinal), |(place, _)| *place)
    }

    /// The ordinals of push streams.
    pub(super) fn push_streams(&self) -> Vec<u64> {
        self.streams
            .iter()
            .copied()
            .filter(|ordinal| ordinal % 2 == 0)
            .collect()
    }

    /// Payloads of all pushed messages, ordered by stream.
    pub(super) fn pushed(&self) -> impl Iterator<Item = &str> {
        let pushed = self.events.iter().filter(|(place, _)| place.ordinal % 2 == 0);
        pushed.map(|(_, payload)| payload.as_str())
    }

    /// Number of streams and events.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.streams.len(), self.events.len())
    }
}

/// The value of the first field with this name, without quotes. Sufficient for the messages of these tests: they have no
/// escapes and no earlier field of the same name.
pub(super) fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let at = json.find(&format!("\"{name}\":"))?;
    let value = &json[at + name.len() + 3..];
    match value.strip_prefix('"') {
        Some(text) => text.split('"').next(),
        None => value.split([',', '}', ']']).next(),
    }
}
