//! The tasks of a node in a cluster: one keeps the lease, one reads the events that other nodes cause. They end with the
//! service.

use crate::endpoint::server::Server;
use crate::endpoint::{background, forward};
use crate::node::Node;
use crate::node::membership::boot_time;
use crate::node::session_end::SessionEnd;
use crate::node::telemetry;
use crate::session::{Session, Transport, orphan};
use rethread_proto::clock::Mono;
use rethread_proto::cluster::{LeaseError, LeaseRequest, MemberAction};
use rethread_store::{ClusterEvent, ClusterEvents, Incarnation, MailboxStatus, StoreError, StoreFuture};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;

/// Sessions that are read at the same time after an outage.
const SESSIONS_AT_ONCE: usize = 32;
/// The pause before a session is read again that the store could not read.
const REPAIR_PAUSE: Duration = Duration::from_millis(250);

pub(crate) fn start(server: &Arc<Server>) {
    let Some(cluster) = server.node.cluster() else { return };
    let events = cluster.events();
    tokio::spawn(keep_lease(Arc::downgrade(server)));
    tokio::spawn(read_events(events, Arc::downgrade(server)));
}

// ---- the lease ----

/// Joins, renews, and joins again after the lease has ended, as [`LeaseKeeper`](rethread_proto::cluster::LeaseKeeper) says.
async fn keep_lease(server: Weak<Server>) {
    while let Some(server) = server.upgrade() {
        let (node, now) = (Arc::clone(&server.node), boot_time());
        let (request, actions) = node.membership.poll(now);
        perform(&server, actions);
        if let Some(request) = request {
            let actions = ask_store(&node, now, request).await;
            perform(&server, actions);
        }
        node.metrics
            .events
            .membership(node.membership.lease_left(), node.membership.live_nodes());
        drop(server);
        tokio::time::sleep(node.membership.pause(boot_time())).await;
    }
}

/// Sends a request that was due at `sent`, and passes the result on.
async fn ask_store(node: &Arc<Node>, sent: Mono, request: LeaseRequest) -> Vec<MemberAction> {
    let Some(cluster) = node.cluster() else {
        return Vec::new();
    };
    match request {
        LeaseRequest::Join(previous) => {
            let joined = cluster.join(previous.as_ref()).await;
            let joined = joined.map(|joined| {
                node.share_secret(joined.secret);
                node.membership.set_store_time(joined.now);
                telemetry::node_joined(&joined.incarnation, joined.lease);
                (joined.incarnation, joined.lease)
            });
            node.metrics.set_store_up(joined.is_ok());
            let joined = joined.inspect_err(telemetry::join_failed);
            node.membership
                .joined(sent, joined.map_err(|error| lease_error(&error)))
        }
        LeaseRequest::Renew(member) => {
            let renewed = cluster.renew(&member).await;
            node.metrics
                .set_store_up(!matches!(&renewed, Err(error) if error.is_outage()));
            let renewed = renewed.inspect_err(telemetry::renewal_failed);
            if renewed.is_ok() {
                report_mailbox(node, cluster.mailbox(&member));
            }
            let renewed = renewed.map_err(|error| lease_error(&error));
            node.membership.renewed(&member, sent, renewed)
        }
    }
}

/// Measures the mailbox. The lease does not wait for it.
fn report_mailbox(node: &Arc<Node>, status: StoreFuture<Result<MailboxStatus, StoreError>>) {
    let node = Arc::clone(node);
    tokio::spawn(async move {
        if let Ok(status) = status.await {
            node.metrics.events.mailbox(status);
        }
    });
}

fn lease_error(error: &StoreError) -> LeaseError {
    match error {
        StoreError::LeaseEnded => LeaseError::Ended,
        StoreError::Replaced => LeaseError::Replaced,
        _ => LeaseError::StoreFailed,
    }
}

fn perform(server: &Arc<Server>, actions: Vec<MemberAction>) {
    for action in actions {
        match action {
            MemberAction::Serve(_) => server.sessions.close_suspended(),
            MemberAction::SettleDead(died) => {
                let sessions = Arc::clone(&server.sessions);
                tokio::spawn(async move { background::nodes_died(&sessions, &died).await });
            }
            // `Membership::holds` is false already, so no session request begins.
            MemberAction::RefuseSessions => {
                server.node.metrics.events.lease_lost();
                server.forwards.lease_ended();
            }
            MemberAction::CancelParkedCalls => server.parked.clear(),
            // A view that is dropped ends its calls, its call streams and its state in the handler.
            MemberAction::EndOwnedSessions | MemberAction::CloseCallStreams => {}
            MemberAction::DropViews => server.sessions.suspend_all(),
            MemberAction::Exit => {
                telemetry::node_replaced();
                server.node.membership.set_replaced();
            }
        }
    }
}

