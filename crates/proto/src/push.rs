//! Messages for a session that belong to no call, and the GET that takes them (D6).
//!
//! A message is bound late: it waits here, without a stream or a number, until a live connection takes it. Then it
//! belongs to that connection's stream for ever. Without an open GET messages wait. With three, each message is taken
//! once. A message is never moved from one stream to another (GET-03).
//!
//! If the session is stored, so is the queue ([`StoredQueue`]). The queue here is authoritative while the process
//! lives, and the copy in the store follows: [`Push::next_update`] returns the next update. A taken message leaves the
//! copy with the append that adds it to its stream, in one atomic step. After a crash it is thus in one of them.

mod copy;
#[cfg(test)]
mod model;
mod stored;

pub use stored::{QueuePosition, QueueUpdate, Queued, StoredQueue, message_cost};

use crate::clock::Mono;
use bytes::Bytes;
use copy::StoreCopy;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

/// Limits of the waiting messages.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PushLimits {
    /// Number of messages. Beyond this, the oldest is dropped.
    pub messages: usize,
    /// Bytes in total. Beyond this, the oldest message is dropped.
    pub bytes: usize,
}

impl PushLimits {
    /// A number of messages and of bytes.
    pub const fn new(messages: usize, bytes: usize) -> Self {
        PushLimits { messages, bytes }
    }
}

/// Which waiting messages are equivalent, so that one of them suffices (GET-04).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collapse {
    /// No other message is equivalent.
    Never,
    /// A list changed: messages with the same method are equivalent.
    List(Cow<'static, str>),
    /// A resource changed: messages with the same URI are equivalent.
    Resource(Box<str>),
}

impl Collapse {
    /// The key in a store. Equal keys mean equivalent messages.
    pub fn key(&self) -> Option<Box<str>> {
        match self {
            Collapse::Never => None,
            Collapse::List(method) => Some(format!("list:{method}").into()),
            Collapse::Resource(uri) => Some(format!("resource:{uri}").into()),
        }
    }

    /// Parses a [`key`](Self::key).
    pub fn from_key(key: Option<&str>) -> Self {
        match key.and_then(|key| key.split_once(':')) {
            Some(("list", method)) => Collapse::List(Cow::Owned(method.to_owned())),
            Some(("resource", uri)) => Collapse::Resource(uri.into()),
            _ => Collapse::Never,
        }
    }
}

/// How long a message is useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as the session.
    Session,
    /// As long as the process, because an answer to a question of an earlier process has no receiver.
    Process,
}

#[derive(Debug)]
struct Waiting {
    position: QueuePosition,
    message: Bytes,
    collapse: Collapse,
    lifetime: Lifetime,
    since: Mono,
}

/// A taken message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakenMessage {
    /// The JSON-RPC message, on one line.
    pub message: Bytes,
    /// Set if the store may have the message. Its append then removes everything up to here from the stored queue, and
    /// the caller reports the outcome to [`Push::bound`].
    pub stored: Option<QueuePosition>,
}

/// A connection that can take messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u64);

/// The push queue of one session, and its listeners.
#[derive(Debug)]
pub struct Push {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Oldest first. The last one takes messages.
    listeners: Vec<ListenerId>,
    open: bool,
    limits: PushLimits,
    /// The last position that was assigned.
    last: QueuePosition,
    /// The listener that has taken stored messages whose append is in flight, and the last of these messages. Until it
    /// is settled, no other listener takes any: a later append that ends first would remove these messages from the
    /// stored queue, too.
    binding: Option<(ListenerId, QueuePosition)>,
    /// `None` if the session is not stored, or not yet.
    copy: Option<StoreCopy>,
}

/// The outcome of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OfferOutcome {
    /// The number of the oldest messages that were dropped.
    pub dropped: usize,
    /// The listener to wake, if any.
    pub taker: Option<ListenerId>,
}

impl Push {
    /// An empty queue without listeners. Messages are held until [`Push::begin`].
    pub fn new(limits: PushLimits) -> Self {
        Push {
            waiting: VecDeque::new(),
            bytes: 0,
            listeners: Vec::new(),
            open: false,
            limits,
            last: QueuePosition::default(),
            binding: None,
            copy: None,
        }
    }

