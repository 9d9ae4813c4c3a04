//! The bound in bytes of a queue. The queue itself bounds its items.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that may wait in one queue. Producers and the consumer share it.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    used: AtomicUsize,
    max: usize,
}

impl ByteBudget {
    pub(crate) fn new(max: usize) -> Self {
        ByteBudget {
            used: AtomicUsize::new(0),
            max,
        }
    }

    /// Reserves room for an item. `false` if there is not enough: then nothing is reserved.
    pub(crate) fn try_reserve(&self, bytes: usize) -> bool {
        let grown = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.max);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .is_ok()
    }

    /// The item has left the queue, or did not enter it.
    pub(crate) fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded_and_can_be_used_again() {
        let budget = ByteBudget::new(10);
        assert!(budget.try_reserve(6));
        assert!(!budget.try_reserve(5), "beyond the bound");
        assert!(budget.try_reserve(4));
        assert!(!budget.try_reserve(1), "full");
        assert!(!budget.try_reserve(usize::MAX), "no overflow");
        budget.release(6);
        assert!(budget.try_reserve(6));
    }
}
