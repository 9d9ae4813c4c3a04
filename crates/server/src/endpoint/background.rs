//! The two tasks of a node: one hears the bus, one sweeps. They end with the service.

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

/// How often stalled listeners and idle sessions are looked for.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn start(node: &Arc<Node>, sessions: &Arc<Registry>, parked: &Arc<ParkedCalls>) {
    // Subscribed here and not in the task: what is said from now on is heard, whenever the task comes to run.
    let bus = node.store.subscribe();
    tokio::spawn(hear(bus, Arc::clone(node), Arc::downgrade(sessions)));
    tokio::spawn(sweep(Arc::clone(node), Arc::downgrade(sessions), Arc::clone(parked)));
}

async fn sweep(node: Arc<Node>, sessions: Weak<Registry>, parked: Arc<ParkedCalls>) {
    let mut pause = tokio::time::interval(PAUSE);
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
            } else if let Some(told) = session.keep_up(now) {
                keep_up(session, told);
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

/// Tells the store of a session without waiting for it.
fn keep_up(session: &Arc<Session>, told: StoreFuture<Result<(), StoreError>>) {
    match told.now() {
        Ok(result) => session.heard(&result),
        Err(later) => {
            let session = Arc::clone(session);
            tokio::spawn(async move { session.heard(&later.await) });
        }
    }
}

/// Ends sessions that no process has used for too long: those of an earlier life to which nobody came back. The sessions
/// that live here end when they are idle by our own clock, wherever the store's clock may have stepped.
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

async fn hear(mut bus: Subscription, node: Arc<Node>, sessions: Weak<Registry>) {
    loop {
        let heard = tokio::select! {
            heard = bus.next() => heard,
            () = tokio::time::sleep(Duration::from_secs(5)) => {
                // Nothing was said for a while: a good moment to see whether anybody still listens.
                if sessions.strong_count() == 0 { return } else { continue }
            }
        };
        let (Some(heard), Some(sessions)) = (heard, sessions.upgrade()) else {
            return;
        };
        let declares = |capability: &str| node.info.declares(capability);
        match heard {
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

/// Visits every session and lets others work in between: above all the connections of those just visited, while what was
/// touched for them is still in the processor's cache.
async fn for_each(sessions: &Registry, mut visit: impl FnMut(&Arc<Session>)) {
    const AT_ONCE: usize = 64;
    let mut visited = 0;
    for shard in 0.. {
        let Some(batch) = sessions.shard_sessions(shard) else {
            return;
        };
        for session in &batch {
            visit(session);
            visited += 1;
            if visited == AT_ONCE {
                visited = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}
