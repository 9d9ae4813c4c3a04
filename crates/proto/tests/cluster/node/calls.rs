//! Routes and runs calls.

use super::{Node, Shared};
use crate::client::{ConnectionNumber, ToClient};
use crate::store::{Failure, LEASE_MILLIS, Mail, Op, ReplyKind};
use rethread_proto::cluster::{AnswerPlace, CallPlace, Incarnation, SessionPlace, SessionViews, place_of_answer};
use rethread_proto::jsonrpc::RequestId;
use rethread_proto::questions::AnswerOutcome;
use rethread_proto::stream::Retain;
use rethread_proto::{Ordinal, StreamKind};

/// Limit of the routing attempts of a call. Each attempt adds information.
const MAX_ATTEMPTS: u32 = 20;

/// The sender of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Client(ConnectionNumber),
    /// The node that forwarded the call, and its number for the request.
    Forwarded(Incarnation, u64),
}

/// A call that runs here.
#[derive(Debug)]
pub(super) struct RunningCall {
    origin: Origin,
    /// Messages before the answer. Without any, the answer is JSON.
    messages_left: u64,
    asks: bool,
    ordinal: Option<Ordinal>,
    /// The open question and its deadline.
    question: Option<(Box<str>, u64)>,
}

impl Node {
    /// A client posts a call.
    pub(crate) fn post(&mut self, call: u64, client: ConnectionNumber, shared: &mut Shared) {
        if !self.lease_holds(shared) {
            return shared.send(client, ToClient::Refused);
        }
        self.with_view(shared, move |node, shared, opened| {
            let origin = Origin::Client(client);
            match opened {
                Ok(()) => node.route(call, origin, 0, shared),
                Err(failure) => node.refuse(&origin, failure, shared),
            }
        });
    }

    /// Runs a call here or forwards it.
    pub(super) fn route(&mut self, call: u64, origin: Origin, attempt: u32, shared: &mut Shared) {
        let (Some(here), Some(view)) = (self.incarnation(), &self.view) else {
            return self.refuse(&origin, Failure::Store, shared);
        };
        if !self.lease_holds(shared) || attempt > MAX_ATTEMPTS {
            return self.refuse(&origin, Failure::Store, shared);
        }
        let place = SessionPlace {
            here: &here,
            holds_state: shared.holds_state,
            owner: view.record.owner.as_ref(),
            is_draining: false,
            is_forwarded: matches!(origin, Origin::Forwarded(..)),
            avoided: &[],
            random: 0,
        };
        match (place.call(&self.members), origin) {
            (CallPlace::Here, origin) => self.run(call, origin, shared),
            (CallPlace::Forward(node), Origin::Client(client)) => self.forward(call, client, node, attempt, shared),
            (CallPlace::Claim(from), origin) => {
                self.ask(Op::Claim { from, to: here }, move |node, shared, outcome| {
                    if let Err(failure) = outcome {
                        return node.refuse(&origin, failure, shared);
                    }
                    shared.count("session claimed");
                    node.reload(move |node, shared, _| {
                        node.route(call, origin, attempt + 1, shared);
                    });
                });
            }
            (CallPlace::Check(other), origin) => self.check(other, move |node, shared, is_known| {
                if is_known {
                    return node.route(call, origin, attempt + 1, shared);
                }
                node.refuse(&origin, Failure::Store, shared);
            }),
            (CallPlace::Moved, Origin::Forwarded(from, rid)) => {
                self.finish_execution((from, rid), ReplyKind::Moved, shared);
            }
            (_, origin) => self.refuse(&origin, Failure::Store, shared),
        }
    }

    fn refuse(&mut self, origin: &Origin, failure: Failure, shared: &mut Shared) {
        match origin {
            Origin::Client(client) => {
                let is_gone = failure == Failure::SessionGone;
                shared.send(*client, if is_gone { ToClient::NotFound } else { ToClient::Refused });
            }
            Origin::Forwarded(from, rid) => self.finish_execution((from.clone(), *rid), ReplyKind::Refused, shared),
        }
    }

    fn run(&mut self, call: u64, origin: Origin, shared: &mut Shared) {
        assert!(shared.ran.insert(call), "call {call} runs twice");
        let running = RunningCall {
            origin,
            messages_left: call % 4,
            asks: call % 5 == 1,
            ordinal: None,
            question: None,
        };
        self.calls.insert(call, running);
        self.work_on(call, shared);
    }

    /// Runs the next step of every call of this node.
    pub(super) fn work_on_calls(&mut self, shared: &mut Shared) {
        let calls: Vec<u64> = self.calls.keys().copied().collect();
        for call in calls {
            self.work_on(call, shared);
        }
    }

