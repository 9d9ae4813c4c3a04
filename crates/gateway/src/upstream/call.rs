//! A request that an upstream executes.

use super::bounded;
use super::message::{UpstreamMessage, parse_upstream_error, upstream_ended_error};
use super::{Upstream, codec};
use bytes::Bytes;
use rethread::RpcError;
use std::sync::Arc;

/// Messages of an upstream queued for one call. Beyond either bound the upstream decides: it waits, or cancels the call.
pub(crate) const MAX_QUEUED_MESSAGES: usize = 64;
pub(crate) const MAX_QUEUED_MESSAGE_BYTES: usize = 4 << 20;

/// JSON-RPC id of a gateway request to an upstream (GW-02).
pub(crate) type CallId = u64;

/// The queue of one call.
pub(crate) type CallSender = bounded::Sender<UpstreamMessage>;

/// Decides which messages of the upstream can belong to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A client's request: any message.
    Client,
    /// `subscriptions/listen`: changes and the response.
    Subscription,
    /// A request of the gateway itself: only the response.
    Gateway,
}

/// A request that the upstream executes. Dropping it before the response cancels the request.
#[derive(Debug)]
pub(crate) struct UpstreamCall {
    upstream: Arc<dyn Upstream>,
    id: CallId,
    messages: bounded::Receiver<UpstreamMessage>,
    completed: bool,
}

impl UpstreamCall {
    pub(super) async fn send(
        upstream: &Arc<dyn Upstream>,
        kind: CallKind,
        is_alone: bool,
        method: &str,
        params: &Bytes,
    ) -> Result<Self, RpcError> {
        let mut call = Self::open(upstream, kind, is_alone)?;
        let params = codec::replace_progress_token(params, call.id);
        call.begin(method, &params).await?;
        Ok(call)
    }

    /// Registers a call whose request follows with [`begin`](Self::begin). Its messages are received from now on.
    pub(super) fn open(upstream: &Arc<dyn Upstream>, kind: CallKind, is_alone: bool) -> Result<Self, RpcError> {
        let (sender, messages) = bounded::channel(MAX_QUEUED_MESSAGES, MAX_QUEUED_MESSAGE_BYTES);
        let id = upstream.open_call(kind, is_alone, sender)?;
        Ok(UpstreamCall {
            upstream: Arc::clone(upstream),
            id,
            messages,
            completed: true, // nothing is sent that could be cancelled
        })
    }

    /// Sends the request of this call. Its progress token is that of `params`.
    pub(crate) async fn begin(&mut self, method: &str, params: &Bytes) -> Result<(), RpcError> {
        self.completed = false; // before the request is sent: a caller that leaves meanwhile cancels it
        self.upstream.send_call(self.id, method, params).await
    }

    /// Another request of the gateway, whose progress goes to this call. Returns its result.
    pub(crate) fn prepare(
        &self,
        method: &'static str,
        params: &Bytes,
    ) -> impl Future<Output = Result<Bytes, RpcError>> + Send + 'static {
        let (upstream, params) = (
            Arc::clone(&self.upstream),
            codec::replace_progress_token(params, self.id),
        );
        async move {
            let mut call = Self::open(&upstream, CallKind::Gateway, false)?;
            call.begin(method, &params).await?;
            call.result().await
        }
    }

    /// The next message. `None` if the upstream has ended or has cancelled the call.
    pub(crate) async fn next(&mut self) -> Option<UpstreamMessage> {
        let message = self.messages.recv().await;
        self.completed |= matches!(message, None | Some(UpstreamMessage::Response(_)));
        message
    }

    /// Waits for the response, and ignores all other messages.
    pub(super) async fn result(mut self) -> Result<Bytes, RpcError> {
        loop {
            match self.next().await {
                Some(UpstreamMessage::Response(outcome)) => {
                    return outcome.map_err(|error| parse_upstream_error(&error));
                }
                Some(_) => {}
                None => return Err(self.no_response_error()),
            }
        }
    }

    /// Why the call ended without a response.
    pub(crate) fn no_response_error(&self) -> RpcError {
        match self.upstream.end_reason() {
            None => RpcError::internal("this request was given up: its client reads too slowly"),
            Some(reason) => upstream_ended_error(&reason),
        }
    }

    pub(crate) fn upstream(&self) -> &Arc<dyn Upstream> {
        &self.upstream
    }
}

impl Drop for UpstreamCall {
    fn drop(&mut self) {
        self.upstream.close_call(self.id, self.completed);
    }
}
