//! A stream that other nodes read, whose messages wait in a queue of all nodes, or whose store has lost events.

use super::Stream;
use rethread_proto::stream::{BindOutcome, Refused, Room};
use rethread_store::{Batch, BindRequest, ClusterStore, RemotePosition, StoreError, StreamStatus};
use std::sync::Arc;

/// The result of an attempt to bind messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BindProgress {
    /// More messages wait for this stream.
    More,
    /// No message waits for this stream.
    Done,
    /// The stream takes none now: its reader is behind, or an append is in flight.
    Busy,
}

impl Stream {
    /// Whether the store still takes the appends of this writer. Otherwise another node has taken the stream over, while a connection
    /// of this node was not known to be dead.
    pub(crate) fn is_written_here(&self, status: &StreamStatus) -> bool {
        status.epoch <= self.params.epoch
    }

    /// Asks the store who reads this stream on another node. With a reader that is far behind, the next read wakes this node.
    pub(crate) fn refresh_remote_reader(self: &Arc<Self>) {
        let stream = Arc::clone(self);
        tokio::spawn(async move {
            let Some(cluster) = stream.node.cluster() else { return };
            let wake = stream.core.lock().room(&stream.params) == Room::WaitForReader;
            if let Ok(reader) = cluster.remote_reader(&stream.key, wake).await {
                stream.set_remote_reader(reader.as_ref());
            }
        });
    }

    /// Binds waiting messages of a push queue that all nodes share.
    pub(crate) async fn bind_shared(self: &Arc<Self>, cluster: &dyn ClusterStore, max: usize) -> BindProgress {
        let start = {
            let mut core = self.core.lock();
            let has_room = matches!(core.room(&self.params), Room::Free | Room::YieldOnce);
            if has_room { core.begin_bind(&self.params) } else { None }
        };
        let Some(start) = start else {
            return BindProgress::Busy;
        };
        let request = BindRequest::new(self.params.epoch, start.first, max, start.info);
        let result = cluster.bind(&self.key, request).await;
        let (outcome, progress) = match result {
            Ok(bound) => {
                let progress = if bound.more {
                    BindProgress::More
                } else {
                    BindProgress::Done
                };
                (BindOutcome::Messages(bound.messages), progress)
            }
            Err(error) if error.is_outage() => {
                self.node.metrics.store_lost(&error);
                (BindOutcome::StoreFailed, BindProgress::Done)
            }
            Err(error) => {
                if let Some(observer) = self.observer.upgrade() {
                    observer.append_refused(error);
                }
                (BindOutcome::Refused, BindProgress::Done)
            }
        };
        let pending = {
            let mut core = self.core.lock();
            let effects = core.bound(&self.params, outcome);
            self.pending(&mut core, effects)
        };
        self.perform(pending);
        progress
    }

    /// The same batch for a store that has lost its last writes. `None` if it was refused for another reason.
    pub(super) fn batch_after_loss(&self, error: &StoreError, batch: Batch) -> Option<Batch> {
        let refused = match error {
            StoreError::Conflict { epoch, last } => Refused::Conflict {
                epoch: *epoch,
                last: *last,
            },
            StoreError::UnknownStream => Refused::Unknown,
            _ => return None,
        };
        batch.after_loss(refused, &self.params.info)
    }

    /// The store works again: the stream of a call continues with ids, after a gap.
    pub(crate) fn recover_with_gap(self: &Arc<Self>) {
        let pending = {
            let mut core = self.core.lock();
            let recovered = core.store_recovered_with_gap(&self.params);
            recovered.map(|effects| self.pending(&mut core, effects))
        };
        if let Some(pending) = pending {
            self.node.metrics.events.store_gap();
            self.perform(pending);
        }
    }

    /// The store has reported the reader on another node, or that there is none.
    pub(super) fn set_remote_reader(&self, reader: Option<&RemotePosition>) {
        let reported = reader.map(|reader| (reader.token.clone(), reader.seen));
        let effects = self.core.lock().remote_reader(reported);
        self.notify(effects);
    }
}