// ---- events ----

async fn read_events(mut events: ClusterEvents, server: Weak<Server>) {
    while let Some(event) = events.next().await {
        let Some(server) = server.upgrade() else { return };
        match event {
            ClusterEvent::Mail(id, mail) => forward::receive(&server, id, &mail),
            ClusterEvent::SessionChanged { key, by } => {
                if let Some(session) = server.sessions.known(&key.session).filter(|session| session.key == key) {
                    tokio::spawn(async move { refresh_and_acknowledge(&server, &session, by).await });
                }
            }
            ClusterEvent::PushWaiting(key) => {
                if let Some(session) = server.sessions.known(&key.session).filter(|session| session.key == key) {
                    session.push_waits();
                }
            }
            ClusterEvent::GetRemoved(key) => {
                if let Some(session) = server.sessions.known(&key.session.session) {
                    session.get_removed(&key);
                }
            }
            ClusterEvent::StreamChanged(key) => {
                let session = server.sessions.known(&key.session.session);
                if let Some(stream) = session.and_then(|session| session.live_stream_of(&key)) {
                    stream.refresh_remote_reader();
                }
            }
            ClusterEvent::Disconnected => {
                server.node.membership.set_wake_ups(false);
                server.forwards.store_reconnected(); // another connection to the store may be back before this one
            }
            ClusterEvent::Reconnected => {
                server.forwards.store_reconnected();
                // The event also follows a join and a full channel.
                if !server.node.membership.set_wake_ups(true) {
                    server.node.metrics.events.reconnected();
                }
                tokio::spawn(read_everything_again(server));
            }
            _ => {}
        }
    }
}

/// Reads a session that another node has changed, and confirms it to that node.
async fn refresh_and_acknowledge(server: &Server, session: &Session, by: Incarnation) {
    if refresh(server, session).await {
        forward::acknowledge(&server.node, session, &by).await;
    }
}

/// False if the store cannot be read.
async fn refresh(server: &Server, session: &Session) -> bool {
    match session.refresh_view().await {
        Ok(true) => true,
        Ok(false) => {
            server.sessions.end(session, SessionEnd::EndedElsewhere).skip();
            true
        }
        Err(_) => false,
    }
}

/// Wake-ups may be lost, and the store may have lost its last writes. Reads every view and every stream once, and restores
/// what the store lacks.
async fn read_everything_again(server: Arc<Server>) {
    server.node.metrics.events.read_again();
    server.sessions.subscriptions.announce_everything();
    let mut sessions = Vec::new();
    server.sessions.for_each(|session| sessions.push(Arc::clone(session)));
    sessions.retain(|session| session.transport != Transport::Lines); // the store does not know it
    let mut reading = JoinSet::new();
    for session in sessions {
        if reading.len() == SESSIONS_AT_ONCE {
            reading.join_next().await;
        }
        reading.spawn(read_session_again(Arc::clone(&server), session));
    }
    while reading.join_next().await.is_some() {}
}

/// Reads a session until the store has answered. The lease bounds the attempts: a session ends here when it has expired.
async fn read_session_again(server: Arc<Server>, session: Arc<Session>) {
    // Without wake-ups, the next connection starts over.
    while !session.has_ended() && server.node.membership.has_wake_ups() {
        if repair(&server, &session).await {
            return;
        }
        tokio::time::sleep(REPAIR_PAUSE).await;
    }
}

/// False if the store cannot be read.
async fn repair(server: &Server, session: &Arc<Session>) -> bool {
    if !refresh(server, session).await {
        return false;
    }
    if session.has_ended() || !session.is_kept() {
        return true; // the store has no streams of a session that is bound to its connection
    }
    session.restore_view();
    for stream in session.live_streams() {
        stream.recover_with_gap();
        stream.refresh_remote_reader();
    }
    match orphan::close_lost_ends(session).await {
        Ok(()) | Err(StoreError::SessionGone) => true,
        Err(error) => !error.is_outage(),
    }
}
