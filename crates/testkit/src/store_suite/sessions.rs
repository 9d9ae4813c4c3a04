//! Session records and the bus.

use super::Harness;
use super::fixture::*;
use bytes::Bytes;
use rethread_proto::Version;
use rethread_store::{
    Bus as _, BusEvent, EventStore as _, IsLive, ListKind, Ordinal, Retention, SessionRecord, SessionStore as _,
    Signal, Store as _, StoreError, Subscription,
};
use std::sync::Arc;
use tokio::time::timeout;

/// Every field of a record, and of its replacement.
pub async fn record_reads_back<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let peer = harness.peer(&fixture.store).await;
    assert_eq!(
        peer.load(&fixture.session).await.expect("it was created").record,
        record()
    );
    let mut revision = 1;
    for version in Version::ALL {
        let params = Bytes::from("{\"clientInfo\":{\"name\":\"\u{1f9f5} \\u0000\"}}");
        let mut full = SessionRecord::new(version, params);
        full.initialized = true;
        full.log_level = Some("warning".into());
        full.subscriptions = ["file:///a", "file:///b?c=d#e", "\u{1f9f5}", ""].map(Into::into).into();
        let updated = fixture.store.update(&fixture.session, revision, full.clone()).await;
        revision = updated.expect("the revision is right").revision;
        assert_eq!(
            peer.load(&fixture.session).await.expect("the session exists").record,
            full
        );
    }
}

/// A session that has ended or never existed can be neither loaded nor updated.
pub async fn ended_session_has_no_record<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let stranger = fresh_session(principal());
    fixture.store.end(&fixture.session).await.expect("ended");
    for gone in [&fixture.session, &stranger] {
        let loaded = fixture.store.load(gone).await;
        assert!(matches!(loaded, Err(StoreError::SessionGone)), "{loaded:?}");
        let updated = fixture.store.update(gone, 1, record()).await;
        assert!(matches!(updated, Err(StoreError::SessionGone)), "{updated:?}");
        let loaded = fixture.store.load(gone).await;
        assert!(
            matches!(loaded, Err(StoreError::SessionGone)),
            "the update revived the session: {loaded:?}"
        );
    }
}

/// The refusal changes nothing. In a store with one member, opening a view fences the updates of the views before it.
/// In a cluster only an update fences other views.
pub async fn update_with_wrong_revision_is_refused<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let (store, session) = (&fixture.store, &fixture.session);
    let view = store.open(session).await.expect("the session exists");
    assert_eq!(view.record.epoch, 2, "each view has its own epoch");
    let mut stored = view.record.clone();
    stored.log_level = Some("info".into());
    if store.cluster().is_some() {
        assert_eq!(view.revision, 1, "opening a view changes no record");
    } else {
        let fenced = store.update(session, 1, record()).await;
        assert!(matches!(fenced, Err(StoreError::Conflict { .. })), "{fenced:?}");
    }
    let updated = store.update(session, view.revision, stored.clone()).await;
    let revision = updated.expect("the revision is right").revision;
    assert_eq!(revision, 2);
    for wrong in [0, 1, 3] {
        let refused = store.update(session, wrong, record().with_epoch(9)).await;
        assert!(
            matches!(refused, Err(StoreError::Conflict { epoch: 2, .. })),
            "{refused:?}"
        );
    }
    let loaded = store.load(session).await.expect("the session exists");
    assert_eq!((loaded.record, loaded.revision), (stored, revision));
}

/// D9: several nodes open views at once, and each gets a unique epoch. One of their updates succeeds: that of the last
/// view in a store with one member, the first one in a cluster.
pub async fn concurrent_updates_have_one_winner<H: Harness>(harness: &H) {
    const NODES: u64 = 6;
    let fixture = StoreFixture::open(harness).await;
    for round in 0..20 {
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            let (store, session) = (harness.peer(&fixture.store).await, fixture.session.clone());
            nodes.push(spawn_thread(async move {
                let view = store.open(&session).await.expect("the session exists");
                (store, view)
            }));
        }
        let views = join_all(nodes).await;
        let mut epochs: Vec<u64> = views.iter().map(|(_, view)| view.record.epoch).collect();
        epochs.sort_unstable();
        let last = 1 + (round + 1) * NODES;
        assert_eq!(epochs, (last + 1 - NODES..=last).collect::<Vec<_>>());
        let mut nodes = Vec::new();
        for (store, view) in views {
            let session = fixture.session.clone();
            nodes.push(spawn_thread(async move {
                let (epoch, mut record) = (view.record.epoch, view.record);
                record.log_level = Some(epoch.to_string().into());
                match store.update(&session, view.revision, record).await {
                    Ok(_) => Some(epoch),
                    Err(StoreError::Conflict { .. }) => None,
                    Err(other) => panic!("expected a conflict: {other:?}"),
                }
            }));
        }
        let winners: Vec<u64> = join_all(nodes).await.into_iter().flatten().collect();
        let stored = fixture.store.load(&fixture.session).await;
        let stored = stored.expect("the session exists").record;
        let named = stored.log_level.and_then(|name| name.parse().ok());
        assert_eq!((winners.as_slice(), stored.epoch), (named.as_slice(), last));
        if fixture.store.cluster().is_none() {
            assert_eq!(winners, [last], "the last view fences the views before it");
        }
    }
}

