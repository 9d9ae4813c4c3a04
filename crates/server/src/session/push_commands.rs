//! The commands of a session's push in a cluster, in order.

use crate::stream::Stream;
use parking_lot::{Mutex, MutexGuard};
use rethread_proto::clock::Mono;
use rethread_store::{BroadcastId, PushMessage, PushQueueLimits, StreamKey};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;

/// The push of one session in a cluster.
#[derive(Default)]
pub(super) struct SharedPush {
    state: Mutex<State>,
    /// Notified when messages have been stored.
    stored: Notify,
}

impl SharedPush {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The next command. The one before it is done.
    pub(super) fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        let was_enqueuing = std::mem::take(&mut state.is_enqueuing);
        let next = state.next();
        drop(state);
        if was_enqueuing {
            self.stored.notify_waiters();
        }
        next
    }

    /// Whether messages are on their way to the store.
    pub(super) fn has_unstored(&self) -> bool {
        let state = self.lock();
        state.is_enqueuing || state.messages > 0
    }

    /// Waits until the store has all messages.
    pub(super) async fn when_stored(&self) {
        loop {
            let stored = self.stored.notified();
            if !self.has_unstored() {
                return;
            }
            stored.await;
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) commands: VecDeque<Command>,
    /// Messages among the commands, and their bytes. Bounded as the queue in the store is.
    messages: usize,
    bytes: usize,
    pub(super) is_running: bool,
    /// Messages are on their way to the store, and no longer among the commands.
    is_enqueuing: bool,
    /// Since when messages wait in the store that a stream of this node could not take yet.
    pub(super) waiting: Option<Mono>,
}

pub(super) enum Command {
    /// Add a message to the queue.
    Enqueue(PushMessage),
    /// Add what a broadcast means for this session.
    Broadcast(BroadcastId, Vec<PushMessage>),
    /// A GET is opened.
    Listen(Arc<Stream>),
    /// Broadcasts may have been missed by a session with this GET.
    CatchUp(StreamKey),
    /// A GET is closed.
    Unlisten(StreamKey),
    /// A GET does not take its messages.
    Demote(StreamKey),
    /// Messages may wait for a GET of this node.
    Bind,
}

impl State {
    /// Adds a message. Returns the number of older ones that were dropped.
    pub(super) fn push_message(&mut self, message: PushMessage, limits: PushQueueLimits) -> usize {
        self.messages += 1;
        self.bytes += message.payload.len();
        self.commands.push_back(Command::Enqueue(message));
        let mut dropped = 0;
        while (self.messages > limits.messages || self.bytes > limits.bytes) && self.messages > 1 {
            let oldest = self
                .commands
                .iter()
                .position(|command| matches!(command, Command::Enqueue(_)));
            let Some(Command::Enqueue(message)) = oldest.and_then(|at| self.commands.remove(at)) else {
                break;
            };
            self.forget(&message);
            dropped += 1;
        }
        dropped
    }

    fn forget(&mut self, message: &PushMessage) {
        self.messages -= 1;
        self.bytes -= message.payload.len();
    }

    /// The next command. Messages that follow each other are one command.
    fn next(&mut self) -> Option<Work> {
        let mut messages = Vec::new();
        while let Some(Command::Enqueue(_)) = self.commands.front()
            && let Some(Command::Enqueue(message)) = self.commands.pop_front()
        {
            self.forget(&message);
            messages.push(message);
        }
        if !messages.is_empty() {
            self.is_enqueuing = true;
            return Some(Work::Enqueue(messages));
        }
        let command = self.commands.pop_front();
        self.is_running = command.is_some();
        command.map(Work::Other)
    }
}

pub(super) enum Work {
    Enqueue(Vec<PushMessage>),
    Other(Command),
}
