//! The wall clock of the store steps by hours, after a suspend or a manual change. The process measures the idle time of
//! its own sessions with a monotonic clock (SES-09, D9).

use crate::support::{ScriptedHandler, V2025_11_25};
use rethread::store::{SessionStore as _, Store};
use rethread::{MemoryStore, Timing};
use rethread_proto::clock::Wall;
use rethread_store_embedded::EmbeddedStore;
use rethread_testkit::client::Session;
use rethread_testkit::store_suite::StoreFixture;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::sleep;

const START_MILLIS: u64 = 1_700_000_000_000;
const HOUR_MILLIS: u64 = 3_600_000;
/// Sessions are touched and expired every tenth of this time. It differs from the period of the sweep, one second.
const IDLE: Duration = Duration::from_secs(25);
/// Long enough for at least one expiry run.
const CYCLE: Duration = Duration::from_millis(4_300);

async fn is_alive(session: &Session) -> bool {
    session.call(1, "ping", json!({})).await.status == 200
}

/// Runs every clock step on one store.
async fn steps(store: impl Store + Clone, now: &AtomicU64) {
    let handler = ScriptedHandler::new();
    let timing = Timing::default().with(|timing| timing.session_idle = IDLE);
    let serve = || handler.serve_with(|b| b.store(store.clone()).timing(timing.clone()));
    let (service, client) = serve();
    client.open(V2025_11_25).await.delete().await; // starts the sweep
    sleep(Duration::from_millis(1_200)).await;
    let listening = client.open(V2025_11_25).await;
    let mut get = listening.get(None).await.events();
    let quiet = client.open(V2025_11_25).await;
    sleep(Duration::from_millis(300)).await;

    for (to, step) in [
        (START_MILLIS + 3 * HOUR_MILLIS, "three hours forward"),
        (START_MILLIS - 3 * HOUR_MILLIS, "six hours back"),
        (START_MILLIS + 30 * HOUR_MILLIS, "33 hours forward"),
    ] {
        now.store(to, Ordering::SeqCst);
        sleep(CYCLE).await;
        assert_eq!(service.stats().sessions, 2, "{step}");
        assert!(
            get.is_silent_for(Duration::from_millis(10)).await,
            "{step}: the open stream has ended"
        );
    }
    assert!(is_alive(&listening).await && is_alive(&quiet).await);

    // The next process finds the sessions of this one, measured by the current clock.
    let (next, client) = serve();
    let (listening, quiet) = (listening.with_client(&client), quiet.with_client(&client));
    assert!(is_alive(&listening).await && is_alive(&quiet).await, "after a restart");
    assert_eq!(next.stats().sessions, 2);
}

/// Checks that a session without a process expires, although the clock was set back after its last use.
async fn a_forgotten_session_expires_after_a_step_back(store: impl Store + Clone, now: &AtomicU64) {
    let fixture = StoreFixture::new(store.clone()).await;
    let expire = || store.expire(IDLE, Arc::new(|_| false));
    now.fetch_sub(3 * HOUR_MILLIS, Ordering::SeqCst);
    assert_eq!(
        expire().await.unwrap(),
        0,
        "it was used just now, for all that is known"
    );
    now.fetch_add(IDLE.as_millis() as u64, Ordering::SeqCst);
    assert_eq!(expire().await.unwrap(), 1);
    assert!(store.load(&fixture.session).await.is_err());
}

/// SES-09: the memory store.
#[tokio::test(start_paused = true)]
async fn ses_09_clock_step_ends_no_session_of_this_process_memory() {
    static NOW: AtomicU64 = AtomicU64::new(START_MILLIS);
    let clock = || Wall::from_millis(NOW.load(Ordering::SeqCst));
    let store = || MemoryStore::with_clock(Default::default(), clock);
    steps(store(), &NOW).await;
    a_forgotten_session_expires_after_a_step_back(store(), &NOW).await;
}

/// SES-09: the embedded store.
#[tokio::test]
async fn ses_09_clock_step_ends_no_session_of_this_process_embedded() {
    static NOW: AtomicU64 = AtomicU64::new(START_MILLIS);
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clock-{}", std::process::id()));
    let builder = EmbeddedStore::builder().clock(|| Wall::from_millis(NOW.load(Ordering::SeqCst)));
    let store = builder.open(&dir).unwrap();
    steps(store.clone(), &NOW).await;
    store.expire(Duration::ZERO, Arc::new(|_| false)).await.unwrap();
    a_forgotten_session_expires_after_a_step_back(store, &NOW).await;
    let _ = std::fs::remove_dir_all(dir);
}
