//! The response to a request while its calls run: the state machine [`Response`], the requests that wait for it, and the
//! stream that it may become, under one lock.
//!
//! A message is encoded when it is delivered, for the request that waits at that moment. So a retry may arrive at any
//! moment, and nothing goes to the request before it. `parking.rs` has the part of stateless calls that ask for input.

mod parking;
mod requests;

use super::call_scope::{CallScope, StatelessScope};
use super::input::Input;
use super::json_response::{self, JsonResponse};
use super::request_meta::RequestMeta;
use super::response_sink::{Emitted, ResponseSink};
use crate::call::reply::Reply;
use crate::node::Node;
use crate::session::Session;
use crate::stream::Stream;
use crate::stream::direct_stream::DirectStream;
use crate::stream::reader_body::ReaderBody;
use parking_lot::{Mutex, MutexGuard};
use requests::Requests;
use rethread_proto::exchange::{self, Cancelled, ClientGone, Emit, Response, ResponseRules};
use rethread_proto::jsonrpc::{Progress, Report, RpcError};
use rethread_proto::sse::{AnyLines, EncodeMessage};
use rethread_proto::stream::{ReaderStart, StreamClosed};
use rethread_proto::{LogLevel, Principal, Version};
use rethread_store::Retain;
use std::sync::Arc;
use std::task::Waker;

/// A response that is not complete. Its calls share it with the future and the body that wait for it.
pub(crate) struct Exchange {
    pub(crate) node: Arc<Node>,
    pub(crate) version: Version,
    pub(crate) scope: CallScope,
    state: Mutex<State>,
}

struct State {
    response: Response,
    requests: Requests,
    sink: Option<ResponseSink>,
    /// The connection of a logged stream, or that of a direct one, until the response future takes it.
    reader: Option<ResponseReader>,
    /// The JSON body, if the handler ran elsewhere than in the response future.
    json: Option<JsonResponse>,
    /// The call was cancelled before the response had a form.
    cancelled: bool,
    /// Wakes the response future.
    waiter: Option<Waker>,
    /// The questions of a stateless call, and what a parked one keeps.
    input: Input,
}

impl State {
    /// Whether the stateless request that waits wants log messages of this level.
    fn wants_log(&self, level: LogLevel) -> bool {
        let least = self.requests.get(0).client.log_level;
        self.response.is_waiting_for_input() || least.is_some_and(|least| level >= least)
    }
}

/// A connection that reads the stream of a response.
pub(crate) enum ResponseReader {
    Logged(Box<ReaderBody>),
    Direct(Arc<DirectStream>),
}

/// The response has ended, or its stream has.
pub(crate) struct TooLate;

/// An event for the response future.
pub(crate) enum ResponseEvent {
    /// The response is a JSON object.
    Json(JsonResponse),
    /// The response is a stream.
    Stream(ResponseReader),
    /// A handler waits for input.
    Asking,
    /// The call was cancelled, and there is nothing to send.
    Cancelled,
    /// Nothing yet; the waker is kept.
    Pending,
}

/// The place of a reply.
pub(crate) enum ReplyResult {
    /// It is the JSON body of the response.
    Json(JsonResponse),
    /// It went into the stream, waits for the retry, or nobody wants it.
    Elsewhere,
    /// The stream has no room. Wait, and try again.
    NoRoom(ResponseSink, Result<Reply, RpcError>),
}

impl Exchange {
    /// The response to a single request in a session.
    pub(crate) fn in_session(session: &Arc<Session>, request: RequestMeta) -> Arc<Self> {
        let rules = ResponseRules::request(session.version());
        Self::new_in_session(session, rules, Requests::One(request), None)
    }

    /// The response to a batch: a stream from the start.
    pub(crate) fn batch(session: &Arc<Session>, requests: Vec<RequestMeta>) -> (Arc<Self>, Box<ReaderBody>) {
        let rules = ResponseRules::batch(session.version());
        let requests = Requests::Batch(requests);
        let stream = requests.open_stream(session);
        let reader = session.open_reader(Arc::clone(&stream), ReaderStart::default(), false);
        stream.flush();
        let sink = Some(ResponseSink::Session(stream));
        (Self::new_in_session(session, rules, requests, sink), reader)
    }

