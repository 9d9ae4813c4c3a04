//! The sessions of which this process has views. Wake-ups contain digests, and the server wants keys.

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
    /// A view will be opened. Wake-ups can come before the reply. Returns the number of wake-ups so far.
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

    /// A view was opened, or could not be. Returns the number of wake-ups so far.
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

    /// The session has ended.
    pub(crate) fn ended(&self, digest: SessionDigest) {
        self.0.lock().remove(&digest);
    }

    pub(crate) fn key(&self, digest: SessionDigest) -> Option<SessionKey> {
        self.0.lock().get(&digest).map(|entry| entry.key.clone())
    }

    /// The record was changed by another node.
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
