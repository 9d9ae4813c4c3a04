//! A stream and its one writer.
//!
//! Messages are numbered under the stream's lock, then appended to the store by whoever finds nobody else appending, and
//! only then handed to the reader: an id on the wire is already stored. Appending is not done under a lock that the
//! speaker holds, because a handler may be dropped in the middle of it. A store that answers at once is served inline;
//! one that does not gets a task, which lives only while there is something to append.
//!
//! Nothing outside is called under the stream's lock: a change of its state returns [`Effects`], which are performed when
//! every lock is released.

mod effects;
mod queue;
mod reader;
mod state;
mod window;

pub(crate) use effects::Effects;

use crate::node::Node;
use crate::session::{Session, Transport};
use bytes::Bytes;
use effects::{Append, Sent};
use parking_lot::Mutex;
use queue::{Queue, Stretch};
use rethread_proto::event_id::{IdPrefix, IdScope, Seq};
use rethread_proto::sse::EncodeMessage;
use rethread_proto::stream::Numbering;
use rethread_proto::{Ordinal, StreamKind, Version};
use rethread_store::{Batch, QueuePosition, Retain, StoreError, StreamInfo, StreamKey, StreamStatus};
use state::{Seal, State};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use window::Window;

/// A buffer that is larger is not kept between appends.
const SPARE: usize = 64;

/// A numbered sequence of events that outlives its connections.
pub(crate) struct Stream {
    pub(crate) key: StreamKey,
    pub(crate) version: Version,
    pub(crate) prefix: IdPrefix,
    transport: Transport,
    pub(crate) node: Arc<Node>,
    info: StreamInfo,
    epoch: u64,
    session: Weak<Session>,
    state: Mutex<State>,
    room: Notify,
    /// How long calls beside this one were delayed by its reader since it was last up to date, in milliseconds.
    delay_caused: AtomicU64,
}

/// How a connection ends while its stream lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Close {
    /// The delay to ask the client for, in milliseconds.
    pub(crate) retry: u64,
}

/// The stream takes no more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over;

/// What a live reader finds.
pub(crate) enum Taken {
    /// Frames, and the cursor after them.
    Frames(Bytes, Seq),
    /// More than the window holds: read the store.
    Behind,
    /// Asked to close while the stream lives on.
    Close(Close),
    /// Another connection reads now, or the stream has ended.
    End,
    /// Nothing yet; the waker is kept.
    Nothing,
}

impl Stream {
    /// A new stream of `session`. Nobody can read it before the first [`flush`](Self::flush), and until then what is said
    /// waits, a priming event first if the revision has them.
    pub(crate) fn open(session: &Arc<Session>, ordinal: Ordinal, info: StreamInfo) -> Arc<Self> {
        let primed = session.version().sends_priming_event();
        let stream = Self::build(session, ordinal, info, Numbering::new(primed), false);
        let mut state = stream.state.lock();
        state.held = true;
        if primed {
            let seq = state.numbering.take();
            let retry = stream.node.timing.retry.as_millis() as u64;
            state.queue.push_priming(&stream.prefix, seq, retry);
        }
        drop(state);
        stream
    }

    /// A stream that is never stored: what is said reaches the connection that reads it now, without ids (LEG-02).
    pub(crate) fn live(session: &Arc<Session>, ordinal: Ordinal, info: StreamInfo) -> Arc<Self> {
        let stream = Self::build(session, ordinal, info, Numbering::new(false), false);
        stream.state.lock().lost = true;
        stream
    }

    /// A stream that the store knows and no connection has: what a resume reads, and a push stream goes on from.
    pub(crate) fn adopt(session: &Arc<Session>, ordinal: Ordinal, status: StreamStatus) -> Arc<Self> {
        let last = status.last.unwrap_or_default();
        let stream = Self::build(session, ordinal, status.info, Numbering::after(last), true);
        let mut state = stream.state.lock();
        state.appended = status.last;
        if status.sealed {
            state.seal = Seal::Done;
            state.over = true;
        }
        drop(state);
        stream
    }

    fn build(
        session: &Arc<Session>,
        ordinal: Ordinal,
        info: StreamInfo,
        numbering: Numbering,
        created: bool,
    ) -> Arc<Self> {
        let node = Arc::clone(&session.node);
        let prefix = node.ids.prefix(&IdScope {
            session: &session.key.session,
            ordinal,
            node: &info.node,
            calls: &info.calls,
        });
        Arc::new(Stream {
            key: StreamKey {
                session: session.key.clone(),
                ordinal,
            },
            version: session.version(),
            prefix,
            transport: session.transport,
            node,
            info,
            epoch: session.epoch,
            session: Arc::downgrade(session),
            state: Mutex::new(State {
                numbering,
                queue: Queue::default(),
                held: false,
                spare: Vec::new(),
                released: Vec::new(),
                release_due: false,
                taken: None,
                seal: Seal::Open,
                draining: false,
                created,
                lost: false,
                in_doubt: None,
                over: false,
                appended: None,
                appended_bytes: 0,
                reader: None,
                window: Window::default(),
            }),
            room: Notify::new(),
            delay_caused: AtomicU64::new(0),
        })
    }

