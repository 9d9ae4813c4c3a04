//! Reads the messages of a child and delivers each to the call it belongs to.
//!
//! Lines do not name their call. A response and progress carry an id of the gateway, a change carries its subscription. A
//! log message goes to the call if there is exactly one. A question goes to the latest call of a session, and without a session
//! to the only call. Everything else is unsolicited.

use super::connection::ChildConnection;
use super::label::ChildLabel;
use super::sanitize::sanitize_line;
use crate::upstream::{CallId, CallSender, UnsolicitedMessage, UpstreamMessage, UpstreamQuestion, bounded, codec};
use bytes::Bytes;
use rethread_proto::jsonrpc::{self, EnvelopeError, Limits, Message, Payload, RequestId, RpcError};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStdout;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::watch;

/// The longest line of a child. Beyond: the gateway ends the child, since it cannot deliver the message.
const MAX_LINE_BYTES: u64 = 32 << 20;
/// How long a child with several clients waits for one whose queue is full. Beyond: its request is cancelled.
const BURST_GRACE: Duration = Duration::from_millis(50);
/// Limits of one message. Beyond: the line is logged as invalid. Wider than for clients: the operator chose the child.
const MAX_JSON_DEPTH: usize = 120;
const MAX_BATCH_MESSAGES: usize = 1_000;
const MAX_ID_BYTES: usize = 1024;
const ENVELOPE_LIMITS: Limits = Limits::new(MAX_JSON_DEPTH, MAX_BATCH_MESSAGES, MAX_ID_BYTES);

/// The buffered stdout of a child.
pub(super) type StdoutReader = BufReader<ChildStdout>;

/// Handles a call whose queue is full because its client reads too slowly (GW-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverflowPolicy {
    /// The child waits: all its calls belong to one session.
    Wait,
    /// The call is cancelled: other clients share the child and must not wait.
    CancelCall,
}

/// Why a router stopped.
pub(super) enum RouterEnd {
    /// Nobody uses the child any more, or its owner has given it up.
    Stopped,
    /// Stdout ended.
    Eof,
    /// The child broke the protocol or a pipe.
    Failed(String),
}

pub(super) struct MessageRouter {
    pub(super) connection: Weak<ChildConnection>,
    pub(super) label: Arc<ChildLabel>,
    pub(super) unsolicited: bounded::Sender<UnsolicitedMessage>,
    /// Becomes true when the owner gives the child up.
    pub(super) stop: watch::Receiver<bool>,
}

