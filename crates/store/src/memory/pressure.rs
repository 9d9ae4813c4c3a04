//! What is given up when there is no more room (design D4).

use super::Inner;
use super::slot::Slot;
use parking_lot::Mutex;
use rethread_proto::clock::Wall;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

impl Inner {
    /// Frees room for `size` more bytes: the streams that ended longest ago become tombstones, a sixteenth of the whole at a
    /// time so that this is not done for every append; then, if need be, tombstones are forgotten.
    pub(super) fn make_room(&self, size: usize) -> bool {
        let total = self.limits.total_bytes;
        if self.has_room(size) || size > total {
            return size <= total;
        }
        let _alone = self.making_room.lock();
        if self.has_room(size) {
            return true; // somebody else has just made it
        }
        let enough = || self.has_room(size + total / 16);
        self.give_up(enough, Slot::oldest_whole, |slot| slot.bury_oldest(&self.held));
        self.give_up(
            || self.has_room(size),
            Slot::oldest_tomb,
            |slot| slot.forget_oldest(&self.held),
        );
        self.has_room(size)
    }

    /// Gives up what is oldest of all sessions, until it is enough. Every session has its own in order, so only the first of
    /// each is looked at.
    fn give_up(&self, enough: impl Fn() -> bool, oldest: fn(&Slot) -> Option<Wall>, give: impl Fn(&mut Slot)) {
        if enough() {
            return;
        }
        let slots: Vec<Arc<Mutex<Slot>>> = self.slots().collect();
        let first = |(n, slot): (usize, &Arc<Mutex<Slot>>)| Some(Reverse((oldest(&slot.lock())?, n)));
        let mut queue: BinaryHeap<_> = slots.iter().enumerate().filter_map(first).collect();
        while !enough() {
            let Some(Reverse((_, n))) = queue.pop() else { return };
            let mut slot = slots[n].lock();
            give(&mut slot);
            queue.extend(oldest(&slot).map(|at| Reverse((at, n))));
        }
    }
}
