//! Both ends of a forwarded request: one node receives it, another one runs it.
//!
//! Exactly one node claims the mail with the request. The executing node claims it before it runs the request, and only
//! while its lease holds. The receiving node claims it only when the executing node is dead or does not know the
//! request. So no request runs twice. There is no time limit: the wait ends with the reply or with the lease of the
//! executing node. A live node that does not answer for three leases does not serve this server.
//!
//! A store that lost its last writes may have lost the mail, the reply or the claim. The receiving node then asks the
//! executing node ([`Forward::store_reconnected`]). Mailboxes keep their order, and the executing node registers a
//! request when it reads its mail. So an executing node that does not know a request has sent the reply before, or
//! never got the request. From then on a claim proves nothing: the store may have forgotten the claim of the executing
//! node.

/// The result of the delivery of a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The mailbox has the mail.
    Stored,
    /// The mailbox is full and does not have the mail.
    Full,
    /// The store cannot be reached. The mailbox may have the mail nevertheless.
    StoreFailed,
}

/// The result of an attempt to claim a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The caller has the mail.
    Won,
    /// Another attempt has it, or the store has lost it.
    Lost,
    /// The store cannot be reached. The attempt may have won nevertheless.
    StoreFailed,
}

/// The receiving end of a forward.
#[derive(Debug)]
pub struct Forward {
    state: ForwardState,
    client_left: bool,
    executor_is_dead: bool,
    /// The store may have forgotten a claim.
    claims_may_be_lost: bool,
    /// Unanswered questions to the executing node.
    unanswered: u32,
}

/// A live node that serves the same server answers at once. After this many unanswered questions, it does not serve it.
const MAX_UNANSWERED: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForwardState {
    Sending,
    Waiting,
    Claiming,
    Done,
}

/// The next step of the receiving end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardStep {
    /// Nothing now.
    Wait,
    /// Ask the executing node whether it knows the request, and pass its answer to [`Forward::executor_answered`].
    Ask,
    /// Claim the mail, and pass the result to [`Forward::claimed`]. After a failure of the store, wait a moment.
    Claim,
    /// The request did not run: route it again.
    RouteAgain,
    /// The request was not delivered, because the mailbox of the executing node is full: refuse it.
    Refuse,
    /// The request may have run: the client gets an error on its id.
    Fail,
    /// Send the reply to the client.
    Reply,
    /// Notify the executing node that the client has left.
    SendClientLeft,
}

impl Forward {
    /// A request that is about to be delivered to the executing node.
    pub const fn new() -> Self {
        Forward {
            state: ForwardState::Sending,
            client_left: false,
            executor_is_dead: false,
            claims_may_be_lost: false,
            unanswered: 0,
        }
    }

    /// Whether the forward has ended. Its entry may be removed.
    pub fn is_done(&self) -> bool {
        self.state == ForwardState::Done
    }

    /// The result of the delivery.
    pub fn delivered(&mut self, delivery: Delivery) -> ForwardStep {
        if self.state != ForwardState::Sending {
            return ForwardStep::Wait; // the reply has arrived before
        }
        match delivery {
            Delivery::Full => self.end(ForwardStep::Refuse),
            // The id of the mail is unknown, so this node cannot claim it.
            Delivery::StoreFailed => self.end(ForwardStep::Fail),
            Delivery::Stored => {
                self.state = ForwardState::Waiting;
                if self.executor_is_dead {
                    return self.claim();
                }
                if self.client_left {
                    return ForwardStep::SendClientLeft;
                }
                ForwardStep::Wait
            }
        }
    }

    /// The reply has arrived. It overrides everything else, because the request did run.
    pub fn replied(&mut self) -> ForwardStep {
        self.end(ForwardStep::Reply)
    }

    /// The executing node is dead.
    pub fn executor_died(&mut self) -> ForwardStep {
        self.executor_is_dead = true;
        self.claim()
    }

    /// The connection to the store was lost and is back. The store may have restarted without its last writes.
    pub fn store_reconnected(&mut self) -> ForwardStep {
        self.claims_may_be_lost = true;
        match self.state {
            ForwardState::Waiting => ForwardStep::Ask,
            _ => ForwardStep::Wait,
        }
    }

