//! Who waits for which stream to grow.

use parking_lot::Mutex;
use rethread_store::{Ordinal, SessionKey, StreamKey, Watch};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// One sender per watched stream. The store cannot know at once whether a stream exists, since it does not look at the
/// disk while its caller waits: a new watch is `unchecked` until the writer has looked, and ends if there is no such
/// stream.
#[derive(Default)]
pub(crate) struct Watches {
    table: Mutex<Table>,
    /// How many sessions are in the table: mostly none, and then nobody has to look.
    sessions: AtomicUsize,
}

#[derive(Default)]
struct Table {
    sessions: HashMap<SessionKey, Vec<(Ordinal, watch::Sender<u64>)>>,
    unchecked: Vec<StreamKey>,
    /// When to look for watches that nobody holds any more.
    prune_at: usize,
}

/// What a commit did to a stream or a session.
#[derive(Debug)]
pub(crate) enum Effect {
    Grown(StreamKey),
    /// It has grown for the last time, or is gone.
    Over(StreamKey),
    SessionOver(SessionKey),
}

impl Watches {
    /// A watch, and whether the writer has to look whether there is such a stream.
    pub(crate) fn watch(&self, key: &StreamKey) -> (Watch, bool) {
        let mut table = self.table.lock();
        if table.sessions.len() >= table.prune_at {
            table.prune();
        }
        let streams = table.sessions.entry(key.session.clone()).or_default();
        let known = streams.iter().find(|(ordinal, _)| *ordinal == key.ordinal);
        let (receiver, new) = match known {
            Some((_, sender)) => (sender.subscribe(), false),
            None => {
                let (sender, receiver) = watch::channel(0);
                streams.push((key.ordinal, sender));
                (receiver, true)
            }
        };
        if new {
            table.unchecked.push(key.clone());
        }
        self.sessions.store(table.sessions.len(), Ordering::SeqCst);
        (Watch::new(receiver), new)
    }

    /// Tells those who wait.
    pub(crate) fn publish(&self, effects: &[Effect]) {
        if effects.is_empty() || self.sessions.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut table = self.table.lock();
        for effect in effects {
            match effect {
                Effect::Grown(key) => table.raise(key),
                Effect::Over(key) => {
                    table.raise(key);
                    table.end(key);
                }
                Effect::SessionOver(session) => {
                    table.sessions.remove(session);
                }
            }
        }
        self.sessions.store(table.sessions.len(), Ordering::SeqCst);
    }

    /// The streams that were not looked up yet.
    pub(crate) fn unchecked(&self) -> Vec<StreamKey> {
        if self.sessions.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        std::mem::take(&mut self.table.lock().unchecked)
    }

    /// Wakes everybody, and has every stream looked up again: the database was opened anew.
    pub(crate) fn start_over(&self) {
        let mut table = self.table.lock();
        table.prune();
        let Table {
            sessions, unchecked, ..
        } = &mut *table;
        for (session, streams) in sessions {
            for (ordinal, sender) in streams {
                sender.send_modify(|n| *n += 1);
                unchecked.push(StreamKey {
                    session: session.clone(),
                    ordinal: *ordinal,
                });
            }
        }
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