impl MessageRouter {
    /// Routes messages until the child ends or its last user is gone. Once `unusable` resolves, only buffered lines are
    /// read.
    pub(super) async fn run(&self, stdout: &mut StdoutReader, unusable: impl Future<Output = RouterEnd>) -> RouterEnd {
        tokio::pin!(unusable);
        let stopped = self.stopped();
        tokio::pin!(stopped);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = (&mut *stdout).take(MAX_LINE_BYTES + 1);
            let read = tokio::select! {
                biased;
                () = &mut stopped => return RouterEnd::Stopped,
                read = limited.read_until(b'\n', &mut line) => read,
                end = &mut unusable => return end,
            };
            match read {
                Ok(0) => return RouterEnd::Eof,
                Ok(read) if read as u64 > MAX_LINE_BYTES => {
                    return RouterEnd::Failed(format!("it wrote a line of more than {MAX_LINE_BYTES} bytes"));
                }
                Ok(_) => {}
                Err(error) => return RouterEnd::Failed(format!("its stdout cannot be read: {error}")),
            }
            for message in self.parse(line.trim_ascii()) {
                // `route` may wait for a slow client, which must not keep the child of an ended session.
                tokio::select! {
                    () = self.route(message) => {}
                    () = &mut stopped => return RouterEnd::Stopped,
                }
            }
        }
    }

    /// Resolves when the child must be stopped.
    async fn stopped(&self) {
        let mut stop = self.stop.clone();
        tokio::select! {
            Ok(_) = stop.wait_for(|stop| *stop) => {}
            () = self.unsolicited.closed() => {}
        }
    }

    /// Reads the rest of stdout until its end, so that a child that still writes meets no closed or full pipe (GW-24). Its
    /// notifications reach a session that lives on. Responses and questions reach nobody.
    pub(super) async fn drain(&self, stdout: &mut StdoutReader) {
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = (&mut *stdout).take(MAX_LINE_BYTES + 1);
            match limited.read_until(b'\n', &mut line).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
            for message in self.parse(line.trim_ascii()) {
                if let Message::Notification(note) = message {
                    let params = Bytes::copy_from_slice(note.params.as_json());
                    self.route_notification(note.method.as_str(), params).await;
                }
            }
        }
    }

    fn parse(&self, line: &[u8]) -> Vec<Message> {
        if line.is_empty() {
            return Vec::new();
        }
        match jsonrpc::parse(&Bytes::copy_from_slice(line), &ENVELOPE_LIMITS) {
            Ok(Payload::One(message)) => vec![message],
            Ok(Payload::Batch(messages)) => messages,
            Err(error) => {
                let (server, line) = (self.label.server(), sanitize_line(line));
                tracing::warn!(server, %line, "child wrote an invalid line");
                self.reject(error);
                Vec::new()
            }
        }
    }

    /// Answers a question with invalid params: the child may wait for a response.
    fn reject(&self, error: EnvelopeError) {
        if let (EnvelopeError::InvalidParams { id: Some(id), what }, Some(connection)) =
            (error, self.connection.upgrade())
        {
            connection.try_respond(&id, Err(&RpcError::invalid_params(what)));
        }
    }

    async fn route(&self, message: Message) {
        match message {
            Message::Answer(answer) => {
                let Some(id) = call_id(&answer.id) else {
                    return self.log_unexpected_response();
                };
                // Removed before delivery: no later message can belong to the call.
                match self.connection.upgrade().and_then(|c| c.remove_call(id)) {
                    Some(call) => self.deliver(id, &call, UpstreamMessage::Response(answer.outcome)).await,
                    None => self.log_unexpected_response(),
                }
            }
            Message::Notification(note) => {
                let (method, params) = (note.method.as_str(), Bytes::copy_from_slice(note.params.as_json()));
                self.route_notification(method, params).await;
            }
            Message::Request(request) => {
                let question = UpstreamQuestion {
                    id: request.id,
                    method: request.method.as_str().to_owned(),
                    params: Bytes::copy_from_slice(request.params.as_json()),
                };
                self.route_question(question).await;
            }
        }
    }

    fn log_unexpected_response(&self) {
        tracing::debug!(server = self.label.server(), "child responded to no request in flight");
    }

    async fn route_notification(&self, method: &str, params: Bytes) {
        let call = match method {
            "notifications/cancelled" => return self.route_cancellation(&params).await,
            rethread::CLOSE_CONNECTION => {
                let id = codec::notified_request_id(&params).as_ref().and_then(call_id);
                if let Some((id, call)) = id.and_then(|id| self.find_call(id)) {
                    self.deliver(id, &call, UpstreamMessage::CloseConnection).await;
                }
                return;
            }
            "notifications/progress" => match codec::progress_call_id(&params).and_then(|id| self.find_call(id)) {
                Some(call) => Some(call),
                None => return, // the call has ended, or its client asked for no progress
            },
            // While one call runs, nothing else causes log messages.
            "notifications/message" => self.only_client_call(),
            _ => codec::subscription_call_id(&params).and_then(|id| self.find_call(id)),
        };
        let method = method.to_owned();
        match call {
            Some((id, call)) => {
                self.deliver(id, &call, UpstreamMessage::Notification { method, params })
                    .await;
            }
            None => {
                let message = UnsolicitedMessage::Notification { method, params };
                drop(self.unsolicited.send(message).await);
            }
        }
    }

    /// The child ends a subscription or cancels a question.
    ///
    /// Both sides count ids for themselves, so the id of a question may equal the id of a call. Only subscriptions are
    /// looked up as calls.
    async fn route_cancellation(&self, params: &[u8]) {
        let Some(id) = codec::notified_request_id(params) else {
            return;
        };
        let connection = self.connection.upgrade();
        let subscription = call_id(&id).and_then(|id| Some((id, connection?.find_subscription(id)?)));
        if let Some((id, subscription)) = subscription {
            return self
                .deliver(id, &subscription, UpstreamMessage::SubscriptionEnded)
                .await;
        }
        for (call, sender) in self.client_calls() {
            self.deliver(call, &sender, UpstreamMessage::QuestionCancelled(id.clone()))
                .await;
        }
        drop(self.unsolicited.send(UnsolicitedMessage::QuestionCancelled(id)).await);
    }

    /// Sends a question to the latest call of a session, which most likely caused it: its client can answer on any stream. A child
    /// with several callers gets an error unless there is only one call.
    async fn route_question(&self, question: UpstreamQuestion) {
        if question.method == "ping" {
            // The gateway answers: a child may ping before it has a client.
            if let Some(connection) = self.connection.upgrade() {
                connection.try_respond(&question.id, Ok(b"{}"));
            }
            return;
        }
        // In a session every call has the same client. Elsewhere a guess could show the question to another caller.
        let call = match self.label.overflow() {
            OverflowPolicy::Wait => self.client_calls().pop(),
            OverflowPolicy::CancelCall => self.only_client_call(),
        };
        match call {
            Some((id, call)) => self.deliver(id, &call, UpstreamMessage::Question(question)).await,
            None => drop(self.unsolicited.send(UnsolicitedMessage::Question(question)).await),
        }
    }

    async fn deliver(&self, id: CallId, call: &CallSender, message: UpstreamMessage) {
        let connection = self.connection.upgrade();
        let is_alone = connection.as_ref().is_some_and(|connection| connection.is_alone(id));
        if self.label.overflow() == OverflowPolicy::Wait || is_alone {
            return drop(call.send(message).await);
        }
        let Err(TrySendError::Full(message)) = call.try_send(message) else {
            return;
        };
        // A burst of messages is not a slow client.
        let sent = tokio::time::timeout(BURST_GRACE, call.send(message)).await;
        if let (Err(_), Some(connection)) = (sent, connection) {
            tracing::warn!(
                server = self.label.server(),
                "client reads too slowly; its request is cancelled"
            );
            connection.cancel_call(id);
        }
    }

    fn find_call(&self, id: CallId) -> Option<(CallId, CallSender)> {
        Some((id, self.connection.upgrade()?.find_call(id)?))
    }

    fn only_client_call(&self) -> Option<(CallId, CallSender)> {
        let mut calls = self.client_calls();
        if calls.len() == 1 { calls.pop() } else { None }
    }

    fn client_calls(&self) -> Vec<(CallId, CallSender)> {
        let connection = self.connection.upgrade();
        connection.map_or_else(Vec::new, |connection| connection.client_calls())
    }
}

/// The call that a JSON-RPC id names.
fn call_id(id: &RequestId) -> Option<CallId> {
    std::str::from_utf8(id.as_json()).ok()?.parse().ok()
}
