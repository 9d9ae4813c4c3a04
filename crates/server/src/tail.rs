//! The one reader of a stream: a response body that is a cursor over the stream's log.
//!
//! Replay and live delivery are one loop: read after the cursor, write, wait for a wake-up. There is no hand-over between
//! the two, so there is no race between them (RES-05).

use crate::body::Chunks;
use crate::keep_alive::KeepAlive;
use crate::outbox::{Stream, Taken};
use crate::session::{InUse, Session};
use crate::telemetry;
use bytes::Bytes;
use rethread_proto::event_id::Seq;
use rethread_proto::jsonrpc::{RpcError, write_error};
use rethread_proto::sse;
use rethread_store::{Page, ReadLimit, StoreError, StoreFuture};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A connection that reads a stream.
pub(crate) struct Tail {
    stream: Arc<Stream>,
    connection: u64,
    cursor: Seq,
    mode: Mode,
    /// Goes out before anything else.
    preamble: Option<Bytes>,
    /// Repeat the cursor's id if there is nothing new to say (RES-09).
    confirm: bool,
    /// Tell the reconnection delay again, behind what goes out first: the connection may have been cut before the client
    /// heard it.
    tell_retry: bool,
    /// The first read may find a gap: the client was told of it in the headers. Any other gap ends the connection, and
    /// the client's next resume is told.
    gap_told: bool,
    /// A push stream takes waiting messages of its session.
    takes_push: bool,
    keep_alive: KeepAlive,
    use_of: InUse,
}

enum Mode {
    Live,
    Reading(StoreFuture<Result<Page, StoreError>>),
    Done,
}

/// Where a connection begins.
pub(crate) struct Start {
    /// The last event the client has seen.
    pub(crate) cursor: Seq,
    /// What goes out first.
    pub(crate) preamble: Option<Bytes>,
    /// Whether this is a resume.
    pub(crate) resumed: bool,
    /// Whether the client was told that events after its cursor are gone.
    pub(crate) gap_told: bool,
    /// Whether the connection takes waiting push messages.
    pub(crate) takes_push: bool,
}

impl Tail {
    /// Attaches a connection to `stream`; an older one is displaced.
    pub(crate) fn open(session: &Arc<Session>, stream: Arc<Stream>, start: Start) -> Self {
        let connection = stream.attach(start.cursor, start.resumed);
        if start.takes_push {
            session.hub.listen(connection, &stream);
        }
        Tail {
            mode: if start.resumed {
                Mode::Reading(read(&stream, start.cursor))
            } else {
                Mode::Live
            },
            confirm: start.resumed && session.version().sends_priming_event(),
            tell_retry: start.resumed && session.version().sends_retry_before_close(),
            gap_told: start.gap_told,
            takes_push: start.takes_push,
            preamble: start.preamble,
            cursor: start.cursor,
            keep_alive: KeepAlive::new(session.keep_alive()),
            use_of: session.connected(),
            connection,
            stream,
        }
    }

    /// Binds waiting messages of the session to this stream. True if there were any.
    fn take_push(&mut self) -> bool {
        const AT_ONCE: usize = 64;
        if !self.takes_push {
            return false;
        }
        let hub = &self.use_of.session().hub;
        match hub.take(self.connection, &self.stream, AT_ONCE) {
            Ok(taken) => taken > 0,
            Err(_) => {
                self.mode = Mode::Done; // the session has ended
                true
            }
        }
    }