    /// Continues with the queue of an earlier process. Returns the number of messages that exceed the limits and were
    /// dropped.
    pub fn restore(&mut self, queue: StoredQueue, now: Mono) -> usize {
        self.copy = Some(StoreCopy::of(&queue));
        self.last = queue.last();
        for Queued {
            position,
            message,
            collapse,
        } in queue.into_messages()
        {
            self.bytes += message.len();
            self.waiting.push_back(Waiting {
                position,
                message,
                collapse: Collapse::from_key(collapse.as_deref()),
                lifetime: Lifetime::Session,
                since: now,
            });
        }
        self.drop_oldest()
    }

    /// The client sent `notifications/initialized`: messages may be sent (SES-08). Returns the listener to wake.
    pub fn begin(&mut self) -> Option<ListenerId> {
        self.open = true;
        self.taker()
    }

    /// Whether messages may be sent.
    pub fn has_begun(&self) -> bool {
        self.open
    }

    /// Offers a message.
    pub fn offer(&mut self, message: Bytes, collapse: Collapse, lifetime: Lifetime, now: Mono) -> OfferOutcome {
        if collapse != Collapse::Never && self.waiting.iter().any(|w| w.collapse == collapse) {
            return OfferOutcome {
                dropped: 0,
                taker: self.taker(),
            };
        }
        self.bytes += message.len();
        self.last = self.last.next();
        self.waiting.push_back(Waiting {
            position: self.last,
            message,
            collapse,
            lifetime,
            since: now,
        });
        OfferOutcome {
            dropped: self.drop_oldest(),
            taker: self.taker(),
        }
    }

    fn drop_oldest(&mut self) -> usize {
        let mut dropped = 0;
        while self.waiting.len() > self.limits.messages || (self.bytes > self.limits.bytes && self.waiting.len() > 1) {
            self.pop();
            dropped += 1;
        }
        dropped
    }

    /// The listener that would take a message at once: there is one, and no older message waits.
    pub fn direct_taker(&self) -> Option<ListenerId> {
        let direct = self.open && self.waiting.is_empty();
        self.listeners.last().copied().filter(|_| direct)
    }

    /// Adds a connection as the newest listener.
    pub fn listen(&mut self, listener: ListenerId) {
        self.leave(listener);
        self.listeners.push(listener);
    }

    /// Removes a connection. Returns the listener to wake instead.
    pub fn leave(&mut self, listener: ListenerId) -> Option<ListenerId> {
        self.listeners.retain(|l| *l != listener);
        self.taker()
    }

    /// The next message for `listener`. Only the newest listener takes messages.
    pub fn take(&mut self, listener: ListenerId) -> Option<TakenMessage> {
        if !self.open || self.listeners.last() != Some(&listener) || !self.may_take(listener) {
            return None;
        }
        let Waiting { position, message, .. } = self.pop()?;
        let stored = self.copy.as_ref().is_some_and(|copy| copy.may_have(position));
        if stored {
            self.binding = Some((listener, position));
        }
        Some(TakenMessage {
            message,
            stored: stored.then_some(position),
        })
    }

    /// If messages wait longer than `limit` although there is a listener, it has stopped reading. It becomes the
    /// oldest, and the returned listener is woken instead.
    pub fn pass_over_stalled(&mut self, now: Mono, limit: Duration) -> Option<ListenerId> {
        let stalled = self.waiting.front().is_some_and(|w| now.since(w.since) > limit);
        if !self.open || !stalled || self.listeners.len() < 2 {
            return None;
        }
        self.listeners.rotate_right(1);
        self.taker()
    }