    /// The response to a request in a session that has one stream for everything (LEG-02).
    pub(crate) fn connection_bound(session: &Arc<Session>, stream: Arc<Stream>, request: RequestMeta) -> Arc<Self> {
        let sink = Some(ResponseSink::Session(stream));
        Self::new_in_session(session, ResponseRules::connection_bound(), Requests::One(request), sink)
    }

    fn new_in_session(
        session: &Arc<Session>,
        rules: ResponseRules,
        requests: Requests,
        sink: Option<ResponseSink>,
    ) -> Arc<Self> {
        let (node, version) = (Arc::clone(&session.node), session.version());
        let scope = CallScope::Session(Arc::clone(session));
        Self::new(node, version, scope, rules, requests, sink)
    }

    /// The response to a stateless request, whose call holds a permit.
    pub(crate) fn stateless(
        node: &Arc<Node>,
        version: Version,
        scope: StatelessScope,
        request: RequestMeta,
    ) -> Arc<Self> {
        let (scope, rules) = (CallScope::Stateless(scope), ResponseRules::request(version));
        Self::new(Arc::clone(node), version, scope, rules, Requests::One(request), None)
    }

    fn new(
        node: Arc<Node>,
        version: Version,
        scope: CallScope,
        rules: ResponseRules,
        requests: Requests,
        sink: Option<ResponseSink>,
    ) -> Arc<Self> {
        Arc::new(Exchange {
            node,
            version,
            scope,
            state: Mutex::new(State {
                response: Response::new(rules, requests.len()),
                requests,
                sink,
                reader: None,
                json: None,
                cancelled: false,
                waiter: None,
                input: Input::new(),
            }),
        })
    }

    /// Whether this responds to a request of the session era that names no session.
    pub(crate) fn is_sessionless(&self) -> bool {
        matches!(&self.scope, CallScope::Stateless(scope) if scope.is_sessionless)
    }

