//! Decides where an SSE response is cut.

use super::{CutPlan, CutStyle};
use crate::raw::Dechunker;
use rethread_proto::sse::Decoder;
use std::time::Duration;
use tokio::time::Instant;

/// A response whose first event is larger is not cut.
const MAX_FIRST_BLOCK_BYTES: usize = 16 << 20;

/// Parses one SSE response and decides where to cut it.
pub(super) struct Cutter {
    chunks: Option<Dechunker>,
    decoder: Decoder,
    pub(super) style: CutStyle,
    disarmed: bool,
    /// Bytes that may still pass after the first event with an id.
    bytes_left: usize,
    delay: Duration,
    /// Time of the cut, set by the first event with an id.
    cut_at: Option<Instant>,
}

impl Cutter {
    pub(super) fn new(plan: &CutPlan, number: usize, chunked: bool) -> Self {
        // The cut depends on the connection number alone, not on the scheduling of other connections.
        let mut random = SplitMix64::new(plan.seed);
        let mut random = SplitMix64::new(random.next() ^ number as u64);
        let disarmed = random.unit() >= plan.chance;
        let style = match plan.style {
            CutStyle::Mixed if random.below(2) == 0 => CutStyle::Fin,
            CutStyle::Mixed => CutStyle::Rst,
            style => style,
        };
        let range = plan.max_bytes.saturating_sub(plan.min_bytes) as u64 + 1;
        Cutter {
            chunks: chunked.then(Dechunker::default),
            decoder: Decoder::new(MAX_FIRST_BLOCK_BYTES),
            style,
            disarmed,
            bytes_left: plan.min_bytes + random.below(range) as usize,
            delay: plan.max_idle.mul_f64(random.unit()),
            cut_at: None,
        }
    }

    /// Returns how many of the bytes pass, and whether to cut after them.
    pub(super) fn inspect(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (at, byte) in bytes.iter().enumerate() {
            if self.disarmed {
                break;
            }
            if self.cut_at.is_some() {
                // Byte by byte, because the response may end before the count does.
                if self.bytes_left == 0 {
                    return (at, true);
                }
                self.bytes_left -= 1;
            }
            if self.feed(*byte) && self.cut_at.is_none() {
                self.cut_at = Some(Instant::now() + self.delay);
            }
        }
        let overdue = self.cut_at.is_some_and(|at| at <= Instant::now());
        (bytes.len(), !self.disarmed && overdue)
    }

    /// Parses a byte. True if it ends an event with an id.
    fn feed(&mut self, byte: u8) -> bool {
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
        if let (Some(byte), None) = (content, self.cut_at) {
            let fed = self.decoder.feed(&[byte], |block| found |= block.id.is_some());
            self.disarmed |= fed.is_err();
        }
        found
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.cut_at.filter(|_| !self.disarmed)
    }

    pub(super) fn disarm(&mut self) {
        self.disarmed = true;
    }
}

/// A small random number generator. The same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// The next number.
    #[allow(
        clippy::should_implement_trait,
        reason = "the sequence is infinite, so an Option would be useless"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, or 0 if `end` is 0. The slight bias of the remainder is acceptable for tests.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
