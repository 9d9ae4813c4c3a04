//! The sessions with views in this process. They map the digests of wake-ups to session keys.

use crate::keys::SessionDigest;
use parking_lot::Mutex;
use rethread_store::SessionKey;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(crate) struct Views(Mutex<HashMap<SessionDigest, Entry>>);

#[derive(Debug)]
struct Entry {
    key: SessionKey,
    epochs: Vec<u64>,
    /// Views that are being opened.
    opening: usize,
    /// Wake-ups about the record.
    changes: u64,
}

impl Views {
    /// Registers a session before its view is opened, because wake-ups can arrive before the reply. Returns the number
    /// of wake-ups so far.
    pub(crate) fn opening(&self, digest: SessionDigest, key: &SessionKey) -> u64 {
        let mut views = self.0.lock();
        let entry = views.entry(digest).or_insert_with(|| Entry {
            key: key.clone(),
            epochs: Vec::new(),
            opening: 0,
            changes: 0,
        });
        entry.opening += 1;
        entry.changes
    }

    /// Completes [`Views::opening`]. `epoch` is `None` if it failed. Returns the number of wake-ups so far.
    pub(crate) fn opened(&self, digest: SessionDigest, epoch: Option<u64>) -> u64 {
        let mut views = self.0.lock();
        let Some(entry) = views.get_mut(&digest) else {
            return 0;
        };
        entry.opening = entry.opening.saturating_sub(1);
        entry.epochs.extend(epoch);
        let changes = entry.changes;
        if entry.is_unused() {
            views.remove(&digest);
        }
        changes
    }

    pub(crate) fn closed(&self, digest: SessionDigest, epoch: u64) {
        let mut views = self.0.lock();
        if let Some(entry) = views.get_mut(&digest) {
            entry.epochs.retain(|open| *open != epoch);
            if entry.is_unused() {
                views.remove(&digest);
            }
        }
    }

    /// Removes an ended session.
    pub(crate) fn ended(&self, digest: SessionDigest) {
        self.0.lock().remove(&digest);
    }

    pub(crate) fn key(&self, digest: SessionDigest) -> Option<SessionKey> {
        self.0.lock().get(&digest).map(|entry| entry.key.clone())
    }

    /// Counts a change of the record by another node.
    pub(crate) fn changed(&self, digest: SessionDigest) -> Option<SessionKey> {
        let mut views = self.0.lock();
        let entry = views.get_mut(&digest)?;
        entry.changes += 1;
        Some(entry.key.clone())
    }
}

impl Entry {
    fn is_unused(&self) -> bool {
        self.epochs.is_empty() && self.opening == 0
    }
}
