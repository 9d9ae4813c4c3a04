//! A response body that reads a stream: the socket's side of [`Reader`].

use super::Stream;
use super::body::Chunks;
use super::keep_alive::KeepAlive;
use crate::node::telemetry;
use bytes::Bytes;
use rethread_proto::event_id::Seq;
use rethread_proto::stream::{ConnectionId, Framing, Input, Reader, ReaderStart, Step, StreamClosed};
use rethread_store::{Page, ReadLimit, StoreError, StoreFuture, StreamKey};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Push messages that one connection binds at a time.
const MAX_BOUND_MESSAGES: usize = 64;

/// The session of a connection.
pub(crate) trait ConnectionHost: Send + Sync {
    /// Binds up to `max` waiting push messages to the stream. True if there were any. Fails if the session has ended.
    fn bind_waiting(
        self: Arc<Self>,
        connection: ConnectionId,
        stream: &Arc<Stream>,
        max: usize,
    ) -> Result<bool, StreamClosed>;

    /// The connection is gone. `was_reader` unless another connection has displaced it.
    fn detached(self: Arc<Self>, connection: ConnectionId, stream: &Arc<Stream>, takes_push: bool, was_reader: bool);
}

/// A connection that reads a stream.
pub(crate) struct ReaderBody {
    stream: Arc<Stream>,
    connection: ConnectionId,
    reader: Reader,
    page: Option<StoreFuture<Result<Page, StoreError>>>,
    /// Whether the stream takes waiting push messages of its session.
    takes_push: bool,
    keep_alive: KeepAlive,
    host: Arc<dyn ConnectionHost>,
}

impl ReaderBody {
    /// The body of a connection that is attached to `stream`.
    pub(crate) fn new(
        stream: Arc<Stream>,
        connection: ConnectionId,
        start: ReaderStart,
        takes_push: bool,
        keep_alive: Option<Duration>,
        host: Arc<dyn ConnectionHost>,
    ) -> Self {
        let retry_millis = stream.node.timing.retry.as_millis() as u64;
        let mut body = ReaderBody {
            reader: Reader::new(start, stream.version, retry_millis),
            page: None,
            takes_push,
            keep_alive: KeepAlive::new(keep_alive),
            host,
            connection,
            stream,
        };
        // A resume reads the store at once, before the socket is ready.
        if let Some(cursor) = body.reader.reads_after() {
            body.page = Some(body.read(cursor));
        }
        body
    }

    fn read(&self, cursor: Seq) -> StoreFuture<Result<Page, StoreError>> {
        let stream = &self.stream;
        stream.node.store.read_after(&stream.key, cursor, ReadLimit::default())
    }

    fn poll_page(&mut self, cursor: Seq, cx: &mut Context<'_>) -> Poll<Input> {
        if self.page.is_none() {
            self.page = Some(self.read(cursor));
        }
        let Some(reading) = &mut self.page else {
            return Poll::Pending;
        };
        let page = std::task::ready!(Pin::new(reading).poll(cx));
        self.page = None;
        let (stream, connection) = (&self.stream, self.connection);
        let caught_up = |cursor, bytes| stream.caught_up(connection, cursor, bytes);
        Poll::Ready(self.reader.page(&stream.params, page.ok().as_ref(), caught_up))
    }

    /// Binds waiting push messages when nothing else is ready. True if the reader then has something to send.
    fn bind_waiting(&mut self) -> bool {
        if !self.takes_push {
            return false;
        }
        let host = Arc::clone(&self.host);
        let bound = host.bind_waiting(self.connection, &self.stream, MAX_BOUND_MESSAGES);
        bound.unwrap_or_else(|StreamClosed| {
            self.reader.end();
            true
        })
    }
}

impl Chunks for ReaderBody {
    fn logged_stream(&self) -> Option<&StreamKey> {
        // A GET is where push messages are bound, so it stays with this connection.
        let is_logged = self.stream.params.framing == Framing::Numbered && !self.takes_push;
        is_logged.then_some(&self.stream.key)
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let input = match self.reader.step() {
                Step::Send(chunk) => return Poll::Ready(Some(chunk)),
                Step::End => return Poll::Ready(None),
                Step::Read(cursor) => std::task::ready!(self.poll_page(cursor, cx)),
                Step::Wait => return Poll::Ready(None), // only a remote reader waits
                Step::Take => {
                    let taken = self.stream.take(self.connection, cx);
                    self.reader.taken(&self.stream.params, taken)
                }
            };
            match input {
                Input::Send(chunk) => {
                    self.keep_alive.reset();
                    return Poll::Ready(Some(chunk));
                }
                Input::Continue => {}
                Input::Overtaken => telemetry::overtaken(),
                Input::Wait if self.bind_waiting() => {}
                Input::Wait => return self.keep_alive.poll(cx),
            }
        }
    }
}

impl Drop for ReaderBody {
    fn drop(&mut self) {
        let was_reader = self.stream.detach(self.connection);
        let host = Arc::clone(&self.host);
        host.detached(self.connection, &self.stream, self.takes_push, was_reader);
    }
}
