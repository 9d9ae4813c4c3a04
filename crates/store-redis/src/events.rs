//! The channels of cluster events to the services on one store.

use bytes::Bytes;
use parking_lot::Mutex;
use rethread_store::{ClusterEvent, ClusterEvents, MailId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Events that wait for a service. Beyond: wake-ups are dropped, and the service reads everything once.
const MAX_WAITING_EVENTS: usize = 4096;

/// Usually there is one receiver. While a service replaces another one in the same process, there are two.
#[derive(Debug, Default)]
pub(crate) struct EventChannel(Mutex<Vec<Receiver>>);

#[derive(Clone, Debug)]
struct Receiver {
    sender: mpsc::Sender<ClusterEvent>,
    overflowed: Arc<AtomicBool>,
}

impl EventChannel {
    /// The events from now on.
    pub(crate) fn receiver(&self) -> ClusterEvents {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_EVENTS);
        let overflowed = Arc::default();
        self.0.lock().push(Receiver { sender, overflowed });
        ClusterEvents::new(receiver)
    }

    fn receivers(&self) -> Vec<Receiver> {
        let mut receivers = self.0.lock();
        receivers.retain(|receiver| !receiver.sender.is_closed());
        receivers.clone()
    }

    /// Passes a wake-up on. If a channel is full, it is dropped, and [`ClusterEvent::Reconnected`] follows.
    pub(crate) fn wake(&self, event: &ClusterEvent) {
        for receiver in self.receivers() {
            receiver.wake(event.clone());
        }
    }

    /// Passes mail on. Waits for room: mail is never dropped.
    pub(crate) async fn mail(&self, id: MailId, mail: Bytes) {
        for receiver in self.receivers() {
            let event = ClusterEvent::Mail(id.clone(), mail.clone());
            let _ = receiver.sender.send(event).await; // an error means that the service is gone
        }
    }
}

impl Receiver {
    fn wake(self, event: ClusterEvent) {
        let full = matches!(self.sender.try_send(event), Err(mpsc::error::TrySendError::Full(_)));
        if full && !self.overflowed.swap(true, Ordering::SeqCst) {
            tokio::spawn(async move {
                let room = self.sender.reserve().await;
                // Events that are dropped from now on need another one.
                self.overflowed.store(false, Ordering::SeqCst);
                if let Ok(room) = room {
                    room.send(ClusterEvent::Reconnected);
                }
            });
        }
    }
}
