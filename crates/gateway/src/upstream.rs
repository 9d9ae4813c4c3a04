//! The seam to the MCP server behind the gateway.
//!
//! Everything that carries messages between clients and a server uses [`Upstream`], and so does everything that decides which
//! upstream serves whom. `child` implements it for stdio processes and is the only implementation. Nothing here names a process.

mod activity;
pub(crate) mod bounded;
mod call;
pub(crate) mod codec;
mod message;

pub(crate) use activity::{Activity, UpstreamUse};
pub(crate) use call::{CallId, CallKind, CallSender, MAX_QUEUED_MESSAGE_BYTES, MAX_QUEUED_MESSAGES, UpstreamCall};
pub(crate) use message::{
    UnsolicitedMessage, UpstreamMessage, UpstreamQuestion, parse_upstream_error, upstream_ended_error,
};

use crate::task;
use bytes::Bytes;
use rethread::{Answer, AskError, RpcError, Tag};
use rethread_proto::jsonrpc::RequestId;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A future of a trait object.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The connection to one running server: a process, or later a session of an HTTP server.
///
/// Messages that belong to no call go to the receiver that its start returns. The upstream ends when that receiver is dropped.
pub(crate) trait Upstream: fmt::Debug + Send + Sync {
    /// Registers a call: its messages go to `messages` from now on. Fails if the upstream has ended. With `is_alone` no other
    /// call uses the upstream, so it may wait for a client that reads slowly.
    fn open_call(&self, kind: CallKind, is_alone: bool, messages: CallSender) -> Result<CallId, RpcError>;

    /// Sends the request of a registered call. Its progress token is the gateway's.
    fn send_call<'a>(&'a self, id: CallId, method: &'a str, params: &'a Bytes) -> BoxFuture<'a, Result<(), RpcError>>;

    /// Forgets a call. Cancels it at the server if no response has come.
    fn close_call(&self, id: CallId, has_response: bool);

    /// Sends a notification.
    fn notify<'a>(&'a self, method: &'a str, params: &'a [u8]) -> BoxFuture<'a, Result<(), RpcError>>;

    /// Sends the answer to a question of the server. Does nothing if the upstream has ended.
    fn answer<'a>(&'a self, id: &'a RequestId, outcome: Result<&'a [u8], &'a RpcError>) -> BoxFuture<'a, ()>;

    /// Its uses and open questions.
    fn activity(&self) -> &Activity;

    /// Why it takes no request any more. `None` while it is alive.
    fn end_reason(&self) -> Option<Arc<str>>;

    /// Gives it up: it gets no further message, and ends in bounded time. Its notifications are still delivered.
    fn stop(&self);

    /// Waits until nothing of it is left.
    fn ended(&self) -> BoxFuture<'_, ()>;

    /// Writes an event of its life to the log and the metrics.
    fn record(&self, event: LifeEvent<'_>);
}

/// An event of the life of an upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LifeEvent<'a> {
    /// It serves this session from now on.
    ServesSession(Tag),
    /// It has answered its first request, `took` after its start.
    Started {
        /// It continues a session.
        replayed: bool,
        took: Duration,
        /// Upstreams of this server that run now.
        running: usize,
    },
    /// It is stopped while its user lives on.
    Hibernated { cause: StopCause, running: usize },
    /// It has sent a log message that no client gets, because it names no call.
    LogMessage(&'a [u8]),
}

/// Why an upstream is stopped while its user lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StopCause {
    /// Nobody needed it for its idle limit.
    Idle,
    /// Another start needs its place.
    MaxChildren,
}

impl StopCause {
    /// The name in the log and in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            StopCause::Idle => "idle",
            StopCause::MaxChildren => "max_children",
        }
    }
}

impl dyn Upstream {
    pub(crate) fn is_alive(&self) -> bool {
        self.end_reason().is_none()
    }

    /// `None` while a request uses it or a question of it is open. Otherwise the end of the last use.
    pub(crate) fn unused_since(&self) -> Option<Instant> {
        self.activity().unused_since()
    }

    /// Sends a client's request.
    pub(crate) async fn call(self: &Arc<Self>, method: &str, params: &Bytes) -> Result<UpstreamCall, RpcError> {
        let kind = match method {
            "subscriptions/listen" => CallKind::Subscription,
            _ => CallKind::Client,
        };
        UpstreamCall::send(self, kind, false, method, params).await
    }

    /// Sends the request of a client that uses the upstream alone: the server waits for a client that reads slowly.
    pub(crate) async fn call_alone(self: &Arc<Self>, method: &str, params: &Bytes) -> Result<UpstreamCall, RpcError> {
        UpstreamCall::send(self, CallKind::Client, true, method, params).await
    }

    /// Registers a call of a client, whose request follows. With `is_alone` as for `call_alone`.
    pub(crate) fn open_client_call(self: &Arc<Self>, is_alone: bool) -> Result<UpstreamCall, RpcError> {
        UpstreamCall::open(self, CallKind::Client, is_alone)
    }

    /// Sends a request of the gateway itself, and waits for the result.
    pub(crate) async fn request(self: &Arc<Self>, method: &str, params: &Bytes) -> Result<Bytes, RpcError> {
        let call = UpstreamCall::send(self, CallKind::Gateway, false, method, params).await?;
        call.result().await
    }

    /// Waits for `answer` in the background, and sends it to the server.
    ///
    /// The answer may come long after the call that the question belongs to. Only the server, its end and the end of the
    /// session cancel the question.
    pub(crate) fn answer_question(
        self: &Arc<Self>,
        question: UpstreamQuestion,
        answer: impl Future<Output = Result<Answer, AskError>> + Send + 'static,
    ) {
        let (upstream, id) = (Arc::clone(self), question.id.clone());
        let task = task::spawn(async move {
            match answer.await {
                Ok(answer) => {
                    let answer = codec::remove_own_keys(answer.raw());
                    upstream.answer(&question.id, Ok(&answer)).await;
                }
                Err(error) => upstream.answer(&question.id, Err(&error.into())).await,
            }
        });
        self.activity().add_question(id, task.abort_handle());
    }

