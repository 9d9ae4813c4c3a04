//! Shutdown: refuse new work, let calls finish until the deadline, then close (T-38).
//!
//! In a cluster nothing is refused while another node lives. The drain waits for the work of this node only: requests that it
//! passes on may arrive without a pause. The program closes its listener after the drain. Then these requests end, too.

use crate::call::parked_calls::ParkedCalls;
use crate::endpoint::forward::receiving::Forwards;
use crate::node::Node;
use crate::node::session_end::SessionEnd;
use crate::session::Session;
use crate::session::registry::Registry;
use rethread_proto::StreamKind;
use rethread_proto::stream::Close;
use rethread_store::ClusterStore;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// The pause between two looks for sessions that have become idle.
const RELEASE_INTERVAL: Duration = Duration::from_millis(50);
/// The time for closed connections to be written out after the deadline.
const FLUSH_TIME: Duration = Duration::from_millis(250);
/// The longest wait for the replies to other nodes before the lease is given back.
const REPLY_TIME: Duration = Duration::from_secs(1);

/// The end of all work of this node. Until it has left the cluster, it passes on the requests that still reach it.
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
    node.draining.store(true, Ordering::SeqCst);
    sessions.subscriptions.close_all(); // SUB-06
    let mut spread = Spread::new(node);
    sessions.for_each(|session| close_push_readers(session, &mut spread));
    // A parked call waits for a person, not for us.
    let quiet = || {
        node.early_requests.load(Ordering::SeqCst) == 0
            && node.calls.at_work() == 0
            && local_connections(node) == 0
            && forwards.serves_none()
    };
    match node.cluster() {
        Some(cluster) => {
            let released = release_sessions(cluster, sessions, &mut spread, quiet);
            let _ = tokio::time::timeout_at(deadline, released).await;
        }
        None => until(node, deadline, quiet).await,
    }
    parked.clear();
    node.closing.send_replace(true);
    sessions.for_each(|session| {
        for stream in session.live_streams() {
            stream.close_reader(spread.next());
        }
    });
    until(node, Instant::now() + FLUSH_TIME, || local_connections(node) == 0).await;
    hand_over(node, sessions, Session::is_owned_here).await;
}

/// The connections that read streams of this node.
fn local_connections(node: &Node) -> usize {
    node.connections.now().saturating_sub(node.remote_readers.now())
}

/// Releases the sessions that this node owns as they become idle: the next request claims them on another node. Ends when the
/// node owns none and is quiet. From then on nothing can start here.
async fn release_sessions(
    cluster: &dyn ClusterStore,
    sessions: &Registry,
    spread: &mut Spread,
    quiet: impl Fn() -> bool,
) {
    loop {
        // Looked at first: a request that ends now may leave a session that is not in the list.
        let was_quiet = quiet();
        let mut owned = Vec::new();
        sessions.for_each(|session| {
            if session.is_owned_here() {
                owned.push(Arc::clone(session));
            }
            close_push_readers(session, spread); // a GET may have begun before the drain
        });
        if owned.is_empty() && was_quiet {
            return;
        }
        for session in owned {
            let _alone = sessions.restoring.wait(&session.key.session).await;
            if !session.begin_close() {
                continue;
            }
            if cluster.release(&session.key).await.is_ok() {
                sessions.close_view(&session, SessionEnd::HandedOver);
            } else {
                session.abort_close();
            }
        }
        tokio::time::sleep(RELEASE_INTERVAL).await;
    }
}

/// Closes the push streams that are read here, so that their clients resume them elsewhere.
fn close_push_readers(session: &Session, spread: &mut Spread) {
    for stream in session.live_streams() {
        // The connection of a 2024-11-05 session is the session: it stays while calls run.
        if stream.key.ordinal.kind() == StreamKind::Push && !session.answers_on_its_push_stream() {
            stream.close_reader(spread.next());
        }
    }
}

/// Waits for requests that other nodes run for clients of this one. The listener is closed, so they become fewer. At the
/// deadline their streams are closed, and their clients resume them elsewhere.
pub(crate) async fn finish_forwards(node: &Node, sessions: &Registry, forwards: &Forwards, deadline: Duration) {
    if node.cluster().is_none() {
        return;
    }
    let deadline = Instant::now() + deadline;
    let mut spread = Spread::new(node);
    loop {
        let mut reads_calls = false;
        sessions.for_each(|session| {
            for reader in session.remote_readers() {
                match reader.key.ordinal.kind() {
                    StreamKind::Call => reads_calls = true,
                    StreamKind::Push => reader.close(spread.next()), // it has no end
                }
            }
        });
        let answers = node.late_requests.load(Ordering::SeqCst) > 0 || !forwards.waits_for_none();
        if !(reads_calls || answers) || Instant::now() >= deadline {
            break;
        }
        let _ = tokio::time::timeout(RELEASE_INTERVAL, node.work_ended.notified()).await; // it looks again either way
    }
    sessions.for_each(|session| {
        for reader in session.remote_readers() {
            reader.close(spread.next());
        }
    });
}

/// Closes views of this node. Sessions that it owns have no owner after this, and the next request for one claims it.
async fn hand_over(node: &Node, sessions: &Registry, is_meant: impl Fn(&Session) -> bool) {
    let Some(cluster) = node.cluster() else { return };
    let mut views = Vec::new();
    sessions.for_each(|session| views.push(Arc::clone(session)));
    for session in views.iter().filter(|session| session.is_kept() && is_meant(session)) {
        if session.is_owned_here() {
            let _ = cluster.release(&session.key).await; // the end of the membership ends its ownership, too
        }
        sessions.close_view(session, SessionEnd::HandedOver);
    }
}

/// Gives the lease back, so that no node waits for its end.
pub(crate) async fn leave_cluster(node: &Node, sessions: &Registry, forwards: &Forwards) {
    let Some(cluster) = node.cluster() else { return };
    hand_over(node, sessions, |_| true).await;
    // A request that was claimed and gets no reply has failed. A request that stays in the mailbox is routed again.
    forwards.stop_serving();
    until(node, Instant::now() + REPLY_TIME, || forwards.serves_none()).await;
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

/// Reconnection delays, spread so that clients do not reconnect all at once.
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
