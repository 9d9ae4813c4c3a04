//! A stream while this process serves it: the lock, the store and the wakers around [`StreamCore`].
//!
//! The state machine is in `rethread_proto::stream`. This module locks it, performs its effects after unlocking, and drives
//! its appends. An append belongs to the stream and not to the emitter, which may be dropped in the middle of it. A store that
//! answers at once is served inline; any other gets one task, which lives only while there is something to append.

mod backpressure;
pub(crate) mod between_nodes;
pub(crate) mod body;
pub(crate) mod direct_stream;
pub(crate) mod events;
pub(crate) mod keep_alive;
pub(crate) mod reader_body;
pub(crate) mod remote_reader;

use crate::node::Node;
use parking_lot::Mutex;
use rethread_proto::event_id::{IdScope, Seq};
use rethread_proto::jsonrpc::RequestId;
use rethread_proto::push::{ListenerId, QueuePosition};
use rethread_proto::sse::{Draft, EncodeMessage};
use rethread_proto::stream::{
    AppendOutcome, Close, ConnectionId, Effects, Framing, Room, StreamClosed, StreamCore, StreamParams, StreamSummary,
    TakeOutcome,
};
use rethread_proto::{Ordinal, Version};
use rethread_store::{
    Appended, Batch, Retain, SessionKey, StoreError, StoreFuture, StreamInfo, StreamKey, StreamStatus,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Instant;
use tokio::sync::Notify;

/// A numbered sequence of events that outlives its connections.
pub(crate) struct Stream {
    pub(crate) key: StreamKey,
    pub(crate) version: Version,
    pub(crate) params: StreamParams,
    node: Arc<Node>,
    observer: Weak<dyn StreamObserver>,
    core: Mutex<StreamCore<Waker>>,
    room: Notify,
    /// How long the reader has delayed other calls of the session since it was last caught up, in milliseconds.
    delay_caused: AtomicU64,
}

/// The session of a stream. It is called without the stream's lock.
pub(crate) trait StreamObserver: Send + Sync {
    /// The stream accepts no more messages, and the store has all of them that it will get.
    fn stream_closed(&self, stream: &Stream);

    /// The store refuses this writer.
    fn append_refused(&self, error: StoreError);

    /// Push messages up to `position` were appended to a stream, or will not be.
    fn push_settled(self: Arc<Self>, position: QueuePosition, appended: bool);

    /// Whether another call than `calls` runs.
    fn runs_other_calls(&self, calls: &[RequestId]) -> bool;
}

/// The session data that a stream needs.
pub(crate) struct StreamOwner<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) session: &'a SessionKey,
    pub(crate) version: Version,
    pub(crate) framing: Framing,
    pub(crate) epoch: u64,
    pub(crate) observer: Weak<dyn StreamObserver>,
}

/// A message that was emitted.
#[derive(Clone, Copy)]
pub(crate) struct Emission {
    pub(crate) seq: Seq,
    /// Whether the emitter may continue at once.
    pub(crate) has_room: bool,
}

/// Effects that wait until every lock is released, and an append that is due. It counts as in flight already, so messages that
/// are emitted meanwhile queue behind it.
#[must_use]
pub(crate) struct Pending {
    effects: Effects<Waker>,
    batch: Option<Batch>,
}

impl Stream {
    /// A new stream. It cannot be read before the first [`flush`](Self::flush).
    pub(crate) fn open(owner: StreamOwner<'_>, ordinal: Ordinal, info: StreamInfo) -> Arc<Self> {
        let retry_millis = owner.node.timing.retry.as_millis() as u64;
        let params = owner.params(ordinal, info);
        let core = StreamCore::open(&params, retry_millis);
        Self::new(owner, ordinal, params, core)
    }

    /// A stream that is never stored: messages reach the connection that reads it now, without ids (LEG-02).
    pub(crate) fn connection_bound(owner: StreamOwner<'_>, ordinal: Ordinal, info: StreamInfo) -> Arc<Self> {
        let params = owner.params(ordinal, info);
        Self::new(owner, ordinal, params, StreamCore::connection_bound())
    }

