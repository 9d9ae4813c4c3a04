//! One stateless request and its answer: nothing is stored, nothing has an id, and when the client hangs up it is over.
//!
//! The form of the answer is open until the handler speaks or ends, as in a session. A handler that asks the client is
//! *parked*: the request ends with a wish for input, and the next request that brings it takes the call up again.

use super::decorate;
use crate::ask::AskError;
use crate::context::Level;
use crate::handler::{Kind, Reply, RpcError, Wish};
use crate::node::Node;
use crate::outlet::TooLate;
use crate::peer::ClientCapabilities;
use crate::telemetry;
use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use rethread_proto::gate::mirror::Stateless;
use rethread_proto::jsonrpc::{Method, Params, ProgressToken, RequestId, write_error};
use rethread_proto::mrtr::{self, InputMethod};
use rethread_proto::refusal::{Reason, stateless_status};
use rethread_proto::sse::Draft;
use rethread_proto::{Principal, Version};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};
use tokio::sync::{Notify, oneshot};

/// A request that waits for its answer.
pub(crate) struct Direct {
    pub(crate) node: Arc<Node>,
    pub(crate) version: Version,
    pub(crate) id: RequestId,
    pub(crate) method: Method,
    pub(crate) params: Params,
    pub(crate) principal: Principal,
    pub(crate) progress_token: Option<ProgressToken>,
    pub(crate) log_level: Option<Level>,
    pub(crate) client: ClientCapabilities,
    state: Mutex<State>,
    room: Notify,
}

/// What a request brings that a call needs to know.
pub(crate) struct Asker {
    pub(crate) principal: Principal,
    log_level: Option<Level>,
    client: ClientCapabilities,
    progress_token: Option<ProgressToken>,
    /// It brings input that was asked for.
    pub(crate) is_retry: bool,
}

impl Asker {
    /// Fails if the request does not say what it must, or says it wrongly (VER-05).
    pub(crate) fn read(principal: Principal, parts: &Stateless) -> Result<Self, Reason> {
        Ok(Asker {
            principal,
            client: ClientCapabilities::of_request(parts.capabilities()?),
            log_level: parts.log_level()?.and_then(Level::parse),
            progress_token: parts.progress_token.clone(),
            is_retry: parts.is_retry(),
        })
    }
}

#[derive(Default)]
struct State {
    phase: Phase,
    said: VecDeque<Bytes>,
    bytes: usize,
    outcome: Option<Outcome>,
    asked: Vec<Asked>,
    questions: u32,
    /// How often the handler has asked in answers of its own.
    round: u32,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Held,
    Streaming,
    /// Answered, parked or abandoned.
    Over,
}

/// The answer: one JSON-RPC message, and the status it has if nothing was sent before.
pub(crate) struct Outcome {
    pub(crate) status: StatusCode,
    pub(crate) message: Bytes,
}

/// A question that waits to be put to the client.
pub(crate) struct Asked {
    pub(crate) key: String,
    pub(crate) method: &'static str,
    pub(crate) params: Bytes,
    pub(crate) waiter: oneshot::Sender<Bytes>,
}

/// What became of a request.
pub(crate) enum Progress {
    Answered(Outcome),
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
    Last(Outcome),
    Asked,
    Over,
    Nothing,
}

/// How much may wait for a reader: a handler that is further ahead waits too.
const AHEAD_MESSAGES: usize = 64;
const AHEAD_BYTES: usize = 256 << 10;

impl Direct {
    pub(crate) fn new(
        node: &Arc<Node>,
        version: Version,
        request: &rethread_proto::jsonrpc::Request,
        asker: Asker,
    ) -> Arc<Self> {
        Arc::new(Direct {
            node: Arc::clone(node),
            version,
            id: request.id.clone(),
            method: request.method.clone(),
            progress_token: asker.progress_token,
            params: request.params.clone(),
            principal: asker.principal,
            log_level: asker.log_level,
            client: asker.client,
            state: Mutex::default(),
            room: Notify::new(),
        })
    }

    /// The handler asked before, in an answer of its own.
    pub(crate) fn is_in_round(&self, round: u32) {
        self.state.lock().round = round;
    }

    // ---- the handler's side ----

