//! Sends messages to a child, and tracks the calls and questions in flight.

use super::bounded;
use super::codec;
use super::label::ChildLabel;
use super::message::{ChildMessage, ChildQuestion, parse_child_error, server_exited_error};
use super::pool::{ChildId, ChildKind, Place, StartedChild};
use super::router::{MessageRouter, OverflowPolicy};
use super::spawner::ChildSpawner;
use super::supervisor::Supervisor;
use super::telemetry;
use bytes::Bytes;
use parking_lot::Mutex;
use rethread::{Answer, AskError, RpcError};
use rethread_proto::jsonrpc::RequestId;
use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Lines queued for the stdin of a child. Beyond either bound the sender waits, at most [`STDIN_TIMEOUT`].
const MAX_QUEUED_LINES: usize = 256;
const MAX_QUEUED_LINE_BYTES: usize = 8 << 20;
/// Messages of a child queued for one call, or for no call. Beyond either bound [`OverflowPolicy`] decides.
const MAX_QUEUED_MESSAGES: usize = 64;
const MAX_QUEUED_MESSAGE_BYTES: usize = 4 << 20;
/// How long a sender waits for a child that does not read its stdin. Beyond: the request fails.
const STDIN_TIMEOUT: Duration = Duration::from_secs(10);

/// JSON-RPC id of a gateway request to a child (GW-02).
pub(super) type CallId = u64;

/// The queue of one call.
pub(super) type CallSender = bounded::Sender<ChildMessage>;

/// The connection to a running child. The child ends when it is [stopped](Self::stop), or when the receiver of its unsolicited
/// messages is dropped.
#[derive(Debug)]
pub(crate) struct ChildConnection {
    id: ChildId,
    label: Arc<ChildLabel>,
    stdin: bounded::Sender<Bytes>,
    state: Mutex<ConnectionState>,
    stop: watch::Sender<bool>,
    life: watch::Receiver<Life>,
}

/// The life of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Life {
    Running,
    /// It takes no request any more.
    Ended,
    /// Its process group has ended and is reaped.
    Exited,
}

/// Keeps a child needed. Its owner hands this out under the lock under which it gives a child up.
#[derive(Debug)]
pub(crate) struct ChildUse(Arc<ChildConnection>);

impl ChildUse {
    pub(crate) fn new(connection: &Arc<ChildConnection>) -> Self {
        connection.state.lock().uses += 1;
        ChildUse(Arc::clone(connection))
    }
}

impl Drop for ChildUse {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.uses -= 1;
        state.last_used = Instant::now();
    }
}

impl Deref for ChildUse {
    type Target = Arc<ChildConnection>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[derive(Debug)]
struct ConnectionState {
    /// Live [`ChildUse`]s.
    uses: usize,
    last_used: Instant,
    last_call_id: CallId,
    calls: BTreeMap<CallId, CallEntry>,
    /// Questions of the child that wait for the client's answer.
    questions: Vec<(RequestId, AbortHandle)>,
    /// Set when the child has exited.
    exit_reason: Option<Arc<str>>,
}

#[derive(Debug)]
struct CallEntry {
    kind: CallKind,
    /// No other call uses the child, so the child may wait for this one.
    is_alone: bool,
    sender: CallSender,
}

/// Decides which messages of the child can belong to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKind {
    /// A client's request: any message.
    Client,
    /// `subscriptions/listen`: changes and the response.
    Subscription,
    /// A request of the gateway itself: only the response.
    Gateway,
}

/// A request that the child executes. Dropping it before the response cancels the request.
#[derive(Debug)]
pub(crate) struct ChildCall {
    connection: Arc<ChildConnection>,
    id: CallId,
    messages: bounded::Receiver<ChildMessage>,
    completed: bool,
}

impl ChildConnection {
    /// Starts a process. [`ChildPool::start`](super::ChildPool::start) calls this.
    pub(super) fn start(
        spawner: &ChildSpawner,
        place: Place,
        kind: ChildKind,
        overflow: OverflowPolicy,
    ) -> io::Result<StartedChild> {
        let id = place.id();
        let (process, pipes) = spawner.spawn(place)?;
        let label = ChildLabel::new(
            spawner.server.name.as_str().into(),
            process.group,
            (kind, overflow),
            Arc::clone(process.table()),
        );
        telemetry::spawned(&label);
        let (stdin, lines) = bounded::channel(MAX_QUEUED_LINES, MAX_QUEUED_LINE_BYTES);
        let (unsolicited, messages) = bounded::channel(MAX_QUEUED_MESSAGES, MAX_QUEUED_MESSAGE_BYTES);
        let (life_sender, life) = watch::channel(Life::Running);
        let (stop, stop_requested) = watch::channel(false);
        let connection = Arc::new(ChildConnection {
            id,
            label: Arc::clone(&label),
            stdin,
            state: Mutex::new(ConnectionState {
                uses: 0,
                last_used: Instant::now(),
                last_call_id: 0,
                calls: BTreeMap::new(),
                questions: Vec::new(),
                exit_reason: None,
            }),
            stop,
            life,
        });
        let supervisor = Supervisor {
            process,
            pipes,
            lines,
            router: MessageRouter {
                connection: Arc::downgrade(&connection),
                label,
                unsolicited,
                stop: stop_requested,
            },
            life: life_sender,
        };
        tokio::spawn(supervisor.run());
        Ok(StartedChild { connection, messages })
    }

