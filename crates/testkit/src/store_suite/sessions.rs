//! Session records and the bus.

use super::Harness;
use super::scene::*;
use bytes::Bytes;
use rethread_proto::Version;
use rethread_store::{
    Bus as _, BusEvent, EventStore as _, IsLive, ListKind, Ordinal, Retention, SessionRecord, SessionStore as _,
    Signal, StoreError, Subscription,
};
use std::sync::Arc;
use tokio::time::timeout;

/// A record comes back as it was written, every field of it, and so does its replacement.
pub async fn a_record_is_read_back<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let peer = harness.peer(&scene.store).await;
    assert_eq!(
        peer.load(&scene.session).await.expect("it was created").record,
        record()
    );
    for version in Version::ALL {
        let full = SessionRecord {
            version,
            initialize_params: Bytes::from("{\"clientInfo\":{\"name\":\"\u{1f9f5} \\u0000\"}}"),
            initialized: true,
            log_level: Some("warning".into()),
            subscriptions: ["file:///a", "file:///b?c=d#e", "\u{1f9f5}", ""].map(Into::into).into(),
            epoch: 1,
        };
        scene
            .store
            .update(&scene.session, 1, full.clone())
            .await
            .expect("the epoch is right");
        assert_eq!(peer.load(&scene.session).await.expect("it lives").record, full);
    }
}

/// A session that never was, and one that has ended, cannot be loaded or updated.
pub async fn an_ended_session_has_no_record<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let stranger = fresh_session(principal());
    scene.store.end(&scene.session).await.expect("it can be ended");
    for gone in [&scene.session, &stranger] {
        let loaded = scene.store.load(gone).await;
        assert!(matches!(loaded, Err(StoreError::SessionGone)), "{loaded:?}");
        let updated = scene.store.update(gone, 1, record()).await;
        assert!(matches!(updated, Err(StoreError::SessionGone)), "{updated:?}");
        let loaded = scene.store.load(gone).await;
        assert!(
            matches!(loaded, Err(StoreError::SessionGone)),
            "an update revived it: {loaded:?}"
        );
    }
}

/// An update that expects another epoch is refused, told which it is, and changes nothing.
pub async fn an_update_expects_the_right_epoch<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let restored = SessionRecord { epoch: 2, ..record() };
    scene
        .store
        .update(&scene.session, 1, restored.clone())
        .await
        .expect("the epoch is right");
    for wrong in [0, 1, 3] {
        let refused = scene
            .store
            .update(&scene.session, wrong, SessionRecord { epoch: 9, ..record() })
            .await;
        assert!(
            matches!(refused, Err(StoreError::Conflict { epoch: 2, .. })),
            "{refused:?}"
        );
    }
    assert_eq!(
        scene.store.load(&scene.session).await.expect("it lives").record,
        restored
    );
}

/// Design D9: nodes that restore a session at once make one, not several.
pub async fn one_of_many_restores_wins<H: Harness>(harness: &H) {
    const NODES: u64 = 6;
    let scene = Scene::open(harness).await;
    for epoch in 1..20 {
        let mut nodes = Vec::new();
        for node in 0..NODES {
            let (store, session) = (harness.peer(&scene.store).await, scene.session.clone());
            nodes.push(beside(async move {
                let record = SessionRecord {
                    epoch: epoch + 1,
                    log_level: Some(node.to_string().into()),
                    ..record()
                };
                match store.update(&session, epoch, record).await {
                    Ok(()) => Some(node),
                    Err(StoreError::Conflict { epoch: stored, .. }) if stored == epoch + 1 => None,
                    Err(other) => panic!("who comes late has a conflict, not {other:?}"),
                }
            }));
        }
        let winners: Vec<u64> = everyone(nodes).await.into_iter().flatten().collect();
        let stored = scene.store.load(&scene.session).await.expect("it lives").record;
        let named = stored.log_level.and_then(|name| name.parse().ok());
        assert_eq!((winners.as_slice(), stored.epoch), (named.as_slice(), epoch + 1));
    }
}

/// What the next life of a session starts from: no ordinal that ever was, whatever became of its stream.
pub async fn the_high_water_mark_outlasts_the_streams<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let mark = async || scene.store.load(&scene.session).await.expect("it lives").high_water;
    assert_eq!(mark().await, Ordinal(0));
    for ordinal in [3, 1, 8] {
        scene.append(&scene.stream(Ordinal(ordinal)), last_batch(1..3)).await;
    }
    assert_eq!(mark().await, Ordinal(8));
    scene
        .store
        .forget_stream(&scene.stream(Ordinal(8)))
        .await
        .expect("it can be forgotten");
    assert_eq!(mark().await, Ordinal(8));
    scene.store.forget_session(&scene.session).await.expect("all can be");
    let next = SessionRecord { epoch: 2, ..record() };
    scene
        .store
        .update(&scene.session, 1, next)
        .await
        .expect("the epoch is right");
    assert_eq!(mark().await, Ordinal(8));
}