    /// A stream that the store knows and this process does not serve yet.
    pub(crate) fn adopt(owner: StreamOwner<'_>, ordinal: Ordinal, status: StreamStatus) -> Arc<Self> {
        let core = StreamCore::adopt(&status);
        let params = owner.params(ordinal, status.info);
        Self::new(owner, ordinal, params, core)
    }

    fn new(owner: StreamOwner<'_>, ordinal: Ordinal, params: StreamParams, core: StreamCore<Waker>) -> Arc<Self> {
        Arc::new(Stream {
            key: StreamKey {
                session: owner.session.clone(),
                ordinal,
            },
            version: owner.version,
            params,
            node: Arc::clone(owner.node),
            observer: owner.observer,
            core: Mutex::new(core),
            room: Notify::new(),
            delay_caused: AtomicU64::new(0),
        })
    }

    /// Emits a message; `seals` if the stream ends with it.
    pub(crate) fn emit(
        self: &Arc<Self>,
        message: impl EncodeMessage,
        retain: Retain,
        seals: bool,
    ) -> Result<Seq, StreamClosed> {
        let (emission, pending) = self.emit_pending(message, retain, seals)?;
        self.perform(pending);
        Ok(emission.seq)
    }

    /// The same for a caller that holds a lock, which fixes the order of messages. It performs the effects after it has released
    /// its lock.
    pub(crate) fn emit_pending(
        &self,
        message: impl EncodeMessage,
        retain: Retain,
        seals: bool,
    ) -> Result<(Emission, Pending), StreamClosed> {
        let mut core = self.core.lock();
        let (seq, effects) = core.emit(&self.params, message, retain, seals)?;
        let has_room = core.room(&self.params) == Room::Free;
        Ok((Emission { seq, has_room }, self.pending(&mut core, effects)))
    }

    /// Emits a push message if this listener has taken everything and waits; otherwise returns the message. The caller
    /// performs the effects after it has released its own locks.
    pub(crate) fn emit_to(&self, listener: ListenerId, message: Draft) -> Result<Pending, Draft> {
        let mut core = self.core.lock();
        if !core.is_waiting(&self.params, ConnectionId(listener.0)) {
            return Err(message);
        }
        let emitted = core.emit(&self.params, message, Retain::None, false);
        let effects = emitted.map_or_else(|_| Effects::default(), |(_, effects)| effects);
        Ok(self.pending(&mut core, effects))
    }

    /// Binds messages of the push queue to this stream: see [`StreamCore::bind`]. The caller performs the effects after it has
    /// released its own locks.
    pub(crate) fn bind<M: EncodeMessage>(
        &self,
        next: impl FnMut() -> Option<(M, Option<QueuePosition>, bool)>,
    ) -> Result<(usize, Pending), StreamClosed> {
        let mut core = self.core.lock();
        let (bound, effects) = core.bind(&self.params, next)?;
        Ok((bound, self.pending(&mut core, effects)))
    }

    /// Ends the stream without a message.
    pub(crate) fn seal(self: &Arc<Self>) {
        self.change(StreamCore::seal);
    }

    /// A reader may exist from now on: messages are appended as they come.
    pub(crate) fn flush(self: &Arc<Self>) {
        self.change(|core| {
            core.flush();
            Effects::default()
        });
    }

    /// A question of this stream is settled: the store need not retain it.
    pub(crate) fn release(self: &Arc<Self>, question: Seq) {
        self.change(|core| {
            core.release(question);
            Effects::default()
        });
    }

    /// Ends the stream at once: its session has ended.
    pub(crate) fn stop(&self) {
        let effects = self.core.lock().stop();
        self.notify(effects);
    }

