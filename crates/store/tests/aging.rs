//! The queues of ended streams release the memory of forgotten ones. The test has its own binary, because it measures
//! the memory of the process.

use rethread_store::{EventStore, MemoryStore, Ordinal, SessionStore};
use rethread_testkit::store_suite::{StoreFixture, last_batch};

const SESSIONS: usize = 200_000;
/// Minimum bytes of a leaked entry: a key, a time, and a session id.
const ENTRY: usize = 100;

/// Memory of this process in bytes. `None` where the system does not report it.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

#[tokio::test]
async fn d13_forgotten_sessions_release_their_memory() {
    let store = MemoryStore::default();
    let mut before = None;
    for n in 0..SESSIONS {
        let fixture = StoreFixture::new(store.clone()).await;
        fixture.append(&fixture.stream(Ordinal(1)), last_batch(0..2)).await;
        store.end(&fixture.session).await.unwrap();
        store.forget_session(&fixture.session).await.unwrap();
        if n == SESSIONS / 20 {
            before = resident(); // measured when caches are filled
        }
    }
    assert_eq!((store.sessions(), store.streams(), store.held_bytes()), (0, 0, 0));
    if let (Some(before), Some(after)) = (before, resident()) {
        let grown = after.saturating_sub(before);
        assert!(
            grown < SESSIONS * ENTRY / 4,
            "{SESSIONS} sessions were forgotten, but {} KiB remain",
            grown >> 10
        );
    }
}
