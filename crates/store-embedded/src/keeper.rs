//! Syncs the journal and the segments every now and then, beside the writer.

use crate::journal::newest;
use crate::shared::Shared;
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(crate) struct Keeper {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    dirty: bool,
    closed: bool,
}

impl Keeper {
    /// Something was written.
    pub(crate) fn soil(&self) {
        let mut state = self.state.lock();
        if !state.dirty {
            state.dirty = true;
            self.wake.notify_one();
        }
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }

    /// Syncs at most `interval` after something was written, until it is closed. Sleeps while nothing is.
    pub(crate) fn run(&self, shared: &Arc<Shared>, interval: Duration) {
        loop {
            let mut state = self.state.lock();
            while !state.dirty && !state.closed {
                self.wake.wait(&mut state);
            }
            let until = Instant::now() + interval;
            while !state.closed && !self.wake.wait_until(&mut state, until).timed_out() {}
            if state.closed {
                return; // the writer syncs when it ends
            }
            state.dirty = false; // before the sync: what is written during it waits for the next
            drop(state);
            let guard = shared.db.read();
            let Some(db) = &*guard else { continue };
            let written = db.progress.written();
            let synced = db.segments.sync().and_then(|()| sync_newest(&shared.database));
            match synced {
                Ok(()) => db.progress.is_synced(written),
                Err(error) => {
                    drop(guard);
                    shared.queue.trouble(error);
                }
            }
        }
    }
}

/// Syncs the journal that is written at the moment, with a handle of our own: it is the same file and these are the same
/// pages. The database can do so too, but every append waits while it does. A journal that is no longer written was
/// synced by the database when it began the next. The handle is not kept: a directory may be put in the place of another,
/// and what is synced must be what is there.
fn sync_newest(database: &Path) -> std::io::Result<()> {
    match newest(database)? {
        Some(path) => File::open(path)?.sync_data(),
        None => Ok(()),
    }
}