    /// See [`StreamCore::store_recovered`]. False if nothing has changed.
    pub(crate) fn store_recovered(&self, last_unlogged: Option<Seq>, last: Option<Seq>) -> bool {
        let recovered = self.core.lock().store_recovered(last_unlogged, last);
        match recovered {
            Some(effects) => {
                self.notify(effects);
                true
            }
            None => false,
        }
    }

    /// Attaches a connection that has seen everything up to `cursor`. An older connection is displaced (RES-06).
    pub(crate) fn attach(&self, cursor: Seq, resumes: bool) -> ConnectionId {
        let connection = self.node.next_connection();
        let effects = self.core.lock().attach(connection, cursor, resumes);
        self.delay_caused.store(0, Ordering::Relaxed);
        self.notify(effects);
        connection
    }

    /// The connection is gone. True if it was the reader.
    pub(crate) fn detach(&self, connection: ConnectionId) -> bool {
        let (was_reader, effects) = self.core.lock().detach(connection);
        self.notify(effects);
        was_reader
    }

    /// Takes what is ready for `connection`.
    pub(crate) fn take(&self, connection: ConnectionId, cx: &Context<'_>) -> TakeOutcome {
        let (taken, effects) = self.core.lock().take(connection, cx.waker());
        self.notify(effects);
        taken
    }

    /// The connection has read the store up to `cursor`. True if that is everything that was appended.
    pub(crate) fn caught_up(&self, connection: ConnectionId, cursor: Seq, bytes: usize) -> bool {
        let (is_caught_up, effects) = self.core.lock().caught_up(connection, cursor, bytes);
        if is_caught_up {
            self.delay_caused.store(0, Ordering::Relaxed);
        }
        self.notify(effects);
        is_caught_up
    }

    /// Asks the reader to close while the stream lives on.
    pub(crate) fn close_reader(&self, close: Close) {
        let effects = self.core.lock().close_reader(close);
        self.notify(effects);
    }

    /// Wakes the reader: there may be something for it elsewhere.
    pub(crate) fn wake(&self) {
        let effects = self.core.lock().wake();
        self.notify(effects);
    }

    /// The state of the stream, for operators.
    pub(crate) fn summary(&self) -> StreamSummary {
        self.core.lock().summary()
    }

    pub(crate) fn has_reader(&self) -> bool {
        self.core.lock().has_reader()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.core.lock().is_closed()
    }

    pub(crate) fn is_unlogged(&self) -> bool {
        self.core.lock().is_unlogged()
    }

    /// Whether the store may know the stream. Otherwise nothing of it remains after it is dropped.
    pub(crate) fn may_be_in_store(&self) -> bool {
        self.core.lock().may_be_in_store()
    }

    pub(crate) fn has_pending_append(&self) -> bool {
        self.core.lock().has_pending_append()
    }

    /// The number of the last message that went out without an id because the store failed.
    pub(crate) fn last_unlogged(&self) -> Option<Seq> {
        self.core.lock().last_unlogged()
    }

    /// Whether such a message is missing from a store that has the stream up to `stored`.
    pub(crate) fn has_unlogged_after(&self, stored: Option<Seq>) -> bool {
        self.core.lock().has_unlogged_after(stored)
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.core.is_locked()
    }

    fn change(self: &Arc<Self>, change: impl FnOnce(&mut StreamCore<Waker>) -> Effects<Waker>) {
        let pending = {
            let mut core = self.core.lock();
            let effects = change(&mut core);
            self.pending(&mut core, effects)
        };
        self.perform(pending);
    }

    fn pending(&self, core: &mut StreamCore<Waker>, effects: Effects<Waker>) -> Pending {
        Pending {
            effects,
            batch: core.next_append(&self.params),
        }
    }

    /// Performs effects, and appends until nothing is due. Call it without any lock.
    pub(crate) fn perform(self: &Arc<Self>, pending: Pending) {
        let Pending { effects, mut batch } = pending;
        self.notify(effects);
        while let Some(due) = batch {
            // A store with several nodes may have lost events, and then gets the batch again.
            let copy = self.node.cluster().map(|_| due.clone());
            let started = Instant::now();
            match self.node.store.append(&self.key, due).now() {
                Ok(result) => {
                    self.node.metrics.append_took(started.elapsed());
                    batch = self.settle(result);
                }
                Err(later) => {
                    let stream = Arc::clone(self);
                    tokio::spawn(async move { stream.append_until_settled(later, copy).await });
                    return;
                }
            }
        }
    }

