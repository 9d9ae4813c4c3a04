//! One stateless call and its answer: nothing is stored, nothing has an id, and when the client hangs up it is over.
//!
//! The form of the answer is open until the handler speaks or ends, as in a session. A handler that asks the client is
//! *parked*: the request ends with a wish for input, and the next request that brings it takes the place of the one
//! before. What a message needs to know of its request is under the same lock as the state of the answer, and a message
//! is encoded when it is delivered. So a retry meets the handler at any moment, and nothing goes to the request before.

use super::kept::Kept;
use super::request_meta::{Asker, RequestMeta};
use crate::call::ask_error::AskError;
use crate::call::outlet::TooLate;
use crate::call::reply::Reply;
use crate::node::Node;
use crate::node::telemetry;
use crate::session::subscriptions::Subscriptions;
use bytes::Bytes;
use parking_lot::Mutex;
use rethread_proto::LogLevel;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::jsonrpc::{self, Method, Params, Report, Request};
use rethread_proto::mrtr::{self, InputMethod, InputResponses};
use rethread_proto::sse::EncodeMessage;
use rethread_proto::{Principal, Version};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};
use tokio::sync::{Notify, oneshot};

/// The table of parked calls, as a call sees it.
pub(crate) trait ParkingTable: Send + Sync {
    /// The parked call `id` is over.
    fn forget(&self, id: u128);

    /// The parked call `id` keeps `bytes` more.
    fn grow(&self, id: u128, bytes: usize);
}

/// The tables that stateless calls share.
#[derive(Clone)]
pub(crate) struct StatelessTables {
    pub(crate) parked: Arc<dyn ParkingTable>,
    pub(crate) subscriptions: Arc<Subscriptions>,
}

/// A call that one request after another waits for.
pub(crate) struct Direct {
    pub(crate) node: Arc<Node>,
    pub(crate) version: Version,
    pub(crate) method: Method,
    /// Of the first request. A retry repeats them (MRTR-04).
    pub(crate) params: Params,
    pub(crate) principal: Principal,
    /// How often the handler has asked before, in answers of its own.
    pub(super) round: u32,
    pub(super) parked: Arc<dyn ParkingTable>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    state: Mutex<State>,
    room: Notify,
}

struct State {
    phase: Phase,
    request: RequestMeta,
    /// Messages that wait for the reader; of a parked call, for the retry.
    said: VecDeque<Bytes>,
    bytes: usize,
    last_progress: Option<f64>,
    /// Progress of a parked call that waits for the retry.
    kept: Kept,
    /// The end of the call. It is encoded when it is delivered, for the request that waits then.
    reply: Option<Result<Reply, RpcError>>,
    /// Questions that are not answered.
    asked: Vec<Asked>,
    questions: u32,
    holds_permit: bool,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    Streaming,
    /// Waits for a retry, under this name.
    Parked(u128),
    /// Answered or abandoned.
    Over,
}

/// A question that waits to be put to the client, or for its answer.
struct Asked {
    question: Question,
    waiter: oneshot::Sender<Bytes>,
}

/// What a client is asked.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) key: String,
    pub(crate) method: &'static str,
    pub(crate) params: Bytes,
}

/// What became of a request.
pub(crate) enum Progress {
    /// The handler has replied, or the call was cancelled.
    Replied(Result<Reply, RpcError>),
    /// The handler speaks: the answer is a stream.
    Streaming,
    /// The handler waits for input.
    Asked,
    /// Nothing yet; the waker is kept.
    Nothing,
}

/// What a stream has to write.
pub(crate) enum Written {
    /// What the call said.
    Said(VecDeque<Bytes>),
    /// The last message.
    Last(Result<Reply, RpcError>),
    Asked,
    Over,
    Nothing,
}

/// How much may wait for a reader: a handler that is further ahead waits too.
const AHEAD_MESSAGES: usize = 64;
const AHEAD_BYTES: usize = 256 << 10;

impl Direct {
    /// A call that holds a permit.
    pub(crate) fn new(
        node: &Arc<Node>,
        tables: StatelessTables,
        version: Version,
        request: &Request,
        asker: Asker,
        round: u32,
    ) -> Arc<Self> {
        Arc::new(Direct {
            node: Arc::clone(node),
            version,
            method: request.method.clone(),
            params: request.params.clone(),
            principal: asker.principal.clone(),
            round,
            parked: tables.parked,
            subscriptions: tables.subscriptions,
            state: Mutex::new(State {
                phase: Phase::Held,
                request: asker.into_meta(request.id.clone()),
                said: VecDeque::new(),
                bytes: 0,
                last_progress: None,
                kept: Kept::default(),
                reply: None,
                asked: Vec::new(),
                questions: 0,
                holds_permit: true,
                waker: None,
            }),
            room: Notify::new(),
        })
    }

    /// Reads something of the request that waits for the answer; of a parked call, of the last one that did.
    pub(crate) fn request<T>(&self, read: impl FnOnce(&RequestMeta) -> T) -> T {
        read(&self.state.lock().request)
    }

