//! The body of a response that is a stream without a log: messages of the call, then its reply (SSE-11, SSE-12).

use crate::call::json_response::JsonResponse;
use crate::call::waiting_client::{Interrupt, WaitingClient};
use crate::stream::body::Chunks;
use crate::stream::direct_stream::DirectStream;
use crate::stream::keep_alive::KeepAlive;
use bytes::Bytes;
use rethread_proto::sse::AnyLines;
use rethread_proto::stream::TakeOutcome;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A connection that reads the stream. Dropping it before the end cancels the call.
pub(crate) struct DirectBody {
    stream: Arc<DirectStream>,
    client: WaitingClient,
    keep_alive: KeepAlive,
}

impl DirectBody {
    pub(crate) fn new(stream: Arc<DirectStream>, client: WaitingClient) -> Self {
        let pause = client.call.exchange.node.timing.keep_alive;
        let keep_alive = KeepAlive::new(Some(pause).filter(|_| stream.needs_keep_alive()));
        DirectBody {
            stream,
            client,
            keep_alive,
        }
    }

    /// Puts the last message of this request into the stream.
    fn finish(&self, last: &JsonResponse) {
        // An error: the stream has ended meanwhile, and nothing can follow.
        let _ = self.stream.emit_now(AnyLines(&last.message), true);
    }
}

impl Chunks for DirectBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            match self.stream.take(cx) {
                TakeOutcome::Frames(chunk, _) => {
                    self.keep_alive.reset();
                    return Poll::Ready(Some(chunk));
                }
                TakeOutcome::Nothing => {}
                // There is no other end: the stream has no store to read and no other reader.
                TakeOutcome::End | TakeOutcome::Behind | TakeOutcome::Close(_) => return Poll::Ready(None),
            }
            if self.client.call.exchange.asks_for_input() {
                match self.client.poll_park(false, cx) {
                    Poll::Ready(Some(json)) => self.finish(&json), // T-27
                    Poll::Ready(None) => {}
                    Poll::Pending => return Poll::Pending,
                }
                continue;
            }
            match self.client.poll_interrupt(cx) {
                Poll::Ready(Interrupt(json)) => {
                    self.finish(&json);
                    self.client.interrupted();
                }
                Poll::Pending => return self.keep_alive.poll(cx),
            }
        }
    }
}
