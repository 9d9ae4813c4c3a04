//! The commands of a session's push in a cluster, in order.

use crate::stream::Stream;
use parking_lot::{Mutex, MutexGuard};
use rethread_proto::Ordinal;
use rethread_proto::clock::Mono;
use rethread_store::{BroadcastId, PushMessage, PushQueueLimits, StreamKey};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// Broadcasts without a message for a session, after which the store learns that the session has seen them. It is a tenth of the
/// broadcasts that the store keeps: a session with an older position is notified that everything may have changed.
const MAX_SKIPPED_BROADCASTS: u32 = 1_000;

/// Broadcasts that wait for a store that does not answer. Beyond: one command reads all of them from the log of broadcasts.
const MAX_WAITING_BROADCASTS: usize = 64;

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
    commands: VecDeque<Command>,
    /// Messages among the commands, and their bytes. Bounded as the queue in the store is.
    messages: usize,
    bytes: usize,
    pub(super) is_running: bool,
    /// GETs that the store may know from the commands up to now.
    listening: HashSet<Ordinal>,
    /// Messages are on their way to the store, and no longer among the commands.
    is_enqueuing: bool,
    /// Since when messages wait in the store that a stream of this node could not take yet.
    pub(super) waiting: Option<Mono>,
    /// Broadcasts without a message for this session since the last command.
    skipped_broadcasts: u32,
}

pub(super) enum Command {
    /// Add a message to the queue.
    Enqueue(PushMessage),
    /// Add what a broadcast means for this session.
    Broadcast(BroadcastId, Vec<PushMessage>),
    /// A GET is opened.
    Listen(Arc<Stream>),
    /// Broadcasts may have been missed.
    CatchUp,
    /// The store may have lost the view and its GETs, and broadcasts may have been missed.
    Restore,
    /// A GET is closed.
    Unlisten(StreamKey),
    /// A GET does not take its messages.
    Demote(StreamKey),
    /// Messages may wait for a GET of this node.
    Bind,
}

impl State {
    /// Whether a broadcast must be written to the store. A session that it does not concern causes no write.
    pub(super) fn broadcast_is_due(&mut self, has_message: bool) -> bool {
        self.skipped_broadcasts += 1;
        let is_due = has_message || self.skipped_broadcasts == MAX_SKIPPED_BROADCASTS;
        if is_due {
            self.skipped_broadcasts = 0;
        }
        is_due
    }

    /// Adds a command, unless one that waits has the same effect: while the store does not answer, only GETs that are opened add
    /// commands.
    pub(super) fn add(&mut self, command: Command) {
        let is_broadcast = |command: &&Command| matches!(command, Command::Broadcast(..));
        let command = match command {
            Command::Broadcast(..) if self.commands.iter().filter(is_broadcast).count() >= MAX_WAITING_BROADCASTS => {
                Command::CatchUp
            }
            command => command,
        };
        if let Command::Unlisten(key) = &command {
            // The GET ends before the store learns of it.
            self.commands
                .retain(|other| !matches!(other, Command::Listen(stream) if stream.key == *key));
            if !self.listening.contains(&key.ordinal) {
                return; // the store does not know it: GETs that come and go during an outage leave nothing
            }
        }
        if let Command::Listen(stream) = &command {
            // The GET becomes the newest one now.
            self.commands
                .retain(|other| !matches!(other, Command::Listen(older) if older.key == stream.key));
        }
        let is_same = |other: &Command| match (&command, other) {
            (Command::Bind, Command::Bind)
            | (Command::CatchUp, Command::CatchUp)
            | (Command::Restore, Command::Restore) => true,
            (Command::Unlisten(key), Command::Unlisten(other)) => key == other,
            (Command::Demote(key), Command::Demote(other)) => key == other,
            _ => false,
        };
        if !self.commands.iter().any(is_same) {
            self.commands.push_back(command);
        }
    }

    /// The store will learn of these GETs.
    pub(super) fn begin_listening(&mut self, gets: impl IntoIterator<Item = Ordinal>) {
        self.listening.extend(gets);
    }

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
        match &command {
            Some(Command::Listen(stream)) => drop(self.listening.insert(stream.key.ordinal)),
            Some(Command::Unlisten(key)) => drop(self.listening.remove(&key.ordinal)),
            _ => {}
        }
        self.is_running = command.is_some();
        command.map(Work::Other)
    }
}

pub(super) enum Work {
    Enqueue(Vec<PushMessage>),
    Other(Command),
}

#[cfg(test)]
mod tests {
    use super::*;
    use rethread_proto::{Principal, SessionId};
    use rethread_store::SessionKey;

    #[test]
    fn d6_store_learns_of_every_message_and_of_every_thousandth_other_broadcast() {
        let mut state = State::default();
        assert!(state.broadcast_is_due(true));
        let due = (1..=2_500).filter(|_| state.broadcast_is_due(false)).count();
        assert_eq!(due, 2);
        assert!(state.broadcast_is_due(true));
        let due: Vec<_> = (1..=1_500).filter(|_| state.broadcast_is_due(false)).collect();
        assert_eq!(due, [1_000], "the count starts again after a message");
    }

    /// D13: while the store does not answer, the commands of a session do not accumulate.
    #[test]
    fn d13_waiting_commands_are_bounded() {
        let mut state = State::default();
        for number in 0..10 * MAX_WAITING_BROADCASTS {
            state.add(Command::Broadcast(
                BroadcastId(format!("{number}-0").into()),
                Vec::new(),
            ));
            state.add(Command::Bind);
        }
        let count = |fits: fn(&Command) -> bool| state.commands.iter().filter(|command| fits(command)).count();
        assert_eq!(
            count(|command| matches!(command, Command::Broadcast(..))),
            MAX_WAITING_BROADCASTS
        );
        assert_eq!(
            count(|command| matches!(command, Command::CatchUp)),
            1,
            "it reads the others"
        );
        assert_eq!(count(|command| matches!(command, Command::Bind)), 1);
        assert_eq!(state.commands.len(), MAX_WAITING_BROADCASTS + 2);
    }

    /// D13: the store did not learn of these GETs, so it need not learn of their end.
    #[test]
    fn d13_gets_that_come_and_go_during_an_outage_leave_no_commands() {
        let mut state = State::default();
        let unlisten = |ordinal| {
            Command::Unlisten(StreamKey {
                session: SessionKey {
                    principal: Principal::anonymous(),
                    session: SessionId::parse("one-session").expect("a session id"),
                },
                ordinal: Ordinal(ordinal),
            })
        };
        state.begin_listening([Ordinal(2)]);
        for ordinal in 1..=1_000 {
            state.add(unlisten(2 * ordinal));
        }
        assert_eq!(state.commands.len(), 1);
        assert!(matches!(state.next(), Some(Work::Other(Command::Unlisten(_)))));
        state.add(unlisten(2));
        assert!(state.commands.is_empty(), "the store has been told");
    }
}
