//! The stream ordinals of a session.

use crate::event_id::{Ordinal, StreamKind};

/// Issues stream ordinals, each once (design D2), and knows which were issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordinals {
    call: Ordinal,
    push: Ordinal,
}

impl Default for Ordinals {
    fn default() -> Self {
        Ordinals {
            call: Ordinal::first(StreamKind::Call),
            push: Ordinal::first(StreamKind::Push),
        }
    }
}

impl Ordinals {
    /// A new ordinal.
    pub fn issue(&mut self, kind: StreamKind) -> Ordinal {
        let next = self.slot(kind);
        let issued = *next;
        *next = issued.next();
        issued
    }

    /// Whether `ordinal` was ever issued here.
    pub fn issued(&self, ordinal: Ordinal) -> bool {
        let next = match ordinal.kind() {
            StreamKind::Call => self.call,
            StreamKind::Push => self.push,
        };
        ordinal < next
    }

    /// Marks everything up to `mark` as issued. A restored session starts from there.
    pub fn skip_past(&mut self, mark: Ordinal) {
        for kind in [StreamKind::Call, StreamKind::Push] {
            let next = self.slot(kind);
            while *next <= mark {
                // Both kinds continue after the mark, which belongs to one kind.
                *next = Ordinal(mark.0 + 1 + (mark.0 + 1 + next.0) % 2);
            }
        }
    }

    /// The highest issued ordinal. Zero if there is none.
    pub fn high_water(&self) -> Ordinal {
        let before = |next: Ordinal| next.0.saturating_sub(2);
        Ordinal(before(self.call).max(before(self.push)))
    }

    fn slot(&mut self, kind: StreamKind) -> &mut Ordinal {
        match kind {
            StreamKind::Call => &mut self.call,
            StreamKind::Push => &mut self.push,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn res_01_ordinals_are_never_issued_twice() {
        let mut ordinals = Ordinals::default();
        let issued: Vec<u64> = [StreamKind::Call, StreamKind::Push, StreamKind::Call, StreamKind::Push]
            .map(|kind| ordinals.issue(kind).0)
            .to_vec();
        assert_eq!(issued, [1, 2, 3, 4]);
        assert!(ordinals.issued(Ordinal(3)) && !ordinals.issued(Ordinal(5)) && !ordinals.issued(Ordinal(6)));
    }

    proptest! {
        #[test]
        fn rst_02_skipped_ordinals_are_not_reused(mark in 0u64..1000) {
            let mut ordinals = Ordinals::default();
            ordinals.skip_past(Ordinal(mark));
            for kind in [StreamKind::Call, StreamKind::Push] {
                let issued = ordinals.issue(kind);
                prop_assert!(issued.0 > mark);
                prop_assert_eq!(issued.kind(), kind);
            }
        }
    }
}
