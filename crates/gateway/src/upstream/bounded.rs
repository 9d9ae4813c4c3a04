//! A channel that is bounded in messages and in bytes.
//!
//! The channel accepts a message while the queue holds fewer bytes than its bound. A message larger than the bound passes
//! too. The queue holds at most its bound and one message more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::sync::{Notify, mpsc};

/// A message with a size for the bound in bytes.
pub(crate) trait QueuedBytes {
    fn queued_bytes(&self) -> usize;
}

/// Creates a channel for `messages` messages and about `bytes` bytes.
pub(crate) fn channel<T: QueuedBytes>(messages: usize, bytes: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel(messages);
    let budget = Arc::new(Budget {
        used: AtomicUsize::new(0),
        limit: bytes,
        released: Notify::new(),
    });
    let sender = Sender {
        channel: sender,
        budget,
    };
    (sender, Receiver { channel: receiver })
}

#[derive(Debug)]
struct Budget {
    used: AtomicUsize,
    limit: usize,
    released: Notify,
}

impl Budget {
    fn reserve(&self, bytes: usize) -> bool {
        let reserved = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            (used < self.limit).then_some(used + bytes)
        });
        reserved.is_ok()
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
        self.released.notify_waiters();
    }
}

/// Reserved bytes of a queue. Dropped when the message leaves the queue or is not sent.
#[derive(Debug)]
struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[derive(Debug)]
pub(crate) struct Sender<T> {
    channel: mpsc::Sender<(T, Reservation)>,
    budget: Arc<Budget>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender {
            channel: self.channel.clone(),
            budget: Arc::clone(&self.budget),
        }
    }
}

impl<T: QueuedBytes> Sender<T> {
    /// Waits for space, then queues `message`.
    pub(crate) async fn send(&self, message: T) -> Result<(), SendError<T>> {
        loop {
            let mut released = std::pin::pin!(self.budget.released.notified());
            released.as_mut().enable(); // registers first, so that no release is missed
            if let Some(reservation) = self.reserve(&message) {
                let sent = self.channel.send((message, reservation)).await;
                return sent.map_err(|SendError((message, _))| SendError(message));
            }
            tokio::select! {
                () = released => {}
                () = self.channel.closed() => return Err(SendError(message)),
            }
        }
    }

    /// Queues `message` if there is space.
    pub(crate) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let Some(reservation) = self.reserve(&message) else {
            return Err(TrySendError::Full(message));
        };
        let sent = self.channel.try_send((message, reservation));
        sent.map_err(|error| match error {
            TrySendError::Full((message, _)) => TrySendError::Full(message),
            TrySendError::Closed((message, _)) => TrySendError::Closed(message),
        })
    }

    /// Resolves when the receiver is dropped.
    pub(crate) async fn closed(&self) {
        self.channel.closed().await;
    }

    fn reserve(&self, message: &T) -> Option<Reservation> {
        let bytes = message.queued_bytes();
        self.budget.reserve(bytes).then(|| Reservation {
            budget: Arc::clone(&self.budget),
            bytes,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Receiver<T> {
    channel: mpsc::Receiver<(T, Reservation)>,
}

impl<T> Receiver<T> {
    /// The next message; `None` when all senders are dropped.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        self.channel.recv().await.map(|(message, _)| message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::time::Duration;

    impl<T> Sender<T> {
        fn queued(&self) -> usize {
            self.budget.used.load(Ordering::Acquire)
        }
    }

    fn message(bytes: usize) -> Bytes {
        Bytes::from(vec![b'x'; bytes])
    }

    /// D13: the queue holds its bound and one message more, and never loses a message.
    #[tokio::test(start_paused = true)]
    async fn d13_queue_is_bounded_in_messages_and_bytes() {
        let (sender, mut receiver) = channel(3, 100);
        sender.send(message(1000)).await.expect("one message always fits");
        assert!(matches!(sender.try_send(message(1)), Err(TrySendError::Full(_))));
        assert_eq!(sender.queued(), 1000, "a refused message is not counted");
        let sending = tokio::spawn({
            let sender = sender.clone();
            async move { sender.send(message(40)).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!sending.is_finished(), "a sender waits for bytes");
        assert_eq!(receiver.recv().await.map(|message| message.len()), Some(1000));
        sending.await.expect("no panic").expect("there is space now");
        sender.try_send(message(40)).expect("80 bytes of 100");
        sender
            .try_send(message(40))
            .expect("the last message may pass the bound");
        assert!(
            matches!(sender.try_send(message(0)), Err(TrySendError::Full(_))),
            "the bound in bytes is reached"
        );
        for _ in 0..3 {
            assert_eq!(receiver.recv().await.map(|message| message.len()), Some(40));
        }
        assert_eq!(sender.queued(), 0);
        for _ in 0..3 {
            sender
                .try_send(message(0))
                .expect("the bound in messages is not reached");
        }
        assert!(matches!(sender.try_send(message(0)), Err(TrySendError::Full(_))));
    }

    #[tokio::test]
    async fn waiting_sender_fails_when_the_receiver_is_dropped() {
        let (sender, receiver) = channel(3, 1);
        sender.send(message(1)).await.expect("the first message fits");
        let sending = tokio::spawn(async move { sender.send(message(1)).await });
        tokio::task::yield_now().await;
        drop(receiver);
        assert!(sending.await.expect("no panic").is_err());
    }
}
