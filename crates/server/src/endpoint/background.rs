//! The two tasks of a node: one reads the bus, one does periodic work. They end with the service.

use crate::call::parked_calls::ParkedCalls;
use crate::endpoint::server::Server;
use crate::endpoint::unloader::Unloader;
use crate::node::Node;
use crate::node::clock::wall_now;
use crate::node::session_end::SessionEnd;
use crate::node::unused_sessions::UnusedDecision;
use crate::session::Session;
use crate::session::registry::Registry;
use rethread_proto::clock::Mono;
use rethread_proto::subscription::Change;
use rethread_store::{BusEvent, Incarnation, Signal, StoreError, StoreFuture, Subscription};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The interval of the periodic work: stalled listeners, idle sessions, parked calls, the store.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// With a silent bus, how often its task checks whether the service still exists.
const BUS_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Sessions that are visited before other tasks get a turn.
const SESSIONS_PER_TURN: usize = 64;

pub(crate) fn start(server: &Server) {
    let (node, sessions) = (&server.node, &server.sessions);
    // Subscribed here and not in the task: otherwise events before the task's first poll would be lost.
    let bus = node.store.subscribe();
    tokio::spawn(read_bus(bus, Arc::clone(node), Arc::downgrade(sessions)));
    let unloader = Unloader::new(sessions, &server.handler);
    let parked = Arc::clone(&server.parked);
    tokio::spawn(sweep(Arc::clone(node), Arc::downgrade(sessions), parked, unloader));
}

async fn sweep(node: Arc<Node>, sessions: Weak<Registry>, parked: Arc<ParkedCalls>, mut unloader: Unloader) {
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
        let wall = wall_now();
        sessions.subscriptions.close_expired(wall);
        for_each(&sessions, |session| {
            session.sweep(now);
            let is_expired = session.is_expired(wall);
            if is_expired && !session.ends_when_expired() {
                session.close_connections();
            }
            if is_expired && session.ends_when_expired() {
                sessions.end(session, SessionEnd::TokenExpired).detach();
            } else if session.is_idle(now) && node.cluster().is_some() {
                let (sessions, session) = (Arc::clone(&sessions), Arc::clone(session));
                tokio::spawn(async move { close_idle_view(&sessions, &session).await });
            } else if session.is_idle(now) {
                let pending_end = sessions.end(session, SessionEnd::Idle);
                if node.is_draining() {
                    pending_end.skip(); // a successor may serve the session from the same store by now
                } else {
                    pending_end.detach();
                }
            } else if session.unused_decision(now) == UnusedDecision::End {
                end_unused(&sessions, session);
            } else if unloader.takes(session, now) {
                // It leaves the memory after the visit.
            } else if session.is_gone() || session.has_ended() {
                sessions.end(session, SessionEnd::EndedElsewhere).skip();
            } else if session.is_behind() {
                let session = Arc::clone(session);
                tokio::spawn(async move { session.catch_up().await });
            } else if let Some(update) = session.keep_up(now) {
                keep_up(session, update);
            }
        })
        .await;
        unloader.start();
        if expired.is_none_or(|at| now.since(at) >= node.timing.touch_every()) {
            expired = Some(now);
            expire(&node, &sessions).await;
        }
        parked.sweep(now);
        let swept = node.store.sweep().await;
        if node.cluster().is_none() {
            node.metrics.set_store_up(swept.is_ok()); // with several nodes, the lease reports it
        }
        if let Err(error) = swept {
            tracing::warn!(target: crate::node::telemetry::TARGET, %error, "the store could not be swept");
        }
    }
}

/// Ends a session that was never used. In a cluster another node may use it, so the store decides.
fn end_unused(sessions: &Arc<Registry>, session: &Arc<Session>) {
    if session.node.cluster().is_none() {
        return sessions.end(session, SessionEnd::Unused).detach();
    }
    session.mark_used(); // asks the store once. If another node uses the session, or the store fails, it ends when it is idle.
    let (sessions, session) = (Arc::clone(sessions), Arc::clone(session));
    tokio::spawn(async move {
        let stored = session.node.store.load(&session.key).await;
        let limit = session.node.unused.may_end_after();
        if stored.is_ok_and(|stored| limit.is_some_and(|limit| stored.idle >= limit)) {
            sessions.end(&session, SessionEnd::Unused).detach();
        }
    });
}

/// This node has not used a session for long. Another node may use it, so the store decides whether it is idle. A view that
/// holds no state is closed anyway: it can be opened again.
async fn close_idle_view(sessions: &Registry, session: &Arc<Session>) {
    let node = &session.node;
    match node.store.load(&session.key).await {
        Ok(stored) if stored.idle >= node.timing.session_idle => sessions.end(session, SessionEnd::Idle).detach(),
        Ok(_) if session.has_owner() && session.is_served_here() => session.touch(),
        Ok(_) => {
            let _alone = sessions.restoring.wait(&session.key.session).await;
            if session.begin_close() {
                sessions.close_view(session, SessionEnd::ViewClosed);
            }
        }
        Err(StoreError::SessionGone) => sessions.end(session, SessionEnd::EndedElsewhere).skip(),
        Err(_) => {} // the next sweep tries again
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
/// its own clock, not by that of the store.
async fn expire(node: &Node, sessions: &Arc<Registry>) {
    let here = Arc::downgrade(sessions);
    let is_live = Arc::new(move |key: &_| here.upgrade().is_some_and(|sessions| sessions.has(key)));
    match node.store.expire(node.timing.forgotten_after(), is_live).await {
        Ok(expired) => {
            let reported = sessions.report_expired(node).await;
            node.metrics.events.sessions_expired(expired.saturating_sub(reported));
        }
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
                for_each(&sessions, Session::signals_lost).await;
            }
            BusEvent::Signal(id, signal) => {
                match &signal {
                    Signal::ListChanged(list) if declares(&format!("{}.listChanged", list.capability())) => {
                        sessions.subscriptions.announce(&(*list).into(), None);
                    }
                    Signal::ResourceUpdated(uri) => {
                        sessions
                            .subscriptions
                            .announce(&Change::Updated(Arc::from(&**uri)), None);
                    }
                    _ => {}
                }
                for_each(&sessions, |session| session.signalled(&id, &signal)).await;
            }
        }
    }
}

/// Other nodes have died. This node looks at its own objects only: readers of their streams, and GETs that wait behind theirs.
pub(crate) async fn nodes_died(sessions: &Registry, died: &[Incarnation]) {
    let mut concerned = Vec::new();
    for_each(sessions, |session| concerned.push(Arc::clone(session))).await;
    for session in concerned {
        for reader in session.remote_readers() {
            if reader.writer.as_ref().is_some_and(|writer| died.contains(writer)) {
                session.close_if_orphaned(&reader).await;
            }
        }
        session.remove_dead_listeners(died).await;
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
