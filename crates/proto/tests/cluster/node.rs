//! One process: a minimal shell around the state machines of `proto::cluster` and `proto::stream`.
//!
//! A request to the store is a continuation that waits for its result. The world decides when the store performs it and
//! when the result arrives.

mod calls;
mod forwards;
mod push;
mod remote;
mod resume;
mod streams;

use crate::client::{ConnectionNumber, ToClient};
use crate::random::Random;
use crate::store::{Failure, LEASE_MILLIS, Mail, Op, Outcome, Record, Reply, Unique, WakeUp};
use calls::RunningCall;
use forwards::{PendingExecution, PendingForward};
use remote::RemoteConnection;
use rethread_proto::Ordinal;
use rethread_proto::clock::Mono;
use rethread_proto::cluster::{
    Incarnation, LeaseError, LeaseKeeper, LeaseRequest, MemberAction, Members, RenewedLease,
};
use rethread_proto::ordinals::{OrdinalBlock, Ordinals};
use rethread_proto::questions::Questions;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use streams::LiveStream;

/// Period of the upkeep of a node, in milliseconds.
const UPKEEP_MILLIS: u64 = 200;
const MAX_QUESTIONS: usize = 100;

pub(crate) type Then = Box<dyn FnOnce(&mut Node, &mut Shared, Outcome)>;
/// Runs when the node has a view of the session, or with an error if it cannot open one.
pub(crate) type WithView = Box<dyn FnOnce(&mut Node, &mut Shared, Result<(), Failure>)>;

/// The state of the world that all nodes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) now: u64,
    pub(crate) random: Random,
    pub(crate) unique: Unique,
    /// Whether the handler holds state of the session.
    pub(crate) holds_state: bool,
    /// Calls that have run. None runs twice.
    pub(crate) ran: HashSet<u64>,
    pub(crate) to_clients: Vec<(ConnectionNumber, ToClient)>,
    pub(crate) next_number: u64,
    /// Number of occurrences of each rare case.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// The store has lost writes in this run.
    pub(crate) has_lost_writes: bool,
}

impl Shared {
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    pub(crate) fn send(&mut self, to: ConnectionNumber, sent: ToClient) {
        self.to_clients.push((to, sent));
    }
}

/// A request to the store.
pub(crate) struct Pending {
    pub(crate) op: Op,
    pub(crate) outcome: Option<Outcome>,
    then: Then,
}

/// The view of the session.
pub(crate) struct View {
    pub(crate) epoch: u64,
    pub(crate) record: Record,
    ordinals: Ordinals,
    questions: Questions<u64>,
}

pub(crate) struct Node {
    /// Offset of the machine's clock from the clock of the world.
    clock_offset: u64,
    pub(crate) keeper: LeaseKeeper,
    members: Members,
    pub(crate) pending: Vec<Pending>,
    pub(crate) wake_ups: Vec<WakeUp>,
    pub(crate) mail_cursor: u64,
    pub(crate) view: Option<View>,
    waiting_for_view: Vec<WithView>,
    /// The record has changed while the view was opened, so the result may be older.
    changed_while_opening: bool,
    forwards: HashMap<u64, PendingForward>,
    executions: HashMap<(Incarnation, u64), PendingExecution>,
    calls: BTreeMap<u64, RunningCall>,
    pub(crate) streams: BTreeMap<Ordinal, LiveStream>,
    pub(crate) remotes: Vec<RemoteConnection>,
    /// Streams that ended while they were unlogged. They are sealed when the store is back.
    unsealed: Vec<Ordinal>,
    /// Changes that wait for other views: the revision, the nodes, the deadline, the client.
    changes: Vec<(u64, Vec<Incarnation>, u64, ConnectionNumber)>,
    next_upkeep: u64,
    is_renewing: bool,
}

impl Node {
    pub(crate) fn new(clock_offset: u64) -> Self {
        Node {
            clock_offset,
            keeper: LeaseKeeper::new(),
            members: Members::new(),
            pending: Vec::new(),
            wake_ups: Vec::new(),
            mail_cursor: 0,
            view: None,
            waiting_for_view: Vec::new(),
            changed_while_opening: false,
            forwards: HashMap::new(),
            executions: HashMap::new(),
            calls: BTreeMap::new(),
            streams: BTreeMap::new(),
            remotes: Vec::new(),
            unsealed: Vec::new(),
            changes: Vec::new(),
            next_upkeep: 0,
            is_renewing: false,
        }
    }

