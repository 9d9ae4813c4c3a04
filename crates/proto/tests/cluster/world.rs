//! The world: nodes, one store, clients, time and faults.

use crate::client::{Client, ConnectionNumber, Purpose, ToClient, number_in};
use crate::node::{Node, Shared};
use crate::random::Random;
use crate::store::{Failure, LEASE_MILLIS, Op, Reply, Store, Unique};
use rethread_proto::{Ordinal, StreamKind};
use std::collections::{BTreeMap, BTreeSet, HashSet};

const NODES: usize = 3;
const CLIENTS: usize = 3;
/// Without faults, every call ends within this time.
const MAX_QUIET_MILLIS: u64 = 8 * LEASE_MILLIS;
/// Without activity, the world is settled after this time.
const SETTLE_MILLIS: u64 = LEASE_MILLIS;

type ToNode = Box<dyn FnOnce(&mut Node, &mut Shared)>;

/// A slot for a process. A killed process is started again.
struct Slot {
    node: Node,
    clock_offset: u64,
    paused_until: u64,
    /// Wake-ups are lost until then.
    disconnected_until: u64,
    needs_reconnect: bool,
    inbox: Vec<ToNode>,
}

pub(crate) struct World {
    store: Store,
    /// The state that a failover returns to.
    copy: Store,
    store_down_until: u64,
    slots: Vec<Slot>,
    clients: Vec<Client>,
    shared: Shared,
    has_faults: bool,
    may_delete: bool,
    may_lose_writes: bool,
    next_call: u64,
    next_message: u64,
    /// Messages that the store has accepted and not lost.
    messages: BTreeSet<u64>,
    /// The payload of every number that was ever stored.
    payloads: BTreeMap<(Ordinal, u64), Vec<u8>>,
}

impl World {
    pub(crate) fn new(mut random: Random) -> Self {
        let store = Store::new();
        let mut slot = |_| {
            let clock_offset = random.below(100_000) as u64; // the clocks of machines differ
            Slot {
                node: Node::new(clock_offset),
                clock_offset,
                paused_until: 0,
                disconnected_until: 0,
                needs_reconnect: false,
                inbox: Vec::new(),
            }
        };
        let slots = (0..NODES).map(&mut slot).collect();
        World {
            copy: store.clone(),
            store,
            store_down_until: 0,
            slots,
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            has_faults: true,
            may_delete: random.chance(10),
            may_lose_writes: random.chance(40),
            next_call: 0,
            next_message: 0,
            messages: BTreeSet::new(),
            payloads: BTreeMap::new(),
            shared: Shared {
                now: 1,
                holds_state: random.chance(60),
                random,
                unique: Unique::default(),
                ran: HashSet::new(),
                to_clients: Vec::new(),
                next_number: 0,
                has_lost_writes: false,
                counts: BTreeMap::new(),
            },
        }
    }

    /// Runs one step of the schedule.
    pub(crate) fn step(&mut self) {
        self.shared.now += self.shared.random.below(15) as u64;
        for at in 0..NODES {
            self.run_node(at);
        }
        for _ in 0..8 {
            let at = self.shared.random.below(NODES);
            self.run_store(at, false);
        }
        if self.shared.random.chance(50) {
            self.client_acts();
        }
        if self.shared.random.chance(3) {
            self.fault();
        }
        self.deliver_to_clients();
        self.check_leases();
    }

