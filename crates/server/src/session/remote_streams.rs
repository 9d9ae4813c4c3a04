//! The streams of a session that other nodes write or have written.

use super::Session;
use super::get_connection::{GetConnection, ResumedStream};
use super::orphan::{self, OrphanCause};
use crate::node::stats::ConnectionKind;
use crate::stream::reader_body::{ConnectionHost, ReaderBody};
use crate::stream::remote_reader::RemoteReader;
use rethread_proto::Ordinal;
use rethread_proto::event_id::{EventId, Seq, StreamKind};
use rethread_proto::refusal::Reason;
use rethread_proto::stream::ReaderStart;
use rethread_store::{Batch, Incarnation, ReaderToken, StoreError, StreamStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Session {
    /// Whether another node may have issued the ordinal of an id that this view has not issued.
    pub(super) async fn was_issued_elsewhere(&self, id: Option<EventId>) -> Result<bool, Reason> {
        let Some(id) = id.filter(|_| self.node.cluster().is_some()) else {
            return Ok(false);
        };
        let stored = self.node.store.load(&self.key).await;
        let stored = stored.map_err(|_| Reason::StoreUnavailable)?;
        Ok(id.ordinal <= stored.high_water)
    }

    /// Whether another node writes the stream. It is not sealed, and its writer was not dead a moment ago.
    pub(super) fn is_written_elsewhere(&self, status: &StreamStatus) -> bool {
        let is_other = |writer: &Incarnation| !self.node.membership.is_this_process(writer);
        status.info.kind == StreamKind::Call && !status.sealed && status.writer.as_ref().is_some_and(is_other)
    }

    /// Why a call stream without an end has no writer. `None` if another node writes it.
    pub(super) async fn orphan_cause(&self, status: &StreamStatus) -> Result<Option<OrphanCause>, Reason> {
        match (self.node.cluster(), &status.writer) {
            (Some(cluster), Some(writer)) if !self.node.membership.is_this_process(writer) => {
                let is_dead = self.node.membership.is_dead(cluster, writer).await;
                let is_dead = is_dead.map_err(|_| Reason::StoreUnavailable)?;
                Ok(is_dead.then_some(OrphanCause::Restarted))
            }
            _ => Ok(Some(OrphanCause::Unstored)),
        }
    }

    /// The writer of a push stream is the node of its connection. Takes the stream over from another writer, dead or alive,
    /// and returns the epoch for it.
    pub(super) async fn take_over_push_stream(
        &self,
        ordinal: Ordinal,
        status: &mut StreamStatus,
    ) -> Result<u64, Reason> {
        if self.node.cluster().is_none() || ordinal.kind() == StreamKind::Call || status.sealed {
            return Ok(self.epoch);
        }
        let key = self.stream_key(ordinal);
        let epoch = self.draw_epoch().await.map_err(|_| Reason::StoreUnavailable)?;
        match self.node.store.append(&key, Batch::new(epoch, Vec::new())).await {
            Ok(_) => {}
            Err(StoreError::SessionGone) => return Err(Reason::UnknownSession),
            Err(_) => return Err(Reason::StoreUnavailable),
        }
        // Events of the earlier writer may have come before the fence.
        *status = self
            .node
            .store
            .status(&key)
            .await
            .map_err(|_| Reason::StoreUnavailable)?;
        Ok(epoch)
    }

    /// Resumes a stream that another node writes.
    pub(super) async fn resume_remote(
        self: &Arc<Self>,
        ordinal: Ordinal,
        after: Seq,
        gap: bool,
    ) -> Result<GetConnection, Reason> {
        let start = ReaderStart {
            cursor: after,
            first: None,
            resumes: true,
            gap_announced: gap,
        };
        let (reader, status) = self.read_remote(ordinal, start).await?;
        let resumed = ResumedStream {
            calls: status.info.calls.clone(),
        };
        let prefix = self.stream_owner().params(ordinal, status.info).prefix;
        let gap = gap.then(|| prefix.id(status.first_kept.unwrap_or(after)));
        Ok(GetConnection {
            reader,
            gap,
            resumed: Some(resumed),
        })
    }

    /// Opens a connection that reads a stream of another node. It uses the session until it is dropped.
    pub(crate) async fn read_remote(
        self: &Arc<Self>,
        ordinal: Ordinal,
        start: ReaderStart,
    ) -> Result<(Box<ReaderBody>, StreamStatus), Reason> {
        let node = &self.node;
        let (Some(cluster), Some(current)) = (node.cluster(), node.membership.current()) else {
            return Err(Reason::StoreUnavailable);
        };
        let token = ReaderToken {
            node: Incarnation::clone(&current),
            connection: node.next_connection().0,
        };
        let key = self.stream_key(ordinal);
        let status = match cluster.attach(&key, &token).await {
            Ok(status) => status,
            Err(StoreError::UnknownStream) => return Err(Reason::StreamForgotten),
            Err(StoreError::SessionGone) => return Err(Reason::UnknownSession),
            Err(_) => return Err(Reason::StoreUnavailable),
        };
        let reader = Arc::new(RemoteReader::new(key, status.writer.clone()));
        node.connections.enter(remote_kind(ordinal));
        node.remote_readers.enter(usize::MAX);
        self.uses.fetch_add(1, Ordering::Relaxed);
        self.remote_readers.lock().push(Arc::clone(&reader));
        if self.has_ended() {
            reader.close(self.close()); // the view was suspended before the reader was in the table
        }
        let params = self.stream_owner().params(ordinal, status.info.clone());
        let host = Arc::clone(self) as Arc<dyn ConnectionHost>;
        let body = ReaderBody::remote(
            Arc::clone(&reader),
            token,
            params,
            (start, self.version()),
            self.keep_alive(),
            Arc::clone(node),
            host,
        );
        // The writer may have died before this reader was in the table.
        let session = Arc::clone(self);
        tokio::spawn(async move { session.close_if_orphaned(&reader).await });
        Ok((Box::new(body), status))
    }

    /// The remote readers of this session.
    pub(crate) fn remote_readers(&self) -> Vec<Arc<RemoteReader>> {
        self.remote_readers.lock().clone()
    }

    /// A connection that read a stream of another node is gone.
    pub(super) fn forget_remote_reader(&self, reader: &Arc<RemoteReader>) {
        self.remote_readers.lock().retain(|other| !Arc::ptr_eq(other, reader));
        self.node.connections.leave(remote_kind(reader.key.ordinal));
        self.node.remote_readers.leave();
        self.unused();
    }

    /// Ends a stream with an error if its writer is dead, and wakes its reader here.
    pub(crate) async fn close_if_orphaned(&self, reader: &RemoteReader) {
        let (Some(cluster), Some(writer)) = (self.node.cluster(), &reader.writer) else {
            return;
        };
        let is_dead = self.node.membership.is_dead(cluster, writer).await;
        if !matches!(is_dead, Ok(true)) {
            return;
        }
        // If the store fails now, the client that resumes later closes the stream.
        let _ = orphan::close_orphan(self, reader.key.ordinal, OrphanCause::Restarted).await;
        reader.wake();
    }
}

fn remote_kind(ordinal: Ordinal) -> ConnectionKind {
    match ordinal.kind() {
        StreamKind::Call => ConnectionKind::Call,
        StreamKind::Push => ConnectionKind::Push,
    }
}
