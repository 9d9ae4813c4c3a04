//! The queues in which ended streams age keep no trace of what is forgotten. Alone in its binary, since it looks at the
//! memory of the whole process.

use rethread_store::{EventStore, MemoryStore, Ordinal, SessionStore};
use rethread_testkit::store_suite::{StoreFixture, last_batch};

const SESSIONS: usize = 200_000;
/// What one forgotten entry would cost at the very least: a key, a time, and a session id.
const ENTRY: usize = 100;

/// Memory of this process in bytes; `None` where it is not told.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

#[tokio::test]
async fn d13_sessions_that_come_and_go_leave_nothing_in_the_queues() {
    let store = MemoryStore::default();
    let mut before = None;
    for n in 0..SESSIONS {
        let fixture = StoreFixture::new(store.clone()).await;
        fixture.append(&fixture.stream(Ordinal(1)), last_batch(0..2)).await;
        store.end(&fixture.session).await.unwrap();
        store.forget_session(&fixture.session).await.unwrap();
        if n == SESSIONS / 20 {
            before = resident(); // warm by now
        }
    }
    assert_eq!((store.sessions(), store.streams(), store.held_bytes()), (0, 0, 0));
    if let (Some(before), Some(after)) = (before, resident()) {
        let grown = after.saturating_sub(before);
        assert!(
            grown < SESSIONS * ENTRY / 4,
            "{SESSIONS} sessions are gone, and {} KiB remain",
            grown >> 10
        );
    }
}
