//! The calls that wait for a child of a lease, in order.

use super::slots::{SlotId, Slots};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

/// The children of one lease, and the calls that wait for one. `C` stands for the child.
pub(super) struct SlotQueue<C> {
    slots: Mutex<Slots<C>>,
    /// A child may be free now.
    freed: Notify,
    /// The first of the waiting calls has the lock. Calls that share a child do not wait for those that need one alone.
    first_shared: AsyncMutex<()>,
    first_alone: AsyncMutex<()>,
}

impl<C: Clone + Default> SlotQueue<C> {
    /// At most `limit` children.
    pub(super) fn new(limit: usize) -> Self {
        SlotQueue {
            slots: Mutex::new(Slots::new(limit)),
            freed: Notify::new(),
            first_shared: AsyncMutex::default(),
            first_alone: AsyncMutex::default(),
        }
    }

    /// The child for a call, which uses it `alone` or with others. Calls of a kind are served in order.
    pub(super) async fn take(&self, alone: bool) -> (SlotId, C) {
        let _first = match alone {
            true => self.first_alone.lock().await,
            false => self.first_shared.lock().await,
        };
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable(); // before the look at the slots: nothing is missed in between
            let taken = self.slots.lock().take(alone, C::default);
            match taken {
                Some(taken) => return taken,
                None => freed.await,
            }
        }
    }

    /// A call has ended.
    pub(super) fn release(&self, slot: SlotId) {
        self.slots.lock().release(slot);
        self.freed.notify_waiters();
    }

    /// A child has exited, or did not start.
    pub(super) fn remove(&self, slot: SlotId) {
        self.slots.lock().remove(slot);
        self.freed.notify_waiters();
    }

    /// Removes a child that no call uses.
    pub(super) fn remove_unused(&self, slot: SlotId) -> bool {
        let is_removed = self.slots.lock().remove_unused(slot);
        self.freed.notify_waiters();
        is_removed
    }

    /// All children.
    pub(super) fn children(&self) -> Vec<(SlotId, C)> {
        let slots = self.slots.lock();
        slots.children().map(|(id, child)| (id, child.clone())).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll(future: &mut std::pin::Pin<&mut impl Future<Output = (SlotId, u32)>>) -> Poll<(SlotId, u32)> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    /// GW-13: a call that has just arrived does not overtake one that waits.
    #[test]
    fn gw_13_waiting_calls_are_served_in_order() {
        let queue = SlotQueue::<u32>::new(1);
        assert!(poll(&mut pin!(queue.take(true))).is_ready());
        let (mut first, mut second) = (pin!(queue.take(true)), pin!(queue.take(true)));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        queue.release(1);
        let mut newcomer = pin!(queue.take(true));
        assert!(poll(&mut newcomer).is_pending(), "two calls wait already");
        assert!(poll(&mut second).is_pending());
        assert!(poll(&mut first).is_ready());
        queue.release(1);
        assert!(poll(&mut newcomer).is_pending());
        assert!(poll(&mut second).is_ready());
    }

    /// A call that shares a child does not wait behind one that needs a child alone.
    #[test]
    fn gw_13_call_that_cannot_ask_shares_a_child_while_another_waits_for_one_alone() {
        let queue = SlotQueue::<u32>::new(1);
        assert!(poll(&mut pin!(queue.take(false))).is_ready());
        let mut alone = pin!(queue.take(true));
        assert!(poll(&mut alone).is_pending());
        assert!(poll(&mut pin!(queue.take(false))).is_ready());
        queue.release(1);
        queue.release(1);
        assert!(poll(&mut alone).is_ready());
    }

    /// A waiting call that leaves makes room for the next one.
    #[test]
    fn gw_13_call_that_leaves_the_queue_holds_up_nobody() {
        let queue = SlotQueue::<u32>::new(1);
        assert!(poll(&mut pin!(queue.take(true))).is_ready());
        let mut second = pin!(queue.take(true));
        {
            let mut first = pin!(queue.take(true));
            assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        }
        queue.release(1);
        assert!(poll(&mut second).is_ready());
    }
}