/// A restored session never reuses an ordinal, even of a forgotten stream.
pub async fn highest_ordinal_survives_its_stream<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let highest_ordinal = async || {
        fixture
            .store
            .load(&fixture.session)
            .await
            .expect("the session exists")
            .high_water
    };
    assert_eq!(highest_ordinal().await, Ordinal(0));
    for ordinal in [3, 1, 8] {
        fixture
            .append(&fixture.stream(Ordinal(ordinal)), last_batch(1..3))
            .await;
    }
    assert_eq!(highest_ordinal().await, Ordinal(8));
    fixture
        .store
        .forget_stream(&fixture.stream(Ordinal(8)))
        .await
        .expect("forgotten");
    assert_eq!(highest_ordinal().await, Ordinal(8));
    fixture.store.forget_session(&fixture.session).await.expect("forgotten");
    let view = fixture.store.open(&fixture.session).await.expect("the session exists");
    assert!(view.ordinals.after >= Ordinal(8), "{:?}", view.ordinals);
    assert_eq!(highest_ordinal().await, Ordinal(8));
}

/// A restored session takes over every stream that is not sealed.
pub async fn open_streams_are_listed<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let other = StoreFixture::new(fixture.store.clone()).await;
    let open = async || fixture.store.open_streams(&fixture.session).await.expect("listed");
    assert_eq!(open().await, []);
    for ordinal in [300, 2, 1, 70_000] {
        fixture.append(&fixture.stream(Ordinal(ordinal)), batch(0..2)).await;
    }
    other.append(&other.stream(Ordinal(5)), batch(0..2)).await;
    fixture.append(&fixture.stream(Ordinal(7)), last_batch(0..2)).await;
    assert_eq!(open().await, [1, 2, 300, 70_000].map(Ordinal));
    fixture.append(&fixture.stream(Ordinal(2)), last_batch(2..3)).await;
    fixture
        .store
        .forget_stream(&fixture.stream(Ordinal(300)))
        .await
        .expect("forgotten");
    assert_eq!(open().await, [1, 70_000].map(Ordinal));
    let stranger = fresh_session(principal());
    assert_eq!(fixture.store.open_streams(&stranger).await.expect("none"), []);
}

/// An idle session expires with all its data; a touched one stays.
pub async fn idle_sessions_expire<H: Harness>(harness: &H) {
    const IDLE: std::time::Duration = std::time::Duration::from_secs(1800);
    let idle = StoreFixture::open(harness).await;
    let used = StoreFixture::new(idle.store.clone()).await;
    let store = &idle.store;
    for fixture in [&idle, &used] {
        fixture.append(&fixture.first_call_stream(), batch(0..2)).await;
    }
    assert_eq!(store.expire(IDLE, no_live_sessions()).await.expect("expired"), 0);
    if !harness.advance(store, IDLE / 2) {
        return;
    }
    store.touch(&used.session).await.expect("the session exists");
    assert!(store.load(&idle.session).await.expect("the session exists").idle >= IDLE / 2);
    assert!(store.load(&used.session).await.expect("the session exists").idle < IDLE / 2);
    harness.advance(store, IDLE / 2);
    assert_eq!(store.expire(IDLE, no_live_sessions()).await.expect("expired"), 1);
    let gone = store.load(&idle.session).await;
    assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
    let touched = store.touch(&idle.session).await;
    assert!(matches!(touched, Err(StoreError::SessionGone)), "{touched:?}");
    let appended = store.append(&idle.first_call_stream(), batch(2..3)).await;
    assert!(matches!(appended, Err(StoreError::SessionGone)), "{appended:?}");
    idle.assert_unknown(&idle.first_call_stream()).await;
    used.append(&used.first_call_stream(), batch(2..3)).await;
}

