//! The watched streams of this process. A node registers once per stream, independent of the number of readers.

use crate::keys::StreamDigest;
use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::sync::watch;

#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<HashMap<StreamDigest, Entry>>);

#[derive(Debug)]
struct Entry {
    sender: watch::Sender<u64>,
    /// Whether this node is registered in the store, or the registration is in flight.
    registered: bool,
}

impl Watches {
    /// A receiver, and whether the stream must be registered.
    pub(crate) fn subscribe(&self, stream: StreamDigest) -> (watch::Receiver<u64>, bool) {
        let mut watches = self.0.lock();
        let entry = watches.entry(stream).or_insert_with(|| Entry {
            sender: watch::Sender::new(0),
            registered: false,
        });
        let is_new = !std::mem::replace(&mut entry.registered, true);
        (entry.sender.subscribe(), is_new)
    }

    /// Wakes the readers of a stream that may have grown.
    pub(crate) fn wake(&self, stream: StreamDigest) {
        if let Some(entry) = self.0.lock().get(&stream) {
            entry.sender.send_modify(|count| *count += 1);
        }
    }

    /// Ends the watch of a stream that the store does not know. It wakes a last time.
    pub(crate) fn remove(&self, stream: StreamDigest) {
        if let Some(entry) = self.0.lock().remove(&stream) {
            entry.sender.send_modify(|count| *count += 1);
        }
    }

    /// Records that a stream is not registered. The next tick registers it.
    pub(crate) fn unregistered(&self, stream: StreamDigest) {
        if let Some(entry) = self.0.lock().get_mut(&stream) {
            entry.registered = false;
        }
    }

    /// Wakes every reader and marks every watch as unregistered.
    pub(crate) fn reset(&self) {
        for entry in self.0.lock().values_mut() {
            entry.registered = false;
            entry.sender.send_modify(|count| *count += 1);
        }
    }

    /// Streams to register now, and streams without readers.
    pub(crate) fn sweep(&self) -> (Vec<StreamDigest>, Vec<StreamDigest>) {
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        self.0.lock().retain(|stream, entry| {
            let is_watched = entry.sender.receiver_count() > 0;
            if !is_watched {
                unwanted.push(*stream);
            } else if !std::mem::replace(&mut entry.registered, true) {
                wanted.push(*stream);
            }
            is_watched
        });
        (wanted, unwanted)
    }
}