    /// What is known of the stream whatever happens to its events.
    pub(crate) fn info(&self) -> &StreamInfo {
        &self.info
    }

    /// Appends a message; `seals` if the stream ends with it.
    pub(crate) fn say(self: &Arc<Self>, words: impl EncodeMessage, retain: Retain, seals: bool) -> Result<Seq, Over> {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        if !state.is_open() {
            return Err(Over);
        }
        let seq = self.accept(&mut state, words, retain, false, &mut effects);
        if seals && state.lost {
            state.finish(&mut effects);
        } else if seals {
            state.seal = Seal::Asked;
        }
        effects.append = self.next_append(&mut state);
        drop(state);
        self.perform(effects);
        Ok(seq)
    }

    /// Binds messages of the push queue to this stream, about a batch at most: `next` gives each message, its position in the
    /// stored queue, and whether another one waits. Binds none while an append is in flight: a slow store makes messages wait
    /// in the queue, where they are bounded. The caller performs the effects when it has released its own locks. Fails, and
    /// asks for no message, if the stream is over.
    pub(crate) fn bind<M: EncodeMessage>(
        &self,
        mut next: impl FnMut() -> Option<(M, Option<QueuePosition>, bool)>,
    ) -> Result<(usize, Effects), Over> {
        let (mut bound, mut effects) = (0, Effects::default());
        let mut state = self.state.lock();
        if !state.is_open() {
            return Err(Over);
        }
        if state.is_busy() {
            return Ok((0, effects));
        }
        while (bound == 0 || !state.queue.is_full())
            && let Some((message, stored, more)) = next()
        {
            self.accept(&mut state, message, Retain::None, more, &mut effects);
            if state.lost {
                effects.settled = stored.map(|position| (position, false)).or(effects.settled);
            } else {
                state.taken = stored.or(state.taken);
            }
            bound += 1;
        }
        effects.append = self.next_append(&mut state);
        Ok((bound, effects))
    }

    /// Numbers a message and queues it; `joined` if another one follows at once. Without a store it goes to the live reader.
    fn accept(
        &self,
        state: &mut State,
        words: impl EncodeMessage,
        retain: Retain,
        joined: bool,
        effects: &mut Effects,
    ) -> Seq {
        let seq = state.numbering.take();
        if state.lost {
            let draft = words.draft();
            let frame = match self.transport {
                Transport::HttpSse => draft.named("message"),
                Transport::Lines => draft.line(),
                Transport::Streamable => draft.unnumbered(),
            };
            self.offer(state, Stretch::one(seq, frame));
            state.wake(effects);
        } else {
            let waits = joined || state.held || state.draining;
            state.queue.push(&self.prefix, seq, words, retain, waits);
        }
        seq
    }

    /// Ends the stream without a message.
    pub(crate) fn seal(self: &Arc<Self>) {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        if !state.is_open() {
            return;
        }
        if !state.lost && (state.created || !state.queue.is_empty()) {
            state.seal = Seal::Asked;
            effects.append = self.next_append(&mut state);
        } else {
            state.finish(&mut effects); // there is nothing to seal in the store
        }
        drop(state);
        self.perform(effects);
    }

    /// Appends what is queued, and from now on everything at once: somebody can read.
    pub(crate) fn flush(self: &Arc<Self>) {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        state.held = false;
        effects.append = self.next_append(&mut state);
        drop(state);
        self.perform(effects);
    }

    /// A question of this stream was settled: it need not be kept any longer. The store learns it at once, also if nothing
    /// follows: a call may be silent for a long time, and the bounds of its stream hold meanwhile (design D4).
    pub(crate) fn release(self: &Arc<Self>, question: Seq) {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        if state.over || state.lost {
            return;
        }
        state.released.push(question);
        state.release_due = true;
        effects.append = self.next_append(&mut state);
        drop(state);
        self.perform(effects);
    }

    /// Stops the stream: its session has ended. The reader gets EOF, nothing more is stored.
    pub(crate) fn stop(&self) {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        state.queue.clear();
        state.finish(&mut effects);
        drop(state);
        self.notify(effects);
    }

