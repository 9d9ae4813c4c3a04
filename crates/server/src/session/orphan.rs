//! Streams that an earlier process left open. They are fenced, and orphaned calls end with an error.

use super::Session;
use rethread_proto::Ordinal;
use rethread_proto::cluster::OpenStream;
use rethread_proto::event_id::{Seq, StreamKind};
use rethread_proto::jsonrpc::{Message, Payload, RequestId, RpcError, error_message, parse};
use rethread_store::{Batch, ClusterStore, Event, Incarnation, ReadLimit, Retain, StoreError, StreamKey, StreamStatus};
use serde_json::json;
use std::sync::Arc;

/// Why a call is orphaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanCause {
    /// The process that ran it has ended (RST-03).
    Restarted,
    /// Its answer could not be stored.
    Unstored,
}

impl OrphanCause {
    pub(crate) fn error(self) -> RpcError {
        let (message, reason) = match self {
            OrphanCause::Restarted => (
                "the server was restarted while this request was running; it was not run again",
                "restarted",
            ),
            OrphanCause::Unstored => (
                "the answer to this request could not be stored and is lost",
                "answer_lost",
            ),
        };
        RpcError::internal(message).with_data(json!({ "reason": reason }))
    }
}

/// Orphaned streams that are closed when a view is opened. Others are closed when a client resumes them.
const MAX_CLOSED_ORPHANS: usize = 64;

/// Settles the streams that dead processes left open, when a view of their session is opened.
pub(crate) async fn take_over(session: &Arc<Session>) -> Result<(), StoreError> {
    match session.node.cluster() {
        Some(cluster) => close_streams_of_dead_nodes(session, cluster).await,
        None => take_over_all(session).await,
    }
}

/// In a cluster the writers of most open streams live. Push streams wait for their readers.
async fn close_streams_of_dead_nodes(session: &Session, cluster: &dyn ClusterStore) -> Result<(), StoreError> {
    let store = &session.node.store;
    let open = store.open_streams(&session.key).await?;
    let calls = open.into_iter().filter(|ordinal| ordinal.kind() == StreamKind::Call);
    for ordinal in calls.take(MAX_CLOSED_ORPHANS) {
        let Some(writer) = writer(session, ordinal).await? else {
            continue;
        };
        if session.node.membership.is_dead(cluster, &writer).await? {
            close_orphan(session, ordinal, OrphanCause::Restarted).await?;
        }
    }
    Ok(())
}

/// The node that writes an open stream.
async fn writer(session: &Session, ordinal: Ordinal) -> Result<Option<Incarnation>, StoreError> {
    match session.node.store.status(&session.stream_key(ordinal)).await {
        Ok(status) => Ok(status.writer),
        Err(StoreError::UnknownStream) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The store may have lost the end of call streams that this process has finished. Each call without a stored answer gets an
/// error, as after any other loss of an answer.
pub(crate) async fn close_lost_ends(session: &Session) -> Result<(), StoreError> {
    let Some(here) = session.node.membership.current() else {
        return Ok(());
    };
    for ordinal in session.node.store.open_streams(&session.key).await? {
        let writer = writer(session, ordinal).await?;
        let stream = OpenStream {
            kind: ordinal.kind(),
            writer: writer.as_ref(),
            is_live: session.live_stream_of(&session.stream_key(ordinal)).is_some(),
        };
        if stream.lacks_its_end(&here) {
            close_orphan(session, ordinal, OrphanCause::Unstored).await?;
        }
    }
    Ok(())
}

/// In a store with one member every open stream is left from an earlier process.
async fn take_over_all(session: &Arc<Session>) -> Result<(), StoreError> {
    let store = &session.node.store;
    for ordinal in store.open_streams(&session.key).await? {
        // An empty append with the new epoch. After it, the store refuses the previous writer, even if it still runs.
        let fence = fencing_batch(session.epoch, Vec::new(), false);
        match store.append(&session.stream_key(ordinal), fence).await {
            Err(StoreError::Sealed | StoreError::UnknownStream) => continue, // it ended just now
            fenced => drop(fenced?),
        }
        match ordinal.kind() {
            StreamKind::Call => close_orphan(session, ordinal, OrphanCause::Restarted).await?,
            StreamKind::Push => session.push_stream_left(ordinal),
        }
    }
    Ok(())
}

/// Ends a call stream without a writer. Each call without an answer gets an error, so that the client does not wait for ever.
pub(crate) async fn close_orphan(session: &Session, ordinal: Ordinal, why: OrphanCause) -> Result<(), StoreError> {
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
        events.push(Event::new(seq, error_message(Some(id), &why.error()).into()).with_retain(Retain::Answer));
        seq = seq.next();
    }
    let (calls, epoch) = (events.len(), session.draw_epoch().await?);
    match store.append(&key, fencing_batch(epoch, events, true)).await {
        Ok(_) => {
            session.node.metrics.events.orphaned(session.tag(), calls);
            Ok(())
        }
        // In a cluster another node may have closed it, with a later epoch.
        Err(StoreError::Conflict { .. }) if session.node.cluster().is_some() => Ok(()),
        // Another process closed it at the same moment.
        Err(StoreError::Sealed | StoreError::UnknownStream) => Ok(()),
        Err(error) => Err(error),
    }
}

fn fencing_batch(epoch: u64, events: Vec<Event>, seals: bool) -> Batch {
    let mut batch = Batch::new(epoch, events);
    batch.seals = seals;
    batch
}

/// The calls of a batch that are already answered. A stream of one call ends with its answer, so it has none.
async fn answered(session: &Session, key: &StreamKey, status: &StreamStatus) -> Result<Vec<RequestId>, StoreError> {
    let mut answered = Vec::new();
    let mut cursor = Seq::PRIMING;
    while status.info.calls.len() > 1 {
        let page = session.node.store.read_after(key, cursor, ReadLimit::default()).await?;
        let Some(last) = page.events.last() else { break };
        cursor = last.seq;
        for event in page.events.iter().filter(|event| event.retain == Retain::Answer) {
            if let Ok(Payload::One(Message::Answer(answer))) = parse(&event.payload, &session.node.limits.envelope()) {
                answered.push(answer.id);
            }
        }
    }
    Ok(answered)
}
