//! Eviction across all sessions when the store is full (D4).

use super::Inner;
use super::slot::Slot;
use parking_lot::Mutex;
use rethread_proto::clock::Wall;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

impl Inner {
    /// Frees `size` bytes. The streams that ended first become tombstones, a sixteenth of the total at a time, so that not
    /// every append has to evict. If that is not enough, tombstones are forgotten.
    pub(super) fn make_room(&self, size: usize) -> bool {
        let total = self.limits.total_bytes;
        if self.has_room(size) || size > total {
            return size <= total;
        }
        let _alone = self.making_room.lock();
        if self.has_room(size) {
            return true; // another caller has just freed enough
        }
        let enough = || self.has_room(size + total / 16);
        self.evict_oldest(enough, Slot::oldest_whole, |slot| slot.bury_oldest(&self.held));
        self.evict_oldest(
            || self.has_room(size),
            Slot::oldest_tomb,
            |slot| slot.forget_oldest(&self.held),
        );
        self.has_room(size)
    }

    /// Evicts the oldest entries of all sessions until `enough`. The entries of each session are in order, so only the first
    /// of each is compared.
    fn evict_oldest(&self, enough: impl Fn() -> bool, oldest: fn(&Slot) -> Option<Wall>, evict: impl Fn(&mut Slot)) {
        if enough() {
            return;
        }
        let slots: Vec<Arc<Mutex<Slot>>> = self.slots().collect();
        let first = |(n, slot): (usize, &Arc<Mutex<Slot>>)| Some(Reverse((oldest(&slot.lock())?, n)));
        let mut queue: BinaryHeap<_> = slots.iter().enumerate().filter_map(first).collect();
        while !enough() {
            let Some(Reverse((_, n))) = queue.pop() else { return };
            let mut slot = slots[n].lock();
            evict(&mut slot);
            queue.extend(oldest(&slot).map(|at| Reverse((at, n))));
        }
    }
}
