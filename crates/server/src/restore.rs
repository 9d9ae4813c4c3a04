//! A session that this process does not know, but the store does: its next life (design D9).
//!
//! The record is claimed by raising its epoch, which fences every writer of the life before. What that life left open is
//! settled here, once, so that no other room has to know of it: calls that ran get an error on their own ids, since
//! nobody works on them any more, and push streams wait for their readers like any abandoned one.

use crate::handler::{Handler, RpcError};
use crate::legacy;
use crate::service::Inner;
use crate::session::Session;
use crate::telemetry;
use crate::wrapping::Wrapping;
use rethread_proto::event_id::{Seq, StreamKind};
use rethread_proto::jsonrpc::{Message, Payload, RequestId, error_message, parse};
use rethread_proto::refusal::Reason;
use rethread_store::{Batch, Event, ReadLimit, Retain, SessionKey, SessionRecord, StoreError, StreamKey, StreamStatus};
use serde_json::json;
use std::sync::Arc;

/// What becomes of the sessions of a process that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restore {
    /// They are brought back on first use.
    #[default]
    Resume,
    /// They have ended with it: for servers that cannot bear to be asked in the middle of a conversation.
    Expire,
}

/// Why nobody works on a call any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphaned {
    /// The process that ran it is gone (RST-03).
    Restarted,
    /// Its answer could not be stored when it came.
    Unstored,
}

impl Orphaned {
    fn error(self) -> RpcError {
        let (message, reason) = match self {
            Orphaned::Restarted => (
                "the server was restarted while this request was running; it was not run again",
                "restarted",
            ),
            Orphaned::Unstored => (
                "the answer to this request could not be stored and is lost",
                "answer_lost",
            ),
        };
        RpcError::internal(message).with_data(json!({ "reason": reason }))
    }
}

/// Brings a session back, or says why not.
pub(crate) async fn restore<H: Handler>(
    inner: &Inner<H>,
    key: SessionKey,
    wrapping: &Wrapping,
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
    let record = SessionRecord {
        epoch: before + 1,
        ..loaded.record
    };
    let place = sessions.reserve(node, &key.principal)?;
    let claimed = node.store.update(&key, before, record.clone()).await;
    claimed.map_err(|e| reason(&e))?;
    // Read after the claim: from there on no earlier process changes the queue.
    let queue = node.store.queue(&key).await.map_err(|e| reason(&e))?;
    let session = Session::restored(node, key, record.clone(), loaded.high_water, queue);
    let welcomed = legacy::welcome_back(inner, &session, record, wrapping).await?;
    take_over(&session).await.map_err(|e| reason(&e))?;
    place.fill(&session);
    welcomed.keep();
    if session.hub.has_begun() {
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

/// Settles what the life before left open.
async fn take_over(session: &Arc<Session>) -> Result<(), StoreError> {
    let store = &session.node.store;
    for ordinal in store.open_streams(&session.key).await? {
        // Nothing is appended but our epoch: from here on the writer of the life before, should it still run, is refused.
        let fence = last_words(session, Vec::new(), false);
        match store.append(&session.stream_key(ordinal), fence).await {
            Err(StoreError::Sealed | StoreError::UnknownStream) => continue, // it ended at the last moment
            fenced => fenced?,
        }
        match ordinal.kind() {
            StreamKind::Call => close_orphan(session, ordinal, Orphaned::Restarted).await?,
            StreamKind::Push => session.push_stream_left(ordinal),
        }
    }
    Ok(())
}

/// Ends a call stream that nobody writes any more: each call without an answer gets an error, so that the client
/// learns the truth instead of waiting.
pub(crate) async fn close_orphan(
    session: &Session,
    ordinal: rethread_proto::Ordinal,
    why: Orphaned,
) -> Result<(), StoreError> {
    let store = &session.node.store;
    let key = session.stream_key(ordinal);
    let status = match store.status(&key).await {
        Ok(status) if !status.sealed => status,
        Ok(_) | Err(StoreError::UnknownStream) => return Ok(()),
        Err(error) => return Err(error),
    };
    let answered = answered(session, &key, &status).await?;
    let mut seq = status.last.map_or(Seq::FIRST, Seq::next);
    let mut events = Vec::new();
    for id in status.info.calls.iter().filter(|id| !answered.contains(id)) {
        events.push(Event {
            seq,
            payload: error_message(Some(id), &why.error()).into(),
            retain: Retain::Answer,
        });
        seq = seq.next();
    }
    telemetry::orphaned(events.len());
    match store.append(&key, last_words(session, events, true)).await {
        // Somebody else closed it at the same moment: it is closed.
        Err(StoreError::Sealed | StoreError::UnknownStream) => Ok(()),
        result => result,
    }
}

fn last_words(session: &Session, events: Vec<Event>, seals: bool) -> Batch {
    Batch {
        epoch: session.epoch,
        info: None,
        events,
        released: Vec::new(),
        seals,
        taken: None,
    }
}

/// The calls of a batch that have their answers already. A stream of one call ends with its answer, so it has none.
async fn answered(session: &Session, key: &StreamKey, status: &StreamStatus) -> Result<Vec<RequestId>, StoreError> {
    let mut answered = Vec::new();
    let mut cursor = Seq::PRIMING;
    while status.info.calls.len() > 1 {
        let page = session.node.store.read_after(key, cursor, ReadLimit::default()).await?;
        let Some(last) = page.events.last() else { break };
        cursor = last.seq;
        for event in page.events.iter().filter(|event| event.retain == Retain::Answer) {
            if let Ok(Payload::One(Message::Answer(answer))) = parse(&event.payload, &session.node.envelope) {
                answered.push(answer.id);
            }
        }
    }
    Ok(answered)
}
