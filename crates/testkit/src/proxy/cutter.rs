//! Where an SSE response is cut.

use super::{CutPlan, CutStyle};
use crate::raw::Dechunker;
use rethread_proto::sse::Decoder;
use std::time::Duration;
use tokio::time::Instant;

/// A first event larger than this is not waited for: the response passes.
const MAX_FIRST_BLOCK: usize = 16 << 20;

/// Follows one SSE response and says where it ends too early.
pub(super) struct Cutter {
    chunks: Option<Dechunker>,
    decoder: Decoder,
    pub(super) style: CutStyle,
    spared: bool,
    bytes: usize,
    after: Duration,
    due: Option<Instant>,
}

impl Cutter {
    pub(super) fn new(plan: &CutPlan, number: usize, chunked: bool) -> Self {
        // A connection's luck depends on its number alone, not on how the others are scheduled.
        let mut random = SplitMix64::new(plan.seed);
        let mut random = SplitMix64::new(random.next() ^ number as u64);
        let spared = random.unit() >= plan.chance;
        let style = match plan.style {
            CutStyle::Mixed if random.below(2) == 0 => CutStyle::Fin,
            CutStyle::Mixed => CutStyle::Rst,
            style => style,
        };
        let range = plan.max_bytes.saturating_sub(plan.min_bytes) as u64 + 1;
        Cutter {
            chunks: chunked.then(Dechunker::default),
            decoder: Decoder::new(MAX_FIRST_BLOCK),
            style,
            spared,
            bytes: plan.min_bytes + random.below(range) as usize,
            after: plan.max_idle.mul_f64(random.unit()),
            due: None,
        }
    }

    /// How many of the next bytes pass, and whether the cut comes after them.
    pub(super) fn look(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (at, byte) in bytes.iter().enumerate() {
            if self.spared {
                break;
            }
            if self.due.is_some() {
                // Counted down byte by byte, since the response may end first, and what has ended cannot be cut.
                if self.bytes == 0 {
                    return (at, true);
                }
                self.bytes -= 1;
            }
            if self.follow(*byte) && self.due.is_none() {
                self.due = Some(Instant::now() + self.after);
            }
        }
        let late = self.due.is_some_and(|due| due <= Instant::now());
        (bytes.len(), !self.spared && late)
    }

    /// Takes note of a byte; true if it ends an event with an id.
    fn follow(&mut self, byte: u8) -> bool {
        let mut content = None;
        match &mut self.chunks {
            Some(chunks) => {
                if chunks.feed(&[byte], |data| content = data.first().copied()).is_err() || chunks.is_done() {
                    self.disarm();
                }
            }
            None => content = Some(byte),
        }
        let mut found = false;
        if let (Some(byte), None) = (content, self.due) {
            let fed = self.decoder.feed(&[byte], |block| found |= block.id.is_some());
            self.spared |= fed.is_err();
        }
        found
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.filter(|_| !self.spared)
    }

    pub(super) fn disarm(&mut self) {
        self.spared = true;
    }
}

/// A small generator of random numbers: the same seed, the same numbers, on every machine.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// The next number.
    #[allow(
        clippy::should_implement_trait,
        reason = "it never ends, so that an Option would only be in the way"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if there is none. The slight bias of the remainder does not matter here.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number from 0 up to, not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