    /// Number of occurrences of each rare case.
    pub(crate) fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.shared.counts
    }

    /// Ends the faults. Then every call must end, every message must reach a stream, and every view must equal the
    /// record.
    pub(crate) fn finish(&mut self) {
        self.has_faults = false;
        self.store_down_until = 0;
        for slot in &mut self.slots {
            slot.paused_until = 0;
            slot.disconnected_until = 0;
            slot.needs_reconnect = true;
        }
        let (began, mut settled_at) = (self.shared.now, None);
        loop {
            self.shared.now += 10;
            for at in 0..NODES {
                self.run_node(at);
                self.run_store(at, true);
            }
            self.deliver_to_clients();
            for client in 0..CLIENTS {
                self.continue_client(client);
            }
            let (now, is_settled) = (self.shared.now, self.is_settled());
            settled_at = settled_at.filter(|_| is_settled).or(is_settled.then_some(now));
            if settled_at.is_some_and(|at| now >= at + SETTLE_MILLIS) {
                break;
            }
            let waiting: Vec<_> = self
                .clients
                .iter()
                .map(|client| (&client.requests, &client.broken_call))
                .collect();
            assert!(
                now < began + MAX_QUIET_MILLIS,
                "clients or messages still wait: {waiting:?}, queue {:?}",
                self.store.queue
            );
        }
        self.check_messages(true);
        self.check_views();
    }

    fn is_settled(&self) -> bool {
        let is_idle = |client: &Client| !client.has_call() && client.questions.is_empty();
        self.clients.iter().all(is_idle) && self.store.queue.is_empty()
    }

    // ---- nodes and the store ----

    fn run_node(&mut self, at: usize) {
        let (slot, shared) = (&mut self.slots[at], &mut self.shared);
        if slot.paused_until > shared.now {
            return;
        }
        if slot.disconnected_until != 0 && slot.disconnected_until <= shared.now {
            slot.disconnected_until = 0;
            slot.needs_reconnect = true;
        }
        if std::mem::take(&mut slot.needs_reconnect) {
            slot.node.reconnected(shared);
        }
        slot.node.tick(shared);
        for message in std::mem::take(&mut slot.inbox) {
            message(&mut slot.node, shared);
        }
        for wake_up in std::mem::take(&mut slot.node.wake_ups) {
            slot.node.woken(wake_up, shared);
        }
        let can_read = self.store_down_until <= shared.now && slot.disconnected_until == 0;
        if let Some(node) = slot.node.incarnation().filter(|_| can_read)
            && let Some((id, mail)) = self.store.next_mail(&node, slot.node.mail_cursor)
        {
            slot.node.receive(id, mail, shared);
        }
    }

    /// Performs requests of a node, and delivers results: one of each, or all.
    fn run_store(&mut self, at: usize, all: bool) {
        let mut left = if all { 100 } else { 1 };
        while left > 0 && !self.slots[at].node.pending.is_empty() {
            left -= 1;
            let count = self.slots[at].node.pending.len();
            let first = if all { 0 } else { self.shared.random.below(count) };
            self.perform(at, first);
            let is_late = !all && self.shared.random.chance(50);
            let slot = &mut self.slots[at];
            if !is_late && slot.paused_until <= self.shared.now {
                slot.node.complete(first, &mut self.shared);
            }
        }
    }

    fn perform(&mut self, at: usize, pending: usize) {
        let slot = &mut self.slots[at];
        let request = &mut slot.node.pending[pending];
        if request.outcome.is_some() {
            return;
        }
        let now = self.shared.now;
        // A node that does not receive wake-ups must not renew its lease.
        let is_cut = slot.disconnected_until != 0 && matches!(request.op, Op::Renew(_));
        if self.store_down_until > now || is_cut {
            request.outcome = Some(Err(Failure::Store));
            return;
        }
        let op = request.op.clone();
        let outcome = self.store.perform(op.clone(), now, &mut self.shared.unique);
        let is_lost = self.has_faults && self.shared.random.chance(3);
        request.outcome = Some(if is_lost { Err(Failure::Store) } else { outcome.clone() });
        self.check_operation(&op, &outcome);
        for (to, wake_up) in std::mem::take(&mut self.store.wake_ups) {
            let is_its = |slot: &&mut Slot| slot.node.incarnation().as_ref() == Some(&to);
            if let Some(slot) = self.slots.iter_mut().find(is_its)
                && slot.disconnected_until == 0
            {
                slot.node.wake_ups.push(wake_up);
            }
        }
    }

    /// Checks the invariants of single operations.
    fn check_operation(&mut self, op: &Op, outcome: &Result<Reply, Failure>) {
        match (op, outcome) {
            (Op::Append(ordinal, batch, _), Ok(_)) => {
                for event in &batch.events {
                    let key = (*ordinal, event.seq.0);
                    let before = self.payloads.insert(key, event.payload.to_vec());
                    let is_same = before.is_none_or(|before| before == event.payload);
                    assert!(
                        is_same || self.shared.has_lost_writes,
                        "number {key:?} has two payloads"
                    );
                }
            }
            (Op::Enqueue(message), Ok(_)) => {
                self.messages.insert(*message);
            }
            (Op::End { .. }, Ok(_)) => self.messages.clear(),
            (Op::Claim { from: Some(from), to }, Ok(Reply::Owner(owner))) if owner == to => {
                for slot in &self.slots {
                    let believes =
                        slot.node.incarnation().as_ref() == Some(from) && slot.node.lease_holds(&self.shared);
                    assert!(
                        !believes || self.shared.has_lost_writes,
                        "{to} claims the session of {from}, whose lease holds"
                    );
                }
            }
            _ => {}
        }
    }

    // ---- faults ----

    fn fault(&mut self) {
        let (now, random) = (self.shared.now, &mut self.shared.random);
        let at = random.below(NODES);
        match random.below(8) {
            0 | 1 => self.kill(at),
            2 | 3 => self.slots[at].paused_until = now + random.below(3 * LEASE_MILLIS as usize) as u64,
            4 => self.slots[at].disconnected_until = now + 1 + random.below(LEASE_MILLIS as usize) as u64,
            5 => {
                self.store_down_until = now + random.below(3 * LEASE_MILLIS as usize / 2) as u64;
                for slot in &mut self.slots {
                    slot.needs_reconnect = true;
                }
            }
            6 => self.copy = self.store.clone(),
            _ if self.may_lose_writes => self.fail_over(),
            _ => {}
        }
    }

    fn kill(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        slot.node = Node::new(slot.clock_offset);
        slot.inbox.clear();
        slot.paused_until = 0;
        for client in &mut self.clients {
            let broken: Vec<_> = client
                .requests
                .iter()
                .filter(|request| request.node == at)
                .map(|request| request.number)
                .collect();
            for number in broken {
                client.receive(number, ToClient::End);
            }
        }
    }

    /// The store fails over to a copy without its last writes. Every connection to it breaks.
    fn fail_over(&mut self) {
        self.shared.has_lost_writes = true;
        let kept = stored_messages(&self.copy);
        self.messages.retain(|message| kept.contains_key(message));
        self.store = self.copy.clone();
        self.store.process_changed();
        self.copy = self.store.clone();
        for slot in &mut self.slots {
            slot.needs_reconnect = true;
            for request in &mut slot.node.pending {
                request.outcome = Some(Err(Failure::Store));
            }
        }
    }

    // ---- clients ----

    fn client_acts(&mut self) {
        let at = self.shared.random.below(CLIENTS);
        match self.shared.random.below(20) {
            0..7 if !self.clients[at].has_call() => {
                self.next_call += 1;
                let call = self.next_call;
                self.request(at, Purpose::Call(call), None, move |node, shared, number| {
                    node.post(call, number, shared);
                });
            }
            7..13 => self.continue_client(at),
            13 | 14 => self.cut(at),
            15..18 => {
                self.next_message += 1;
                let (message, slot) = (self.next_message, self.shared.random.below(NODES));
                self.slots[slot]
                    .inbox
                    .push(Box::new(move |node, _| node.enqueue(message)));
            }
            18 => {
                let level = self.shared.number();
                self.request(at, Purpose::Other, None, move |node, shared, number| {
                    node.set_level(level, number, shared);
                });
            }
            _ if self.may_delete && self.shared.random.chance(10) => {
                self.request(at, Purpose::Other, None, |node, shared, number| {
                    node.delete(number, shared);
                });
            }
            _ => {}
        }
    }

    /// The client resumes its interrupted call or GET.
    fn continue_client(&mut self, at: usize) {
        if let Some((call, ordinal, seq)) = self.clients[at].broken_call.take() {
            return self.request(
                at,
                Purpose::Call(call),
                Some((ordinal, seq)),
                move |node, shared, number| {
                    node.resume_call(ordinal, seq, number, shared);
                },
            );
        }
        if let Some(id) = self.clients[at].questions.pop() {
            return self.request(at, Purpose::Answer(id.clone()), None, |node, shared, number| {
                node.answer(id, number, shared);
            });
        }
        if at == 0 && !self.clients[0].has_get() {
            let cursor = self.clients[0].push_cursor;
            self.request(0, Purpose::Push, cursor, move |node, shared, number| {
                node.get(cursor, number, shared);
            });
        }
    }

    fn request(
        &mut self,
        client: usize,
        purpose: Purpose,
        cursor: Option<(Ordinal, u64)>,
        send: impl FnOnce(&mut Node, &mut Shared, ConnectionNumber) + 'static,
    ) {
        let number = ConnectionNumber(self.shared.number());
        let at = self.shared.random.below(NODES);
        self.clients[client].begin(number, at, purpose, cursor);
        self.slots[at]
            .inbox
            .push(Box::new(move |node, shared| send(node, shared, number)));
    }

    /// Breaks a connection. The node detects it later.
    fn cut(&mut self, at: usize) {
        let Some(request) = self.clients[at].requests.first() else {
            return;
        };
        let (number, node) = (request.number, request.node);
        self.clients[at].receive(number, ToClient::End);
        self.slots[node]
            .inbox
            .push(Box::new(move |node, shared| node.client_left(number, shared)));
    }

    fn deliver_to_clients(&mut self) {
        for (number, sent) in std::mem::take(&mut self.shared.to_clients) {
            let has_it = |client: &&mut Client| client.requests.iter().any(|request| request.number == number);
            if let Some(client) = self.clients.iter_mut().find(has_it) {
                client.receive(number, sent);
            }
        }
    }

    // ---- invariants of the whole world ----

    /// A message is in the queue or on one stream, once. At the end it is on a stream, and the client has it if it can
    /// resume the stream.
    pub(crate) fn check_messages(&self, at_end: bool) {
        let stored = stored_messages(&self.store);
        for message in &self.messages {
            assert!(stored.contains_key(message), "message {message} is lost");
        }
        if at_end && !self.shared.has_lost_writes {
            let client = &self.clients[0];
            let can_get =
                |(_, ordinal): &(&u64, &Option<Ordinal>)| ordinal.is_none_or(|at| client.known_streams.contains(&at));
            for (message, ordinal) in stored.iter().filter(can_get) {
                let is_got = client.got.contains(message);
                assert!(
                    is_got,
                    "message {message} is on {ordinal:?}, but the client has not received it"
                );
            }
        }
    }

    /// The lease ends for the node before it ends for the store, even while the node is paused.
    fn check_leases(&self) {
        for node in self.slots.iter().map(|slot| &slot.node) {
            if let Some(incarnation) = node.incarnation().filter(|_| node.lease_holds(&self.shared)) {
                let is_expired = self.store.is_expired(&incarnation, self.shared.now);
                assert!(
                    !is_expired || self.shared.has_lost_writes,
                    "{incarnation} uses an expired lease"
                );
            }
        }
    }

    /// Idle views equal the record.
    fn check_views(&self) {
        for slot in &self.slots {
            let Some(view) = &slot.node.view else { continue };
            let record = self.store.record();
            assert!(record.is_some(), "a view of a session that has ended");
            let (seen, stored) = (&view.record, record.expect("checked above"));
            assert_eq!(
                (seen.revision, seen.level, &seen.owner),
                (stored.revision, stored.level, &stored.owner),
                "an idle view differs from the record"
            );
        }
        let is_empty = self.store.record().is_some() || (self.store.streams.is_empty() && self.store.queue.is_empty());
        assert!(is_empty, "the store has data after the end of the session");
    }
}

/// The messages in the queue and on push streams, each with its stream. Panics if one is in two places.
fn stored_messages(store: &Store) -> BTreeMap<u64, Option<Ordinal>> {
    let mut all = BTreeMap::new();
    let mut add = |payload: &[u8], ordinal| {
        if let Some(message) = number_in(&String::from_utf8_lossy(payload), "{\"m\":") {
            assert!(
                all.insert(message, ordinal).is_none(),
                "message {message} is in two places"
            );
        }
    };
    store.queue.iter().for_each(|payload| add(payload, None));
    for (ordinal, stream) in store
        .streams
        .iter()
        .filter(|(ordinal, _)| ordinal.kind() == StreamKind::Push)
    {
        let page = stream
            .log
            .read_after(rethread_proto::Seq::PRIMING, usize::MAX, usize::MAX);
        page.events.iter().for_each(|event| add(&event.payload, Some(*ordinal)));
    }
    all
}
