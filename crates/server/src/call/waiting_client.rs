//! The client that waits for a call: by the response future, then by the body of a direct stream.

use crate::call::active_call::ActiveCall;
use crate::call::json_response::JsonResponse;
use crate::call::parked_calls::{self, ParkedCalls};
use rethread_proto::jsonrpc::RpcError;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::Sleep;

/// A client that waits. Dropping it before the response is complete means that the client has gone.
pub(crate) struct WaitingClient {
    pub(crate) call: Arc<ActiveCall>,
    pub(crate) is_answered: bool,
    /// The table for questions that end the response; `None` in a session.
    parked: Option<Arc<ParkedCalls>>,
    collection: Option<Pin<Box<Sleep>>>,
    /// Resolves when the server closes.
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// The server closes, and this is the last message for the client.
pub(crate) struct Interrupt(pub(crate) JsonResponse);

impl WaitingClient {
    /// A client that waits in a session.
    pub(crate) fn in_session(call: Arc<ActiveCall>) -> Self {
        Self::new(call, None)
    }

    /// A client that waits for a stateless call.
    pub(crate) fn stateless(call: Arc<ActiveCall>, parked: &Arc<ParkedCalls>) -> Self {
        Self::new(call, Some(Arc::clone(parked)))
    }

    fn new(call: Arc<ActiveCall>, parked: Option<Arc<ParkedCalls>>) -> Self {
        WaitingClient {
            call,
            is_answered: false,
            parked,
            collection: None,
            closing: None,
        }
    }

    /// The same client, for the body that waits from now on.
    pub(crate) fn hand_over(&mut self) -> WaitingClient {
        self.is_answered = true;
        Self::new(Arc::clone(&self.call), self.parked.clone())
    }

    /// The call waits for input: parks it. Resolves to the last message for this request, or to `None` if there is something
    /// else to send first. `is_inline` if the handler runs in the request's future: it has asked all that it can. The questions
    /// of a relay come from another process in any case, one by one.
    pub(crate) fn poll_park(&mut self, is_inline: bool, cx: &mut Context<'_>) -> Poll<Option<JsonResponse>> {
        if !is_inline || self.call.exchange.node.handler.relays {
            let delay = self.call.exchange.node.timing.collect_questions;
            let collection = self
                .collection
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(delay)));
            ready!(collection.as_mut().poll(cx));
        }
        self.collection = None;
        let parked = self.parked.as_ref();
        let json = parked.and_then(|parked| parked_calls::park(parked, &self.call));
        self.is_answered |= json.is_some();
        Poll::Ready(json)
    }

    /// The server closes and a stateless call has not ended: the client gets an error, because one that only sees the end of
    /// its stream waits for a response until it times out (T-38). A session can be resumed elsewhere.
    pub(crate) fn poll_interrupt(&mut self, cx: &mut Context<'_>) -> Poll<Interrupt> {
        self.collection = None;
        if self.parked.is_none() || self.call.has_ended() {
            return Poll::Pending; // nothing to do, or the reply is on the way
        }
        let node = &self.call.exchange.node;
        let closing = self.closing.get_or_insert_with(|| {
            let mut closing = node.closing.subscribe();
            Box::pin(async move {
                let _ = closing.wait_for(|closing| *closing).await; // an error: the server is gone
            })
        });
        ready!(closing.as_mut().poll(cx));
        let error = RpcError::internal("the server is shutting down");
        Poll::Ready(Interrupt(JsonResponse::error(&self.call.id(), &error)))
    }

    /// The client has got its last message although the call still runs.
    pub(crate) fn interrupted(&mut self) {
        self.is_answered = true;
        self.call.cancel();
    }

    /// The client has gone, unless it has its response.
    pub(crate) fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_answered, true) {
            self.call.client_gone();
        }
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        self.leave();
    }
}