    /// The lease of this node has ended. The reply goes to a mailbox that nobody reads, and the request may run.
    pub fn lease_ended(&mut self) -> ForwardStep {
        self.end(ForwardStep::Fail)
    }

    /// A lease has passed without a reply. A live node that does not answer cannot serve the request.
    pub fn mail_may_be_lost(&mut self) -> ForwardStep {
        if self.state != ForwardState::Waiting {
            return ForwardStep::Wait;
        }
        if self.unanswered == MAX_UNANSWERED {
            return self.end(ForwardStep::Fail);
        }
        self.unanswered += 1;
        ForwardStep::Ask
    }

    /// The executing node has answered whether it knows the request.
    pub fn executor_answered(&mut self, knows_request: bool) -> ForwardStep {
        self.unanswered = 0;
        if knows_request {
            return ForwardStep::Wait;
        }
        self.claim()
    }

    /// The result of the claim.
    ///
    /// After a failure of the store a claim proves nothing: the failure may be the first sign of a restart.
    pub fn claimed(&mut self, claim: Claim) -> ForwardStep {
        self.claims_may_be_lost |= claim == Claim::StoreFailed;
        if self.state != ForwardState::Claiming {
            return ForwardStep::Wait;
        }
        match claim {
            Claim::Won if !self.claims_may_be_lost => self.end(ForwardStep::RouteAgain),
            Claim::Won | Claim::Lost => self.end(ForwardStep::Fail),
            Claim::StoreFailed => ForwardStep::Claim,
        }
    }

    /// The client has left. The forward continues: the executing node decides whether to cancel the request.
    pub fn client_left(&mut self) -> ForwardStep {
        if std::mem::replace(&mut self.client_left, true) || self.state != ForwardState::Waiting {
            return ForwardStep::Wait;
        }
        ForwardStep::SendClientLeft
    }

    fn claim(&mut self) -> ForwardStep {
        if self.state != ForwardState::Waiting {
            return ForwardStep::Wait;
        }
        self.state = ForwardState::Claiming;
        ForwardStep::Claim
    }

    fn end(&mut self, step: ForwardStep) -> ForwardStep {
        if self.is_done() {
            return ForwardStep::Wait;
        }
        self.state = ForwardState::Done;
        if self.client_left { ForwardStep::Wait } else { step }
    }
}

impl Default for Forward {
    fn default() -> Self {
        Forward::new()
    }
}

/// The executing end of a forward. It exists from the read of its mail until the delivery of its reply.
#[derive(Debug)]
pub struct Execution {
    state: ExecutionState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutionState {
    Claiming {
        /// An earlier attempt may have won.
        in_doubt: bool,
    },
    Running,
    Replying,
    Done,
}

/// The next step of the executing end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionStep {
    /// Nothing now.
    Wait,
    /// Claim the mail, and pass the result to [`Execution::claimed`]. After a failure of the store, wait a moment.
    Claim,
    /// Run the request, once.
    Run,
    /// The client has left: treat the request as one whose connection broke.
    Disconnect,
    /// Deliver the reply, and pass the result to [`Execution::reply_delivered`]. After a failure, wait a moment.
    Reply,
    /// The execution has ended: remove it.
    Forget,
}

impl Execution {
    /// A mail with a request was read. Without a lease another node acts for this one, so the mail stays in the
    /// mailbox.
    pub fn new(lease_holds: bool) -> (Self, ExecutionStep) {
        let (state, step) = if lease_holds {
            (ExecutionState::Claiming { in_doubt: false }, ExecutionStep::Claim)
        } else {
            (ExecutionState::Done, ExecutionStep::Forget)
        };
        (Execution { state }, step)
    }

