//! Which child of a lease serves a call (GW-13). Pure: `C` stands for the child.

/// The children of one lease, lowest number first.
#[derive(Debug)]
pub(super) struct Slots<C> {
    slots: Vec<Slot<C>>,
    limit: usize,
    last_id: u64,
}

#[derive(Debug)]
struct Slot<C> {
    id: SlotId,
    child: C,
    /// A call holds the child alone.
    is_held: bool,
    /// Calls that use it, the one that holds it included.
    calls: usize,
}

/// A child of a lease. Never used again.
pub(super) type SlotId = u64;

impl<C: Clone> Slots<C> {
    /// At most `limit` children.
    pub(super) fn new(limit: usize) -> Self {
        Slots {
            slots: Vec::new(),
            limit,
            last_id: 0,
        }
    }

    /// The child for a call, which uses it `alone` or with others. `None`: the call must wait.
    ///
    /// The lowest-numbered free child is taken, so that state in the process is found again.
    pub(super) fn take(&mut self, alone: bool, new: impl FnOnce() -> C) -> Option<(SlotId, C)> {
        let is_free = |slot: &Slot<C>| !slot.is_held && (!alone || slot.calls == 0);
        let at = match self.slots.iter().position(is_free) {
            Some(at) => at,
            None if self.slots.len() < self.limit => {
                self.last_id += 1;
                self.slots.push(Slot {
                    id: self.last_id,
                    child: new(),
                    is_held: false,
                    calls: 0,
                });
                self.slots.len() - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[at];
        slot.is_held = alone;
        slot.calls += 1;
        Some((slot.id, slot.child.clone()))
    }

    /// A call has ended.
    pub(super) fn release(&mut self, id: SlotId) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.id == id) {
            slot.calls -= 1;
            slot.is_held = false; // only one call can have held it
        }
    }

    /// A child has exited, or did not start.
    pub(super) fn remove(&mut self, id: SlotId) -> bool {
        let before = self.slots.len();
        self.slots.retain(|slot| slot.id != id);
        self.slots.len() < before
    }

    /// Removes a child that no call uses.
    pub(super) fn remove_unused(&mut self, id: SlotId) -> bool {
        let before = self.slots.len();
        self.slots.retain(|slot| slot.id != id || slot.calls > 0);
        self.slots.len() < before
    }

    /// All children.
    pub(super) fn children(&self) -> impl Iterator<Item = (SlotId, &C)> {
        self.slots.iter().map(|slot| (slot.id, &slot.child))
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(limit: usize) -> Slots<u32> {
        Slots::new(limit)
    }

    fn take(slots: &mut Slots<u32>, alone: bool) -> Option<SlotId> {
        slots.take(alone, || 0).map(|(id, _)| id)
    }

    /// GW-13: a call that may ask is alone, and others share the first child that is not held.
    #[test]
    fn gw_13_call_that_may_ask_is_alone_at_its_child() {
        let mut slots = slots(3);
        assert_eq!(take(&mut slots, true), Some(1));
        assert_eq!(take(&mut slots, false), Some(2));
        assert_eq!(take(&mut slots, false), Some(2), "calls that cannot ask share a child");
        assert_eq!(take(&mut slots, true), Some(3), "a shared child is not alone");
        assert_eq!(take(&mut slots, true), None);
        assert_eq!(take(&mut slots, false), Some(2));
        slots.release(1);
        assert_eq!(take(&mut slots, false), Some(1), "the lowest number");
        slots.release(1);
        assert_eq!(take(&mut slots, true), Some(1));
    }

    #[test]
    fn gw_13_shared_child_is_free_for_a_lone_call_after_its_last_call() {
        let mut slots = slots(1);
        take(&mut slots, false);
        take(&mut slots, false);
        slots.release(1);
        assert_eq!(take(&mut slots, true), None);
        slots.release(1);
        assert_eq!(take(&mut slots, true), Some(1));
        assert_eq!(take(&mut slots, false), None);
    }

    /// GW-09: an exited child makes room for a new one, and its late release changes nothing.
    #[test]
    fn gw_09_exited_child_makes_room_for_another() {
        let mut slots = slots(1);
        take(&mut slots, true);
        assert!(!slots.remove_unused(1), "a call uses it");
        assert!(slots.remove(1) && !slots.remove(1));
        assert_eq!(take(&mut slots, true), Some(2));
        slots.release(1);
        assert_eq!(take(&mut slots, false), None, "the second child is still held");
        slots.release(2);
        assert!(slots.remove_unused(2));
        assert_eq!((slots.len(), slots.children().count()), (0, 0));
    }
}
