//! Locks by session, for operations that read the store and then act on the result.

use rethread_proto::SessionId;
use std::hash::{BuildHasher, RandomState};
use tokio::sync::{Mutex, MutexGuard};

/// Sessions with the same hash modulo this number wait for each other.
const LOCKS: usize = 64;

/// A fixed set of locks, chosen by the hash of the session id. Collisions are rare and short, and no table grows.
#[derive(Debug)]
pub(crate) struct SessionLocks {
    places: [Mutex<()>; LOCKS],
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
    /// Waits for the lock of this session. It is held until the guard is dropped.
    pub(crate) async fn wait(&self, session: &SessionId) -> MutexGuard<'_, ()> {
        let place = self.hasher.hash_one(session) as usize % LOCKS;
        self.places[place].lock().await
    }
}
