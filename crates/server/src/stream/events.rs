//! Messages of the stateless era as server-sent events: without ids, kept alive (SSE-04, SSE-11).

use super::body::Chunks;
use super::keep_alive::KeepAlive;
use bytes::Bytes;
use rethread_proto::sse;
use std::collections::VecDeque;
use std::task::{Context, Poll};

/// A source of messages.
pub(crate) trait Messages: Send {
    /// The next messages; `None` at the end.
    fn poll_messages(&mut self, cx: &mut Context<'_>) -> Poll<Option<VecDeque<Bytes>>>;
}

/// A response body that writes messages as events.
pub(crate) struct Events<M> {
    messages: M,
    keep_alive: KeepAlive,
}

impl<M: Messages> Events<M> {
    pub(crate) fn new(messages: M, pause: std::time::Duration) -> Self {
        Events {
            messages,
            keep_alive: KeepAlive::new(Some(pause)),
        }
    }
}

impl<M: Messages> Chunks for Events<M> {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self.messages.poll_messages(cx) {
            Poll::Pending => self.keep_alive.poll(cx),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some(messages)) => {
                self.keep_alive.reset();
                let size: usize = messages.iter().map(|message| message.len() + 8).sum();
                let mut chunk = Vec::with_capacity(size);
                for message in &messages {
                    sse::write_unnumbered(&mut chunk, message);
                }
                Poll::Ready(Some(chunk.into()))
            }
        }
    }
}