    /// The number of waiting messages.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn taker(&self) -> Option<ListenerId> {
        let ready = self.open && !self.waiting.is_empty();
        let newest = self.listeners.last().copied().filter(|_| ready);
        newest.filter(|listener| self.may_take(*listener))
    }

    fn may_take(&self, listener: ListenerId) -> bool {
        self.binding.is_none_or(|(binding, _)| binding == listener)
    }

    fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.bytes -= waiting.message.len();
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new(); // an idle session needs no buffer
        }
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Mono = Mono::from_millis(0);

    fn push(messages: usize, bytes: usize) -> Push {
        let mut push = Push::new(PushLimits { messages, bytes });
        push.begin();
        push
    }

    fn message(n: usize) -> Bytes {
        Bytes::from(n.to_string())
    }

    impl Push {
        fn offer_numbered(&mut self, n: usize, collapse: Collapse) -> OfferOutcome {
            self.offer(message(n), collapse, Lifetime::Session, NOW)
        }
    }

    fn drain(push: &mut Push, listener: u64) -> Vec<usize> {
        let text = |taken: TakenMessage| std::str::from_utf8(&taken.message).unwrap().parse().unwrap();
        std::iter::from_fn(|| push.take(ListenerId(listener)).map(text)).collect()
    }

    #[test]
    fn get_04_messages_wait_for_the_next_listener() {
        let mut push = push(8, 800);
        assert_eq!(push.offer_numbered(1, Collapse::Never).taker, None);
        push.listen(ListenerId(1));
        assert_eq!(push.offer_numbered(2, Collapse::Never).taker, Some(ListenerId(1)));
        assert_eq!(drain(&mut push, 1), [1, 2]);
    }

    #[test]
    fn get_03_newest_connection_takes_messages_and_the_next_one_follows() {
        let mut push = push(8, 800);
        for listener in 1..=3 {
            push.listen(ListenerId(listener));
        }
        push.offer_numbered(1, Collapse::Never);
        assert_eq!((drain(&mut push, 1), drain(&mut push, 2)), (vec![], vec![]));
        assert_eq!(drain(&mut push, 3), [1]);
        push.offer_numbered(2, Collapse::Never);
        assert_eq!(push.leave(ListenerId(3)), Some(ListenerId(2)));
        assert!(drain(&mut push, 3).is_empty());
        assert_eq!(drain(&mut push, 2), [2]);
    }

    #[test]
    fn get_04_the_queue_is_bounded_and_drops_the_oldest() {
        let mut push = push(3, 800);
        let dropped: usize = (0..10).map(|n| push.offer_numbered(n, Collapse::Never).dropped).sum();
        push.listen(ListenerId(1));
        assert_eq!((dropped, drain(&mut push, 1)), (7, vec![7, 8, 9]));
        let mut by_bytes = super::Push::new(PushLimits { messages: 99, bytes: 5 });
        by_bytes.begin();
        for n in 10..20 {
            by_bytes.offer_numbered(n, Collapse::Never);
        }
        by_bytes.listen(ListenerId(1));
        assert_eq!(drain(&mut by_bytes, 1), [18, 19]);
    }

    #[test]
    fn get_04_equal_list_changes_collapse_while_they_wait() {
        let mut push = push(8, 800);
        let tools = || Collapse::List("notifications/tools/list_changed".into());
        push.offer_numbered(1, tools());
        push.offer_numbered(2, tools());
        push.offer_numbered(3, Collapse::Resource("a".into()));
        push.offer_numbered(4, Collapse::Resource("b".into()));
        push.offer_numbered(5, Collapse::Resource("a".into()));
        push.listen(ListenerId(1));
        assert_eq!(drain(&mut push, 1), [1, 3, 4]);
        push.offer_numbered(6, tools());
        assert_eq!(
            drain(&mut push, 1),
            [6],
            "a taken message does not collapse with the next one"
        );
    }

    #[test]
    fn ses_08_no_message_is_sent_before_initialized() {
        let mut push = Push::new(PushLimits {
            messages: 8,
            bytes: 800,
        });
        push.listen(ListenerId(1));
        assert_eq!(push.offer_numbered(1, Collapse::Never).taker, None);
        assert!(drain(&mut push, 1).is_empty());
        assert_eq!(push.begin(), Some(ListenerId(1)));
        assert_eq!(drain(&mut push, 1), [1]);
    }

    #[test]
    fn sse_14_stalled_listener_is_skipped() {
        let mut push = push(8, 800);
        push.listen(ListenerId(1));
        push.listen(ListenerId(2));
        push.offer_numbered(1, Collapse::Never);
        let limit = Duration::from_secs(5);
        assert_eq!(push.pass_over_stalled(NOW + limit, limit), None);
        let late = NOW + Duration::from_secs(6);
        assert_eq!(push.pass_over_stalled(late, limit), Some(ListenerId(1)));
        assert_eq!(drain(&mut push, 1), [1]);
    }

    proptest! {
        /// GET-03: for any sequence of opens and closes, every message is taken once, in order, or still waits.
        #[test]
        fn every_message_is_taken_once(ops in proptest::collection::vec((0u8..4, 0u64..4), 0..120)) {
            let mut push = push(1000, 100_000);
            let (mut offered, mut taken) = (0, Vec::new());
            for (op, who) in ops {
                match op {
                    0 => { push.offer_numbered(offered, Collapse::Never); offered += 1; }
                    1 => push.listen(ListenerId(who)),
                    2 => { push.leave(ListenerId(who)); }
                    _ => taken.extend(drain(&mut push, who)),
                }
            }
            push.listen(ListenerId(9));
            taken.extend(drain(&mut push, 9));
            prop_assert_eq!(taken, (0..offered).collect::<Vec<_>>());
        }
    }
}
