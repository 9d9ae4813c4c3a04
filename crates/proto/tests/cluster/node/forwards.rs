//! Both ends of a forwarded call.

use super::calls::Origin;
use super::{Node, Shared};
use crate::client::{ConnectionNumber, ToClient};
use crate::store::{LEASE_MILLIS, Mail, Op, Outcome, Reply, ReplyKind};
use rethread_proto::cluster::{Claim, Delivery, Execution, ExecutionStep, Forward, ForwardStep, Incarnation, Liveness};
use rethread_proto::stream::ReaderStart;

pub(super) struct PendingForward {
    machine: Forward,
    executor: Incarnation,
    call: u64,
    client: ConnectionNumber,
    attempt: u32,
    mail: Option<u64>,
    since: u64,
}

pub(super) struct PendingExecution {
    machine: Execution,
    mail: u64,
    call: u64,
    reply: Option<ReplyKind>,
}

fn claim(outcome: &Outcome) -> Claim {
    match outcome {
        Ok(Reply::Claimed(true)) => Claim::Won,
        Ok(_) => Claim::Lost,
        Err(_) => Claim::StoreFailed,
    }
}

impl Node {
    // ---- the receiving end ----

    pub(super) fn forward(
        &mut self,
        call: u64,
        client: ConnectionNumber,
        executor: Incarnation,
        attempt: u32,
        shared: &mut Shared,
    ) {
        let Some(from) = self.incarnation() else {
            return shared.send(client, ToClient::Refused);
        };
        let rid = shared.number();
        let pending = PendingForward {
            machine: Forward::new(),
            executor: executor.clone(),
            call,
            client,
            attempt,
            mail: None,
            since: shared.now,
        };
        self.forwards.insert(rid, pending);
        self.ask(
            Op::Deliver(executor, Mail::Forward { rid, from, call }),
            move |node, shared, outcome| {
                let Some(pending) = node.forwards.get_mut(&rid) else {
                    return;
                };
                let delivery = match outcome {
                    Ok(Reply::Delivered(id)) => {
                        pending.mail = Some(id);
                        Delivery::Stored
                    }
                    _ => Delivery::StoreFailed,
                };
                let mut step = pending.machine.delivered(delivery);
                if step == ForwardStep::Wait && node.members.liveness(&pending.executor) == Liveness::Dead {
                    step = pending.machine.executor_died();
                }
                node.step_forward(rid, step, shared);
            },
        );
    }

    fn step_forward(&mut self, rid: u64, step: ForwardStep, shared: &mut Shared) {
        let (Some(pending), Some(from)) = (self.forwards.get(&rid), self.incarnation()) else {
            return;
        };
        let (client, call, attempt) = (pending.client, pending.call, pending.attempt);
        let executor = pending.executor.clone();
        match step {
            ForwardStep::Wait | ForwardStep::Reply => {}
            ForwardStep::Ask => self.tell(Op::Deliver(executor, Mail::Ask { rid, from })),
            ForwardStep::SendClientLeft => self.tell(Op::Deliver(executor, Mail::ClientLeft { rid, from })),
            ForwardStep::Claim => {
                let mail = pending.mail.expect("only delivered mail is claimed");
                self.ask(Op::ClaimMail(executor, mail), move |node, shared, outcome| {
                    let Some(pending) = node.forwards.get_mut(&rid) else {
                        return;
                    };
                    let step = pending.machine.claimed(claim(&outcome));
                    node.step_forward(rid, step, shared);
                });
            }
            ForwardStep::RouteAgain => {
                shared.count("forward routed again");
                self.reload(move |node, shared, _| {
                    node.route(call, Origin::Client(client), attempt + 1, shared);
                });
            }
            ForwardStep::Refuse => shared.send(client, ToClient::Refused),
            ForwardStep::Fail => {
                shared.count("forward failed");
                shared.send(client, ToClient::Error);
            }
        }
        if self.forwards.get(&rid).is_some_and(|pending| pending.machine.is_done()) {
            self.forwards.remove(&rid);
        }
    }

    pub(super) fn replied(&mut self, rid: u64, from: &Incarnation, kind: ReplyKind, shared: &mut Shared) {
        let Some(pending) = self.forwards.get_mut(&rid).filter(|pending| pending.executor == *from) else {
            return;
        };
        let (client, call, attempt) = (pending.client, pending.call, pending.attempt);
        if pending.machine.replied() == ForwardStep::Reply {
            shared.count("forward replied");
            match kind {
                ReplyKind::Json => shared.send(client, ToClient::Json),
                ReplyKind::Refused => shared.send(client, ToClient::Error),
                ReplyKind::Moved => self.reload(move |node, shared, _| {
                    node.route(call, Origin::Client(client), attempt + 1, shared);
                }),
                ReplyKind::Stream(ordinal) => self.read_remote(ordinal, ReaderStart::default(), client, shared),
            }
        }
        self.forwards.remove(&rid);
    }

    pub(super) fn executor_answered(&mut self, rid: u64, knows: bool, shared: &mut Shared) {
        if let Some(pending) = self.forwards.get_mut(&rid) {
            let step = pending.machine.executor_answered(knows);
            self.step_forward(rid, step, shared);
        }
    }

