//! The two tasks of a node: one reads the bus, one does periodic work. They end with the service.

use crate::call::parked_calls::ParkedCalls;
use crate::node::Node;
use crate::session::registry::Registry;
use crate::session::{Session, list_changed, resource_updated};
use rethread_proto::clock::Mono;
use rethread_proto::push::Collapse;
use rethread_proto::sse::Draft;
use rethread_proto::subscription::Change;
use rethread_store::{BusEvent, Signal, StoreError, StoreFuture, Subscription};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The interval of the periodic work: stalled listeners, idle sessions, parked calls, the store.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// With a silent bus, how often its task checks whether the service still exists.
const BUS_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Sessions that are visited before other tasks get a turn.
const SESSIONS_PER_TURN: usize = 64;

pub(crate) fn start(node: &Arc<Node>, sessions: &Arc<Registry>, parked: &Arc<ParkedCalls>) {
    // Subscribed here and not in the task: otherwise events before the task's first poll would be lost.
    let bus = node.store.subscribe();
    tokio::spawn(read_bus(bus, Arc::clone(node), Arc::downgrade(sessions)));
    tokio::spawn(sweep(Arc::clone(node), Arc::downgrade(sessions), Arc::clone(parked)));
}

async fn sweep(node: Arc<Node>, sessions: Weak<Registry>, parked: Arc<ParkedCalls>) {
    let mut pause = tokio::time::interval(SWEEP_INTERVAL);
    let mut expired: Option<Mono> = None;
    pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        pause.tick().await;
        let Some(sessions) = sessions.upgrade() else {
            parked.clear();
            return;
        };
        let now = node.clock.tick();
        for_each(&sessions, |session| {
            session.sweep(now);
            if session.is_idle(now) {
                let pending_end = sessions.end(session, "idle");
                if node.is_draining() {
                    pending_end.skip(); // a successor may serve the session from the same store by now
                } else {
                    pending_end.detach();
                }
            } else if session.is_gone() || session.has_ended() {
                sessions.end(session, "ended elsewhere").skip();
            } else if session.is_behind() {
                let session = Arc::clone(session);
                tokio::spawn(async move { session.catch_up().await });
            } else if let Some(update) = session.keep_up(now) {
                keep_up(session, update);
            }
        })
        .await;
        if expired.is_none_or(|at| now.since(at) >= node.timing.touch_every()) {
            expired = Some(now);
            expire(&node, &sessions).await;
        }
        parked.sweep(now);
        if let Err(error) = node.store.sweep().await {
            tracing::warn!(target: crate::node::telemetry::TARGET, %error, "the store could not be swept");
        }
    }
}

/// Passes an update of a session to the store without waiting for it.
fn keep_up(session: &Arc<Session>, update: StoreFuture<Result<(), StoreError>>) {
    match update.now() {
        Ok(result) => session.store_answered(&result),
        Err(later) => {
            let session = Arc::clone(session);
            tokio::spawn(async move { session.store_answered(&later.await) });
        }
    }
}

/// Ends sessions of earlier processes that no client has used for too long. Sessions of this process end when they are idle by
/// its own clock, whatever the store's clock says.
async fn expire(node: &Node, sessions: &Arc<Registry>) {
    let here = Arc::downgrade(sessions);
    let is_live = Arc::new(move |key: &_| here.upgrade().is_some_and(|sessions| sessions.has(key)));
    match node.store.expire(node.timing.forgotten_after(), is_live).await {
        Ok(sessions) => crate::node::telemetry::sessions_expired(sessions),
        Err(error) => {
            tracing::warn!(target: crate::node::telemetry::TARGET, %error, "idle sessions could not be expired");
        }
    }
}

async fn read_bus(mut bus: Subscription, node: Arc<Node>, sessions: Weak<Registry>) {
    loop {
        let event = tokio::select! {
            event = bus.next() => event,
            () = tokio::time::sleep(BUS_CHECK_INTERVAL) => {
                if sessions.strong_count() == 0 { return } else { continue }
            }
        };
        let (Some(event), Some(sessions)) = (event, sessions.upgrade()) else {
            return;
        };
        let declares = |capability: &str| node.info.declares(capability);
        match event {
            BusEvent::Lagged => {
                sessions.subscriptions.announce_everything();
                for_each(&sessions, Session::offer_refresh).await;
            }
            BusEvent::Signal(Signal::ListChanged(list)) => {
                if declares(&format!("{}.listChanged", list.capability())) {
                    sessions.subscriptions.announce(&list.into(), None);
                    for_each(&sessions, |session| session.offer(list_changed(list))).await;
                }
            }
            BusEvent::Signal(Signal::ResourceUpdated(uri)) => {
                sessions
                    .subscriptions
                    .announce(&Change::Updated(Arc::from(&*uri)), None);
                for_each(&sessions, |session| {
                    if session.is_subscribed(&uri) {
                        session.offer(resource_updated(&uri));
                    }
                })
                .await;
            }
            BusEvent::Signal(Signal::Broadcast(message)) => {
                for_each(&sessions, |session| {
                    session.offer((Draft::copy_of(&message), Collapse::Never));
                })
                .await;
            }
            BusEvent::Signal(_) => {}
        }
    }
}

/// Visits every session, and yields in between: the connections of visited sessions then write while the sessions are still in
/// the processor's cache.
async fn for_each(sessions: &Registry, mut visit: impl FnMut(&Arc<Session>)) {
    let mut visited = 0;
    for shard in 0.. {
        let Some(batch) = sessions.shard_sessions(shard) else {
            return;
        };
        for session in &batch {
            visit(session);
            visited += 1;
            if visited == SESSIONS_PER_TURN {
                visited = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}
