//! Opens a view of a session that only the store has (D9): its process is gone, or it is on another node.
//!
//! Opening a view draws an epoch, which is later than every earlier one. In a store with one member every earlier writer is
//! dead: its streams are settled here, once. In a cluster only the streams of dead nodes are. Calls that ran there get an
//! error on their own ids, because nothing works on them any more. Push streams wait for their readers.

use crate::endpoint::open_session::{self, OpenedSession};
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::server::Server;
use crate::node::Node;
use crate::node::restore_policy::Restore;
use crate::session::admission::Admission;
use crate::session::{Session, orphan};
use rethread_proto::cluster::CallPlace;
use rethread_proto::refusal::Reason;
use rethread_store::{Incarnation, SessionKey, SessionRecord, StoreError, StoredQueue};
use std::sync::Arc;

/// Restores a session, or returns the reason of the refusal. The view stays open as long as the request is admitted.
pub(crate) async fn restore(
    inner: &Server,
    key: SessionKey,
    request_head: &RequestHead,
) -> Result<(Arc<Session>, Admission), Reason> {
    let (node, sessions) = (&inner.node, &inner.sessions);
    // Many requests arrive at once after a restart. One of them restores the session, the others find it. A view that is being closed is
    // gone or open again after this.
    let _alone = sessions.restoring.wait(&key.session).await;
    let known = sessions.known(&key.session);
    if let Some(session) = known.filter(|session| !session.is_suspended()) {
        if session.key != key || session.is_over() {
            return Err(Reason::UnknownSession);
        }
        if !node.membership.has_wake_ups() {
            match session.refresh_view().await {
                Ok(true) => {}
                Ok(false) => return Err(Reason::UnknownSession),
                // No other node acts for this one while the lease holds, so a view that is open goes on without the store.
                Err(error) if error.is_outage() => node.check_lease()?,
                Err(error) => return Err(reason(&error)),
            }
        }
        let admission = session.admit().ok_or(Reason::StoreUnavailable)?; // the lock excludes a close
        return Ok((session, admission));
    }
    let place = sessions.reserve(node, &key.principal)?;
    let view = node.store.open(&key).await.map_err(|e| reason(&e))?;
    // In a cluster its process may live: see `decide_place`.
    let expires = node.restore == Restore::Expire && node.cluster().is_none();
    if expires || view.idle >= node.timing.forgotten_after() {
        let ended = end_session(node, &key).await;
        if let Some(session) = sessions.forget_unloaded(&key) {
            session.ended(node);
        }
        return Err(ended);
    }
    let queue = match node.store.push_queues() {
        // Read after the view is opened: from there on no earlier process changes the queue.
        Some(queues) => queues.queue(&key).await.map_err(|e| reason(&e))?,
        None => StoredQueue::default(),
    };
    let began = sessions.began(&key);
    let session = Session::from_view(node, (key, began), &view, queue);
    let opened = open_handler(inner, &session, view.record, request_head).await?;
    orphan::take_over(&session).await.map_err(|e| reason(&e))?;
    let admission = session.admit().ok_or(Reason::StoreUnavailable)?; // nobody else has the view yet
    match began {
        Some(_) => place.refill(&session),
        None => place.fill(&session),
    }
    if let Some(opened) = opened {
        opened.keep();
    }
    if node.cluster().is_none() && session.push.has_begun() {
        // Messages that waited still do. But changes are announced to sessions in memory, and for a while this was none.
        session.offer_refresh();
    }
    match sessions.forget_unloaded(&session.key) {
        Some(_) => session.reloaded(),
        None => session.opened(request_head.extensions(), true),
    }
    Ok((session, admission))
}

/// Ends a session that is not restored. Returns the reason for the client.
async fn end_session(node: &Node, key: &SessionKey) -> Reason {
    let (ended, forgotten) = (node.store.end(key), node.store.forget_session(key));
    let ended = ended.await.map(drop).and(forgotten.await);
    ended.err().as_ref().map_or(Reason::UnknownSession, reason)
}

/// Opens the session in the handler, unless another node runs its calls.
async fn open_handler(
    inner: &Server,
    session: &Arc<Session>,
    record: SessionRecord,
    request_head: &RequestHead,
) -> Result<Option<OpenedSession>, Reason> {
    let place = if inner.node.cluster().is_some() {
        decide_place(session, request_head.is_forwarded(), &[]).await?
    } else {
        CallPlace::Here
    };
    if place == CallPlace::Here {
        let opened = open_session::reopen_session(inner, session, record, request_head).await?;
        return Ok(Some(opened));
    }
    session.set_negotiated_from(record);
    Ok(None)
}

/// Where a call of this view runs. If it runs here, the session is open in the handler after this. Nodes in `avoided` have sent
/// the call back.
pub(crate) async fn place_of_call(
    inner: &Server,
    session: &Arc<Session>,
    request_head: &RequestHead,
    avoided: &[Incarnation],
) -> Result<CallPlace, Reason> {
    let place = decide_place(session, request_head.is_forwarded(), avoided).await?;
    if place == CallPlace::Here && !session.is_open_in_handler() {
        let _alone = inner.sessions.restoring.wait(&session.key.session).await;
        if !session.is_open_in_handler() {
            let opened = open_session::reopen_session(inner, session, session.record(), request_head).await?;
            opened.keep();
            orphan::take_over(session).await.map_err(|e| reason(&e))?;
        }
    }
    Ok(place)
}

/// Decides where a call runs. Claims the session if its owner is dead or has released it.
async fn decide_place(session: &Session, is_forwarded: bool, avoided: &[Incarnation]) -> Result<CallPlace, Reason> {
    let membership = &session.node.membership;
    let (Some(cluster), Some(here)) = (session.node.cluster(), membership.current()) else {
        return Err(Reason::StoreUnavailable);
    };
    let mut is_read_again = false;
    loop {
        match session.call_place(&here, is_forwarded, avoided) {
            // A release wakes no view, so the node that forwarded the call may know a newer owner than this view.
            CallPlace::Moved if !is_read_again => {
                is_read_again = true;
                session.refresh_view().await.map_err(|e| reason(&e))?;
            }
            CallPlace::Check(node) => membership.check(cluster, &node).await.map_err(|e| reason(&e))?,
            // Its process is gone, or has handed it over.
            CallPlace::Claim(_) if session.node.restore == Restore::Expire => {
                session.node.check_lease()?;
                return Err(end_session(&session.node, &session.key).await);
            }
            CallPlace::Claim(from) => {
                session.node.check_lease()?;
                let owner = match cluster.claim(&session.key, from.as_ref()).await {
                    Ok(owner) => Some(owner),
                    Err(StoreError::Conflict { .. }) => None, // its owner has released it meanwhile
                    Err(error) => return Err(reason(&error)),
                };
                if owner.as_ref() == Some(&*here) {
                    session.node.metrics.events.session_claimed(session.tag());
                }
                session.set_owner(owner);
            }
            place => return Ok(place),
        }
    }
}

fn reason(error: &StoreError) -> Reason {
    match error {
        StoreError::SessionGone => Reason::UnknownSession,
        // Another node is changing it, or the store failed. The next attempt may succeed.
        _ => Reason::StoreUnavailable,
    }
}