    /// Bytes of messages that wait for the client.
    pub(super) fn kept_bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Whether a log message of this level is wanted. While the call is parked every one is: the retry says which it wants.
    pub(crate) fn wants_log(&self, level: LogLevel) -> bool {
        let state = self.state.lock();
        matches!(state.phase, Phase::Parked(_)) || state.request.log_level.is_some_and(|least| level >= least)
    }

    // ---- the handler's side ----

    /// Says something that belongs to the call. False if the reader is far behind: then there is [`room`](Self::room) to wait
    /// for. A parked call keeps what fits for its retry.
    pub(crate) fn say(&self, message: Bytes) -> Result<bool, TooLate> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Over => Err(TooLate),
            Phase::Parked(id) => {
                if state.said.len() < AHEAD_MESSAGES && state.bytes + message.len() <= AHEAD_BYTES {
                    let bytes = message.len();
                    state.push(message);
                    drop(state);
                    self.parked.grow(id, bytes);
                } else {
                    state.kept.dropped += 1;
                }
                Ok(true)
            }
            Phase::Held | Phase::Streaming => {
                let waker = state.emit(message);
                let has_room = state.has_room();
                drop(state);
                wake(waker);
                Ok(has_room)
            }
        }
    }

    /// Reports progress under the token of the request, if it has one. Numbers must rise: one that does not is dropped
    /// (PRG-01). Of a parked call the latest report is kept for its retry. The rest is as in [`say`](Self::say).
    pub(crate) fn report(&self, report: Report<'_>) -> Result<bool, TooLate> {
        let mut state = self.state.lock();
        let is_parked = matches!(state.phase, Phase::Parked(_));
        if !is_parked && state.request.progress_token.is_none() {
            return Ok(true);
        }
        if state.phase == Phase::Over {
            return Err(TooLate);
        }
        if let Report::Value { progress, .. } = report {
            if !progress.is_finite() || state.last_progress.is_some_and(|last| progress <= last) {
                return Ok(true);
            }
            state.last_progress = Some(progress);
        }
        if is_parked {
            state.kept.progress(report, AHEAD_BYTES);
            return Ok(true);
        }
        let Some(token) = &state.request.progress_token else {
            return Ok(true);
        };
        let message = jsonrpc::Progress { token, report }.draft().into_payload();
        let waker = state.emit(message);
        let has_room = state.has_room();
        drop(state);
        wake(waker);
        Ok(has_room)
    }

    /// Waits for a reader that is far behind, up to the stall time.
    pub(crate) async fn room(&self) -> Result<(), TooLate> {
        loop {
            let freed = self.room.notified();
            tokio::pin!(freed);
            {
                let state = self.state.lock();
                if state.phase == Phase::Over {
                    return Err(TooLate);
                }
                if state.has_room() || matches!(state.phase, Phase::Parked(_)) {
                    return Ok(());
                }
                freed.as_mut().enable();
            }
            if tokio::time::timeout(self.node.timing.stall, freed).await.is_err() {
                telemetry::stalled();
                return Err(TooLate);
            }
        }
    }

    /// Puts a question to the client: the answer comes with another request.
    pub(crate) fn ask(&self, method: &str, params: Bytes) -> Result<oneshot::Receiver<Bytes>, AskError> {
        let method = InputMethod::from_name(method).filter(|_| mrtr::allows_input_required(self.method.as_str()));
        let method = method.ok_or(AskError::NotSupported("this question during this request"))?;
        let mut state = self.state.lock();
        if state.phase == Phase::Over {
            return Err(AskError::Ended);
        }
        state.forget_withdrawn_questions();
        if state.asked.len() >= self.node.limits.questions_per_session {
            return Err(AskError::TooMany);
        }
        state.questions += 1;
        let (waiter, answer) = oneshot::channel();
        let question = Question {
            key: format!("q{}", state.questions),
            method: method.as_str(),
            params,
        };
        state.asked.push(Asked { question, waiter });
        let waker = state.waker.take();
        drop(state);
        wake(waker);
        Ok(answer)
    }

    /// The call ends, and gives its permit back. A parked one keeps its end for the retry.
    pub(crate) fn finish(&self, result: Result<Reply, RpcError>) {
        let bytes = match &result {
            Ok(reply) => reply.size(),
            Err(_) => 0,
        };
        let mut state = self.state.lock();
        if state.phase != Phase::Over {
            state.reply = Some(result);
        }
        state.release_permit(&self.node);
        let waker = state.waker.take();
        let phase = state.phase;
        drop(state);
        if let Phase::Parked(id) = phase {
            self.parked.grow(id, bytes);
        }
        self.node.grew_quieter();
        wake(waker);
    }

    /// The handler is gone: the permit is given back, if that was not done before.
    pub(crate) fn release_permit(&self) {
        self.state.lock().release_permit(&self.node);
        self.node.grew_quieter();
    }

    /// Nobody waits any more: what is said from now on is dropped. A parked call leaves the table.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        let phase = std::mem::replace(&mut state.phase, Phase::Over);
        if matches!(phase, Phase::Parked(_)) && state.holds_permit {
            self.node.calls.unpark();
        }
        state.said.clear();
        state.kept = Kept::default();
        let (asked, reply) = (std::mem::take(&mut state.asked), state.reply.take());
        let waker = state.waker.take();
        drop(state);
        drop((asked, reply)); // those who wait for an answer are woken
        wake(waker);
        self.room.notify_waiters();
        if let Phase::Parked(id) = phase {
            self.parked.forget(id);
        }
    }

    // ---- the connection's side ----

    /// What became of the request, for one whose answer has no form yet.
    pub(crate) fn progress(&self, cx: &Context<'_>) -> Progress {
        let mut state = self.state.lock();
        if state.phase == Phase::Streaming || !state.said.is_empty() {
            return Progress::Streaming;
        }
        if let Some(reply) = state.reply.take() {
            state.phase = Phase::Over;
            drop(state);
            return Progress::Replied(reply);
        }
        if state.phase == Phase::Over {
            drop(state);
            return Progress::Replied(Err(RpcError::internal("the call was cancelled")));
        }
        if state.is_asking() {
            return Progress::Asked;
        }
        state.keep(cx);
        Progress::Nothing
    }

    /// Makes the answer a stream, if its form is open.
    pub(crate) fn upgrade(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Held {
            state.phase = Phase::Streaming;
        }
    }

    /// What the stream has to write.
    pub(crate) fn write(&self, cx: &Context<'_>) -> Written {
        let mut state = self.state.lock();
        if !state.said.is_empty() {
            let said = std::mem::take(&mut state.said);
            state.bytes = 0;
            drop(state);
            self.room.notify_waiters();
            return Written::Said(said);
        }
        if let Some(reply) = state.reply.take() {
            state.phase = Phase::Over;
            drop(state);
            return Written::Last(reply);
        }
        if state.phase == Phase::Over {
            return Written::Over;
        }
        if state.is_asking() {
            return Written::Asked;
        }
        state.keep(cx);
        Written::Nothing
    }

    /// The request ends with these questions, and the call waits for the next one under the name `id`. `None` if there is
    /// something else to send first.
    pub(crate) fn park(&self, id: u128) -> Option<Vec<Question>> {
        let mut state = self.state.lock();
        if state.phase == Phase::Over || state.reply.is_some() || !state.said.is_empty() || !state.is_asking() {
            return None;
        }
        state.phase = Phase::Parked(id);
        state.waker = None;
        if state.holds_permit {
            self.node.calls.park();
        }
        let questions = state.asked.iter().map(|asked| asked.question.clone()).collect();
        drop(state);
        self.room.notify_waiters();
        Some(questions)
    }

    /// A retry takes the place of the request that the call was parked in: its answers go to those who wait for them, and it
    /// gets what was kept. False if the call waits no more.
    pub(crate) fn retry(&self, request: RequestMeta, responses: &InputResponses) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Parked(_)) {
            return false;
        }
        if state.holds_permit {
            self.node.calls.unpark();
        }
        state.request = request;
        let mut answered = Vec::new();
        for asked in std::mem::take(&mut state.asked) {
            match responses.get(&asked.question.key) {
                Some(response) => answered.push((asked.waiter, response.clone())),
                None => state.asked.push(asked), // asked again (MRTR-06)
            }
        }
        let dropped = state.deliver_kept();
        state.phase = if state.said.is_empty() {
            Phase::Held
        } else {
            Phase::Streaming
        };
        drop(state);
        for (waiter, response) in answered {
            let _ = waiter.send(response); // nobody waits any more: the call moved on
        }
        telemetry::parked_messages_dropped(dropped);
        true
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.said.len() < AHEAD_MESSAGES && self.bytes < AHEAD_BYTES
    }

    fn push(&mut self, message: Bytes) {
        self.bytes += message.len();
        self.said.push_back(message);
    }

    /// A message for the client that waits, and who is to be woken for it.
    fn emit(&mut self, message: Bytes) -> Option<Waker> {
        self.phase = Phase::Streaming;
        self.push(message);
        self.waker.take()
    }

    /// Whether the handler waits for answers. Questions that nobody waits for any more are forgotten.
    fn is_asking(&mut self) -> bool {
        self.forget_withdrawn_questions();
        !self.asked.is_empty()
    }

    fn forget_withdrawn_questions(&mut self) {
        self.asked.retain(|asked| !asked.waiter.is_closed());
    }

    /// Readies what was kept for the request that has come: the log messages that it wants, then progress. Says how many
    /// messages were not kept.
    fn deliver_kept(&mut self) -> usize {
        let kept = std::mem::take(&mut self.kept);
        let level = self.request.log_level;
        self.said.retain(|message| Kept::is_wanted(message, level));
        self.bytes = self.said.iter().map(Bytes::len).sum();
        if let Some(token) = &self.request.progress_token
            && let Some(message) = kept.progress_under(token)
        {
            self.push(message);
        }
        kept.dropped
    }

    fn release_permit(&mut self, node: &Node) {
        if std::mem::take(&mut self.holds_permit) {
            match self.phase {
                Phase::Parked(_) => node.calls.leave_parked(),
                _ => node.calls.leave(),
            }
        }
    }

    fn keep(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
