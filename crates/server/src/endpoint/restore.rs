//! Restores a session that only the store has (design D9).
//!
//! The record is claimed by raising its epoch, which fences every writer of the earlier process. Streams that it left open are
//! settled here, once: calls that ran get an error on their own ids, because nothing works on them any more, and push streams
//! wait for their readers like any stream without a reader.

use crate::call::handler::Handler;
use crate::endpoint::open_session;
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::server::Server;
use crate::node::restore_policy::Restore;
use crate::node::telemetry;
use crate::session::{Session, orphan};
use rethread_proto::refusal::Reason;
use rethread_store::{SessionKey, StoreError};
use std::sync::Arc;

/// Brings a session back, or says why not.
pub(crate) async fn restore<H: Handler>(
    inner: &Server<H>,
    key: SessionKey,
    request_head: &RequestHead,
) -> Result<Arc<Session>, Reason> {
    let (node, sessions) = (&inner.node, &inner.sessions);
    // Requests come in crowds after a restart. One of them restores, the others find its work.
    let _alone = sessions.restoring.wait(&key.session).await;
    if let Some(session) = sessions.known(&key.session) {
        let found = session.key == key && !session.has_ended();
        return if found {
            Ok(session)
        } else {
            Err(Reason::UnknownSession)
        };
    }
    let loaded = node.store.load(&key).await.map_err(|e| reason(&e))?;
    if node.restore == Restore::Expire || loaded.idle >= node.timing.forgotten_after() {
        let (ended, forgotten) = (node.store.end(&key), node.store.forget_session(&key));
        return Err([ended.await, forgotten.await]
            .into_iter()
            .find_map(Result::err)
            .as_ref()
            .map_or(Reason::UnknownSession, reason));
    }
    let before = loaded.record.epoch;
    let record = loaded.record.with_epoch(before + 1);
    let place = sessions.reserve(node, &key.principal)?;
    let claimed = node.store.update(&key, before, record.clone()).await;
    claimed.map_err(|e| reason(&e))?;
    // Read after the claim: from there on no earlier process changes the queue.
    let queue = node.store.queue(&key).await.map_err(|e| reason(&e))?;
    let session = Session::restored(node, key, record.clone(), loaded.high_water, queue);
    let welcomed = open_session::reopen_session(inner, &session, record, request_head).await?;
    orphan::take_over(&session).await.map_err(|e| reason(&e))?;
    place.fill(&session);
    welcomed.keep();
    if session.push.has_begun() {
        // Messages that waited still do. But changes are announced to sessions in memory, and for a while this was none.
        session.offer_refresh();
    }
    telemetry::session_restored(session.epoch);
    Ok(session)
}

fn reason(error: &StoreError) -> Reason {
    match error {
        StoreError::SessionGone => Reason::UnknownSession,
        // Another node is at it, or the store has trouble: either way, the next attempt may find it settled.
        _ => Reason::StoreUnavailable,
    }
}
