//! One connection that reads a stream: its cursor, and its source.
//!
//! Replay and live delivery are one loop: read after the cursor, send, wait for a wake-up. There is no hand-over between the
//! two, and so no race (RES-05). This state belongs to one connection and needs no lock.

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
    /// Bytes that are sent before anything else.
    first: Option<Bytes>,
    /// Repeat the id of the cursor if there is nothing new to send (RES-09).
    confirms_cursor: bool,
    /// Repeat the reconnection delay after the first chunk, because the previous connection may have been cut before the
    /// client got it.
    repeats_retry: Option<u64>,
    /// Ask the client for a reconnection delay before the connection closes (SSE-07).
    announces_close: bool,
    /// The response headers announced a gap after the cursor. Any other gap ends the connection, and the next resume
    /// announces it.
    gap_announced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Store,
    Live,
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
    /// Whether the response headers announce that events after the cursor are gone.
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
    /// Close the connection.
    End,
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
            first: start.first,
            confirms_cursor: resumes && version.sends_priming_event(),
            repeats_retry: (resumes && version.sends_retry_before_close()).then_some(retry_millis),
            announces_close: version.sends_retry_before_close(),
            gap_announced: start.gap_announced,
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
            Source::Done => Step::End,
        }
    }

    /// The cursor after which the store must be read, if it must.
    pub fn reads_after(&self) -> Option<Seq> {
        (self.source == Source::Store).then_some(self.cursor)
    }

    /// The session has ended. No more is sent.
    pub fn end(&mut self) {
        self.source = Source::Done;
    }

    /// The result of a read of the store. `None` if the stream is forgotten or the store cannot be reached. `caught_up`
    /// reports the cursor and the bytes of this page to the stream. It returns whether that is everything that was appended.
    pub fn page(
        &mut self,
        params: &StreamParams,
        page: Option<&Page>,
        caught_up: impl FnOnce(Seq, usize) -> bool,
    ) -> Input {
        let Some(page) = page else {
            self.source = Source::Done; // the client's next resume gets the reason
            return Input::Continue;
        };
        if page.has_gap_after(self.cursor) && !self.gap_announced {
            self.source = Source::Done;
            return Input::Overtaken;
        }
        self.gap_announced = false;
        let bytes: usize = page.events.iter().map(|event| event.payload.len()).sum();
        let mut chunk = Vec::with_capacity(bytes + page.events.len() * 32);
        for event in &page.events {
            self.cursor = event.seq;
            if !event.payload.is_empty() {
                sse::write_event(&mut chunk, &params.prefix, event.seq, &event.payload);
            }
        }
        let status = &page.status;
        let at_end = page.events.is_empty() || status.last.is_none_or(|last| self.cursor >= last);
        if status.sealed && at_end {
            self.write_end(params, status, &mut chunk);
            self.source = Source::Done;
        } else if caught_up(self.cursor, bytes) || page.events.is_empty() {
            self.source = Source::Live;
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
            TakeOutcome::Nothing if self.confirms_cursor => {
                let mut block = Vec::new();
                sse::write_priming(&mut block, &params.prefix, self.cursor);
                self.send(block.into())
            }
            TakeOutcome::Nothing => Input::Wait,
        }
    }

    fn write_end(&mut self, params: &StreamParams, status: &StreamStatus, chunk: &mut Vec<u8>) {
        if status.answers_lost {
            write_lost_answers(params, status.last.unwrap_or(self.cursor), chunk);
        } else if chunk.is_empty() && self.confirms_cursor {
            sse::write_priming(chunk, &params.prefix, self.cursor);
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

/// RES-07: the client learns that the answer is gone, and does not wait for it. The error has the id of the lost answer, so
/// that a client that resumes even after an error finds the end of the stream.
fn write_lost_answers(params: &StreamParams, last: Seq, chunk: &mut Vec<u8>) {
    let error = RpcError::internal("the answer to this request is no longer kept")
        .with_data(serde_json::json!({ "reason": "answer_expired" }));
    for id in &params.info.calls {
        let mut message = Vec::new();
        write_error(&mut message, Some(id), &error);
        sse::write_event(chunk, &params.prefix, last, &message);
    }
}

fn retry_block(millis: u64) -> Bytes {
    let mut block = Vec::with_capacity(24);
    sse::write_retry(&mut block, millis);
    block.into()
}
