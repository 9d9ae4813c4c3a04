//! The channels for cluster events from one store to its services.

use bytes::Bytes;
use parking_lot::Mutex;
use rethread_store::{ClusterEvent, ClusterEvents, MailId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Events in the channel of a service. Beyond this, wake-ups are dropped and the service reads everything once.
const MAX_WAITING_EVENTS: usize = 4096;

/// One receiver, or two while a service replaces another one in the same process.
#[derive(Debug, Default)]
pub(crate) struct EventChannel(Mutex<Vec<Receiver>>);

#[derive(Clone, Debug)]
struct Receiver {
    sender: mpsc::Sender<ClusterEvent>,
    overflowed: Arc<AtomicBool>,
}

impl EventChannel {
    /// Subscribes to later events.
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

    /// Forwards a wake-up. A full channel drops it and gets [`ClusterEvent::Reconnected`] later.
    pub(crate) fn wake(&self, event: &ClusterEvent) {
        for receiver in self.receivers() {
            receiver.wake(event.clone());
        }
    }

    /// Forwards mail. Waits while a channel is full, because mail is never dropped.
    pub(crate) async fn mail(&self, id: MailId, mail: Bytes) {
        for receiver in self.receivers() {
            let event = ClusterEvent::Mail(id.clone(), mail.clone());
            let _ = receiver.sender.send(event).await; // fails only if the service is gone
        }
    }
}

impl Receiver {
    fn wake(self, event: ClusterEvent) {
        let full = matches!(self.sender.try_send(event), Err(mpsc::error::TrySendError::Full(_)));
        if full && !self.overflowed.swap(true, Ordering::SeqCst) {
            tokio::spawn(async move {
                let permit = self.sender.reserve().await;
                // Before the send: events that are dropped from now on need another `Reconnected`.
                self.overflowed.store(false, Ordering::SeqCst);
                if let Ok(permit) = permit {
                    permit.send(ClusterEvent::Reconnected);
                }
            });
        }
    }
}
