//! Sends messages to a child, and tracks the calls and questions in flight.

use super::kind::ChildKind;
use super::label::ChildLabel;
use super::pool::{ChildId, ChildPermit};
use super::router::{MessageRouter, OverflowPolicy};
use super::spawner::ChildSpawner;
use super::supervisor::Supervisor;
use super::telemetry;
use crate::task;
use crate::upstream::{
    Activity, BoxFuture, CallId, CallKind, CallSender, LifeEvent, MAX_QUEUED_MESSAGE_BYTES, MAX_QUEUED_MESSAGES,
    UnsolicitedMessage, Upstream, bounded, codec, upstream_ended_error,
};
use bytes::Bytes;
use parking_lot::Mutex;
use rethread::RpcError;
use rethread_proto::jsonrpc::RequestId;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Lines queued for the stdin of a child. Beyond either bound the sender waits, at most [`STDIN_TIMEOUT`].
const MAX_QUEUED_LINES: usize = 256;
const MAX_QUEUED_LINE_BYTES: usize = 8 << 20;
/// How long a sender waits for a child that does not read its stdin. Beyond: the request fails.
const STDIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The end of a child that its owner has given up.
const STOPPED: &str = "it was stopped";

/// The connection to a running child. The child ends when it is [stopped](Self::stop), or when the receiver of its unsolicited
/// messages is dropped.
#[derive(Debug)]
pub(crate) struct ChildConnection {
    id: ChildId,
    label: Arc<ChildLabel>,
    stdin: bounded::Sender<Bytes>,
    activity: Activity,
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

/// A process that was just spawned, and its messages that belong to no call.
pub(super) struct SpawnedChild {
    pub(super) connection: Arc<ChildConnection>,
    pub(super) messages: bounded::Receiver<UnsolicitedMessage>,
}

#[derive(Debug)]
struct ConnectionState {
    last_call_id: CallId,
    calls: BTreeMap<CallId, CallEntry>,
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

impl ChildConnection {
    /// Starts a process. [`ChildPool::start`](super::ChildPool::start) calls this.
    pub(super) fn start(
        spawner: &ChildSpawner,
        place: ChildPermit,
        kind: ChildKind,
        overflow: OverflowPolicy,
    ) -> io::Result<SpawnedChild> {
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
            activity: Activity::new(),
            state: Mutex::new(ConnectionState {
                last_call_id: 0,
                calls: BTreeMap::new(),
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
        task::spawn(supervisor.run());
        Ok(SpawnedChild { connection, messages })
    }

    pub(super) fn child_id(&self) -> ChildId {
        self.id
    }

    /// A user claims this spare.
    pub(super) fn claim(&self, kind: ChildKind, overflow: OverflowPolicy) {
        self.label.claim(kind, overflow);
        self.activity.touch();
    }

    /// Sends the response if the queue has space. A child that does not read its stdin gets none.
    pub(super) fn try_respond(&self, id: &RequestId, outcome: Result<&[u8], &RpcError>) {
        let _ = self.stdin.try_send(encode_response(id, outcome));
    }

    async fn send_line(&self, line: Bytes) -> Result<(), RpcError> {
        match tokio::time::timeout(STDIN_TIMEOUT, self.stdin.send(line)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.ended_error()),
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

    pub(super) fn is_alive(&self) -> bool {
        self.state.lock().exit_reason.is_none()
    }

    fn ended_error(&self) -> RpcError {
        let reason = self.state.lock().exit_reason.clone();
        upstream_ended_error(reason.as_deref().unwrap_or(STOPPED))
    }

    /// Ends all calls and questions. Returns how many calls were in flight.
    pub(super) fn record_exit(&self, reason: Arc<str>) -> usize {
        let mut state = self.state.lock();
        if state.exit_reason.is_some() {
            return 0; // it was stopped
        }
        state.exit_reason = Some(reason);
        self.activity.close();
        std::mem::take(&mut state.calls).len()
    }

    /// Waits until the child takes no request any more.
    pub(super) async fn unusable(&self) {
        self.reached(Life::Ended).await;
    }

    /// Waits until the process group has ended and is reaped.
    pub(super) async fn exited(&self) {
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

impl Upstream for ChildConnection {
    fn open_call(&self, kind: CallKind, is_alone: bool, messages: CallSender) -> Result<CallId, RpcError> {
        let mut state = self.state.lock();
        if let Some(reason) = &state.exit_reason {
            return Err(upstream_ended_error(reason));
        }
        state.last_call_id += 1;
        let id = state.last_call_id;
        let entry = CallEntry {
            kind,
            is_alone,
            sender: messages,
        };
        state.calls.insert(id, entry);
        Ok(id)
    }

    fn send_call<'a>(&'a self, id: CallId, method: &'a str, params: &'a Bytes) -> BoxFuture<'a, Result<(), RpcError>> {
        Box::pin(self.send_line(codec::encode_request(id, method, params)))
    }

    fn close_call(&self, id: CallId, has_response: bool) {
        match has_response {
            true => drop(self.remove_call(id)),
            false => self.cancel_call(id),
        }
    }

    fn notify<'a>(&'a self, method: &'a str, params: &'a [u8]) -> BoxFuture<'a, Result<(), RpcError>> {
        Box::pin(self.send_line(codec::encode_notification(method, params)))
    }

    fn answer<'a>(&'a self, id: &'a RequestId, outcome: Result<&'a [u8], &'a RpcError>) -> BoxFuture<'a, ()> {
        let line = encode_response(id, outcome);
        Box::pin(async move {
            let _ = self.send_line(line).await; // fails if the child has exited
        })
    }

    fn activity(&self) -> &Activity {
        &self.activity
    }

    fn end_reason(&self) -> Option<Arc<str>> {
        self.state.lock().exit_reason.clone()
    }

    /// Closes its stdin, and ends it in bounded time (GW-24).
    fn stop(&self) {
        self.record_exit(STOPPED.into());
        self.stop.send_replace(true);
    }

    /// Its process group has ended and is reaped.
    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.exited())
    }

    fn record(&self, event: LifeEvent<'_>) {
        match event {
            LifeEvent::ServesSession(tag) => self.label.set_session(tag),
            LifeEvent::Started {
                replayed,
                took,
                running,
            } => telemetry::started(&self.label, replayed, took, running),
            LifeEvent::Hibernated { cause, running } => telemetry::hibernated(&self.label, cause, running),
            LifeEvent::LogMessage(params) => telemetry::log_message(&self.label, params),
        }
    }
}