    /// Says something that belongs to the call. False if the reader is far behind: then there is [`room`](Self::room) to wait
    /// for.
    pub(crate) fn say(&self, draft: Draft) -> Result<bool, TooLate> {
        let message = draft.into_payload();
        let mut state = self.state.lock();
        if state.phase == Phase::Over {
            return Err(TooLate);
        }
        state.phase = Phase::Streaming;
        state.bytes += message.len();
        state.said.push_back(message);
        state.wake();
        Ok(state.has_room())
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
                if state.has_room() {
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
        if state.asked.len() >= self.node.limits.questions_per_session {
            return Err(AskError::TooMany);
        }
        state.questions += 1;
        let (waiter, answer) = oneshot::channel();
        let key = format!("q{}", state.questions);
        state.asked.push(Asked {
            key,
            method: method.as_str(),
            params,
            waiter,
        });
        state.wake();
        Ok(answer)
    }

    /// The call ends.
    pub(crate) fn finish(&self, result: Result<Reply, RpcError>) {
        let outcome = match result {
            Ok(Reply(Kind::Result(json))) => self.result(&json),
            Ok(Reply(Kind::InputRequired(wish))) => self.wish(wish),
            Err(error) => self.error(&error),
        };
        let mut state = self.state.lock();
        state.outcome = Some(outcome);
        state.wake();
    }

    /// A result, with what the revision adds to it (VER-13).
    pub(crate) fn result(&self, json: &[u8]) -> Outcome {
        match decorate::result(&self.id, json, self.method.as_str(), &self.node.named) {
            Ok(message) => Outcome {
                status: StatusCode::OK,
                message: message.into(),
            },
            Err(error) => self.error(&error),
        }
    }

    /// An error; some of them fix the status, if it is not on the wire yet (HTTP-08, HTTP-12, HTTP-13).
    pub(crate) fn error(&self, error: &RpcError) -> Outcome {
        let mut message = Vec::new();
        let error = &decorate::error(error);
        write_error(&mut message, Some(&self.id), error);
        Outcome {
            status: stateless_status(error),
            message: message.into(),
        }
    }

    /// A handler's own wish for input (MRTR-01, MRTR-03).
    fn wish(&self, wish: Wish) -> Outcome {
        let (requests, own) = (&wish.requests, wish.state);
        if !mrtr::allows_input_required(self.method.as_str()) {
            tracing::error!(target: telemetry::TARGET, method = self.method.as_str(), "a handler asked for input where none can be asked for");
            return self.error(&RpcError::internal("this request cannot ask for input"));
        }
        if let Some(missing) = requests.iter().find_map(|(_, request)| self.client.lacks(request)) {
            return self.error(&AskError::NotSupported(missing).into());
        }
        let round = self.state.lock().round + 1;
        if round > self.node.limits.input_rounds {
            return self.error(&RpcError::internal("this call asked for input too many times")); // MRTR-08
        }
        let sealed = own
            .map(|bytes| super::park::seal(self, mrtr::State::Own { round, bytes }))
            .transpose();
        match sealed.and_then(|state| mrtr::input_required(requests, state.as_deref())) {
            Ok(mut result) => {
                if let Some(meta) = &wish.meta {
                    result.pop(); // the closing brace
                    result.extend_from_slice(b",\"_meta\":");
                    result.extend_from_slice(meta);
                    result.push(b'}');
                }
                self.result(&result)
            }
            Err(error) => self.error(&error),
        }
    }

    /// Nobody waits any more: what is said from now on is dropped.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Over;
        state.said.clear();
        state.asked.clear();
        state.wake();
        drop(state);
        self.room.notify_waiters();
    }

    // ---- the connection's side ----

    /// What became of the request, for one whose answer has no form yet.
    pub(crate) fn progress(&self, cx: &Context<'_>) -> Progress {
        let mut state = self.state.lock();
        if state.phase == Phase::Streaming || !state.said.is_empty() {
            return Progress::Streaming;
        }
        if let Some(outcome) = state.outcome.take() {
            state.phase = Phase::Over;
            return Progress::Answered(outcome);
        }
        if !state.asked.is_empty() {
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
        if let Some(outcome) = state.outcome.take() {
            state.phase = Phase::Over;
            return Written::Last(outcome);
        }
        if state.phase == Phase::Over {
            return Written::Over;
        }
        if !state.asked.is_empty() {
            return Written::Asked;
        }
        state.keep(cx);
        Written::Nothing
    }

    /// The questions that wait to be asked; the request ends with them.
    pub(crate) fn park(&self) -> Vec<Asked> {
        let mut state = self.state.lock();
        state.phase = Phase::Over;
        std::mem::take(&mut state.asked)
    }

    /// Goes on where `earlier` was parked: with its numbering, and with what was asked since.
    pub(crate) fn take_up(&self, earlier: &Direct) {
        let mut before = earlier.state.lock();
        let (asked, questions, outcome) = (
            std::mem::take(&mut before.asked),
            before.questions,
            before.outcome.take(),
        );
        drop(before);
        let mut state = self.state.lock();
        state.asked = asked;
        state.questions = questions;
        state.outcome = outcome;
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.said.len() < AHEAD_MESSAGES && self.bytes < AHEAD_BYTES
    }

    fn keep(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
