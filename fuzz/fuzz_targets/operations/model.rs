//! A simple model of the log of a stream.

use rethread_proto::event_id::Seq;
use rethread_proto::stream::{Batch, Event, Log, Refused, Retain, Retention};

/// The cost of an event without its payload.
const OVERHEAD: usize = 96;

pub struct Model {
    pub epoch: u64,
    pub last: Option<Seq>,
    sealed: bool,
    kept: Vec<Event>,
    lost: Vec<Event>,
}

impl Default for Model {
    fn default() -> Self {
        Model {
            epoch: 1,
            last: None,
            sealed: false,
            kept: Vec::new(),
            lost: Vec::new(),
        }
    }
}

impl Model {
    pub fn next(&self) -> Seq {
        self.last.map_or(Seq::PRIMING, Seq::next)
    }

    pub fn append(&mut self, batch: &Batch) -> Result<(), Refused> {
        let end = batch.events.last().map(|event| event.seq);
        let is_stored = end.map_or(batch.seals, |end| Some(end) == self.last);
        let is_repeated = is_stored && batch.epoch == self.epoch;
        if is_repeated && batch.seals == self.sealed {
            return Ok(());
        }
        if self.sealed {
            return Err(Refused::Sealed);
        }
        let first = batch.events.first().map_or(self.next(), |event| event.seq);
        let fits = first == self.next() || (self.last.is_none() && first == Seq::FIRST);
        if !fits || batch.epoch < self.epoch {
            return Err(Refused::Conflict {
                epoch: self.epoch,
                last: self.last,
            });
        }
        self.epoch = batch.epoch;
        self.kept.extend(batch.events.iter().cloned());
        self.last = end.or(self.last);
        self.sealed = batch.seals;
        for event in &mut self.kept {
            let is_settled = self.sealed && event.retain == Retain::Question;
            let is_released = !self.sealed && batch.released.contains(&event.seq);
            if is_settled || is_released {
                event.retain = Retain::None;
            }
        }
        Ok(())
    }

    pub fn evict(&mut self, limits: &Retention) -> usize {
        let before = self.kept.len();
        while self.kept.len() > limits.events || self.bytes() > limits.bytes {
            let older = self.kept.len().saturating_sub(1);
            let Some(at) = self.kept[..older].iter().position(|event| event.retain == Retain::None) else {
                break;
            };
            self.lost.push(self.kept.remove(at));
        }
        before - self.kept.len()
    }

    pub fn bury(&mut self) -> usize {
        let freed = self.bytes();
        self.lost.append(&mut self.kept);
        freed
    }

    fn bytes(&self) -> usize {
        self.kept.iter().map(|event| event.payload.len() + OVERHEAD).sum()
    }

    /// The status of the log equals that of the model.
    pub fn check(&self, log: &Log) {
        let status = log.status();
        assert_eq!((log.len(), log.bytes()), (self.kept.len(), self.bytes()));
        let told = (status.epoch, status.last, status.sealed);
        assert_eq!(told, (self.epoch, self.last, self.sealed));
        assert_eq!(status.first_kept, self.kept.first().map(|event| event.seq));
        let answers_lost = self.lost.iter().any(|event| event.retain == Retain::Answer);
        assert_eq!(status.answers_lost, answers_lost);
    }

    /// One page: as many of the next events as fit, at least one if any exists.
    pub fn check_page(&self, log: &Log, cursor: Seq, limit: usize, bytes: usize) {
        let page = log.read_after(cursor, limit, bytes);
        let after = self.kept.iter().filter(|event| event.seq > cursor);
        assert!(page.events.iter().eq(after.take(page.events.len())));
        assert!(page.events.len() <= limit);
        let size: usize = page.events.iter().map(|event| event.payload.len()).sum();
        assert!(size <= bytes || page.events.len() == 1);
        let is_due = limit > 0 && self.kept.iter().any(|event| event.seq > cursor);
        assert_eq!(page.events.is_empty(), !is_due);
    }

    /// A reader that reads page after page sees all retained events once, and learns of missing ones.
    pub fn check_suffix(&self, log: &Log, cursor: Seq) {
        let is_reported = log.read_after(cursor, 1, 0).has_gap_after(cursor);
        let (mut at, mut seen) = (cursor, Vec::new());
        loop {
            let page = log.read_after(at, 3, 200);
            let Some(end) = page.events.last() else { break };
            at = end.seq;
            seen.extend(page.events);
        }
        assert!(seen.iter().eq(self.kept.iter().filter(|event| event.seq > cursor)));
        let is_missing = self.lost.iter().any(|event| event.seq > cursor);
        assert_eq!(is_reported, is_missing, "a gap after {cursor}");
    }
}