    fn clock(&self, shared: &Shared) -> Mono {
        Mono::from_millis(shared.now + self.clock_offset)
    }

    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        self.keeper.member().map(|(incarnation, _)| incarnation.clone())
    }

    pub(crate) fn lease_holds(&self, shared: &Shared) -> bool {
        self.keeper.holds(self.clock(shared))
    }

    /// Sends a request to the store.
    fn ask(&mut self, op: Op, then: impl FnOnce(&mut Node, &mut Shared, Outcome) + 'static) {
        self.pending.push(Pending {
            op,
            outcome: None,
            then: Box::new(then),
        });
    }

    /// Sends a request and ignores its result.
    fn tell(&mut self, op: Op) {
        self.ask(op, |_, _, _| {});
    }

    /// Handles the result of a request.
    pub(crate) fn complete(&mut self, at: usize, shared: &mut Shared) {
        let Pending { outcome, then, .. } = self.pending.swap_remove(at);
        then(self, shared, outcome.unwrap_or(Err(Failure::Store)));
    }

    // ---- the lease ----

    /// Runs the timers of the node.
    pub(crate) fn tick(&mut self, shared: &mut Shared) {
        let now = self.clock(shared);
        let (request, actions) = if self.is_renewing {
            (None, Vec::new())
        } else {
            self.keeper.poll(now)
        };
        self.perform(actions, shared);
        match request {
            Some(LeaseRequest::Join(_)) => {
                self.is_renewing = true;
                self.ask(Op::Join, move |node, shared, outcome| {
                    node.is_renewing = false;
                    let joined = match outcome {
                        Ok(Reply::Joined(incarnation)) => Ok((incarnation, Duration::from_millis(LEASE_MILLIS))),
                        _ => Err(LeaseError::StoreFailed),
                    };
                    let actions = node.keeper.joined(now, joined);
                    node.perform(actions, shared);
                });
            }
            Some(LeaseRequest::Renew(member)) => {
                self.is_renewing = true;
                self.ask(Op::Renew(member.clone()), move |node, shared, outcome| {
                    node.is_renewing = false;
                    let renewed = match outcome {
                        Ok(Reply::Renewed(live)) => Ok(RenewedLease {
                            sent: now,
                            live,
                            born: "born".into(),
                        }),
                        Err(Failure::Lease(error)) => Err(error),
                        _ => Err(LeaseError::StoreFailed),
                    };
                    let arrived = node.clock(shared);
                    let actions = node.keeper.renewed(&member, arrived, renewed, &mut node.members);
                    node.perform(actions, shared);
                });
            }
            None => {}
        }
        if shared.now >= self.next_upkeep {
            self.next_upkeep = shared.now + UPKEEP_MILLIS;
            self.upkeep(shared);
        }
    }

    fn perform(&mut self, actions: Vec<MemberAction>, shared: &mut Shared) {
        for action in actions {
            match action {
                MemberAction::SettleDead(dead) => dead.iter().for_each(|node| self.settle_dead(node, shared)),
                MemberAction::RefuseSessions => {
                    shared.count("lease lost");
                    self.fail_waiting(shared);
                }
                MemberAction::EndOwnedSessions => self.end_calls(shared),
                MemberAction::CloseCallStreams => self.close_streams(shared),
                MemberAction::DropViews => self.view = None,
                MemberAction::Serve(_) | MemberAction::CancelParkedCalls | MemberAction::Exit => {}
            }
        }
    }

    /// Finds out whether another node is alive, from the store if necessary.
    fn check(&mut self, other: Incarnation, then: impl FnOnce(&mut Node, &mut Shared, bool) + 'static) {
        self.ask(Op::IsAlive(other.clone()), move |node, shared, outcome| match outcome {
            Ok(Reply::Alive(is_alive)) => {
                let now = node.clock(shared);
                if node.members.checked(&other, is_alive, now) {
                    node.settle_dead(&other, shared);
                }
                then(node, shared, true);
            }
            _ => then(node, shared, false),
        });
    }

    /// Settles the streams, GETs and forwarded requests of a dead node.
    fn settle_dead(&mut self, dead: &Incarnation, shared: &mut Shared) {
        self.close_orphans_of(dead, shared);
        if self.streams.values().any(LiveStream::is_push) {
            self.tell(Op::RemoveListeners(dead.clone()));
        }
        self.forwards_lose(dead, shared);
        for (_, nodes, _, _) in &mut self.changes {
            nodes.retain(|node| node != dead);
        }
    }

    /// Periodic work that repairs lost wake-ups, late replies and unlogged streams.
    fn upkeep(&mut self, shared: &mut Shared) {
        self.wake_remote_readers(shared);
        self.recover_streams(shared);
        self.ask_for_late_replies(shared);
        self.bind_all();
        self.work_on_calls(shared);
        let now = shared.now;
        let (done, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.changes)
            .into_iter()
            .partition(|(_, nodes, deadline, _)| nodes.is_empty() || *deadline <= now);
        self.changes = waiting;
        for (_, _, _, client) in done {
            shared.send(client, ToClient::Json);
        }
    }

    // ---- the session ----

    /// Opens a view if the node has none.
    pub(crate) fn with_view(
        &mut self,
        shared: &mut Shared,
        then: impl FnOnce(&mut Node, &mut Shared, Result<(), Failure>) + 'static,
    ) {
        if self.view.is_some() {
            return then(self, shared, Ok(()));
        }
        let Some(here) = self.incarnation() else {
            return then(self, shared, Err(Failure::Store));
        };
        self.waiting_for_view.push(Box::new(then));
        if self.waiting_for_view.len() > 1 {
            return;
        }
        self.ask(Op::Open(here.clone()), move |node, shared, outcome| {
            let opened = match outcome {
                _ if node.incarnation() != Some(here) => Err(Failure::Store), // the lease has ended
                Ok(Reply::Opened(record, epoch, after)) => {
                    node.view = Some(View {
                        epoch,
                        record,
                        ordinals: Ordinals::new(OrdinalBlock {
                            after: Ordinal(after),
                            last: Ordinal(after + 1_000),
                        }),
                        questions: Questions::new(epoch, MAX_QUESTIONS),
                    });
                    Ok(())
                }
                Ok(_) => Err(Failure::Store),
                Err(failure) => Err(failure),
            };
            if std::mem::take(&mut node.changed_while_opening) && opened.is_ok() {
                node.reload(|node, _, _| node.register_view());
            }
            for then in std::mem::take(&mut node.waiting_for_view) {
                then(node, shared, opened);
            }
        });
    }

    /// A client changes the record. It gets a response when the other views have the change, or after half a second.
    pub(crate) fn set_level(&mut self, level: u64, client: ConnectionNumber, shared: &mut Shared) {
        if !self.lease_holds(shared) {
            return shared.send(client, ToClient::Refused);
        }
        self.with_view(shared, move |node, shared, opened| {
            match (opened, node.incarnation(), &node.view) {
                (Ok(()), Some(by), Some(view)) => {
                    let revision = view.record.revision;
                    let op = Op::Update { revision, level, by };
                    node.ask(op, move |node, shared, outcome| match outcome {
                        Ok(Reply::Updated(revision, nodes)) => {
                            if let Some(view) = &mut node.view
                                && view.record.revision < revision
                            {
                                view.record.revision = revision;
                                view.record.level = level;
                            }
                            node.changes.push((revision, nodes, shared.now + 500, client));
                        }
                        Err(Failure::Revision) => {
                            node.reload(move |node, shared, _| node.set_level(level, client, shared));
                        }
                        Err(Failure::SessionGone) => node.session_ended(Some(client), shared),
                        _ => shared.send(client, ToClient::Refused),
                    });
                }
                (Err(Failure::SessionGone), ..) => shared.send(client, ToClient::NotFound),
                _ => shared.send(client, ToClient::Refused),
            }
        });
    }

    /// A client ends the session.
    pub(crate) fn delete(&mut self, client: ConnectionNumber, shared: &mut Shared) {
        let Some(by) = self.incarnation().filter(|_| self.lease_holds(shared)) else {
            return shared.send(client, ToClient::Refused);
        };
        self.ask(Op::End { by }, move |node, shared, outcome| match outcome {
            Ok(_) | Err(Failure::SessionGone) => node.session_ended(Some(client), shared),
            _ => shared.send(client, ToClient::Refused),
        });
    }

    /// Reads the record again.
    fn reload(&mut self, then: impl FnOnce(&mut Node, &mut Shared, bool) + 'static) {
        self.ask(Op::Load, move |node, shared, outcome| match outcome {
            Ok(Reply::Loaded(record)) => {
                node.apply_record(record);
                then(node, shared, true);
            }
            Err(Failure::SessionGone) => {
                node.session_ended(None, shared);
                then(node, shared, true);
            }
            _ => then(node, shared, false),
        });
    }

    /// Applies a record that was read, unless a newer one is known. Results may arrive in any order.
    fn apply_record(&mut self, record: Record) {
        let Some(view) = &mut self.view else { return };
        let known = &mut view.record;
        // Opening a view changes the views and the epoch, but not the revision.
        if known.last_epoch <= record.last_epoch {
            known.last_epoch = record.last_epoch;
            known.views = record.views;
        }
        if known.revision <= record.revision {
            known.revision = record.revision;
            known.level = record.level;
            known.owner = record.owner;
        }
    }

    fn session_ended(&mut self, client: Option<ConnectionNumber>, shared: &mut Shared) {
        self.end_calls(shared);
        self.close_streams(shared);
        self.view = None;
        if let Some(client) = client {
            shared.send(client, ToClient::NotFound);
        }
    }

    // ---- messages of other nodes ----

    pub(crate) fn woken(&mut self, wake_up: WakeUp, shared: &mut Shared) {
        match wake_up {
            WakeUp::Mail => {} // the world reads the mailbox
            WakeUp::Push => self.bind_all(),
            WakeUp::Stream(ordinal) => self.stream_changed(ordinal, shared),
            WakeUp::Session(by) => {
                self.changed_while_opening |= !self.waiting_for_view.is_empty();
                if self.view.is_some() {
                    self.reload(move |node, _, is_read| {
                        let revision = node.view.as_ref().map_or(u64::MAX, |view| view.record.revision);
                        if let (true, Some(from)) = (is_read, node.incarnation()) {
                            node.tell(Op::Deliver(by, Mail::Acknowledge { from, revision }));
                        }
                    });
                } else if let Some(from) = self.incarnation() {
                    let revision = u64::MAX; // this node has no view that could be out of date
                    self.tell(Op::Deliver(by, Mail::Acknowledge { from, revision }));
                }
            }
        }
    }

    /// Reads everything once after the connection to the store is back.
    pub(crate) fn reconnected(&mut self, shared: &mut Shared) {
        self.changed_while_opening |= !self.waiting_for_view.is_empty();
        if self.view.is_some() {
            self.reload(|node, _, _| node.register_view());
            self.close_lost_ends();
        }
        self.wake_remote_readers(shared);
        self.listen_again();
        let streams: Vec<_> = self.streams.keys().copied().collect();
        for ordinal in streams {
            self.stream_changed(ordinal, shared);
        }
        self.forwards_in_doubt(shared);
    }

    /// Registers the view again, because the store may have lost its entry. Without an entry there are no wake-ups.
    fn register_view(&mut self) {
        let (Some(view), Some(here)) = (&self.view, self.incarnation()) else {
            return;
        };
        if view.record.views.iter().all(|(_, node)| *node != here) {
            self.ask(Op::Open(here), |node, _, outcome| match outcome {
                Ok(Reply::Opened(record, ..)) => node.apply_record(record),
                _ => node.register_view(),
            });
        }
    }

    pub(crate) fn receive(&mut self, id: u64, mail: Mail, shared: &mut Shared) {
        self.mail_cursor = id;
        if !matches!(mail, Mail::Forward { .. })
            && let Some(here) = self.incarnation()
        {
            self.tell(Op::ClaimMail(here, id)); // removes it
        }
        match mail {
            Mail::Forward { rid, from, call } => self.execute(id, rid, from, call, shared),
            Mail::Reply { rid, from, kind } => self.replied(rid, &from, kind, shared),
            Mail::ClientLeft { rid, from } => self.client_of_execution_left(rid, &from, shared),
            Mail::Ask { rid, from } => {
                let knows = self.executions.contains_key(&(from.clone(), rid));
                self.tell(Op::Deliver(from, Mail::Asked { rid, knows }));
            }
            Mail::Asked { rid, knows } => self.executor_answered(rid, knows, shared),
            Mail::Answer { id } => self.settle_question(&id, shared),
            Mail::Acknowledge { from, revision } => {
                for (expected, nodes, _, _) in &mut self.changes {
                    nodes.retain(|node| *node != from || revision < *expected);
                }
            }
        }
    }
}
