//! Taking turns by session: for the few things that must look, wait for the store, and act on what they saw.

use rethread_proto::SessionId;
use std::hash::{BuildHasher, RandomState};
use tokio::sync::{Mutex, MutexGuard};

const PLACES: usize = 64;

/// Registry that fall on the same place wait for each other; that is rare, short, and costs no table.
#[derive(Debug)]
pub(crate) struct SessionLocks {
    places: [Mutex<()>; PLACES],
    hasher: RandomState,
}

impl Default for SessionLocks {
    fn default() -> Self {
        SessionLocks {
            places: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
        }
    }
}

impl SessionLocks {
    /// Waits for this session's turn, which lasts until the guard is dropped.
    pub(crate) async fn wait(&self, session: &SessionId) -> MutexGuard<'_, ()> {
        let place = self.hasher.hash_one(session) as usize % PLACES;
        self.places[place].lock().await
    }
}
