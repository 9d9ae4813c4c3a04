//! A model of the queue, its copy in a store, and the streams that take from it, with crashes: no message is lost or
//! repeated.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const NOW: Mono = Mono::from_millis(0);
const LIMITS: PushLimits = PushLimits {
    messages: 6,
    bytes: 1 << 20,
};

#[derive(Clone, Copy, Debug)]
enum Step {
    Offer,
    Listen(u64),
    Leave(u64),
    Take(u64, usize),
    /// Sends an update, if there is one.
    Update {
        retry: bool,
    },
    /// The update reaches the store.
    LandUpdate,
    /// The process gets the outcome.
    AnswerUpdate {
        ok: bool,
    },
    /// The append of a stream reaches the store.
    LandAppend(u64),
    AnswerAppend(u64, bool),
    Kill,
}

/// Messages that are being bound to a stream.
#[derive(Debug, Default)]
struct Append {
    messages: Vec<u64>,
    taken: Option<QueuePosition>,
    landed: bool,
}

struct World {
    push: Push,
    waiting: VecDeque<u64>,
    update: Option<(QueueUpdate, bool)>,
    /// By listener. A stream takes no more messages while its append is in flight.
    appends: BTreeMap<u64, Append>,
    // The part that survives a crash.
    queue: StoredQueue,
    logs: Vec<u64>,
    /// Messages that have been in the stored queue.
    stored: BTreeSet<u64>,
    offered: u64,
    /// Dropped and counted, sent while the store failed, or not yet stored when the process was killed.
    excused: BTreeSet<u64>,
}

fn number(message: &Bytes) -> u64 {
    std::str::from_utf8(message).unwrap().parse().unwrap()
}

fn started(queue: StoredQueue) -> (Push, usize) {
    let mut push = Push::new(LIMITS);
    push.begin();
    let dropped = push.restore(queue, NOW);
    (push, dropped)
}

impl World {
    fn new() -> Self {
        World {
            push: started(StoredQueue::default()).0,
            waiting: VecDeque::new(),
            update: None,
            appends: BTreeMap::new(),
            queue: StoredQueue::default(),
            logs: Vec::new(),
            stored: BTreeSet::new(),
            offered: 0,
            excused: BTreeSet::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Offer => {
                self.offered += 1;
                let message = Bytes::from(self.offered.to_string());
                let offered = self.push.offer(message, Collapse::Never, Lifetime::Session, NOW);
                self.waiting.push_back(self.offered);
                self.excused.extend(self.waiting.drain(..offered.dropped));
            }
            Step::Listen(who) => self.push.listen(ListenerId(who)),
            Step::Leave(who) => drop(self.push.leave(ListenerId(who))),
            Step::Take(who, most) => {
                let mut append = Append::default();
                while !self.appends.contains_key(&who)
                    && append.messages.len() < most
                    && let Some(taken) = self.push.take(ListenerId(who))
                {
                    let n = number(&taken.message);
                    assert_eq!(self.waiting.pop_front(), Some(n), "in order");
                    append.messages.push(n);
                    append.taken = taken.stored.or(append.taken);
                }
                if !append.messages.is_empty() {
                    self.appends.insert(who, append);
                }
            }
            Step::Update { retry } => {
                if let Some(update) = self.push.next_update(1, retry) {
                    assert!(self.update.is_none(), "one at a time");
                    self.update = Some((update, false));
                }
            }
            Step::LandUpdate => {
                if let Some((update, landed)) = &mut self.update {
                    *landed = true;
                    self.queue.update(update.messages.clone(), update.floor);
                    self.stored
                        .extend(self.queue.messages().map(|queued| number(&queued.message)));
                }
            }
            Step::AnswerUpdate { ok } => {
                // A success is always true. A failure may be false.
                if let Some((_, landed)) = self.update.take_if(|(_, landed)| *landed || !ok) {
                    self.push.updated(landed && ok);
                }
            }
            Step::LandAppend(who) => {
                if let Some(append) = self.appends.get_mut(&who).filter(|append| !append.landed) {
                    append.landed = true;
                    self.logs.extend(&append.messages);
                    self.queue.raise_floor(append.taken.unwrap_or_default());
                }
            }
            Step::AnswerAppend(who, ok) => self.answer_append(who, ok),
            Step::Kill => {
                self.update = None;
                self.appends.clear();
                self.excused
                    .extend((1..=self.offered).filter(|n| !self.stored.contains(n)));
                self.waiting = self.queue.messages().map(|queued| number(&queued.message)).collect();
                let dropped;
                (self.push, dropped) = started(self.queue.clone());
                self.excused.extend(self.waiting.drain(..dropped));
            }
        }
        self.check();
    }