    /// The session that the calls belong to, if they belong to one.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        match &self.scope {
            CallScope::Session(session) => Some(session),
            CallScope::Stateless(_) => None,
        }
    }

    pub(crate) fn principal(&self) -> &Principal {
        match &self.scope {
            CallScope::Session(session) => &session.key.principal,
            CallScope::Stateless(scope) => &scope.principal,
        }
    }

    /// Reads something of a request that waits; of a parked call, of the last one that did.
    pub(crate) fn request<T>(&self, index: usize, read: impl FnOnce(&RequestMeta) -> T) -> T {
        read(self.state.lock().requests.get(index))
    }

    /// Whether a log message of this level is wanted (LOG-01, LOG-02). While the call is parked every one is: the retry says
    /// which it wants.
    pub(crate) fn wants_log(&self, level: LogLevel) -> bool {
        match &self.scope {
            CallScope::Session(session) => session.log_level().is_none_or(|least| level >= least),
            CallScope::Stateless(_) => self.state.lock().wants_log(level),
        }
    }

    // ---- the side of the calls ----

    /// Emits a message. `None` if no stream has it: it is kept for the retry, or nobody can read it.
    pub(crate) fn emit(&self, message: impl EncodeMessage, retain: Retain) -> Result<Option<Emitted>, TooLate> {
        self.bind_pushed();
        self.emit_locked(self.state.lock(), message, retain)
    }

    /// Emits a log message, unless a retry has come that does not want it (LOG-02).
    pub(crate) fn emit_log(&self, level: LogLevel, message: impl EncodeMessage) -> Result<Option<Emitted>, TooLate> {
        self.bind_pushed();
        let state = self.state.lock();
        if matches!(self.scope, CallScope::Stateless(_)) && !state.wants_log(level) {
            return Ok(None);
        }
        self.emit_locked(state, message, Retain::None)
    }

    fn emit_locked(
        &self,
        mut state: MutexGuard<'_, State>,
        message: impl EncodeMessage,
        retain: Retain,
    ) -> Result<Option<Emitted>, TooLate> {
        match state.response.emit() {
            Emit::Keep => {
                self.keep(state, |input| input.keep_message(message.draft().into_payload()));
                Ok(None)
            }
            decision => self.deliver(state, decision, message, retain),
        }
    }

    /// Reports progress under the token of the request, if it has one. Of a parked call the latest report is kept.
    pub(crate) fn report(&self, index: usize, report: Report<'_>) -> Result<Option<Emitted>, TooLate> {
        self.bind_pushed();
        let mut state = self.state.lock();
        let is_parked = state.response.is_waiting_for_input();
        let request = state.requests.get_mut(index);
        if (request.progress_token.is_none() && !is_parked) || !request.rises(report) {
            return Ok(None);
        }
        match state.response.emit() {
            Emit::Keep => {
                self.keep(state, |input| input.keep_progress(report));
                Ok(None)
            }
            decision => {
                let Some(token) = state.requests.get(index).progress_token.clone() else {
                    return Ok(None);
                };
                let message = Progress { token: &token, report };
                self.deliver(state, decision, message, Retain::None)
            }
        }
    }

    /// Delivers a message according to `decision`.
    ///
    /// The stream gets it under the lock. Otherwise the call could reply or be parked in between, and the message would follow
    /// the response or meet a closed stream. Wakers and the store are called without the lock.
    fn deliver(
        &self,
        mut state: MutexGuard<'_, State>,
        decision: Emit,
        message: impl EncodeMessage,
        retain: Retain,
    ) -> Result<Option<Emitted>, TooLate> {
        let mut waiter = None;
        match decision {
            Emit::Open => {
                self.open(&mut state);
                waiter = state.waiter.take();
            }
            Emit::Deliver => {}
            Emit::Keep | Emit::Discard => return Ok(None),
            Emit::TooLate => return Err(TooLate),
        }
        let emitted = match state.sink.clone().ok_or(TooLate)? {
            ResponseSink::Session(stream) => {
                let emitted = stream.emit_pending(message, retain, false);
                drop(state);
                match emitted {
                    Ok((emission, pending)) => {
                        stream.perform(pending);
                        Ok(Emitted::new(ResponseSink::Session(stream), emission))
                    }
                    Err(closed) => Err(closed),
                }
            }
            ResponseSink::Direct(stream) => {
                let emitted = stream.emit(message, false);
                drop(state);
                emitted.map(|(emission, effects)| {
                    stream.perform(effects);
                    Emitted::new(ResponseSink::Direct(stream), emission)
                })
            }
        };
        wake(waiter);
        emitted.map(Some).map_err(|StreamClosed| TooLate)
    }

    /// A parked call keeps something for its retry, and the table counts it.
    fn keep(&self, mut state: MutexGuard<'_, State>, keep: impl FnOnce(&mut Input) -> usize) {
        let bytes = keep(&mut state.input);
        let id = state.input.parked_as();
        drop(state);
        if let (CallScope::Stateless(scope), Some(id)) = (&self.scope, id) {
            scope.tables.parked.grow(id, bytes);
        }
    }

    /// Makes the response a stream, if it has no form yet. False if it has one, or has ended.
    pub(crate) fn upgrade(&self) -> bool {
        let mut state = self.state.lock();
        if !state.response.upgrade() {
            return false;
        }
        self.open(&mut state);
        let (sink, waiter) = (state.sink.clone(), state.waiter.take());
        drop(state);
        wake(waiter);
        if let Some(sink) = sink {
            sink.flush();
        }
        true
    }

    fn open(&self, state: &mut State) {
        let (sink, reader) = match &self.scope {
            CallScope::Session(session) => {
                let stream = state.requests.open_stream(session);
                let reader = session.open_reader(Arc::clone(&stream), ReaderStart::default(), false);
                (ResponseSink::Session(stream), ResponseReader::Logged(reader))
            }
            CallScope::Stateless(_) => {
                let params = self.node.direct_stream(state.requests.get(0).framing);
                let stream = DirectStream::open(params, &self.node);
                (
                    ResponseSink::Direct(Arc::clone(&stream)),
                    ResponseReader::Direct(stream),
                )
            }
        };
        state.sink = Some(sink);
        state.reader = Some(reader);
    }

    /// On the one stream of a session, messages keep the order in which a handler emitted them: what it pushed goes first.
    fn bind_pushed(&self) {
        if let CallScope::Session(session) = &self.scope
            && let Some(stream) = session.live_stream()
        {
            session.push.bind_before_call_message(&stream);
        }
    }

    /// A call replies.
    pub(crate) fn reply(&self, index: usize, reply: Result<Reply, RpcError>) -> ReplyResult {
        self.bind_pushed();
        let mut state = self.state.lock();
        if let Some(sink) = state.sink.as_ref().filter(|sink| !sink.takes_reply()) {
            return ReplyResult::NoRoom(sink.clone(), reply);
        }
        match state.response.reply() {
            exchange::Reply::Json => {
                let request = state.requests.get(index).clone();
                drop(state);
                ReplyResult::Json(json_response::encode(&self.node, &self.scope, &request, reply))
            }
            exchange::Reply::Deliver { seals } => {
                let (request, sink) = (state.requests.get(index).clone(), state.sink.clone());
                match sink {
                    // Under the lock: otherwise the last reply of a batch could seal the stream before this one is in it.
                    Some(ResponseSink::Session(stream)) => {
                        let message = json_response::SessionReply::new(&request.id, reply);
                        let emitted = stream.emit_pending(message, Retain::Answer, seals);
                        drop(state);
                        if let Ok((_, pending)) = emitted {
                            stream.perform(pending); // an error: the stream has ended with its session
                        }
                    }
                    Some(ResponseSink::Direct(stream)) => {
                        drop(state);
                        let json = json_response::encode(&self.node, &self.scope, &request, reply);
                        let _ = stream.emit_now(AnyLines(&json.message), seals);
                    }
                    None => {}
                }
                ReplyResult::Elsewhere
            }
            exchange::Reply::Keep => {
                self.keep(state, |input| input.keep_reply(reply));
                ReplyResult::Elsewhere
            }
            exchange::Reply::Discard => ReplyResult::Elsewhere,
        }
    }

    /// The JSON body of a response whose handler ran in a task of its own.
    pub(crate) fn complete(&self, json: JsonResponse) {
        let mut state = self.state.lock();
        state.json = Some(json);
        let waiter = state.waiter.take();
        drop(state);
        wake(waiter);
    }

    /// A call is cancelled: it gets no reply.
    pub(crate) fn cancel(&self) {
        let mut state = self.state.lock();
        let cancelled = state.response.cancel();
        state.cancelled |= cancelled == Cancelled::Empty;
        let (waiter, sink) = (state.waiter.take(), state.sink.clone());
        let abandoned = state.input.abandon();
        if cancelled == Cancelled::Unpark && state.input.holds_permit {
            self.node.unpark_call(self.principal());
        }
        drop(state);
        wake(waiter);
        if let (Cancelled::Seal, Some(sink)) = (cancelled, sink) {
            sink.seal();
        }
        if let (CallScope::Stateless(scope), Some(id)) = (&self.scope, abandoned.parked_as) {
            scope.tables.parked.forget(id);
        }
        drop(abandoned); // outside of the lock: those who wait for an answer are woken
    }

    /// Whether no client can ever read the response.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.state.lock().response.is_unreachable()
    }

    /// The stream, once there is one.
    pub(crate) fn sink(&self) -> Option<ResponseSink> {
        self.state.lock().sink.clone()
    }

    // ---- the side of the connection ----

    /// The next event for the response future. Keeps `waker` if there is none.
    pub(crate) fn poll(&self, waker: &Waker) -> ResponseEvent {
        let mut state = self.state.lock();
        if let Some(reader) = state.reader.take() {
            let sink = state.sink.clone();
            drop(state);
            if let Some(sink) = sink {
                sink.flush(); // one append for all messages so far
            }
            return ResponseEvent::Stream(reader);
        }
        if let Some(json) = state.json.take() {
            return ResponseEvent::Json(json);
        }
        if state.cancelled {
            return ResponseEvent::Cancelled;
        }
        if self.is_asking(&mut state) {
            return ResponseEvent::Asking;
        }
        match &mut state.waiter {
            Some(kept) => kept.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        ResponseEvent::Pending
    }

    /// Whether a handler waits for input that only a retry can bring.
    pub(crate) fn asks_for_input(&self) -> bool {
        self.is_asking(&mut self.state.lock())
    }

    fn is_asking(&self, state: &mut State) -> bool {
        state.response.rules().parks_questions && !state.response.is_done() && state.input.open_questions() > 0
    }

    /// The connection that waited is gone. Returns the consequence for the calls.
    pub(crate) fn client_gone(&self) -> ClientGone {
        let mut state = self.state.lock();
        let gone = state.response.client_gone();
        let (reader, sink) = (state.reader.take(), state.sink.clone());
        drop(state);
        drop(reader); // outside of the lock: detaching takes others
        if let Some(sink) = sink {
            sink.flush();
        }
        gone
    }
}

/// Wakes the response future. Call it without the lock.
fn wake(waiter: Option<Waker>) {
    if let Some(waiter) = waiter {
        waiter.wake();
    }
}
