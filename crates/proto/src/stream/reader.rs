//! One connection that reads a stream: its cursor and its source.
//!
//! Replay and live delivery are one loop: read after the cursor, send, wait for a wake-up. There is no hand-over
//! between the two, and so no race (RES-05). This state belongs to one connection and needs no lock.
//!
//! The writer of a remote reader's stream is on another node. The store is the only source of a remote reader. It waits
//! for a wake-up where a local reader takes from the live buffer.

use super::core::{Close, StreamParams};
use super::read::TakeOutcome;
use super::{Page, StreamStatus};
use crate::event_id::Seq;
use crate::jsonrpc::{RpcError, write_error};
use crate::sse;
use crate::version::Version;
use bytes::Bytes;

/// The position of a connection in its stream.
#[derive(Debug)]
pub struct Reader {
    cursor: Seq,
    source: Source,
    /// Whether the writer is on another node.
    is_remote: bool,
    /// Whether events have ids on the wire.
    has_ids: bool,
    /// Bytes that are sent before anything else.
    first: Option<Bytes>,
    /// Repeat the id of the cursor if there is nothing new to send (RES-09).
    confirms_cursor: bool,
    /// Repeat the reconnection delay after the first chunk, because the previous connection may have been cut before
    /// the client got it.
    repeats_retry: Option<u64>,
    /// Send the client a reconnection delay before the connection closes (SSE-07).
    announces_close: bool,
    /// The response headers announced a gap. The first page has its end.
    gap_announced: bool,
    /// The end of the announced gap. Any later gap ends the connection, and the next resume announces it.
    known_gap: Option<Seq>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Store,
    Live,
    /// A remote reader is at the end of the stream.
    Waiting,
    Done,
}

/// The start of a connection.
#[derive(Debug, Default)]
pub struct ReaderStart {
    /// The last event that the client has seen.
    pub cursor: Seq,
    /// Bytes that are sent first.
    pub first: Option<Bytes>,
    /// Whether this is a resume.
    pub resumes: bool,
    /// Whether the response headers announce a gap after the cursor.
    pub gap_announced: bool,
}

/// The next step of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the store after this event, and pass the result to [`Reader::page`].
    Read(Seq),
    /// Call [`StreamCore::take`](super::StreamCore::take), and pass the result to [`Reader::taken`].
    Take,
    /// Send this.
    Send(Bytes),
    /// Only for a remote reader: wait for a wake-up of the store or the next keep-alive, and call [`Reader::woken`].
    Wait,
    /// Close the connection.
    End,
}

/// The result of a remote reader's read.
#[derive(Clone, Copy, Debug)]
pub enum RemoteRead<'a> {
    /// The events.
    Page(&'a Page),
    /// The store cannot be reached. The reader waits and reads again: its client could not resume now.
    StoreFailed,
    /// Another connection reads the stream, or the stream is forgotten.
    Ended,
}

/// The result of an input.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// Send this.
    Send(Bytes),
    /// Ask for the next [`Step`].
    Continue,
    /// Wait until the stream wakes the connection.
    Wait,
    /// Eviction has overtaken the reader. The next step is the end.
    Overtaken,
}

impl Reader {
    /// A reader of a stream of revision `version`. `retry_millis` is the reconnection delay.
    pub fn new(start: ReaderStart, version: Version, retry_millis: u64) -> Self {
        let resumes = start.resumes;
        Reader {
            cursor: start.cursor,
            source: if resumes { Source::Store } else { Source::Live },
            is_remote: false,
            has_ids: true,
            first: start.first,
            confirms_cursor: resumes && version.sends_priming_event(),
            repeats_retry: (resumes && version.sends_retry_before_close()).then_some(retry_millis),
            announces_close: version.sends_retry_before_close(),
            gap_announced: start.gap_announced,
            known_gap: None,
        }
    }

    /// A reader of a stream that another node writes. It begins with a read of the store, even without a resume. In
    /// that case it sends the priming event first, because a replay skips it.
    pub fn remote(params: &StreamParams, start: ReaderStart, version: Version, retry_millis: u64) -> Self {
        let is_primed = params.primed && !start.resumes;
        let mut reader = Reader {
            source: Source::Store,
            is_remote: true,
            ..Self::new(start, version, retry_millis)
        };
        if is_primed {
            let mut block = Vec::new();
            sse::write_priming(&mut block, &params.prefix, Seq::PRIMING);
            sse::write_retry(&mut block, retry_millis);
            reader.first = Some(block.into());
        }
        reader
    }

    /// A reader of a stream that another node writes for a request without a session: its events have no ids on the
    /// wire.
    pub fn remote_without_ids(version: Version) -> Self {
        Reader {
            source: Source::Store,
            is_remote: true,
            has_ids: false,
            confirms_cursor: false,
            repeats_retry: None,
            ..Self::new(ReaderStart::default(), version, 0)
        }
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        if let Some(first) = self.first.take() {
            self.confirms_cursor = false;
            return Step::Send(first);
        }
        match self.source {
            Source::Store => Step::Read(self.cursor),
            Source::Live => Step::Take,
            Source::Waiting => Step::Wait,
            Source::Done => Step::End,
        }
    }

    /// The cursor after which the store must be read. `None` if no read is due.
    pub fn reads_after(&self) -> Option<Seq> {
        (self.source == Source::Store).then_some(self.cursor)
    }