    async fn append_until_settled(
        self: Arc<Self>,
        mut appending: StoreFuture<Result<Appended, StoreError>>,
        mut copy: Option<Batch>,
    ) {
        loop {
            let (started, events) = (Instant::now(), copy.as_ref().map_or(0, |batch| batch.events.len()));
            let copy_is_shared = copy.is_some();
            let mut result = appending.await;
            if let (Err(error), Some(batch)) = (&result, copy)
                && let Some(batch) = self.batch_after_loss(error, batch)
            {
                self.node.metrics.events.store_gap();
                result = self.node.store.append(&self.key, batch).await;
            }
            match copy_is_shared {
                true => self.node.metrics.shared_append_took(started.elapsed(), events),
                false => self.node.metrics.append_took(started.elapsed()),
            };
            let Some(due) = self.settle(result) else { return };
            copy = self.node.cluster().map(|_| due.clone());
            appending = self.node.store.append(&self.key, due);
        }
    }

    /// Passes the store's answer on, performs the effects, and returns the next append.
    fn settle(&self, result: Result<Appended, StoreError>) -> Option<Batch> {
        let outcome = match &result {
            Ok(_) => AppendOutcome::Stored,
            Err(error) if error.is_outage() => AppendOutcome::StoreFailed,
            Err(_) => AppendOutcome::Refused,
        };
        let mut core = self.core.lock();
        let effects = core.appended(&self.params, outcome);
        let batch = core.next_append(&self.params);
        drop(core);
        match result {
            // Only a store with several nodes has readers elsewhere.
            Ok(appended) if self.node.cluster().is_some() => {
                self.set_remote_reader(appended.remote_reader.as_deref());
            }
            Ok(_) => {}
            Err(error) if effects.store_failed => self.node.metrics.store_lost(&error),
            Err(error) if outcome == AppendOutcome::Refused => {
                if let Some(observer) = self.observer.upgrade() {
                    observer.append_refused(error);
                }
            }
            Err(_) => {}
        }
        self.notify(effects);
        batch
    }

    /// Notifies readers, emitters and the session. Call it without any lock.
    fn notify(&self, effects: Effects<Waker>) {
        if effects.stored > 0 {
            self.node.metrics.appended(effects.stored);
        }
        if effects.reader_stalled {
            self.node.metrics.events.stalled();
        }
        if let Some((position, appended)) = effects.settled
            && let Some(observer) = self.observer.upgrade()
        {
            observer.push_settled(position, appended);
        }
        if let Some(token) = effects.displaced
            && let Some(cluster) = self.node.cluster()
            && let Err(later) = cluster.detach(&self.key, &token).now()
        {
            tokio::spawn(later);
        }
        if let Some(waker) = effects.wake {
            waker.wake();
        }
        if effects.room {
            self.room.notify_waiters();
        }
        if effects.ended.is_some()
            && let Some(observer) = self.observer.upgrade()
        {
            observer.stream_closed(self);
        }
    }
}

impl StreamOwner<'_> {
    pub(crate) fn params(&self, ordinal: Ordinal, info: impl Into<Arc<StreamInfo>>) -> StreamParams {
        let info = info.into();
        StreamParams {
            prefix: self.node.ids.prefix(&IdScope {
                session: &self.session.session,
                ordinal,
                node: &info.node,
                calls: &info.calls,
            }),
            framing: self.framing,
            epoch: self.epoch,
            info,
            primed: self.version.sends_priming_event(),
            limits: self.node.stream_limits(),
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("ordinal", &self.key.ordinal)
            .finish_non_exhaustive()
    }
}
