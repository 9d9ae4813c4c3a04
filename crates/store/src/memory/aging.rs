//! In which order ended streams are given up.

use crate::StreamKey;
use rethread_proto::clock::Wall;
use std::collections::VecDeque;
use std::time::Duration;

/// Ended streams, oldest first: those with events, and those that are tombstones already.
///
/// A stream that is forgotten for another reason leaves its entry behind; when half of the entries are such, they are
/// compacted away, so that the queues stay in proportion to what is stored.
#[derive(Default)]
pub(super) struct Aging {
    whole: VecDeque<(Wall, StreamKey)>,
    tombs: VecDeque<(Wall, StreamKey)>,
    stale: usize,
}

impl Aging {
    pub(super) fn ended(&mut self, at: Wall, key: StreamKey) {
        self.whole.push_back((at, key));
    }

    pub(super) fn buried(&mut self, at: Wall, key: StreamKey) {
        self.tombs.push_back((at, key));
    }

    pub(super) fn forgotten(&mut self, streams: usize) {
        self.stale += streams;
    }

    /// The stream with events that ended longest ago.
    pub(super) fn pop_whole(&mut self) -> Option<(Wall, StreamKey)> {
        self.whole.pop_front()
    }

    /// The oldest tombstone.
    pub(super) fn pop_tomb(&mut self) -> Option<StreamKey> {
        self.tombs.pop_front().map(|(_, key)| key)
    }

    /// The next stream whose time has come.
    pub(super) fn pop_aged(&mut self, now: Wall, age: Duration) -> Option<StreamKey> {
        let mut pop = |queue: fn(&mut Self) -> &mut VecDeque<(Wall, StreamKey)>| {
            let queue = queue(self);
            let aged = queue.front().is_some_and(|(at, _)| now.since(*at) >= age);
            aged.then(|| queue.pop_front()).flatten().map(|(_, key)| key)
        };
        pop(|aging| &mut aging.tombs).or_else(|| pop(|aging| &mut aging.whole))
    }

    pub(super) fn wants_compaction(&self) -> bool {
        self.stale > 1024 + (self.whole.len() + self.tombs.len()) / 2
    }

    pub(super) fn compact(&mut self, exists: impl Fn(&StreamKey) -> bool) {
        self.whole.retain(|(_, key)| exists(key));
        self.tombs.retain(|(_, key)| exists(key));
        self.stale = 0;
    }
}