    /// Wakes a remote reader, because the store may have more. Has no effect on a local reader or during a read.
    pub fn woken(&mut self) {
        if self.source == Source::Waiting {
            self.source = Source::Store;
        }
    }

    /// Ends the connection, because the session has ended.
    pub fn end(&mut self) {
        self.source = Source::Done;
    }

    /// The result of a remote reader's read. It reads until a page is empty: from the last read, the writer learns that
    /// the reader has everything.
    pub fn remote_page(&mut self, params: &StreamParams, read: RemoteRead<'_>) -> Input {
        match read {
            RemoteRead::Page(page) => self.page(params, Some(page), |_, _| false),
            RemoteRead::Ended => self.page(params, None, |_, _| false),
            RemoteRead::StoreFailed => {
                self.source = Source::Waiting;
                Input::Wait
            }
        }
    }

    /// The result of a read of the store. `None` if the stream is forgotten or the store cannot be reached. `caught_up`
    /// reports the cursor and the bytes of this page to the stream. It returns whether that is everything that was
    /// appended.
    pub fn page(
        &mut self,
        params: &StreamParams,
        page: Option<&Page>,
        caught_up: impl FnOnce(Seq, usize) -> bool,
    ) -> Input {
        let Some(page) = page else {
            self.source = Source::Done; // the next resume of the client reports the reason
            return Input::Continue;
        };
        if std::mem::take(&mut self.gap_announced) {
            self.known_gap = page.status.purged;
        }
        let has_gap = page.has_gap_after(self.cursor);
        if has_gap && page.status.purged > self.known_gap {
            self.source = Source::Done;
            return Input::Overtaken;
        }
        if has_gap && page.events.is_empty() {
            self.cursor = page.status.last.unwrap_or(self.cursor); // no event after the cursor is retained
        }
        let bytes: usize = page.events.iter().map(|event| event.payload.len()).sum();
        let mut chunk = Vec::with_capacity(bytes + page.events.len() * 32);
        for event in &page.events {
            self.cursor = event.seq;
            if !event.payload.is_empty() {
                self.write_event(params, event.seq, &event.payload, &mut chunk);
            }
        }
        let status = &page.status;
        let at_end = page.events.is_empty() || status.last.is_none_or(|last| self.cursor >= last);
        if status.sealed && at_end {
            self.write_end(params, status, &mut chunk);
            self.source = Source::Done;
        } else if caught_up(self.cursor, bytes) || page.events.is_empty() {
            self.source = if self.is_remote { Source::Waiting } else { Source::Live };
        }
        if chunk.is_empty() && self.source == Source::Waiting {
            return self.at_end(params);
        }
        if chunk.is_empty() {
            return Input::Continue;
        }
        self.send(chunk.into())
    }

    /// The result of a take.
    pub fn taken(&mut self, params: &StreamParams, taken: TakeOutcome) -> Input {
        match taken {
            TakeOutcome::Frames(chunk, cursor) => {
                self.cursor = cursor;
                self.send(chunk)
            }
            TakeOutcome::Behind => {
                self.source = Source::Store;
                Input::Continue
            }
            TakeOutcome::End => {
                self.source = Source::Done;
                Input::Continue
            }
            TakeOutcome::Close(Close { retry }) => {
                self.source = Source::Done;
                if self.announces_close {
                    return self.send(retry_block(retry));
                }
                Input::Continue
            }
            TakeOutcome::Nothing => self.at_end(params),
        }
    }

    /// The reader has reached the end of the stream for now.
    fn at_end(&mut self, params: &StreamParams) -> Input {
        if !self.confirms_cursor {
            return Input::Wait;
        }
        let mut block = Vec::new();
        sse::write_priming(&mut block, &params.prefix, self.cursor);
        self.send(block.into())
    }

    fn write_end(&mut self, params: &StreamParams, status: &StreamStatus, chunk: &mut Vec<u8>) {
        if status.answers_lost {
            self.write_lost_answers(params, status.last.unwrap_or(self.cursor), chunk);
        } else if chunk.is_empty() && self.confirms_cursor {
            sse::write_priming(chunk, &params.prefix, self.cursor);
        }
    }

    /// RES-07: reports the lost answer, so that the client does not wait for it. The error has the id of the lost
    /// answer, so that a client that resumes after the error finds the end of the stream.
    fn write_lost_answers(&self, params: &StreamParams, last: Seq, chunk: &mut Vec<u8>) {
        let error = RpcError::internal("the answer to this request is no longer kept")
            .with_data(serde_json::json!({ "reason": "answer_expired" }));
        for id in &params.info.calls {
            let mut message = Vec::new();
            write_error(&mut message, Some(id), &error);
            self.write_event(params, last, &message, chunk);
        }
    }

    fn write_event(&self, params: &StreamParams, seq: Seq, payload: &[u8], chunk: &mut Vec<u8>) {
        if self.has_ids {
            sse::write_event(chunk, &params.prefix, seq, payload);
        } else {
            sse::write_unnumbered(chunk, payload);
        }
    }

    fn send(&mut self, chunk: Bytes) -> Input {
        self.confirms_cursor = false;
        if let Some(retry) = self.repeats_retry.take()
            && self.source != Source::Done
        {
            self.first = Some(retry_block(retry));
        }
        Input::Send(chunk)
    }
}

fn retry_block(millis: u64) -> Bytes {
    let mut block = Vec::with_capacity(24);
    sse::write_retry(&mut block, millis);
    block.into()
}