    pub(crate) fn child_id(&self) -> ChildId {
        self.id
    }

    pub(crate) fn label(&self) -> &ChildLabel {
        &self.label
    }

    /// A user claims this spare.
    pub(super) fn claim(&self, kind: ChildKind, overflow: OverflowPolicy) {
        self.label.claim(kind, overflow);
        self.state.lock().last_used = Instant::now();
    }

    /// Gives the child up: it gets no further message, its stdin is closed, and it exits in bounded time (GW-24). Its
    /// notifications are still delivered.
    pub(crate) fn stop(&self) {
        self.record_exit("it was stopped".into());
        self.stop.send_replace(true);
    }

    /// `None` while a request uses the child or a question of it is open. Otherwise the end of the last use.
    pub(crate) fn unused_since(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        state.questions.retain(|(_, task)| !task.is_finished());
        (state.uses == 0 && state.questions.is_empty()).then_some(state.last_used)
    }

    /// Sends a client's request. The gateway replaces its progress token.
    pub(crate) async fn call(self: &Arc<Self>, method: &str, params: &Bytes) -> Result<ChildCall, RpcError> {
        let kind = match method {
            "subscriptions/listen" => CallKind::Subscription,
            _ => CallKind::Client,
        };
        self.send_request(method, params, kind, false).await
    }

    /// Sends the request of a client that uses the child alone: the child waits for a client that reads slowly.
    pub(crate) async fn call_alone(self: &Arc<Self>, method: &str, params: &Bytes) -> Result<ChildCall, RpcError> {
        self.send_request(method, params, CallKind::Client, true).await
    }

    /// Sends a request of the gateway itself, and waits for the result.
    pub(crate) async fn request(self: &Arc<Self>, method: &str, params: &Bytes) -> Result<Bytes, RpcError> {
        let call = self.send_request(method, params, CallKind::Gateway, false).await?;
        call.result().await
    }

    async fn send_request(
        self: &Arc<Self>,
        method: &str,
        params: &Bytes,
        kind: CallKind,
        is_alone: bool,
    ) -> Result<ChildCall, RpcError> {
        let (sender, messages) = bounded::channel(MAX_QUEUED_MESSAGES, MAX_QUEUED_MESSAGE_BYTES);
        let id = {
            let mut state = self.state.lock();
            if let Some(reason) = &state.exit_reason {
                return Err(server_exited_error(reason));
            }
            state.last_call_id += 1;
            let id = state.last_call_id;
            state.calls.insert(id, CallEntry { kind, is_alone, sender });
            id
        };
        let call = ChildCall {
            connection: Arc::clone(self),
            id,
            messages,
            completed: false,
        };
        let params = codec::replace_progress_token(params, id);
        self.send_line(codec::encode_request(id, method, &params)).await?;
        Ok(call)
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: &[u8]) -> Result<(), RpcError> {
        self.send_line(codec::encode_notification(method, params)).await
    }

    /// Waits for `answer` in the background, and sends it to the child.
    ///
    /// The answer may come long after the call that the question belongs to. Only the child, its exit and the end of the
    /// session cancel the question.
    pub(crate) fn answer_question(
        self: &Arc<Self>,
        question: ChildQuestion,
        answer: impl Future<Output = Result<Answer, AskError>> + Send + 'static,
    ) {
        let (connection, id) = (Arc::clone(self), question.id.clone());
        let task = tokio::spawn(async move {
            match answer.await {
                Ok(answer) => {
                    let answer = codec::remove_own_keys(answer.raw());
                    connection.respond(&question.id, Ok(&answer)).await;
                }
                Err(error) => connection.respond(&question.id, Err(&error.into())).await,
            }
        });
        let mut state = self.state.lock();
        if state.exit_reason.is_some() {
            return task.abort();
        }
        state.questions.retain(|(_, task)| !task.is_finished());
        state.questions.push((id, task.abort_handle()));
    }

    /// Stops waiting for the answer to a question that the child has cancelled.
    pub(crate) fn cancel_question(&self, id: &RequestId) {
        let state = self.state.lock();
        for (_, task) in state.questions.iter().filter(|(question, _)| question == id) {
            task.abort();
        }
    }

    /// Sends the response to a question of the child.
    pub(crate) async fn respond(&self, id: &RequestId, outcome: Result<&[u8], &RpcError>) {
        let _ = self.send_line(encode_response(id, outcome)).await; // fails if the child has exited
    }

