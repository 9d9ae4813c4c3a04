//! A request that waits for the form of its answer, and the stream that the answer may become.

use super::outcome::{self, Outcome};
use super::parked_calls::{self as park, ParkedCalls};
use super::stateless_request::{Direct, Progress, Written};
use crate::call::active_call::ActiveCall;
use crate::call::run::{HandlerFuture, run_detached};
use crate::stream::events::Messages;
use bytes::Bytes;
use rethread_proto::jsonrpc::RpcError;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// A request that waits for its answer. Dropping it is the client hanging up: the call is cancelled (CAN-03).
pub(crate) struct Serving(State);

#[allow(clippy::large_enum_variant)] // one of them is the rule, the other the exception
enum State {
    /// There was nothing to wait for.
    Answered(Option<Outcome>),
    Waiting(Waiting),
}

struct Waiting {
    work: Option<HandlerFuture>,
    call: Attached,
    timer: Option<Pin<Box<Sleep>>>,
    collect: Option<Pin<Box<Sleep>>>,
}

/// The form that the answer took.
pub(crate) enum Served {
    Answered(Outcome),
    Stream(Flow),
}

/// A client's hold on a call: letting go before the end cancels it.
struct Attached {
    parked: Arc<ParkedCalls>,
    running: Arc<ActiveCall>,
    direct: Arc<Direct>,
    round: u32,
    done: bool,
    /// Resolves when the server can wait no longer.
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Attached {
    fn new(parked: Arc<ParkedCalls>, running: Arc<ActiveCall>, direct: Arc<Direct>, round: u32) -> Self {
        Attached {
            parked,
            running,
            direct,
            round,
            done: false,
            closing: None,
        }
    }

    /// The server stops and the call has not ended: the client is told, because one that only sees its stream end waits
    /// for an answer until it times out (T-38).
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let node = &self.direct.node;
        let closing = self.closing.get_or_insert_with(|| {
            let mut closing = node.closing.subscribe();
            Box::pin(async move {
                let _ = closing.wait_for(|closing| *closing).await; // gone: so is the server
            })
        });
        closing.as_mut().poll(cx).map(|()| {
            self.done = true;
            self.running.cancel();
            outcome::error_for(&self.direct, &RpcError::internal("the server is shutting down"))
        })
    }

    /// The call waits for input: the request ends with its questions. `None` if there is something to send first.
    fn park(&mut self) -> Option<Outcome> {
        let outcome = park::park(&self.parked, &self.running, &self.direct, self.round + 1);
        self.done |= outcome.is_some();
        outcome
    }

    fn hold(&mut self) -> Attached {
        self.done = true;
        let parked = Arc::clone(&self.parked);
        Attached::new(parked, Arc::clone(&self.running), Arc::clone(&self.direct), self.round)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !self.done {
            self.running.cancel();
        }
    }
}

impl Serving {
    /// The answer is known.
    pub(crate) fn answered(outcome: Outcome) -> Self {
        Serving(State::Answered(Some(outcome)))
    }

    /// Waits for the answer of `work`, which is polled right here; of a call that was parked before, if there is none.
    pub(crate) fn waiting(
        parked: Arc<ParkedCalls>,
        work: Option<HandlerFuture>,
        running: Arc<ActiveCall>,
        direct: Arc<Direct>,
        round: u32,
    ) -> Self {
        Serving(State::Waiting(Waiting {
            work,
            call: Attached::new(parked, running, direct, round),
            timer: None,
            collect: None,
        }))
    }
}

impl Waiting {
    fn hand_over(&mut self) {
        if let Some(work) = self.work.take() {
            tokio::spawn(run_detached(work, Arc::clone(&self.call.running)));
        }
    }
}

impl Future for Serving {
    type Output = Served;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Served> {
        let this = match &mut self.0 {
            State::Waiting(waiting) => waiting,
            State::Answered(outcome) => {
                let outcome = outcome.take().expect("a future is not polled after it is done");
                return Poll::Ready(Served::Answered(outcome));
            }
        };
        let inline = this.work.is_some();
        if let Some(work) = &mut this.work
            && work.as_mut().poll(cx).is_ready()
        {
            this.work = None;
        }
        loop {
            match this.call.direct.progress(cx) {
                Progress::Replied(reply) => {
                    let outcome = outcome::encode(&this.call.direct, reply);
                    this.call.done = true;
                    this.hand_over();
                    return Poll::Ready(Served::Answered(outcome));
                }
                Progress::Streaming => {
                    this.hand_over();
                    let flow = Flow::new(this.call.hold());
                    return Poll::Ready(Served::Stream(flow));
                }
                Progress::Asked => {
                    let collect = this.collect.get_or_insert_with(|| {
                        Box::pin(tokio::time::sleep(this.call.direct.node.timing.collect_questions))
                    });
                    if !inline && collect.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    if let Some(outcome) = this.call.park() {
                        this.hand_over();
                        return Poll::Ready(Served::Answered(outcome));
                    }
                    this.collect = None;
                }
                Progress::Nothing => {
                    this.collect = None;
                    let delay = this.call.direct.node.upgrade_after.fallback;
                    let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(delay)));
                    if timer.as_mut().poll(cx).is_pending() {
                        let closing = this.call.poll_closing(cx);
                        return closing.map(|outcome| {
                            this.hand_over();
                            Served::Answered(outcome)
                        });
                    }
                    this.call.direct.upgrade(); // HTTP-08
                }
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.work.is_some() {
            self.call.running.cancel();
            self.hand_over(); // its grace
        }
    }
}

/// An answer that is a stream: messages of this call, then the answer (SSE-12).
pub(crate) struct Flow {
    call: Attached,
    collect: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl Flow {
    fn new(call: Attached) -> Self {
        Flow {
            call,
            collect: None,
            ended: false,
        }
    }

    pub(crate) fn keep_alive(&self) -> Duration {
        self.call.direct.node.timing.keep_alive
    }
}

/// Dropping the flow before its end cancels the call.
impl Messages for Flow {
    fn poll_messages(&mut self, cx: &mut Context<'_>) -> Poll<Option<VecDeque<Bytes>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let outcome = loop {
            match self.call.direct.write(cx) {
                Written::Said(messages) => return Poll::Ready(Some(messages)),
                Written::Nothing => {
                    self.collect = None;
                    match self.call.poll_closing(cx) {
                        Poll::Ready(outcome) => break outcome,
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Written::Over => {
                    self.ended = true;
                    return Poll::Ready(None);
                }
                Written::Last(reply) => break outcome::encode(&self.call.direct, reply),
                Written::Asked => {
                    let collect = self.collect.get_or_insert_with(|| {
                        Box::pin(tokio::time::sleep(self.call.direct.node.timing.collect_questions))
                    });
                    if collect.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    if let Some(outcome) = self.call.park() {
                        break outcome; // T-27
                    }
                    self.collect = None;
                }
            }
        };
        self.ended = true;
        self.call.done = true;
        Poll::Ready(Some(VecDeque::from([outcome.message])))
    }
}
