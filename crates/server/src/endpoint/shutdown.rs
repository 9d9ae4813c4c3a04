//! Shutdown: refuse new work, let calls finish until the deadline, then close (T-38).

use crate::call::parked_calls::ParkedCalls;
use crate::endpoint::forward::receiving::Forwards;
use crate::node::Node;
use crate::session::registry::Registry;
use rethread_proto::StreamKind;
use rethread_proto::stream::Close;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// The pause between two looks for sessions that have become idle.
const RELEASE_INTERVAL: Duration = Duration::from_millis(50);
/// The time for closed connections to be written out after the deadline.
const FLUSH_TIME: Duration = Duration::from_millis(250);

/// Everything but the end of the membership: until then this node passes on the requests that still reach it.
pub(crate) async fn drain(
    node: &Node,
    sessions: &Registry,
    parked: &ParkedCalls,
    forwards: &Forwards,
    deadline: Duration,
) {
    let deadline = Instant::now() + deadline;
    if let Some(cluster) = node.cluster() {
        node.membership.learn_members(cluster).await;
    }
    node.draining.store(true, Ordering::Relaxed);
    sessions.subscriptions.close_all(); // SUB-06
    let mut spread = Spread::new(node);
    sessions.for_each(|session| {
        for stream in session.live_streams() {
            // The connection of a 2024-11-05 session is the session: it stays while calls run.
            if stream.key.ordinal.kind() == StreamKind::Push && !session.answers_on_its_push_stream() {
                stream.close_reader(spread.next());
            }
        }
    });
    // A parked call waits for a person, not for us.
    let quiet = || node.calls.at_work() == 0 && node.connections.now() == 0 && forwards.is_idle();
    tokio::select! {
        () = until(node, deadline, quiet) => {}
        () = release_idle_sessions(node, sessions) => {}
    }
    parked.clear();
    node.closing.send_replace(true);
    sessions.for_each(|session| {
        for stream in session.live_streams() {
            stream.close_reader(spread.next());
        }
        for reader in session.remote_readers() {
            reader.close(spread.next());
        }
    });
    until(node, Instant::now() + FLUSH_TIME, || node.connections.now() == 0).await;
    hand_over(node, sessions).await;
}

/// Releases the sessions that this node owns as they become idle: the next request claims them on another node. Never ends.
async fn release_idle_sessions(node: &Node, sessions: &Registry) {
    let Some(cluster) = node.cluster() else {
        return std::future::pending().await;
    };
    loop {
        let mut idle = Vec::new();
        sessions.for_each(|session| {
            if session.has_owner() && session.is_served_here() && !session.runs_calls() {
                idle.push(Arc::clone(session));
            }
        });
        for session in idle {
            if cluster.release(&session.key).await.is_ok() {
                sessions.close_view(&session, "handed over");
            }
        }
        tokio::time::sleep(RELEASE_INTERVAL).await;
    }
}

/// Hands the sessions of this node over: they have no owner, and the next request for one claims it.
async fn hand_over(node: &Node, sessions: &Registry) {
    let Some(cluster) = node.cluster() else { return };
    let mut views = Vec::new();
    sessions.for_each(|session| views.push(Arc::clone(session)));
    for session in views.iter().filter(|session| session.is_kept()) {
        if session.has_owner() && session.is_served_here() {
            let _ = cluster.release(&session.key).await; // the end of the membership ends its ownership, too
        }
        sessions.close_view(session, "handed over");
    }
}

/// Gives the lease back, so that no node waits for its end.
pub(crate) async fn leave_cluster(node: &Node) {
    let Some(cluster) = node.cluster() else { return };
    let Some(current) = node.membership.leave() else { return };
    if let Err(error) = cluster.leave(&current).await {
        tracing::warn!(target: crate::node::telemetry::TARGET, %error, "the lease was not given back");
    }
}

async fn until(node: &Node, deadline: Instant, quiet: impl Fn() -> bool) {
    loop {
        let work_ended = node.work_ended.notified();
        if quiet() {
            return;
        }
        tokio::select! {
            () = work_ended => {}
            () = tokio::time::sleep_until(deadline) => return,
        }
    }
}

/// Reconnection delays, spread so that not everybody comes back at once.
struct Spread {
    base: u64,
    width: u64,
    at: u64,
}

impl Spread {
    fn new(node: &Node) -> Self {
        Spread {
            base: node.timing.retry.as_millis() as u64,
            width: node.timing.retry_spread.as_millis() as u64,
            at: 0,
        }
    }

    fn next(&mut self) -> Close {
        // Steps of the golden ratio fill the range evenly, however many there are.
        self.at = self.at.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let within = (u128::from(self.at) * u128::from(self.width)) >> 64;
        Close {
            retry: self.base + within as u64,
        }
    }
}
