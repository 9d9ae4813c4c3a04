//! The stream ordinals of a session.

use crate::event_id::{Ordinal, StreamKind};

/// Ordinals that a restarted process skips. A store that does not sync every write may lose the newest streams in a
/// power cut, while clients still hold their event ids. A session that lost more streams could reuse an ordinal.
pub const SKIPPED_ORDINALS: u64 = 10_000;

/// Ordinals that one view of a session may issue: after `after`, up to and including `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrdinalBlock {
    /// The ordinal before the first one.
    pub after: Ordinal,
    /// The last one.
    pub last: Ordinal,
}

impl OrdinalBlock {
    /// Every ordinal.
    pub const fn all() -> Self {
        OrdinalBlock {
            after: Ordinal(0),
            last: Ordinal(u64::MAX),
        }
    }

    /// Every ordinal that a process may issue after a restart, if the store knows ordinals up to `high_water`.
    pub const fn after_restart(high_water: Ordinal) -> Self {
        OrdinalBlock {
            after: Ordinal(high_water.0.saturating_add(SKIPPED_ORDINALS)),
            last: Ordinal(u64::MAX),
        }
    }

    /// The first ordinal of a kind in this block.
    fn first(self, kind: StreamKind) -> Ordinal {
        let next = Ordinal(self.after.0.saturating_add(1));
        if next.kind() == kind {
            next
        } else {
            Ordinal(next.0.saturating_add(1))
        }
    }

    /// A lower bound of the ordinals of one kind in this block.
    const fn len_per_kind(self) -> u64 {
        self.last.0.saturating_sub(self.after.0) / 2
    }
}

/// The ordinals of one kind from `first` up to `last`.
const fn count(first: Ordinal, last: Ordinal) -> u64 {
    match last.0.checked_sub(first.0) {
        Some(span) => span / 2 + 1,
        None => 0,
    }
}

/// Issues stream ordinals, each once (D2), and knows which were issued here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordinals {
    call: Range,
    push: Range,
}

/// The ordinals of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    next: Ordinal,
    block: OrdinalBlock,
    /// The block after this one, if it was drawn.
    spare: Option<OrdinalBlock>,
}

impl Default for Ordinals {
    fn default() -> Self {
        Ordinals::new(OrdinalBlock::all())
    }
}

impl Ordinals {
    /// Issues the ordinals of a block.
    pub fn new(block: OrdinalBlock) -> Self {
        let range = |kind| Range {
            next: block.first(kind),
            block,
            spare: None,
        };
        Ordinals {
            call: range(StreamKind::Call),
            push: range(StreamKind::Push),
        }
    }

    /// A new ordinal. The caller does not begin work that may need one if none is [left](Self::left).
    pub fn issue(&mut self, kind: StreamKind) -> Ordinal {
        let range = match kind {
            StreamKind::Call => &mut self.call,
            StreamKind::Push => &mut self.push,
        };
        if range.next > range.block.last
            && let Some(block) = range.spare.take()
        {
            range.block = block;
            range.next = block.first(kind);
        }
        let issued = range.next;
        range.next = issued.next();
        issued
    }

    /// How many ordinals of a kind are left.
    pub fn left(&self, kind: StreamKind) -> u64 {
        let range = match kind {
            StreamKind::Call => &self.call,
            StreamKind::Push => &self.push,
        };
        let spare = range.spare.map_or(0, |block| count(block.first(kind), block.last));
        count(range.next, range.block.last) + spare
    }

    /// Adds the next block.
    pub fn add(&mut self, block: OrdinalBlock) {
        for range in [&mut self.call, &mut self.push] {
            range.spare.get_or_insert(block);
        }
    }

    /// Whether half of a block is used, and no other follows.
    pub fn is_running_low(&self) -> bool {
        [&self.call, &self.push].into_iter().any(|range| {
            let left = range.block.last.0.saturating_sub(range.next.0) / 2;
            range.spare.is_none() && left < range.block.len_per_kind() / 2
        })
    }

    /// Whether an ordinal up to this one may have been issued, by this view or by an earlier one.
    pub fn may_have_issued(&self, ordinal: Ordinal) -> bool {
        let next = match ordinal.kind() {
            StreamKind::Call => self.call.next,
            StreamKind::Push => self.push.next,
        };
        ordinal < next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn res_01_ordinals_are_never_issued_twice() {
        let mut ordinals = Ordinals::default();
        let kinds = [StreamKind::Call, StreamKind::Push, StreamKind::Call, StreamKind::Push];
        let issued = kinds.map(|kind| ordinals.issue(kind).0);
        assert_eq!(issued, [1, 2, 3, 4]);
        assert!(ordinals.may_have_issued(Ordinal(3)));
        assert!(!ordinals.may_have_issued(Ordinal(5)) && !ordinals.may_have_issued(Ordinal(6)));
    }

    proptest! {
        #[test]
        fn rst_02_skipped_ordinals_are_not_reused(mark in 0u64..1000) {
            let mut ordinals = Ordinals::new(OrdinalBlock::after_restart(Ordinal(mark)));
            for kind in [StreamKind::Call, StreamKind::Push] {
                let issued = ordinals.issue(kind);
                prop_assert!(issued.0 > mark + SKIPPED_ORDINALS);
                prop_assert_eq!(issued.kind(), kind);
            }
        }

        /// D2: views that draw blocks in turn never issue the same ordinal, and none outside of its blocks.
        #[test]
        fn d2_blocks_of_two_views_do_not_overlap(
            size in 2u64..40, steps in proptest::collection::vec((any::<bool>(), any::<bool>()), 1..300)
        ) {
            let mut drawn = 0;
            let mut draw = || {
                let block = OrdinalBlock { after: Ordinal(drawn), last: Ordinal(drawn + size) };
                drawn += size;
                block
            };
            let mut views = [Ordinals::new(draw()), Ordinals::new(draw())];
            let mut seen = std::collections::BTreeSet::new();
            for (second, push) in steps {
                let view = &mut views[usize::from(second)];
                let kind = if push { StreamKind::Push } else { StreamKind::Call };
                if view.is_running_low() {
                    view.add(draw());
                }
                prop_assert!(view.left(kind) > 0 || size < 4, "a block is drawn before the last one is used up");
                if view.left(kind) > 0 {
                    let before = view.left(kind);
                    let issued = view.issue(kind);
                    prop_assert_eq!((issued.kind(), view.left(kind)), (kind, before - 1));
                    prop_assert!(seen.insert(issued), "{} was issued twice", issued);
                }
            }
        }
    }
}