    fn read_page(&mut self, page: Result<Page, StoreError>) -> Option<Bytes> {
        let Ok(page) = page else {
            self.mode = Mode::Done; // forgotten or out of reach: the client's next resume is told which
            return None;
        };
        if page.has_gap_after(self.cursor) && !std::mem::take(&mut self.gap_told) {
            telemetry::overtaken();
            self.mode = Mode::Done;
            return None;
        }
        self.gap_told = false;
        let bytes: usize = page.events.iter().map(|event| event.payload.len()).sum();
        let mut chunk = Vec::with_capacity(bytes + page.events.len() * 32);
        for event in &page.events {
            self.cursor = event.seq;
            if !event.payload.is_empty() {
                sse::write_event(&mut chunk, &self.stream.prefix, event.seq, &event.payload);
            }
        }
        let at_end = page.status.last.is_none_or(|last| self.cursor >= last) || page.events.is_empty();
        if page.status.sealed && at_end {
            if page.status.answers_lost {
                let last = page.status.last.unwrap_or(self.cursor);
                self.tell_answers_are_lost(&mut chunk, last);
            } else if chunk.is_empty() && std::mem::take(&mut self.confirm) {
                sse::write_priming(&mut chunk, &self.stream.prefix, self.cursor);
            }
            self.mode = Mode::Done;
        } else if self.stream.caught_up(self.connection, self.cursor, bytes) || page.events.is_empty() {
            self.mode = Mode::Live;
        } else {
            self.mode = Mode::Reading(read(&self.stream, self.cursor));
        }
        self.confirm &= chunk.is_empty();
        (!chunk.is_empty()).then(|| chunk.into())
    }

    /// RES-07: the client learns that the answer is gone instead of waiting for it. The error stands under the lost
    /// answer's own id, so that a client that resumes even after an error finds the end of the stream.
    fn tell_answers_are_lost(&self, chunk: &mut Vec<u8>, last: Seq) {
        let error = RpcError::internal("the answer to this request is no longer kept")
            .with_data(serde_json::json!({ "reason": "answer_expired" }));
        for id in &self.stream.info().calls {
            let mut message = Vec::new();
            write_error(&mut message, Some(id), &error);
            sse::write_event(chunk, &self.stream.prefix, last, &message);
        }
    }

    fn send(&mut self, chunk: Bytes) -> Poll<Option<Bytes>> {
        self.confirm = false;
        if std::mem::take(&mut self.tell_retry) && !matches!(self.mode, Mode::Done) {
            self.preamble = Some(retry(self.stream.node.timing.retry.as_millis() as u64));
        }
        self.keep_alive.reset();
        Poll::Ready(Some(chunk))
    }
}

impl Chunks for Tail {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(preamble) = self.preamble.take() {
            self.confirm = false;
            return Poll::Ready(Some(preamble));
        }
        loop {
            match &mut self.mode {
                Mode::Done => return Poll::Ready(None),
                Mode::Reading(page) => {
                    let page = match Pin::new(page).poll(cx) {
                        Poll::Ready(page) => page,
                        Poll::Pending => return Poll::Pending,
                    };
                    if let Some(chunk) = self.read_page(page) {
                        return self.send(chunk);
                    }
                }
                Mode::Live => match self.stream.take(self.connection, cx) {
                    Taken::Frames(chunk, cursor) => {
                        self.cursor = cursor;
                        return self.send(chunk);
                    }
                    Taken::Behind => self.mode = Mode::Reading(read(&self.stream, self.cursor)),
                    Taken::End => self.mode = Mode::Done,
                    Taken::Close(close) => {
                        self.mode = Mode::Done;
                        if self.stream.version.sends_retry_before_close() {
                            return self.send(retry(close.retry));
                        }
                    }
                    Taken::Nothing => {
                        if std::mem::take(&mut self.confirm) {
                            let mut block = Vec::new();
                            sse::write_priming(&mut block, &self.stream.prefix, self.cursor);
                            return self.send(block.into());
                        }
                        if self.take_push() {
                            continue;
                        }
                        return self.keep_alive.poll(cx);
                    }
                },
            }
        }
    }
}

fn retry(millis: u64) -> Bytes {
    let mut block = Vec::with_capacity(24);
    sse::write_retry(&mut block, millis);
    block.into()
}

fn read(stream: &Stream, cursor: Seq) -> StoreFuture<Result<Page, StoreError>> {
    stream.node.store.read_after(&stream.key, cursor, ReadLimit::default())
}

impl Drop for Tail {
    fn drop(&mut self) {
        let attached = self.stream.detach(self.connection);
        let session = self.use_of.session();
        if self.takes_push {
            session.hub.leave(self.connection);
            if attached {
                session.push_reader_changed(&self.stream);
            }
        }
    }
}