    /// The result of the claim, and whether the lease holds after it.
    ///
    /// While the lease holds, no other node claims mail of this one. So if a claim is lost after one in doubt, the one
    /// in doubt has won.
    pub fn claimed(&mut self, claim: Claim, lease_holds: bool) -> ExecutionStep {
        let ExecutionState::Claiming { in_doubt } = self.state else {
            return ExecutionStep::Wait;
        };
        if !lease_holds {
            return self.end();
        }
        match claim {
            Claim::StoreFailed => {
                self.state = ExecutionState::Claiming { in_doubt: true };
                ExecutionStep::Claim
            }
            Claim::Lost if !in_doubt => self.end(),
            Claim::Won | Claim::Lost => {
                self.state = ExecutionState::Running;
                ExecutionStep::Run
            }
        }
    }

    /// The client has left.
    pub fn client_left(&self) -> ExecutionStep {
        match self.state {
            ExecutionState::Running => ExecutionStep::Disconnect,
            _ => ExecutionStep::Wait,
        }
    }

    /// The request has a reply.
    pub fn finished(&mut self) -> ExecutionStep {
        if self.state != ExecutionState::Running {
            return ExecutionStep::Wait;
        }
        self.state = ExecutionState::Replying;
        ExecutionStep::Reply
    }

    /// The result of the delivery of the reply. `is_needed` while the receiving node lives and the lease of this one
    /// holds.
    pub fn reply_delivered(&mut self, delivery: Delivery, is_needed: bool) -> ExecutionStep {
        if self.state != ExecutionState::Replying {
            return ExecutionStep::Wait;
        }
        if delivery == Delivery::Stored || !is_needed {
            return self.end();
        }
        ExecutionStep::Reply
    }

