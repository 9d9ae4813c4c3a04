//! The end of a session in this process: for ever, or until another view of it is opened.

use super::Session;
use super::persistence::PendingEnd;
use super::stage::Stage;
use crate::stream::Stream;
use rethread_proto::StreamKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Session {
    /// Waits until the session has ended.
    pub(crate) async fn when_ended(&self) {
        loop {
            let changed = self.changed.notified();
            if self.has_ended() {
                return;
            }
            changed.await;
        }
    }

    /// Whether the session has ended in this process. The store may have it: see [`is_over`](Self::is_over).
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether the session has ended for its client, too.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended() && !self.is_suspended() // in this order: a view is suspended before it ends
    }

    /// Whether this view is closed, and another one can be opened.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }

    /// Ends the session: streams get EOF, questions fail, calls are cancelled, and the store forgets it (SES-05). The result
    /// reports the end to the store.
    pub(crate) fn end(&self) -> PendingEnd {
        self.end_except(|_| false).0
    }

    /// The lease of this node has ended: the session ends here, and the store keeps it. Returns the push streams, whose
    /// connections stay open.
    pub(crate) fn suspend(&self) -> Vec<Arc<Stream>> {
        self.suspended.store(true, Ordering::Release);
        let (pending_end, push_streams) = self.end_except(|stream| stream.key.ordinal.kind() == StreamKind::Push);
        pending_end.skip();
        // A view that has ended does not learn of the death of a writer. Its readers would wait for ever.
        for reader in self.remote_readers() {
            reader.close(self.close());
        }
        push_streams
    }

    /// Ends the session, except some of its streams.
    fn end_except(&self, is_kept: impl Fn(&Stream) -> bool) -> (PendingEnd, Vec<Arc<Stream>>) {
        let (streams, calls, is_open) = {
            let mut state = self.state.lock();
            if self.ended.swap(true, Ordering::AcqRel) {
                return (PendingEnd::default(), Vec::new());
            }
            // A handshake that still runs finds the session ended, and notifies the handler itself.
            let is_open = state.stage == Stage::Open;
            if is_open {
                state.stage = Stage::Unopened;
            }
            (
                std::mem::take(&mut state.streams),
                std::mem::take(&mut state.calls),
                is_open,
            )
        };
        let (kept, stopped): (Vec<_>, Vec<_>) = streams.into_values().partition(|stream| is_kept(stream));
        for stream in stopped {
            stream.stop();
        }
        for call in calls.into_values() {
            call.cancel();
        }
        let waiters: Vec<_> = self.questions.lock().abandon_all().collect();
        drop(waiters); // wakes each waiter, outside of the lock
        self.changed.notify_waiters();
        if is_open {
            self.notify_closed();
        }
        (self.part(), kept)
    }
}
