//! The streams of a session: open, resume, abandon, forget.

use super::Session;
use super::get_connection::{GetConnection, ResumedStream};
use super::orphan;
use crate::stream::Stream;
use crate::stream::StreamOwner;
use rethread_proto::Ordinal;
use rethread_proto::clock::Mono;
use rethread_proto::event_id::{EventId, Seq, StreamKind};
use rethread_proto::jsonrpc::RequestId;
use rethread_proto::refusal::Reason;
use rethread_proto::sse::Draft;
use rethread_proto::stream::{Close, ReaderStart, ResumePlan, plan};
use rethread_store::{Batch, Event, StoreError, StreamInfo, StreamKey, StreamStatus};
use std::sync::Arc;

/// A planned resume of a stream that this node writes.
struct ResumeRequest {
    ordinal: Ordinal,
    /// The last event that the client has seen.
    after: Seq,
    /// Events after the cursor are lost, and the client must be notified.
    gap: bool,
    /// The connection begins with the refresh (D4).
    refresh: bool,
    /// The stream, if it is in memory.
    live: Option<Arc<Stream>>,
    found: StreamStatus,
    /// The epoch of the writer, if the stream is not in memory.
    epoch: u64,
}

impl Session {
    /// A new stream for the answers to `calls`.
    pub(crate) fn open_call_stream(self: &Arc<Self>, calls: &[RequestId]) -> Arc<Stream> {
        self.open_stream(StreamKind::Call, calls)
    }

    /// The store refuses the appends of this writer.
    pub(crate) fn refused(&self, error: StoreError) {
        if !matches!(error, StoreError::SessionGone) {
            self.node.metrics.events.fenced(self.tag(), &error);
        }
        self.store_answered(&Err::<(), _>(error));
    }

    /// The one stream of a 2024-11-05 session: not stored, and without ids.
    pub(crate) fn open_live_stream(self: &Arc<Self>) -> Arc<Stream> {
        let ordinal = self.state.lock().ordinals.issue(StreamKind::Push);
        let info = StreamInfo::new(StreamKind::Push, Vec::new(), self.node.name.clone());
        let stream = Stream::connection_bound(self.stream_owner(), ordinal, info);
        self.keep(&stream);
        stream
    }

    fn open_stream(self: &Arc<Self>, kind: StreamKind, calls: &[RequestId]) -> Arc<Stream> {
        let ordinal = self.state.lock().ordinals.issue(kind);
        let info = StreamInfo::new(kind, calls.to_vec(), self.node.name.clone());
        let stream = Stream::open(self.stream_owner(), ordinal, info);
        self.keep(&stream);
        stream
    }

