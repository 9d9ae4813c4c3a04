//! At most one running child, and the backoff between its starts.

use super::unavailable::unavailable_error;
use crate::child::{ChildId, RestartBackoff};
use crate::task::AbortOnDrop;
use crate::upstream::{Upstream, UpstreamUse};
use rethread::RpcError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// A place for one child. A caller holds the lock while it starts a child, so that there is never a second one.
pub(super) struct ChildSlot<C> {
    child: Option<C>,
    backoff: RestartBackoff,
    /// The time base of `backoff`.
    created: Instant,
    /// No child may be started any more.
    pub(super) stopped: bool,
    /// Receives the last messages of a child that hibernates.
    last_messages: Option<JoinHandle<()>>,
}

/// A child with the task that receives its unsolicited messages. Dropping it ends the child.
pub(super) struct RunningChild {
    pub(super) id: ChildId,
    pub(super) connection: Arc<dyn Upstream>,
    started: Instant,
    receive_task: AbortOnDrop,
}

impl RunningChild {
    /// `receive_task` owns the receiver of unsolicited messages.
    pub(super) fn new(id: ChildId, connection: Arc<dyn Upstream>, receive_task: JoinHandle<()>) -> Self {
        RunningChild {
            id,
            connection,
            started: Instant::now(),
            receive_task: AbortOnDrop::new(receive_task),
        }
    }

    /// A use of the child, which its owner hands out under the lock of the slot.
    pub(super) fn use_child(&self) -> UpstreamUse {
        UpstreamUse::new(&self.connection)
    }

    /// Stops the child. Returns the task that still receives the messages that it sends until its exit.
    fn hibernate(mut self) -> Option<JoinHandle<()>> {
        self.connection.stop();
        self.receive_task.detach()
    }
}

impl AsRef<RunningChild> for RunningChild {
    fn as_ref(&self) -> &RunningChild {
        self
    }
}

impl<C> Default for ChildSlot<C> {
    fn default() -> Self {
        ChildSlot {
            child: None,
            backoff: RestartBackoff::default(),
            created: Instant::now(),
            stopped: false,
            last_messages: None,
        }
    }
}

impl ChildSlot<RunningChild> {
    /// Stops the child. Messages that it sends until its exit are still received.
    pub(super) fn hibernate(&mut self) {
        if let Some(child) = self.child.take() {
            self.last_messages = child.hibernate();
        }
    }

    /// Whether the messages of a child that was stopped are received.
    pub(super) fn has_received_all(&self) -> bool {
        self.last_messages.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<C: AsRef<RunningChild>> ChildSlot<C> {
    /// The child, alive or not.
    pub(super) fn child(&self) -> Option<&C> {
        self.child.as_ref()
    }

    /// The child, if it is alive.
    pub(super) fn live_child(&self) -> Option<&C> {
        self.child().filter(|child| child.as_ref().connection.is_alive())
    }

    /// Removes a dead child and waits for the backoff. Fails if the backoff is too long for a caller.
    pub(super) async fn prepare_start(&mut self) -> Result<(), RpcError> {
        if let Some(dead) = self.child.take() {
            let uptime = dead.as_ref().started.elapsed();
            self.backoff.record_crash(self.created.elapsed(), uptime);
        }
        let delay = self.backoff.delay(self.created.elapsed());
        tokio::time::sleep(delay.map_err(unavailable_error)?).await;
        Ok(())
    }

    /// Stores the child that was started. A failed start counts as a crash.
    pub(super) fn fill(&mut self, started: Result<C, RpcError>) -> Result<&C, RpcError> {
        if started.is_err() {
            self.backoff.record_crash(self.created.elapsed(), Duration::ZERO);
        }
        Ok(self.child.insert(started?))
    }

    /// Removes the child. It has not crashed.
    pub(super) fn take(&mut self) -> Option<C> {
        self.child.take()
    }
}

/// Ends the child of a slot for good, and waits for its exit.
pub(super) async fn stop<C: AsRef<RunningChild>>(slot: &Mutex<ChildSlot<C>>) {
    let child = {
        let mut slot = slot.lock().await;
        slot.stopped = true;
        slot.child.take()
    };
    if let Some(child) = child {
        let connection = Arc::clone(&child.as_ref().connection);
        drop(child);
        connection.ended().await;
    }
}