/// What the next life of a session takes over: every stream that has not ended, and no other.
pub async fn open_streams_are_listed<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let other = Scene::over(scene.store.clone()).await;
    let open = async || scene.store.open_streams(&scene.session).await.expect("they are known");
    assert_eq!(open().await, []);
    for ordinal in [300, 2, 1, 70_000] {
        scene.append(&scene.stream(Ordinal(ordinal)), batch(0..2)).await;
    }
    other.append(&other.stream(Ordinal(5)), batch(0..2)).await;
    scene.append(&scene.stream(Ordinal(7)), last_batch(0..2)).await;
    assert_eq!(open().await, [1, 2, 300, 70_000].map(Ordinal));
    scene.append(&scene.stream(Ordinal(2)), last_batch(2..3)).await;
    scene
        .store
        .forget_stream(&scene.stream(Ordinal(300)))
        .await
        .expect("it can be forgotten");
    assert_eq!(open().await, [1, 70_000].map(Ordinal));
    let stranger = fresh_session(principal());
    assert_eq!(scene.store.open_streams(&stranger).await.expect("none"), []);
}

/// A session that nobody touches expires with all it has; a touched one stays.
pub async fn idle_sessions_expire<H: Harness>(harness: &H) {
    const IDLE: std::time::Duration = std::time::Duration::from_secs(1800);
    let idle = Scene::open(harness).await;
    let used = Scene::over(idle.store.clone()).await;
    let store = &idle.store;
    for scene in [&idle, &used] {
        scene.append(&scene.first(), batch(0..2)).await;
    }
    assert_eq!(store.expire(IDLE, nowhere()).await.expect("it can be asked"), 0);
    if !harness.advance(store, IDLE / 2) {
        return;
    }
    store.touch(&used.session).await.expect("it lives");
    assert!(store.load(&idle.session).await.expect("it lives").idle >= IDLE / 2);
    assert!(store.load(&used.session).await.expect("it lives").idle < IDLE / 2);
    harness.advance(store, IDLE / 2);
    assert_eq!(store.expire(IDLE, nowhere()).await.expect("it can be asked"), 1);
    let gone = store.load(&idle.session).await;
    assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
    let touched = store.touch(&idle.session).await;
    assert!(matches!(touched, Err(StoreError::SessionGone)), "{touched:?}");
    let appended = store.append(&idle.first(), batch(2..3)).await;
    assert!(matches!(appended, Err(StoreError::SessionGone)), "{appended:?}");
    idle.assert_unknown(&idle.first()).await;
    used.append(&used.first(), batch(2..3)).await;
}

/// A session that lives in this process does not expire, however far the clock steps. It is touched instead.
pub async fn live_sessions_do_not_expire<H: Harness>(harness: &H) {
    const IDLE: std::time::Duration = std::time::Duration::from_secs(1800);
    let live = Scene::open(harness).await;
    let other = Scene::over(live.store.clone()).await;
    let store = &live.store;
    if !harness.advance(store, IDLE * 10) {
        return;
    }
    let key = live.session.clone();
    let expired = store.expire(IDLE, Arc::new(move |session| *session == key)).await;
    assert_eq!(expired.expect("it can be asked"), 1, "only the other one");
    assert!(store.load(&other.session).await.is_err());
    let loaded = store.load(&live.session).await.expect("it lives");
    assert!(loaded.idle < IDLE, "it counts as used: {:?}", loaded.idle);
    live.append(&live.first(), batch(0..2)).await;
}

/// No session lives in this process.
fn nowhere() -> IsLive {
    Arc::new(|_| false)
}

async fn heard(subscription: &mut Subscription) -> BusEvent {
    let heard = timeout(PATIENCE, subscription.next()).await;
    heard.expect("a signal arrives").expect("the bus lives")
}

/// Every subscriber hears every signal that is published after it subscribed, on every node, the publishing one
/// included.
pub async fn the_bus_reaches_everybody<H: Harness>(harness: &H) {
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
                assert_eq!(heard(listener).await, BusEvent::Signal(signal.clone()));
            }
        }
    }
}

/// Publishing to nobody is no error, and a listener hears nothing from before its time.
pub async fn the_bus_has_no_memory<H: Harness>(harness: &H) {
    let store = harness.fresh(Retention::default()).await;
    store
        .publish(Signal::ListChanged(ListKind::Tools))
        .await
        .expect("nobody wants to know");
    let mut witness = store.subscribe();
    store
        .publish(Signal::ListChanged(ListKind::Prompts))
        .await
        .expect("it can be published");
    assert_eq!(
        heard(&mut witness).await,
        BusEvent::Signal(Signal::ListChanged(ListKind::Prompts))
    );
    let mut late = store.subscribe();
    store
        .publish(Signal::ListChanged(ListKind::Resources))
        .await
        .expect("it can be published");
    assert_eq!(
        heard(&mut late).await,
        BusEvent::Signal(Signal::ListChanged(ListKind::Resources))
    );
}

/// Whoever does not listen is told that something was lost, if it was; it never hears less without being told, and
/// never out of order.
pub async fn a_slow_listener_is_told_what_it_missed<H: Harness>(harness: &H) {
    const SIGNALS: usize = 5000;
    let store = harness.fresh(Retention::default()).await;
    let mut slow = store.subscribe();
    for n in 0..SIGNALS {
        let signal = Signal::ResourceUpdated(n.to_string().into());
        store
            .publish(signal)
            .await
            .expect("a slow listener is nobody else's trouble");
    }
    let (mut next, mut lagged) = (0, false);
    while next < SIGNALS {
        match heard(&mut slow).await {
            BusEvent::Lagged => lagged = true,
            BusEvent::Signal(Signal::ResourceUpdated(n)) => {
                let n: usize = n.parse().expect("the numbers from above");
                assert!(n == next || (lagged && n > next), "heard {n}, expected {next}");
                (next, lagged) = (n + 1, false);
            }
            BusEvent::Signal(other) => panic!("nobody said {other:?}"),
        }
    }
}