    fn end(&mut self) -> ExecutionStep {
        self.state = ExecutionState::Done;
        ExecutionStep::Forget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Forward {
        let mut forward = Forward::new();
        assert_eq!(forward.delivered(Delivery::Stored), ForwardStep::Wait);
        forward
    }

    #[test]
    fn node_forward_is_routed_again_only_if_it_did_not_run() {
        for (claim, expected) in [(Claim::Won, ForwardStep::RouteAgain), (Claim::Lost, ForwardStep::Fail)] {
            let mut forward = waiting();
            assert_eq!(forward.executor_died(), ForwardStep::Claim);
            assert_eq!(forward.executor_died(), ForwardStep::Wait, "one claim at a time");
            assert_eq!(forward.claimed(claim), expected);
            assert!(forward.is_done());
            assert_eq!(forward.replied(), ForwardStep::Wait, "too late");
        }
    }

    #[test]
    fn node_reply_wins_over_the_death_of_its_node() {
        let mut forward = waiting();
        let _ = forward.executor_died();
        assert_eq!(forward.replied(), ForwardStep::Reply);
        assert_eq!(forward.claimed(Claim::Won), ForwardStep::Wait);
        let mut fast = Forward::new();
        assert_eq!(fast.replied(), ForwardStep::Reply);
        assert_eq!(fast.delivered(Delivery::StoreFailed), ForwardStep::Wait);
    }

    #[test]
    fn node_death_before_the_delivery_is_settled_after_it() {
        let mut forward = Forward::new();
        assert_eq!(
            forward.executor_died(),
            ForwardStep::Wait,
            "the id of the mail is not known yet"
        );
        assert_eq!(forward.delivered(Delivery::Stored), ForwardStep::Claim);
        assert_eq!(Forward::new().delivered(Delivery::Full), ForwardStep::Refuse);
        assert_eq!(Forward::new().delivered(Delivery::StoreFailed), ForwardStep::Fail);
    }

    #[test]
    fn node_lost_mail_is_detected() {
        let mut forward = waiting();
        assert_eq!(forward.mail_may_be_lost(), ForwardStep::Ask);
        assert_eq!(forward.executor_answered(true), ForwardStep::Wait);
        assert_eq!(forward.mail_may_be_lost(), ForwardStep::Ask);
        assert_eq!(forward.executor_answered(false), ForwardStep::Claim);
        assert_eq!(forward.claimed(Claim::Lost), ForwardStep::Fail);
        assert_eq!(forward.mail_may_be_lost(), ForwardStep::Wait);
        let mut forward = waiting();
        for _ in 0..MAX_UNANSWERED {
            assert_eq!(forward.mail_may_be_lost(), ForwardStep::Ask);
        }
        let step = forward.mail_may_be_lost();
        assert_eq!(step, ForwardStep::Fail, "its node does not serve this server");
    }

    #[test]
    fn node_claim_proves_nothing_after_the_store_has_reconnected() {
        let mut forward = waiting();
        assert_eq!(forward.store_reconnected(), ForwardStep::Ask);
        assert_eq!(forward.executor_died(), ForwardStep::Claim);
        assert_eq!(
            forward.claimed(Claim::Won),
            ForwardStep::Fail,
            "the other claim may be forgotten"
        );
        let mut forward = waiting();
        let _ = forward.executor_died();
        assert_eq!(forward.claimed(Claim::StoreFailed), ForwardStep::Claim);
        assert_eq!(forward.claimed(Claim::Won), ForwardStep::Fail, "the event comes later");
    }

    #[test]
    fn node_without_a_lease_waits_for_no_reply() {
        let mut forward = waiting();
        assert_eq!(forward.lease_ended(), ForwardStep::Fail);
        assert_eq!(forward.replied(), ForwardStep::Wait, "too late");
        assert_eq!(
            Forward::new().lease_ended(),
            ForwardStep::Fail,
            "the mail may be delivered"
        );
    }

    #[test]
    fn can_03_executing_node_learns_once_that_the_client_has_left() {
        let mut forward = waiting();
        assert_eq!(forward.client_left(), ForwardStep::SendClientLeft);
        assert_eq!(forward.client_left(), ForwardStep::Wait);
        assert_eq!(forward.replied(), ForwardStep::Wait, "the client has left");
        let mut early = Forward::new();
        assert_eq!(
            early.client_left(),
            ForwardStep::Wait,
            "the request is not delivered yet"
        );
        assert_eq!(early.delivered(Delivery::Stored), ForwardStep::SendClientLeft);
        assert_eq!(early.executor_died(), ForwardStep::Claim);
        assert_eq!(early.claimed(Claim::Won), ForwardStep::Wait, "no client waits for it");
    }

    #[test]
    fn node_runs_a_forwarded_request_once_and_only_with_its_lease() {
        let (mut execution, step) = Execution::new(true);
        assert_eq!(step, ExecutionStep::Claim);
        assert_eq!(execution.claimed(Claim::Won, true), ExecutionStep::Run);
        assert_eq!(execution.claimed(Claim::Won, true), ExecutionStep::Wait);
        assert_eq!(execution.finished(), ExecutionStep::Reply);
        assert_eq!(execution.reply_delivered(Delivery::Full, true), ExecutionStep::Reply);
        assert_eq!(execution.reply_delivered(Delivery::Stored, true), ExecutionStep::Forget);
        assert_eq!(Execution::new(false).1, ExecutionStep::Forget);
        for (claim, lease_holds) in [(Claim::Won, false), (Claim::Lost, true), (Claim::StoreFailed, false)] {
            let (mut execution, _) = Execution::new(true);
            assert_eq!(
                execution.claimed(claim, lease_holds),
                ExecutionStep::Forget,
                "{claim:?} {lease_holds}"
            );
            assert_eq!(execution.finished(), ExecutionStep::Wait);
        }
    }

    /// While the lease holds only this node claims its mail.
    #[test]
    fn node_claim_in_doubt_is_settled_by_the_next_attempt() {
        for claim in [Claim::Won, Claim::Lost] {
            let (mut execution, _) = Execution::new(true);
            assert_eq!(execution.claimed(Claim::StoreFailed, true), ExecutionStep::Claim);
            assert_eq!(execution.claimed(claim, true), ExecutionStep::Run);
        }
    }

    #[test]
    fn can_03_client_that_left_before_the_start_or_during_it() {
        let (mut execution, _) = Execution::new(true);
        assert_eq!(execution.client_left(), ExecutionStep::Wait);
        assert_eq!(execution.claimed(Claim::Won, true), ExecutionStep::Run);
        assert_eq!(execution.client_left(), ExecutionStep::Disconnect);
        let _ = execution.finished();
        assert_eq!(
            execution.reply_delivered(Delivery::StoreFailed, false),
            ExecutionStep::Forget
        );
    }
}