    /// Settles the forwards to a dead node.
    pub(super) fn forwards_lose(&mut self, dead: &Incarnation, shared: &mut Shared) {
        self.step_forwards(shared, |pending, _| {
            let waits = pending.executor == *dead;
            waits.then(|| pending.machine.executor_died())
        });
    }

    pub(super) fn forwards_in_doubt(&mut self, shared: &mut Shared) {
        self.step_forwards(shared, |pending, _| Some(pending.machine.store_reconnected()));
    }

    pub(super) fn ask_for_late_replies(&mut self, shared: &mut Shared) {
        self.step_forwards(shared, |pending, now| {
            let is_late = now >= pending.since + LEASE_MILLIS;
            is_late.then(|| {
                pending.since = now;
                pending.machine.mail_may_be_lost()
            })
        });
    }

    pub(super) fn client_of_forward_left(&mut self, client: ConnectionNumber, shared: &mut Shared) {
        self.step_forwards(shared, |pending, _| {
            let is_its = pending.client == client;
            is_its.then(|| pending.machine.client_left())
        });
    }

    fn step_forwards(
        &mut self,
        shared: &mut Shared,
        mut input: impl FnMut(&mut PendingForward, u64) -> Option<ForwardStep>,
    ) {
        let now = shared.now;
        let mut all: Vec<u64> = self.forwards.keys().copied().collect();
        all.sort_unstable();
        for rid in all {
            let step = self.forwards.get_mut(&rid).and_then(|pending| input(pending, now));
            if let Some(step) = step {
                self.step_forward(rid, step, shared);
            }
        }
    }

    /// Settles all forwards, because the lease of this node has ended.
    pub(super) fn fail_waiting(&mut self, shared: &mut Shared) {
        for mut pending in std::mem::take(&mut self.forwards).into_values() {
            if pending.machine.lease_ended() == ForwardStep::Fail {
                shared.send(pending.client, ToClient::Error);
            }
        }
    }

    // ---- the executing end ----

    pub(super) fn execute(&mut self, mail: u64, rid: u64, from: Incarnation, call: u64, shared: &mut Shared) {
        let key = (from, rid);
        if self.executions.contains_key(&key) {
            return; // the mail was read twice
        }
        let (machine, step) = Execution::new(self.lease_holds(shared));
        let pending = PendingExecution {
            machine,
            mail,
            call,
            reply: None,
        };
        self.executions.insert(key.clone(), pending);
        self.step_execution(key, step, shared);
    }

    fn step_execution(&mut self, key: (Incarnation, u64), step: ExecutionStep, shared: &mut Shared) {
        let (Some(pending), here) = (self.executions.get(&key), self.incarnation()) else {
            return;
        };
        match step {
            ExecutionStep::Wait | ExecutionStep::Disconnect => {}
            ExecutionStep::Claim => {
                let Some(here) = here else { return };
                self.ask(Op::ClaimMail(here, pending.mail), move |node, shared, outcome| {
                    let lease_holds = node.lease_holds(shared);
                    if let Some(pending) = node.executions.get_mut(&key) {
                        let step = pending.machine.claimed(claim(&outcome), lease_holds);
                        node.step_execution(key, step, shared);
                    }
                });
            }
            ExecutionStep::Run => {
                let call = pending.call;
                self.with_view(shared, move |node, shared, opened| {
                    let (from, rid) = key;
                    match opened {
                        Ok(()) => node.route(call, Origin::Forwarded(from, rid), 0, shared),
                        Err(_) => node.finish_execution((from, rid), ReplyKind::Refused, shared),
                    }
                });
            }
            ExecutionStep::Reply => {
                let (Some(here), Some(kind)) = (here, pending.reply) else {
                    return;
                };
                let (to, rid) = key.clone();
                let mail = Mail::Reply { rid, from: here, kind };
                self.ask(Op::Deliver(to, mail), move |node, shared, outcome| {
                    let delivery = match outcome {
                        Ok(_) => Delivery::Stored,
                        Err(_) => Delivery::StoreFailed,
                    };
                    let is_needed = node.lease_holds(shared) && node.members.liveness(&key.0) != Liveness::Dead;
                    if let Some(pending) = node.executions.get_mut(&key) {
                        let step = pending.machine.reply_delivered(delivery, is_needed);
                        node.step_execution(key, step, shared);
                    }
                });
            }
            ExecutionStep::Forget => {
                self.executions.remove(&key);
            }
        }
    }

    pub(super) fn finish_execution(&mut self, key: (Incarnation, u64), kind: ReplyKind, shared: &mut Shared) {
        if let Some(pending) = self.executions.get_mut(&key) {
            pending.reply = Some(kind);
            let step = pending.machine.finished();
            self.step_execution(key, step, shared);
        }
    }

    pub(super) fn client_of_execution_left(&mut self, rid: u64, from: &Incarnation, shared: &mut Shared) {
        let key = (from.clone(), rid);
        if let Some(pending) = self.executions.get_mut(&key) {
            let step = pending.machine.client_left();
            self.step_execution(key, step, shared);
        }
    }
}