    /// Stops waiting for the answer to a question that the server has withdrawn.
    pub(crate) fn cancel_question(&self, id: &RequestId) {
        self.activity().cancel_question(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// An upstream without a process.
    #[derive(Debug)]
    struct Recorder {
        activity: Activity,
        calls: Mutex<Vec<CallSender>>,
        seen: Mutex<Vec<String>>,
        end_reason: Mutex<Option<Arc<str>>>,
    }

    impl Recorder {
        fn saw(&self, event: String) {
            self.seen.lock().push(event);
        }
    }

    impl Upstream for Recorder {
        fn open_call(&self, _: CallKind, _: bool, messages: CallSender) -> Result<CallId, RpcError> {
            let mut calls = self.calls.lock();
            calls.push(messages);
            Ok(calls.len() as CallId)
        }

        fn send_call<'a>(&'a self, id: CallId, method: &'a str, _: &'a Bytes) -> BoxFuture<'a, Result<(), RpcError>> {
            self.saw(format!("send {id} {method}"));
            match method {
                "stuck" => Box::pin(std::future::pending()),
                _ => Box::pin(std::future::ready(Ok(()))),
            }
        }

        fn close_call(&self, id: CallId, has_response: bool) {
            self.saw(format!("close {id} {has_response}"));
        }

        fn notify<'a>(&'a self, _: &'a str, _: &'a [u8]) -> BoxFuture<'a, Result<(), RpcError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn answer<'a>(&'a self, id: &'a RequestId, _: Result<&'a [u8], &'a RpcError>) -> BoxFuture<'a, ()> {
            self.saw(format!("answer {}", String::from_utf8_lossy(id.as_json())));
            Box::pin(std::future::ready(()))
        }

        fn activity(&self) -> &Activity {
            &self.activity
        }

        fn end_reason(&self) -> Option<Arc<str>> {
            self.end_reason.lock().clone()
        }

        fn stop(&self) {
            *self.end_reason.lock() = Some("it was stopped".into());
            self.activity.close();
            self.calls.lock().clear();
        }

        fn ended(&self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }

        fn record(&self, _: LifeEvent<'_>) {}
    }

    fn recorder() -> (Arc<Recorder>, Arc<dyn Upstream>) {
        let recorder = Arc::new(Recorder {
            activity: Activity::new(),
            calls: Mutex::default(),
            seen: Mutex::default(),
            end_reason: Mutex::default(),
        });
        (Arc::clone(&recorder), recorder)
    }

    fn question() -> UpstreamQuestion {
        UpstreamQuestion {
            id: RequestId::from_json("7").unwrap(),
            method: "roots/list".to_owned(),
            params: Bytes::new(),
        }
    }

    /// A call that is dropped before its response is cancelled, also while its request is being sent.
    #[tokio::test]
    async fn gw_02_call_without_a_response_is_cancelled() {
        let (recorder, upstream) = recorder();
        let call = upstream.call("tools/call", &Bytes::new()).await.unwrap();
        drop(call);
        let mut call = upstream.call("tools/call", &Bytes::new()).await.unwrap();
        let response = UpstreamMessage::Response(Ok(Bytes::from_static(b"{}")));
        recorder.calls.lock()[1].try_send(response).unwrap();
        assert!(matches!(call.next().await, Some(UpstreamMessage::Response(Ok(_)))));
        drop(call);
        let params = Bytes::new();
        let stuck = tokio::time::timeout(Duration::from_millis(20), upstream.call("stuck", &params));
        assert!(stuck.await.is_err());
        let expected = [
            "send 1 tools/call",
            "close 1 false",
            "send 2 tools/call",
            "close 2 true",
            "send 3 stuck",
            "close 3 false",
        ];
        assert_eq!(*recorder.seen.lock(), expected);
    }

    /// GW-09: a call of an upstream that has ended says why it has no response.
    #[tokio::test]
    async fn gw_09_call_of_an_ended_upstream_has_its_reason() {
        let (_, upstream) = recorder();
        let mut call = upstream.call("tools/call", &Bytes::new()).await.unwrap();
        upstream.stop();
        assert!(call.next().await.is_none() && !upstream.is_alive());
        assert!(call.no_response_error().message.ends_with("it was stopped"));
    }

    /// GW-20: a use and an open question keep an upstream needed. A withdrawn question does not, and an ended upstream gets
    /// no answer.
    #[tokio::test]
    async fn gw_20_use_and_open_question_keep_an_upstream_needed() {
        let (recorder, upstream) = recorder();
        assert!(upstream.unused_since().is_some());
        let in_use = UpstreamUse::new(&upstream);
        assert!(upstream.unused_since().is_none());
        drop(in_use);
        assert!(upstream.unused_since().is_some());
        upstream.answer_question(question(), std::future::pending());
        assert!(upstream.unused_since().is_none());
        upstream.cancel_question(&question().id);
        tokio::task::yield_now().await;
        assert!(upstream.unused_since().is_some());
        upstream.answer_question(question(), std::future::ready(Err(AskError::Ended)));
        tokio::task::yield_now().await;
        upstream.stop();
        upstream.answer_question(question(), std::future::ready(Err(AskError::Ended)));
        tokio::task::yield_now().await;
        assert_eq!(*recorder.seen.lock(), ["answer 7"]);
    }
}
