//! A request that waits for its response (D5, D8).
//!
//! The handler is polled right here, without a task. It gets one of its own only when it must outlive this future: the response
//! becomes a stream, the call parks, or the client leaves.

use crate::call::active_call::ActiveCall;
use crate::call::direct_body::DirectBody;
use crate::call::exchange::{ResponseEvent, ResponseReader};
use crate::call::json_response::JsonResponse;
use crate::call::run::{HandlerEnd, HandlerFuture, run_detached};
use crate::call::waiting_client::{Interrupt, WaitingClient};
use crate::session::{CompleteStream, Session};
use crate::stream::reader_body::ReaderBody;
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// The response to a request, before it has a form. Dropping it means that the client has gone.
pub(crate) struct ResponseFuture {
    handler: Option<HandlerFuture>,
    client: WaitingClient,
    /// How long the call may be silent before the response becomes a stream. Zero: it is a stream in any case.
    upgrade_after: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// The reply was ready at once. It is sent as a stream nevertheless, and is being stored.
    complete: Option<CompleteStream>,
}

/// A response.
pub(crate) enum CallResponse {
    /// One JSON object.
    Json(JsonResponse),
    /// A stream that is complete.
    Events(Bytes),
    /// A stream in a session.
    Logged(Box<ReaderBody>),
    /// A stream without a log.
    Direct(Box<DirectBody>),
    /// A stream without events: the call was cancelled (CAN-01).
    Empty,
}

impl ResponseFuture {
    /// Waits for the reply of `handler`; of a call that was parked before, if there is none.
    pub(crate) fn new(handler: Option<HandlerFuture>, client: WaitingClient, upgrade_after: Duration) -> Self {
        ResponseFuture {
            handler,
            client,
            upgrade_after,
            timer: None,
            complete: None,
        }
    }

    pub(crate) fn call(&self) -> &Arc<ActiveCall> {
        &self.client.call
    }

    /// The handler goes on in a task.
    fn detach_handler(&mut self) {
        if let Some(handler) = self.handler.take() {
            tokio::spawn(run_detached(handler, Arc::clone(&self.client.call)));
        }
    }

    fn answer(&mut self, answer: CallResponse) -> Poll<CallResponse> {
        self.client.is_answered = true;
        self.detach_handler();
        Poll::Ready(answer)
    }

    /// A reply that was there at once. With no delay the response is a stream nevertheless, so that it can be resumed.
    fn poll_json(&mut self, json: JsonResponse, cx: &mut Context<'_>) -> Poll<CallResponse> {
        self.client.is_answered = true;
        match self.client.call.session() {
            Some(session) if self.upgrade_after.is_zero() => {
                let id = self.client.call.id();
                self.complete = Some(Session::complete_stream(session, &id, json.message));
                self.poll_complete(cx)
            }
            _ => Poll::Ready(CallResponse::Json(json)),
        }
    }

    fn poll_complete(&mut self, cx: &mut Context<'_>) -> Poll<CallResponse> {
        match (&mut self.complete, self.client.call.session()) {
            (Some(complete), Some(session)) => complete.poll_bytes(session, cx).map(CallResponse::Events),
            _ => Poll::Pending, // both are set
        }
    }

    fn was_silent_too_long(&mut self, cx: &mut Context<'_>) -> bool {
        let delay = self.upgrade_after;
        delay.is_zero() || {
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(delay)));
            timer.as_mut().poll(cx).is_ready()
        }
    }
}

impl Future for ResponseFuture {
    type Output = CallResponse;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResponse> {
        let this = &mut *self;
        if this.complete.is_some() {
            return this.poll_complete(cx);
        }
        let is_inline = this.handler.is_some();
        if let Some(handler) = &mut this.handler
            && let Poll::Ready(finished) = handler.as_mut().poll(cx)
        {
            this.handler = None;
            if let HandlerEnd::Json(json) = finished {
                return this.poll_json(json, cx);
            }
        }
        loop {
            match this.client.call.exchange.poll(cx.waker()) {
                ResponseEvent::Json(json) => return this.answer(CallResponse::Json(json)),
                ResponseEvent::Stream(ResponseReader::Logged(reader)) => {
                    return this.answer(CallResponse::Logged(reader));
                }
                ResponseEvent::Stream(ResponseReader::Direct(stream)) => {
                    let body = DirectBody::new(stream, this.client.hand_over());
                    return this.answer(CallResponse::Direct(Box::new(body)));
                }
                ResponseEvent::Cancelled => return this.answer(CallResponse::Empty),
                ResponseEvent::Asking => {
                    if let Some(json) = ready!(this.client.poll_park(is_inline, cx)) {
                        return this.answer(CallResponse::Json(json));
                    }
                }
                ResponseEvent::Pending if this.was_silent_too_long(cx) && this.client.call.exchange.upgrade() => {}
                ResponseEvent::Pending => {
                    let Interrupt(json) = ready!(this.client.poll_interrupt(cx));
                    this.client.interrupted();
                    return this.answer(CallResponse::Json(json));
                }
            }
        }
    }
}

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        self.client.leave();
        self.detach_handler(); // it finishes, or gets its grace
    }
}