    /// The store takes appends again, and `last` is the last event it has of this stream: numbers go on from there. The
    /// reader of the outage ends, because it counts differently. False if more than `unlogged` went out without ids since.
    pub(crate) fn recover(&self, unlogged: Option<Seq>, last: Option<Seq>) -> bool {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        if state.over || !state.lost || state.unlogged() != unlogged {
            return false;
        }
        state.lost = false;
        state.numbering = Numbering::after(last.unwrap_or_default());
        state.appended = last;
        state.wake(&mut effects);
        state.detach(&mut effects);
        drop(state);
        self.notify(effects);
        true
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.state.is_locked()
    }

    /// What is to be appended now: everything that is queued, as one batch. It is in flight from here on. `None` if there is
    /// nothing to append yet, or another append is in flight.
    fn next_append(&self, state: &mut State) -> Option<Append> {
        let seals = state.seal == Seal::Asked;
        let waits = state.held && !state.queue.is_full();
        let idle = state.queue.is_empty() && !state.release_due;
        if state.draining || state.over || state.lost || (!seals && (waits || idle)) {
            return None;
        }
        state.draining = true;
        state.release_due = false;
        let mut stretches = std::mem::take(&mut state.spare);
        let batch = Batch {
            epoch: self.epoch,
            info: (!state.created).then(|| self.info.clone()),
            events: state.queue.take(&mut stretches),
            released: std::mem::take(&mut state.released),
            seals,
            taken: state.taken.take(),
        };
        let released = if batch.events.is_empty() {
            batch.released.clone()
        } else {
            Vec::new()
        };
        let sent = Sent {
            stretches,
            released,
            seals,
            taken: batch.taken,
        };
        Some(Append { batch, sent })
    }

    /// Takes note of what the store said, and hands what is stored to the reader.
    fn settle(&self, mut sent: Sent, result: Result<(), StoreError>) -> Effects {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        state.draining = false;
        let taken = if result.is_ok() {
            sent.taken
        } else {
            state.taken.take().or(sent.taken)
        };
        effects.settled = taken.map(|position| (position, result.is_ok()));
        if state.over {
            return effects;
        }
        match result {
            Ok(()) => {
                state.created = true;
                for stretch in sent.stretches.drain(..) {
                    effects.stored += stretch.events();
                    state.appended = Some(stretch.last);
                    state.appended_bytes += stretch.payload as u64;
                    self.offer(&mut state, stretch);
                }
                if self.info.kind == StreamKind::Push {
                    // It is mostly idle, and may be one of many.
                    if state.queue.is_empty() {
                        state.queue.clear();
                    }
                } else if sent.stretches.capacity() <= SPARE {
                    state.spare = sent.stretches;
                }
                effects.room = true;
            }
            Err(error) if error.is_outage() && sent.stretches.is_empty() && !sent.seals => {
                // It was a release, and no message is missing: it goes with the next append.
                state.released.append(&mut sent.released);
            }
            Err(error) if error.is_outage() => {
                // STO-02: from here on, what is said reaches the live connection or nobody, and has no ids: also what was said
                // while the store was asked.
                effects.failure = Some(error);
                effects.room = true;
                state.lost = true;
                state.released = Vec::new();
                state.in_doubt = sent.stretches.last().map(|stretch| stretch.last);
                state.queue.take(&mut sent.stretches);
                for stretch in sent.stretches.iter().filter_map(Stretch::unnumbered) {
                    self.offer(&mut state, stretch);
                }
                sent.seals |= state.seal == Seal::Asked;
            }
            Err(error) => {
                effects.failure = Some(error);
                state.queue.clear();
                sent.seals = true;
            }
        }
        if sent.seals {
            state.finish(&mut effects);
        } else {
            state.wake(&mut effects);
        }
        effects.append = self.next_append(&mut state);
        effects
    }

    fn offer(&self, state: &mut State, stretch: Stretch) {
        let lost = state.lost;
        let Some(reader) = &mut state.reader else { return };
        // The store may have shown it to the reader before it told us that it has it. A priming event says nothing, and has
        // the number that a cursor starts from.
        let begun = reader.taken > Seq::PRIMING;
        if stretch.last <= reader.taken && stretch.last > Seq::PRIMING {
            return;
        }
        if !reader.live {
            if lost {
                // It will not find this in the store. It ends behind what is there, and its next resume is told.
                reader.close = Some(Close { retry: 0 });
            }
            return;
        }
        let half_seen = begun && stretch.first <= reader.taken;
        if half_seen || !state.window.fits(&stretch, &self.node.limits) {
            reader.live = false;
            if lost {
                reader.close = Some(Close { retry: 0 }); // there is no store to catch up from
            }
            state.window.clear();
            return;
        }
        state.window.push(stretch);
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("ordinal", &self.key.ordinal)
            .finish_non_exhaustive()
    }
}