    /// Sends the response if the queue has space. A child that does not read its stdin gets none.
    pub(super) fn try_respond(&self, id: &RequestId, outcome: Result<&[u8], &RpcError>) {
        let _ = self.stdin.try_send(encode_response(id, outcome));
    }

    async fn send_line(&self, line: Bytes) -> Result<(), RpcError> {
        match tokio::time::timeout(STDIN_TIMEOUT, self.stdin.send(line)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(server_exited_error(&self.exit_reason())),
            Err(_) => Err(RpcError::internal(
                "the server behind the gateway does not read its stdin",
            )),
        }
    }

    /// Removes a call, and cancels it in the child.
    pub(super) fn cancel_call(&self, id: CallId) {
        self.remove_call(id);
        let params = format!("{{\"requestId\":{id},\"reason\":\"the client gave up\"}}");
        // Dropped if the queue is full: a child that does not read its stdin cannot react.
        let _ = self
            .stdin
            .try_send(codec::encode_notification("notifications/cancelled", params.as_bytes()));
    }

    pub(super) fn remove_call(&self, id: CallId) -> Option<CallSender> {
        self.state.lock().calls.remove(&id).map(|call| call.sender)
    }

    pub(super) fn find_call(&self, id: CallId) -> Option<CallSender> {
        self.state.lock().calls.get(&id).map(|call| call.sender.clone())
    }

    /// Whether the child may wait for the client of a call.
    pub(super) fn is_alone(&self, id: CallId) -> bool {
        self.state.lock().calls.get(&id).is_some_and(|call| call.is_alone)
    }

    pub(super) fn find_subscription(&self, id: CallId) -> Option<CallSender> {
        let state = self.state.lock();
        let call = state.calls.get(&id)?;
        (call.kind == CallKind::Subscription).then(|| call.sender.clone())
    }

    /// The calls of clients, oldest first, without subscriptions.
    pub(super) fn client_calls(&self) -> Vec<(CallId, CallSender)> {
        let state = self.state.lock();
        let calls = state.calls.iter().filter(|(_, call)| call.kind == CallKind::Client);
        calls.map(|(id, call)| (*id, call.sender.clone())).collect()
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.state.lock().exit_reason.is_none()
    }

    fn exit_reason(&self) -> Arc<str> {
        let reason = self.state.lock().exit_reason.clone();
        reason.unwrap_or_else(|| "it was stopped".into())
    }

    /// Ends all calls and questions. Returns how many calls were in flight.
    pub(super) fn record_exit(&self, reason: Arc<str>) -> usize {
        let mut state = self.state.lock();
        if state.exit_reason.is_some() {
            return 0; // it was stopped
        }
        state.exit_reason = Some(reason);
        for (_, task) in std::mem::take(&mut state.questions) {
            task.abort();
        }
        std::mem::take(&mut state.calls).len()
    }

    /// Waits until the child takes no request any more.
    pub(crate) async fn ended(&self) {
        self.reached(Life::Ended).await;
    }

    /// Waits until the process group has ended and is reaped.
    pub(crate) async fn exited(&self) {
        self.reached(Life::Exited).await;
    }

    async fn reached(&self, least: Life) {
        let _ = self.life.clone().wait_for(|life| *life >= least).await; // an error means that the supervisor has ended
    }
}

fn encode_response(id: &RequestId, outcome: Result<&[u8], &RpcError>) -> Bytes {
    match outcome {
        Ok(result) => codec::encode_response(id, Ok(result)),
        Err(error) => codec::encode_response(id, Err(&serde_json::to_vec(error).unwrap_or_default())),
    }
}

impl ChildCall {
    /// The next message. `None` if the child has exited or the router has cancelled the call.
    pub(crate) async fn next(&mut self) -> Option<ChildMessage> {
        let message = self.messages.recv().await;
        self.completed |= matches!(message, None | Some(ChildMessage::Response(_)));
        message
    }

    /// Waits for the response, and ignores all other messages.
    async fn result(mut self) -> Result<Bytes, RpcError> {
        loop {
            match self.next().await {
                Some(ChildMessage::Response(outcome)) => return outcome.map_err(|error| parse_child_error(&error)),
                Some(_) => {}
                None => return Err(self.no_response_error()),
            }
        }
    }

    /// Why the call ended without a response.
    pub(crate) fn no_response_error(&self) -> RpcError {
        if self.connection.is_alive() {
            return RpcError::internal("this request was given up: its client reads too slowly");
        }
        server_exited_error(&self.connection.exit_reason())
    }

    pub(crate) fn connection(&self) -> &Arc<ChildConnection> {
        &self.connection
    }
}

impl Drop for ChildCall {
    fn drop(&mut self) {
        if self.completed {
            self.connection.remove_call(self.id);
        } else {
            self.connection.cancel_call(self.id);
        }
    }
}
