//! The oracle: everything that one session ever saw. Nothing is taken back, so what comes again must be the same, byte
//! by byte, and a number that was used once must not come with anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// An event id: `<ordinal>-<number>` (RES-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) ordinal: u64,
    pub(super) seq: u64,
}

impl Place {
    /// Where a stream begins: its priming event.
    pub(super) fn start_of(ordinal: u64) -> Self {
        Place { ordinal, seq: 0 }
    }

    pub(super) fn next(self) -> Self {
        let seq = self.seq + 1;
        Place { seq, ..self }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ordinal, self.seq)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-').and_then(|(ordinal, seq)| {
            let (ordinal, seq) = (ordinal.parse().ok()?, seq.parse().ok()?);
            Some(Place { ordinal, seq })
        });
        parts.ok_or_else(|| format!("{text:?} is not an event id"))
    }
}

/// What one session saw.
#[derive(Default)]
pub(super) struct Record {
    events: BTreeMap<Place, String>,
    streams: BTreeSet<u64>,
    /// Where the streams of calls ended.
    ends: BTreeMap<u64, Place>,
    /// How many events came that had come before.
    pub(super) again: usize,
}

impl Record {
    /// A stream begins. Its number must be new.
    pub(super) fn begins(&mut self, ordinal: u64) {
        assert!(
            self.streams.insert(ordinal),
            "stream {ordinal} began twice: its number was used before"
        );
    }

    /// An event came.
    pub(super) fn came(&mut self, place: Place, payload: &str) {
        assert!(
            self.streams.contains(&place.ordinal),
            "{place} belongs to no stream that is known"
        );
        if let Some(first) = self.events.get(&place) {
            assert_eq!(payload, first, "{place} came with another payload than the first time");
            self.again += 1;
            return;
        }
        let end = self.ends.get(&place.ordinal);
        assert_eq!(end, None, "{place} came behind the answer: {payload}");
        self.events.insert(place, payload.to_owned());
    }

    /// The answer of a call came, there.
    pub(super) fn answered(&mut self, place: Place) {
        let first = *self.ends.entry(place.ordinal).or_insert(place);
        assert_eq!(place, first, "a second answer");
    }

    /// Where the streams of answered calls end.
    pub(super) fn ends(&self) -> Vec<Place> {
        self.ends.values().copied().collect()
    }

    /// The last event that came on a stream.
    pub(super) fn last_of(&self, ordinal: u64) -> Place {
        let stream = Place::start_of(ordinal)..Place::start_of(ordinal + 1);
        self.events
            .range(stream)
            .next_back()
            .map_or(Place::start_of(ordinal), |(place, _)| *place)
    }

    /// The streams that nobody's call began.
    pub(super) fn push_streams(&self) -> Vec<u64> {
        self.streams
            .iter()
            .copied()
            .filter(|ordinal| ordinal % 2 == 0)
            .collect()
    }

    /// What was said unasked, in the order of the streams.
    pub(super) fn pushed(&self) -> impl Iterator<Item = &str> {
        let pushed = self.events.iter().filter(|(place, _)| place.ordinal % 2 == 0);
        pushed.map(|(_, payload)| payload.as_str())
    }

    /// How much there is.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.streams.len(), self.events.len())
    }
}

/// The value of the first field of that name, without quotes. Enough for messages whose form is known: none of them has
/// an escape, or a field of another's name before it.
pub(super) fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let at = json.find(&format!("\"{name}\":"))?;
    let value = &json[at + name.len() + 3..];
    match value.strip_prefix('"') {
        Some(text) => text.split('"').next(),
        None => value.split([',', '}', ']']).next(),
    }
}