    fn answer_append(&mut self, who: u64, ok: bool) {
        let Some(append) = self.appends.get(&who).filter(|append| append.landed || !ok) else {
            return;
        };
        if !ok {
            // Outage: the messages are sent to the connection, without ids.
            self.excused.extend(&append.messages);
        }
        if let Some(position) = append.taken {
            self.push.bound(position, ok);
        }
        self.appends.remove(&who);
    }

    fn check(&self) {
        let logged: BTreeSet<u64> = self.logs.iter().copied().collect();
        assert_eq!(logged.len(), self.logs.len(), "in one stream, once");
        let queued: BTreeSet<u64> = self.queue.messages().map(|queued| number(&queued.message)).collect();
        assert!(queued.is_disjoint(&logged), "in the queue and in a stream");
        let lost = |n: &&u64| !queued.contains(n) && !logged.contains(n) && !self.excused.contains(n);
        assert_eq!(self.stored.iter().find(lost), None, "was stored, and is in neither");
        assert!(queued.len() <= 2 * LIMITS.messages, "bounded");
    }

    /// Lets every message be taken, stored and acknowledged.
    fn finish(mut self) {
        const LAST: u64 = 99;
        self.step(Step::Listen(LAST));
        for _ in 0..100 {
            self.step(Step::LandUpdate);
            self.step(Step::AnswerUpdate { ok: true });
            self.step(Step::Update { retry: true });
            for who in self.appends.keys().copied().collect::<Vec<_>>() {
                self.step(Step::LandAppend(who));
                self.step(Step::AnswerAppend(who, true));
            }
            self.step(Step::Take(LAST, 100));
        }
        assert_eq!(
            self.queue.messages().count(),
            0,
            "nothing would come again after a restart"
        );
        let missing = (1..=self.offered).find(|n| !self.logs.contains(n) && !self.excused.contains(n));
        assert_eq!(missing, None, "lost");
    }
}

fn step() -> impl Strategy<Value = Step> {
    let who = || 0u64..3;
    prop_oneof![
        6 => Just(Step::Offer),
        2 => who().prop_map(Step::Listen),
        1 => who().prop_map(Step::Leave),
        4 => (who(), 1usize..4).prop_map(|(who, most)| Step::Take(who, most)),
        4 => any::<bool>().prop_map(|retry| Step::Update { retry }),
        4 => Just(Step::LandUpdate),
        4 => prop_oneof![3 => Just(true), 1 => Just(false)].prop_map(|ok| Step::AnswerUpdate { ok }),
        4 => who().prop_map(Step::LandAppend),
        4 => (who(), prop_oneof![3 => Just(true), 1 => Just(false)]).prop_map(|(who, ok)| Step::AnswerAppend(who, ok)),
        1 => Just(Step::Kill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// D6: a stored message is in the queue or in one stream, for any failures and crashes.
    #[test]
    fn d6_no_message_is_lost_or_repeated(steps in proptest::collection::vec(step(), 0..120)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.finish();
    }
}

/// D13: messages of failed appends leave the stored queue, also if other messages are bound whenever it is updated.
#[test]
fn d13_failed_appends_do_not_fill_the_stored_queue() {
    let mut world = World::new();
    world.step(Step::Listen(0));
    for _ in 0..20 {
        for step in [
            Step::Offer,
            Step::Offer,
            Step::Update { retry: false },
            Step::LandUpdate,
            Step::AnswerUpdate { ok: true },
            Step::AnswerAppend(0, false),
            Step::Take(0, 2),
        ] {
            world.step(step);
        }
    }
    world.finish();
}