/// A session of this process does not expire, however far the clock steps. `expire` touches it instead.
pub async fn live_sessions_do_not_expire<H: Harness>(harness: &H) {
    const IDLE: std::time::Duration = std::time::Duration::from_secs(1800);
    let live = StoreFixture::open(harness).await;
    let other = StoreFixture::new(live.store.clone()).await;
    let store = &live.store;
    if !harness.advance(store, IDLE * 10) {
        return;
    }
    let key = live.session.clone();
    let expired = store.expire(IDLE, Arc::new(move |session| *session == key)).await;
    assert_eq!(expired.expect("expired"), 1, "only the other one");
    assert!(store.load(&other.session).await.is_err());
    let loaded = store.load(&live.session).await.expect("the session exists");
    assert!(loaded.idle < IDLE, "it counts as used: {:?}", loaded.idle);
    live.append(&live.first_call_stream(), batch(0..2)).await;
}

/// Reports that no session lives in this process.
fn no_live_sessions() -> IsLive {
    Arc::new(|_| false)
}

async fn next_event(subscription: &mut Subscription) -> BusEvent {
    let next_event = timeout(STEP_TIMEOUT, subscription.next()).await;
    next_event.expect("a signal in time").expect("an open bus")
}

async fn next_signal(subscription: &mut Subscription) -> Signal {
    match next_event(subscription).await {
        BusEvent::Signal(_, signal) => signal,
        BusEvent::Lagged => panic!("the subscriber lost signals"),
    }
}

/// Subscribers on every node get every signal published after they subscribed, also on the publishing node.
pub async fn bus_reaches_every_subscriber<H: Harness>(harness: &H) {
    let store = harness.fresh(Retention::default()).await;
    let peer = harness.peer(&store).await;
    let mut listeners = [store.subscribe(), store.subscribe(), peer.subscribe()];
    let signals = [
        Signal::ListChanged(ListKind::Tools),
        Signal::ListChanged(ListKind::Prompts),
        Signal::ListChanged(ListKind::Resources),
        Signal::ResourceUpdated("file:///\u{1f9f5}".into()),
        Signal::Broadcast(Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"method\":\"x\"}")),
        Signal::Broadcast(Bytes::from(vec![b'x'; 100 << 10])),
    ];
    for node in [&store, &peer] {
        for signal in &signals {
            node.publish(signal.clone()).await.expect("it can be published");
            for listener in &mut listeners {
                assert_eq!(next_signal(listener).await, *signal);
            }
        }
    }
}

/// Publishing without subscribers is not an error, and a subscriber gets no earlier signals.
pub async fn bus_does_not_replay<H: Harness>(harness: &H) {
    let store = harness.fresh(Retention::default()).await;
    store
        .publish(Signal::ListChanged(ListKind::Tools))
        .await
        .expect("published without subscribers");
    let mut witness = store.subscribe();
    store
        .publish(Signal::ListChanged(ListKind::Prompts))
        .await
        .expect("it can be published");
    assert_eq!(next_signal(&mut witness).await, Signal::ListChanged(ListKind::Prompts));
    let mut late = store.subscribe();
    store
        .publish(Signal::ListChanged(ListKind::Resources))
        .await
        .expect("it can be published");
    assert_eq!(next_signal(&mut late).await, Signal::ListChanged(ListKind::Resources));
}

/// A slow subscriber gets signals in order and is notified of every loss.
pub async fn slow_subscriber_learns_of_loss<H: Harness>(harness: &H) {
    const SIGNALS: usize = 5000;
    let store = harness.fresh(Retention::default()).await;
    let mut slow = store.subscribe();
    for n in 0..SIGNALS {
        let signal = Signal::ResourceUpdated(n.to_string().into());
        store
            .publish(signal)
            .await
            .expect("published despite a slow subscriber");
    }
    let (mut next, mut lagged) = (0, false);
    while next < SIGNALS {
        match next_event(&mut slow).await {
            BusEvent::Lagged => lagged = true,
            BusEvent::Signal(_, Signal::ResourceUpdated(n)) => {
                let n: usize = n.parse().expect("the numbers from above");
                assert!(n == next || (lagged && n > next), "next_event {n}, expected {next}");
                (next, lagged) = (n + 1, false);
            }
            BusEvent::Signal(_, other) => panic!("unexpected {other:?}"),
        }
    }
}
