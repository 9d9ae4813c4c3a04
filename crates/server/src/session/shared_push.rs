//! Push in a cluster: the queue of a session is in the store, and all nodes share it (D6).
//!
//! A message goes to the queue first. Then the node of the newest GET binds it to that stream, in one atomic step of the
//! store. So each message is on exactly one stream, wherever it was sent and wherever the GET is.
//!
//! The commands of a session run in order, in one task that lives only while there are any.

use super::Session;
use super::push_commands::{Command, Work};
use crate::stream::Stream;
use crate::stream::between_nodes::BindProgress;
use rethread_proto::Ordinal;
use rethread_proto::clock::Mono;
use rethread_proto::push::Collapse;
use rethread_proto::sse::Draft;
use rethread_proto::stream::MAX_BOUND_MESSAGES;
use rethread_store::{BroadcastId, ClusterStore, Incarnation, PushMessage, PushQueueLimits, Signal, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Messages on their way to the store, relative to those that may wait in it. Their bytes have the same bound.
const MAX_UNSTORED_QUEUES: usize = 8;
/// The pause before a full queue is looked at again.
const ROOM_PAUSE: Duration = Duration::from_millis(10);
/// The longest wait for room in the queue. Commands behind the messages wait, too.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest wait of an answer for the messages that its call has pushed.
const PUSH_STORED_TIMEOUT: Duration = Duration::from_millis(500);
/// The pause before a command is repeated that the store could not take.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Attempts of one command: a minute. The lease ends long before, unless the store refuses this command only.
const MAX_ATTEMPTS: usize = 240;

impl Session {
    /// Whether the push queue of this session is in the store, for all nodes.
    pub(super) fn has_shared_push(&self) -> bool {
        self.is_kept() && self.node.cluster().is_some()
    }

    /// Adds a message to the shared queue.
    pub(super) fn enqueue_shared(self: &Arc<Self>, draft: Draft, collapse: &Collapse) {
        let dropped = {
            let mut state = self.shared_push.lock();
            // On their way to the store, messages may wait for a GET that takes them.
            let mut limits = self.push_queue_limits();
            limits.messages = limits.messages.saturating_mul(MAX_UNSTORED_QUEUES);
            state.push_message(push_message(draft, collapse), limits)
        };
        self.node.metrics.events.push_dropped(dropped);
        self.run_push_commands();
    }

    /// Whether messages of this session are on their way to the store.
    pub(crate) fn has_unstored_push(&self) -> bool {
        self.has_shared_push() && self.shared_push.has_unstored()
    }

    /// Waits until the store has the messages of this session, but not for long. A client that has the answer of a call then
    /// does not lose what the call has pushed, and gets it before what a later call pushes on another node.
    pub(crate) async fn push_stored(&self) {
        let _ = tokio::time::timeout(PUSH_STORED_TIMEOUT, self.shared_push.when_stored()).await; // an outage delays no answer
    }

    /// A signal on the bus. In a cluster every node gets it, and the queue of the session takes it once.
    pub(crate) fn signalled(self: &Arc<Self>, id: &BroadcastId, signal: &Signal) {
        if !self.has_shared_push() {
            if let Some(message) = self.signal_message(signal) {
                self.offer(message);
            }
            return;
        }
        if self.push.streams().is_empty() {
            return; // the GET that is opened next reads the log of broadcasts
        }
        let message = self.signal_message(signal);
        let message = message.map(|(draft, collapse)| push_message(draft, &collapse));
        let is_due = self.shared_push.lock().broadcast_is_due(message.is_some());
        if is_due {
            self.command(Command::Broadcast(id.clone(), message.into_iter().collect()));
        }
    }

    /// Signals on the bus were lost. In a cluster the log of broadcasts has them.
    pub(crate) fn signals_lost(self: &Arc<Self>) {
        if !self.has_shared_push() {
            return self.offer_refresh();
        }
        if !self.push.streams().is_empty() {
            self.command(Command::CatchUp);
        }
    }

    /// The store may have lost its last writes: the entry of this view, without which there are no wake-ups, and its GETs.
    pub(crate) fn restore_view(self: &Arc<Self>) {
        if self.has_shared_push() {
            self.command(Command::Restore);
        }
    }

    /// GETs of dead nodes take no messages. The next newest GET does.
    pub(crate) async fn remove_dead_listeners(self: &Arc<Self>, died: &[Incarnation]) {
        let Some(cluster) = self.node.cluster().filter(|_| !self.push.streams().is_empty()) else {
            return;
        };
        for node in died {
            let removed = cluster.remove_listeners(&self.key, node).await;
            self.store_answered(&removed);
        }
        self.push_waits();
    }

    /// A GET is opened.
    pub(super) fn listen_shared(self: &Arc<Self>, stream: &Arc<Stream>) {
        self.command(Command::Listen(Arc::clone(stream)));
    }

    /// A GET is closed.
    pub(super) fn unlisten_shared(self: &Arc<Self>, stream: &Stream) {
        self.command(Command::Unlisten(stream.key.clone()));
    }

    /// Messages may wait for a GET of this node.
    pub(crate) fn push_waits(self: &Arc<Self>) {
        if !self.push.streams().is_empty() {
            self.command(Command::Bind);
        }
    }

    /// A GET of this node has taken everything. Continues with messages that it had no room for.
    pub(super) fn bind_again(self: &Arc<Self>) {
        let was_waiting = self.shared_push.lock().waiting.take().is_some();
        if was_waiting {
            self.command(Command::Bind);
        }
    }

    /// The store has failed to append to GETs. Finds out whether it works again.
    pub(super) fn retry_unlogged_gets(self: &Arc<Self>) {
        for stream in self.push.streams() {
            if stream.is_unlogged() && stream.has_reader() {
                self.listen_shared(&stream);
            }
        }
    }

    /// Passes the turn to another GET if the one of this node has not taken its messages for `stall_timeout` (SSE-14).
    pub(super) fn demote_stalled(self: &Arc<Self>, now: Mono, stall_timeout: Duration) {
        let is_stalled = {
            let mut state = self.shared_push.lock();
            let is_stalled = state.waiting.is_some_and(|since| now.since(since) >= stall_timeout);
            if is_stalled {
                state.waiting = Some(now);
            }
            is_stalled
        };
        if is_stalled && let Some(stream) = self.push.streams().pop() {
            self.command(Command::Demote(stream.key.clone()));
        }
    }

    fn command(self: &Arc<Self>, command: Command) {
        self.shared_push.lock().add(command);
        self.run_push_commands();
    }

    fn run_push_commands(self: &Arc<Self>) {
        let was_running = std::mem::replace(&mut self.shared_push.lock().is_running, true);
        if !was_running {
            tokio::spawn(Arc::clone(self).push_task());
        }
    }

    async fn push_task(self: Arc<Self>) {
        while let Some(work) = self.shared_push.next() {
            let Some(cluster) = self.node.cluster() else { return };
            if self.has_ended() && !matches!(work, Work::Other(Command::Unlisten(_))) {
                continue;
            }
            match work {
                Work::Enqueue(messages) => self.enqueue_in_parts(cluster, messages).await,
                Work::Other(command) => self.run_until_stored(cluster, &command).await,
            }
        }
    }

    /// Runs a command. The store must know which GETs are open, so those commands are repeated after an outage.
    async fn run_until_stored(self: &Arc<Self>, cluster: &dyn ClusterStore, command: &Command) {
        for _ in 0..MAX_ATTEMPTS {
            let result = self.run_push_command(cluster, command).await;
            match &result {
                Err(error) if error.is_outage() && self.is_due(command) => {
                    self.node.metrics.events.queue_not_stored(error);
                }
                _ => return self.store_answered(&result),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Whether the command is still needed after an outage.
    fn is_due(&self, command: &Command) -> bool {
        match command {
            Command::Listen(stream) => stream.has_reader() && !self.has_ended(),
            Command::Restore => !self.has_ended(),
            Command::Unlisten(_) => self.node.membership.holds(), // other nodes remove the GETs of a dead one
            _ => false,
        }
    }

    /// A message is not lost because the store cannot be reached now. The messages behind it wait, bounded.
    /// Returns the number of messages that an open GET has not taken.
    async fn enqueue_until_stored(&self, cluster: &dyn ClusterStore, messages: Vec<PushMessage>) -> usize {
        loop {
            match cluster
                .enqueue(&self.key, messages.clone(), self.push_queue_limits())
                .await
            {
                Ok(enqueued) => {
                    self.node.metrics.events.push_dropped(enqueued.dropped);
                    return enqueued.waiting;
                }
                Err(error) if error.is_outage() && !self.has_ended() => {
                    self.node.metrics.events.queue_not_stored(&error);
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => {
                    self.store_answered(&Err::<(), _>(error));
                    return 0;
                }
            }
        }
    }

    /// Adds messages as fast as an open GET takes them, so that the queue does not drop them. A GET that takes none does not
    /// hold them up for long.
    async fn enqueue_in_parts(&self, cluster: &dyn ClusterStore, messages: Vec<PushMessage>) {
        let most = self.push_queue_limits().messages;
        let deadline = Instant::now() + ROOM_TIMEOUT;
        for part in messages.chunks((most / 4).max(1)) {
            let mut waiting = self.enqueue_until_stored(cluster, part.to_vec()).await;
            while waiting > most / 2 && Instant::now() < deadline && !self.has_ended() {
                self.bind(cluster).await; // the GET may be here
                tokio::time::sleep(ROOM_PAUSE).await;
                waiting = self.enqueue_until_stored(cluster, Vec::new()).await;
            }
        }
    }

    async fn run_push_command(
        self: &Arc<Self>,
        cluster: &dyn ClusterStore,
        command: &Command,
    ) -> Result<(), StoreError> {
        match command {
            Command::Enqueue(_) => {} // `State::next` makes work of them
            Command::Broadcast(id, messages) => {
                let has_messages = !messages.is_empty();
                let messages = messages.iter().map(|message| (id.clone(), message.clone())).collect();
                self.enqueue_broadcasts(cluster, id, messages).await?;
                if has_messages {
                    self.bind(cluster).await;
                }
            }
            Command::Listen(stream) => {
                if stream.has_reader() {
                    let last = cluster.listen(&stream.key, self.max_gets()).await?;
                    if stream.is_unlogged() {
                        // It takes no more messages of the queue. Its client resumes it, now that the store works.
                        stream.close_reader(self.close());
                        return Ok(());
                    }
                    self.catch_up_broadcasts(cluster, &last).await?;
                    self.bind(cluster).await;
                }
            }
            Command::CatchUp => {
                let last = cluster.broadcasts_applied(&self.key).await?;
                self.catch_up_broadcasts(cluster, &last).await?;
                self.bind(cluster).await;
            }
            Command::Restore => {
                let gets = self.open_gets();
                let last = cluster
                    .restore_view(&self.key, self.epoch, gets, self.max_gets())
                    .await?;
                if !self.push.streams().is_empty() {
                    self.catch_up_broadcasts(cluster, &last).await?;
                    self.bind(cluster).await;
                }
            }
            Command::Unlisten(stream) => cluster.unlisten(stream).await?,
            Command::Demote(stream) => cluster.demote(stream).await?,
            Command::Bind => self.bind(cluster).await,
        }
        Ok(())
    }

    /// The open GETs, which the store gets, oldest first.
    fn open_gets(self: &Arc<Self>) -> Vec<Ordinal> {
        let streams = self.push.streams();
        let ordinals = streams.iter().map(|stream| stream.key.ordinal);
        self.shared_push.lock().begin_listening(ordinals);
        // After that, a GET that is closed notifies the store. A GET that was closed before has not.
        let (open, closed): (Vec<_>, Vec<_>) = streams.iter().partition(|stream| stream.has_reader());
        for stream in closed {
            self.unlisten_shared(stream);
        }
        open.iter().map(|stream| stream.key.ordinal).collect()
    }

    /// Moves waiting messages to the GETs of this node. The store moves them only to the newest GET of the session.
    async fn bind(&self, cluster: &dyn ClusterStore) {
        if !self.push.has_begun() {
            return;
        }
        let mut is_waiting = false;
        for stream in self.push.streams().iter().rev() {
            loop {
                match stream.bind_shared(cluster, MAX_BOUND_MESSAGES).await {
                    BindProgress::More => {}
                    BindProgress::Done => break,
                    BindProgress::Busy => {
                        is_waiting = true;
                        break;
                    }
                }
            }
        }
        if is_waiting {
            let now = self.node.clock.now();
            self.shared_push.lock().waiting.get_or_insert(now);
        }
    }

    /// Adds what was broadcast while the session had no GET.
    async fn catch_up_broadcasts(&self, cluster: &dyn ClusterStore, last: &BroadcastId) -> Result<(), StoreError> {
        let Some(missed) = cluster.broadcasts_after(last).await? else {
            return self.enqueue_refresh(cluster).await;
        };
        let Some((newest, _)) = missed.last() else {
            return Ok(());
        };
        // Another node may add some of them at the same time. The store adds each message once, by the id of its broadcast.
        let messages = missed.iter().filter_map(|(id, signal)| {
            let (draft, collapse) = self.signal_message(signal)?;
            Some((id.clone(), push_message(draft, &collapse)))
        });
        self.enqueue_broadcasts(cluster, newest, messages.collect()).await
    }

    /// Broadcasts are gone from the log: everything may have changed.
    async fn enqueue_refresh(&self, cluster: &dyn ClusterStore) -> Result<(), StoreError> {
        let newest = cluster.last_broadcast().await?;
        let messages = self.refresh_drafts().into_iter();
        let messages = messages.map(|(draft, collapse)| (newest.clone(), push_message(draft, &collapse)));
        self.enqueue_broadcasts(cluster, &newest, messages.collect()).await
    }

    async fn enqueue_broadcasts(
        &self,
        cluster: &dyn ClusterStore,
        newest: &BroadcastId,
        messages: Vec<(BroadcastId, PushMessage)>,
    ) -> Result<(), StoreError> {
        let limits = self.push_queue_limits();
        let dropped = cluster.enqueue_broadcast(&self.key, newest, messages, limits).await?;
        self.node.metrics.events.push_dropped(dropped);
        Ok(())
    }

    fn push_queue_limits(&self) -> PushQueueLimits {
        PushQueueLimits {
            messages: self.node.limits.waiting_messages_per_session(),
            bytes: self.node.limits.waiting_bytes_per_session(),
        }
    }
}

fn push_message(draft: Draft, collapse: &Collapse) -> PushMessage {
    PushMessage {
        payload: draft.into_payload(),
        collapse: collapse.key(),
    }
}