    pub(super) fn stream_owner(self: &Arc<Self>) -> StreamOwner<'_> {
        self.stream_owner_in(self.epoch)
    }

    /// The same for a stream that was taken over in an epoch of its own.
    fn stream_owner_in(self: &Arc<Self>, epoch: u64) -> StreamOwner<'_> {
        let observer = Arc::downgrade(self);
        StreamOwner {
            node: &self.node,
            session: &self.key,
            version: self.version(),
            framing: self.transport.framing(),
            epoch,
            observer,
        }
    }

    fn keep(&self, stream: &Arc<Stream>) {
        let mut state = self.state.lock();
        state.streams.insert(stream.key.ordinal, Arc::clone(stream));
        let ended = self.has_ended();
        drop(state);
        if ended {
            stream.stop(); // opened while the session ended
        }
        if stream.is_closed() {
            self.stream_ended(stream);
        }
    }

    /// A stream has ended, and the store has the rest of it. Removes only this stream, because its ordinal may have a newer
    /// one.
    pub(crate) fn stream_ended(&self, stream: &Stream) {
        let ordinal = stream.key.ordinal;
        let mut state = self.state.lock();
        let is_it = |kept: &Arc<Stream>| std::ptr::eq(&**kept, stream);
        let over = state.streams.get(&ordinal).is_some_and(is_it);
        let removed = if over { state.streams.remove(&ordinal) } else { None };
        drop(state);
        drop(removed);
    }

    /// A connection of a push stream was attached or detached. With a connection the stream is live. Without one it is kept
    /// for a while, in case the reader returns.
    ///
    /// Both may happen at once. The last caller that changes the table checks the stream again, so the table is correct in
    /// the end.
    pub(crate) fn push_reader_changed(self: &Arc<Self>, stream: &Arc<Stream>) {
        loop {
            let read = stream.has_reader();
            if read {
                self.state.lock().abandoned.retain(|(_, o)| *o != stream.key.ordinal);
                self.keep(stream);
            } else {
                self.push_stream_abandoned(stream);
            }
            if stream.has_reader() == read {
                return;
            }
        }
    }

    fn push_stream_abandoned(self: &Arc<Self>, stream: &Arc<Stream>) {
        let busy = stream.has_pending_append();
        // A busy stream remains the only writer if its reader returns. A stream with unlogged messages knows that the store
        // lacks them.
        if !busy && stream.last_unlogged().is_none() {
            self.stream_ended(stream);
        }
        let kept = (busy || stream.may_be_in_store()) && !stream.is_closed();
        if kept && !self.has_ended() {
            self.push_stream_left(stream.key.ordinal);
        }
    }

    /// A push stream in the store has lost its reader. Beyond the limit, the oldest such stream is forgotten.
    pub(crate) fn push_stream_left(self: &Arc<Self>, ordinal: Ordinal) {
        let mut state = self.state.lock();
        state.abandoned.retain(|(_, o)| *o != ordinal);
        state.abandoned.push_back((self.node.clock.now(), ordinal));
        let over = state.abandoned.len() > self.node.limits.abandoned_push_streams_per_session();
        let oldest = if over { state.abandoned.pop_front() } else { None };
        drop(state);
        if let Some((_, ordinal)) = oldest {
            self.forget_stream(ordinal);
        }
    }

    /// Forgets push streams whose readers did not return, and passes over a listener that does not read.
    pub(crate) fn sweep(self: &Arc<Self>, now: Mono) {
        if self.has_shared_push() {
            self.demote_stalled(now, self.node.timing.stall);
            self.retry_unlogged_gets();
        } else {
            self.push.pass_over_stalled(now, self.node.timing.stall);
            self.update_stored_queue(true);
        }
        let mut aged = Vec::new();
        {
            let mut state = self.state.lock();
            while let Some(&(at, ordinal)) = state.abandoned.front() {
                if now.since(at) < self.node.retention.age {
                    break;
                }
                state.abandoned.pop_front();
                aged.push(ordinal);
            }
        }
        for ordinal in aged {
            self.forget_stream(ordinal);
        }
    }

    fn forget_stream(self: &Arc<Self>, ordinal: Ordinal) {
        self.state.lock().streams.remove(&ordinal);
        if self.node.cluster().is_some() {
            tokio::spawn(Arc::clone(self).forget_if_written_here(ordinal));
            return;
        }
        if let Err(later) = self.node.store.forget_stream(&self.stream_key(ordinal)).now() {
            tokio::spawn(later);
        }
    }

    /// Forgets a push stream without a reader, unless its reader has returned on another node, which is its writer now.
    async fn forget_if_written_here(self: Arc<Self>, ordinal: Ordinal) {
        let key = self.stream_key(ordinal);
        let Ok(status) = self.node.store.status(&key).await else {
            return;
        };
        let is_written_here = status
            .writer
            .is_some_and(|writer| self.node.membership.is_this_process(&writer));
        if is_written_here && !self.state.lock().streams.contains_key(&ordinal) {
            let _ = self.node.store.forget_stream(&key).await; // it expires with its session otherwise
        }
    }

    pub(crate) fn stream_key(&self, ordinal: Ordinal) -> StreamKey {
        StreamKey {
            session: self.key.clone(),
            ordinal,
        }
    }

    /// Opens a connection for a GET: a new push stream, or the stream that `last_event_id` belongs to.
    pub(crate) async fn open_get(self: &Arc<Self>, last_event_id: Option<&str>) -> Result<GetConnection, Reason> {
        let id = last_event_id.and_then(|text| self.node.ids.parse(&self.key.session, text));
        let _alone = match id {
            // A stream has one writer. The lock prevents another request from adopting it between the read of the store and
            // the adoption.
            Some(id) if id.ordinal.kind() == StreamKind::Push => Some(self.adopting.lock().await),
            _ => None,
        };
        let (issued, live) = match id {
            Some(EventId { ordinal, .. }) => {
                let state = self.state.lock();
                (
                    state.ordinals.may_have_issued(ordinal),
                    state.streams.get(&ordinal).cloned(),
                )
            }
            None => (false, None),
        };
        let issued = issued || self.was_issued_elsewhere(id).await?;
        let mut found = match id.filter(|_| issued) {
            Some(id) => self.look_up(id.ordinal, live.is_some()).await?,
            None => None,
        };
        let live = match (live, &found) {
            (Some(stream), Some(found)) if !stream.is_written_here(found) => {
                // A reader that this stream gets now would lose its connection at the next append.
                stream.stop();
                self.stream_ended(&stream);
                None
            }
            (live, _) => live,
        };
        let is_remote = live.is_none() && found.as_ref().is_some_and(|found| self.is_written_elsewhere(found));
        let refreshed = match (&live, &mut found) {
            (Some(stream), Some(found)) if stream.is_unlogged() => self.recover(stream, found).await,
            _ => false,
        };
        let unlogged = live.as_ref().and_then(|stream| stream.last_unlogged());
        let missed = live.as_ref().zip(found.as_ref());
        let missed = missed.is_some_and(|(stream, found)| stream.has_unlogged_after(found.last));
        match plan(id, issued, found.as_ref(), missed || refreshed) {
            ResumePlan::Ahead { after, gap } if is_remote => {
                self.node.metrics.resumed(self.tag(), gap);
                let ordinal = id.map_or(Ordinal(0), |id| id.ordinal);
                self.resume_remote(ordinal, after, gap).await
            }
            ResumePlan::Forgotten | ResumePlan::Ahead { .. } => Err(Reason::StreamForgotten),
            ResumePlan::Ended => Err(Reason::StreamEnded),
            ResumePlan::Fresh { refresh } => Ok(self.fresh_push_stream(refresh)),
            ResumePlan::Resume { after, gap, .. } if is_remote => {
                self.node.metrics.resumed(self.tag(), gap);
                let ordinal = id.map_or(Ordinal(0), |id| id.ordinal);
                self.resume_remote(ordinal, after, gap).await
            }
            ResumePlan::Resume { after, gap, refresh } => {
                let (Some(id), Some(mut found)) = (id, found) else {
                    return Err(Reason::StreamForgotten);
                };
                self.node.metrics.resumed(self.tag(), gap);
                let epoch = match live {
                    Some(_) => self.epoch,
                    None => self.take_over_push_stream(id.ordinal, &mut found).await?,
                };
                let opened = self.resume(ResumeRequest {
                    ordinal: id.ordinal,
                    after,
                    gap,
                    refresh: refresh && !refreshed,
                    live: live.clone(),
                    found,
                    epoch,
                });
                if let Some(stream) = live.filter(|stream| stream.last_unlogged() != unlogged) {
                    // More messages went out without ids before the reader was attached. The next resume announces them.
                    stream.close_reader(self.close());
                }
                Ok(opened)
            }
        }
    }

    /// Resumes a push stream that continued without ids: checks whether the store accepts appends again, and continues the
    /// numbers. True if messages were missed. The refresh replaces them as events of the stream, so that every earlier cursor
    /// gets it.
    ///
    /// A call stream stays without ids to its end, which then reports that the answer was lost.
    async fn recover(&self, stream: &Stream, found: &mut StreamStatus) -> bool {
        if found.info.kind != StreamKind::Push {
            return false;
        }
        let unlogged = stream.last_unlogged();
        let missed = stream.has_unlogged_after(found.last);
        let refresh = if missed { self.refresh_drafts() } else { Vec::new() };
        let numbers = (found.last.unwrap_or_default().next().0..).map(Seq);
        let event = |(seq, (draft, _)): (Seq, (Draft, _))| Event::new(seq, draft.into_payload());
        let batch = Batch::new(stream.params.epoch, numbers.zip(refresh).map(event).collect());
        let last = batch.events.last().map(|event| event.seq).or(found.last);
        match self.node.store.append(&stream.key, batch).await {
            Ok(_) => {
                found.last = last;
                stream.store_recovered(unlogged, last) && missed
            }
            Err(error) if error.is_outage() => false,
            Err(error) => {
                self.refused(error);
                false
            }
        }
    }

    /// The status of a stream in the store. A call stream without an end and without a writer is ended here: its process died,
    /// or its answer was lost when the store failed.
    async fn look_up(&self, ordinal: Ordinal, live: bool) -> Result<Option<StreamStatus>, Reason> {
        let key = self.stream_key(ordinal);
        let mut found = self.node.store.status(&key).await;
        let may_be_orphaned = |found: &StreamStatus| !found.sealed && !live && ordinal.kind() == StreamKind::Call;
        let cause = match &found {
            Ok(found) if may_be_orphaned(found) => self.orphan_cause(found).await?,
            _ => None,
        };
        if let Some(cause) = cause {
            let closed = orphan::close_orphan(self, ordinal, cause).await;
            closed.map_err(|_| Reason::StoreUnavailable)?;
            found = self.node.store.status(&key).await;
        }
        match found {
            Ok(status) => Ok(Some(status)),
            Err(StoreError::UnknownStream | StoreError::SessionGone) => Ok(None),
            Err(_) => Err(Reason::StoreUnavailable),
        }
    }

    fn resume(self: &Arc<Self>, request: ResumeRequest) -> GetConnection {
        let ResumeRequest {
            ordinal,
            after,
            gap,
            refresh,
            live,
            found,
            epoch,
        } = request;
        let kind = ordinal.kind();
        let oldest = found.first_kept;
        let stream = live.unwrap_or_else(|| Stream::adopt(self.stream_owner_in(epoch), ordinal, found));
        let gap = gap.then(|| stream.params.prefix.id(oldest.unwrap_or(after)));
        let start = ReaderStart {
            cursor: after,
            first: if refresh { self.refresh() } else { None },
            resumes: true,
            gap_announced: gap.is_some(),
        };
        let takes_push = kind == StreamKind::Push && !stream.is_closed();
        self.limit_listeners(takes_push);
        let reader = self.open_reader(Arc::clone(&stream), start, takes_push);
        if kind == StreamKind::Push {
            // The last connection may have ended while the store was read, and the stream was abandoned then. It is live
            // again. If the table did not say so, the next resume would create a second writer.
            self.push_reader_changed(&stream);
        }
        GetConnection {
            reader,
            gap,
            resumed: Some(ResumedStream {
                calls: stream.params.info.calls.clone(),
            }),
        }
    }

    fn fresh_push_stream(self: &Arc<Self>, refresh: bool) -> GetConnection {
        let stream = self.open_stream(StreamKind::Push, &[]);
        self.limit_listeners(true);
        let reader = self.open_reader(Arc::clone(&stream), ReaderStart::default(), true);
        stream.flush();
        if refresh {
            for (draft, _) in self.refresh_drafts() {
                let _ = stream.emit(draft, rethread_store::Retain::None, false); // fails only if the session has ended
            }
        }
        GetConnection {
            reader,
            gap: None,
            resumed: None,
        }
    }

    /// Too many GETs at once: the oldest connections are closed, and may resume (T-17). In a cluster, the store does the same
    /// with the GETs of all nodes: see [`get_removed`](Self::get_removed).
    fn limit_listeners(&self, opening: bool) {
        let streams = self.push.streams();
        let over = (streams.len() + usize::from(opening)).saturating_sub(self.max_gets());
        for stream in streams.iter().take(over) {
            stream.close_reader(self.close());
        }
    }

    /// The GETs that may be open at once, on all nodes.
    pub(super) fn max_gets(&self) -> usize {
        self.node.limits.push_streams_per_session().max(1)
    }

    /// Another GET of the session, here or on another node, has made this one too many.
    pub(crate) fn get_removed(&self, key: &StreamKey) {
        if let Some(stream) = self.live_stream_of(key) {
            stream.close_reader(self.close());
        }
    }

    pub(crate) fn close(&self) -> Close {
        Close {
            retry: self.node.timing.retry.as_millis() as u64,
        }
    }

    #[cfg(test)]
    pub(crate) fn lock_for_test(&self) -> impl Drop {
        self.state.lock()
    }

    /// The stream with this key, if this process writes it.
    pub(crate) fn live_stream_of(&self, key: &StreamKey) -> Option<Arc<Stream>> {
        let stream = self.state.lock().streams.get(&key.ordinal).cloned();
        stream.filter(|stream| stream.key == *key)
    }

    /// The streams that are live now.
    pub(crate) fn live_streams(&self) -> Vec<Arc<Stream>> {
        self.state.lock().streams.values().cloned().collect()
    }
}