    fn work_on(&mut self, call: u64, shared: &mut Shared) {
        let (Some(running), Some(view)) = (self.calls.get_mut(&call), &mut self.view) else {
            return;
        };
        if running.question.as_ref().is_some_and(|(_, until)| shared.now < *until) {
            return;
        }
        if running.messages_left == 0 && running.ordinal.is_none() {
            let origin = running.origin.clone();
            self.calls.remove(&call);
            return match origin {
                Origin::Client(client) => shared.send(client, ToClient::Json),
                Origin::Forwarded(from, rid) => self.finish_execution((from, rid), ReplyKind::Json, shared),
            };
        }
        let Some(ordinal) = running.ordinal else {
            let ordinal = view.ordinals.issue(StreamKind::Call);
            let origin = running.origin.clone();
            running.ordinal = Some(ordinal);
            return self.open_call_stream(call, ordinal, &origin, shared);
        };
        if std::mem::take(&mut running.asks) {
            let question = view.questions.ask(call).expect("the limit is not reached").id();
            let id = String::from_utf8_lossy(question.as_json()).trim_matches('"').to_owned();
            running.question = Some((id.as_str().into(), shared.now + 3 * LEASE_MILLIS));
            return self.emit(ordinal, &format!("{{\"q\":\"{id}\"}}"), Retain::Question, false, shared);
        }
        running.question = None;
        if running.messages_left > 0 {
            running.messages_left -= 1;
            let text = format!("{{\"p\":{call},\"n\":{}}}", running.messages_left);
            return self.emit(ordinal, &text, Retain::None, false, shared);
        }
        self.calls.remove(&call);
        self.emit(ordinal, &format!("{{\"a\":{call}}}"), Retain::Answer, true, shared);
    }

    /// Ends the calls of this node without an answer, because its lease or the session has ended.
    pub(super) fn end_calls(&mut self, shared: &mut Shared) {
        for running in std::mem::take(&mut self.calls).into_values() {
            if let (Origin::Client(client), None) = (running.origin, running.ordinal) {
                shared.send(client, ToClient::Refused);
            }
        }
        self.executions.clear();
    }

    pub(super) fn end_call_of(&mut self, ordinal: Ordinal) {
        self.calls.retain(|_, running| running.ordinal != Some(ordinal));
    }

    // ---- questions ----

    /// A client answers a question.
    pub(crate) fn answer(&mut self, id: Box<str>, client: ConnectionNumber, shared: &mut Shared) {
        if !self.lease_holds(shared) {
            return shared.send(client, ToClient::Refused);
        }
        self.with_view(shared, move |node, shared, opened| match opened {
            Ok(()) => node.route_answer(id, client, 0, shared),
            Err(Failure::SessionGone) => shared.send(client, ToClient::NotFound),
            Err(_) => shared.send(client, ToClient::Refused),
        });
    }

    fn route_answer(&mut self, id: Box<str>, client: ConnectionNumber, attempt: u32, shared: &mut Shared) {
        let (Some(here), Some(view)) = (self.incarnation(), &self.view) else {
            return shared.send(client, ToClient::Refused);
        };
        let views = SessionViews {
            here: &here,
            epoch: view.epoch,
            last_epoch: view.record.last_epoch,
            views: &view.record.views,
        };
        match place_of_answer(&RequestId::from(&*id), &views, &self.members) {
            AnswerPlace::Here => self.settle_question(&id, shared),
            AnswerPlace::Forward(node) => {
                shared.count("answer forwarded");
                self.tell(Op::Deliver(node, Mail::Answer { id }));
            }
            AnswerPlace::Check(other) if attempt < MAX_ATTEMPTS => {
                return self.check(other, move |node, shared, is_known| {
                    if is_known {
                        return node.route_answer(id, client, attempt + 1, shared);
                    }
                    shared.send(client, ToClient::Refused);
                });
            }
            // The view that asked may be newer than the record of this one.
            AnswerPlace::Late | AnswerPlace::NeverAsked if attempt == 0 => {
                return self.reload(move |node, shared, is_read| {
                    if is_read {
                        return node.route_answer(id, client, 1, shared);
                    }
                    shared.send(client, ToClient::Refused);
                });
            }
            place => assert!(
                place != AnswerPlace::NeverAsked || shared.has_lost_writes,
                "the answer to {id} was never asked for"
            ),
        }
        shared.send(client, ToClient::Json);
    }

    /// Handles the answer to a question of this node.
    pub(super) fn settle_question(&mut self, id: &str, shared: &mut Shared) {
        let Some(view) = &mut self.view else { return };
        match view.questions.settle(&RequestId::from(id)) {
            AnswerOutcome::Waiter(call) => {
                shared.count("question answered");
                if let Some(running) = self.calls.get_mut(&call) {
                    running.question = None;
                }
                self.work_on(call, shared);
            }
            AnswerOutcome::Late => {}
            AnswerOutcome::NeverAsked => assert!(shared.has_lost_writes, "{id} arrived at a node that did not ask"),
        }
    }
}
