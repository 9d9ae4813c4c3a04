//! Watches: wake readers when a stream grows.

use parking_lot::Mutex;
use rethread_store::{Ordinal, SessionKey, StreamKey, Watch};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// A sender per watched stream.
#[derive(Default)]
pub(crate) struct Watches {
    table: Mutex<Table>,
    /// Sessions in the table. With none, an append skips the table.
    sessions: AtomicUsize,
}

#[derive(Default)]
struct Table {
    sessions: HashMap<SessionKey, Vec<(Ordinal, watch::Sender<u64>)>>,
    /// Remove watches without a receiver when the table has this many sessions.
    prune_at: usize,
}

/// The effect of a commit on a stream or a session.
#[derive(Debug)]
pub(crate) enum Effect {
    Grown(StreamKey),
    /// The stream was sealed or removed.
    Ended(StreamKey),
    SessionEnded(SessionKey),
}

impl Watches {
    /// Whether any stream is watched.
    pub(crate) fn any(&self) -> bool {
        self.sessions.load(Ordering::SeqCst) > 0
    }

    /// Watches a stream that can grow.
    pub(crate) fn watch(&self, key: &StreamKey) -> Watch {
        let mut table = self.table.lock();
        if table.sessions.len() >= table.prune_at {
            table.prune();
        }
        let streams = table.sessions.entry(key.session.clone()).or_default();
        let known = streams.iter().find(|(ordinal, _)| *ordinal == key.ordinal);
        let receiver = match known {
            Some((_, sender)) => sender.subscribe(),
            None => {
                let (sender, receiver) = watch::channel(0);
                streams.push((key.ordinal, sender));
                receiver
            }
        };
        self.sessions.store(table.sessions.len(), Ordering::SeqCst);
        Watch::new(receiver)
    }

    /// A watch of a stream that cannot grow. It wakes once.
    pub(crate) fn ended() -> Watch {
        Watch::new(watch::channel(0).1)
    }

    /// Wakes the watches of changed streams.
    pub(crate) fn publish(&self, effects: &[Effect]) {
        if effects.is_empty() || !self.any() {
            return;
        }
        let mut table = self.table.lock();
        for effect in effects {
            match effect {
                Effect::Grown(key) => table.raise(key),
                Effect::Ended(key) => {
                    table.raise(key);
                    table.end(key);
                }
                Effect::SessionEnded(session) => drop(table.sessions.remove(session)),
            }
        }
        self.sessions.store(table.sessions.len(), Ordering::SeqCst);
    }

    /// Wakes all watches after recovery, and ends those of streams that cannot grow. `can_grow` must not take the lock
    /// of the index: `EmbeddedStore::watch` holds it while it takes the lock of the table.
    pub(crate) fn restart(&self, can_grow: impl Fn(&SessionKey, Ordinal) -> bool) {
        let mut table = self.table.lock();
        for (session, streams) in &mut table.sessions {
            for (_, sender) in &*streams {
                sender.send_modify(|n| *n += 1);
            }
            streams.retain(|(ordinal, _)| can_grow(session, *ordinal));
        }
        table.prune();
        self.sessions.store(table.sessions.len(), Ordering::SeqCst);
    }
}

impl Table {
    fn raise(&self, key: &StreamKey) {
        let streams = self.sessions.get(&key.session).into_iter().flatten();
        for (_, sender) in streams.filter(|(ordinal, _)| *ordinal == key.ordinal) {
            sender.send_modify(|n| *n += 1);
        }
    }

    fn end(&mut self, key: &StreamKey) {
        if let Some(streams) = self.sessions.get_mut(&key.session) {
            streams.retain(|(ordinal, _)| *ordinal != key.ordinal);
            if streams.is_empty() {
                self.sessions.remove(&key.session);
            }
        }
    }

    fn prune(&mut self) {
        self.sessions.retain(|_, streams| {
            streams.retain(|(_, sender)| sender.receiver_count() > 0);
            !streams.is_empty()
        });
        self.prune_at = 2 * self.sessions.len() + 64;
    }
}
