//! The tape: what went over the wire, with cuts and cursors, as JSON lines. For people who look for a fault.
//!
//! By default a message is its shape: kinds and sizes. Headers are never written, and a session is its tag.

mod body;
mod file;
mod frames;
mod player;
mod shape;

pub(crate) use body::TapedBody;
pub(crate) use player::print;

use file::TapeFile;
use frames::{Frame, FrameSplitter};
use http::{Request, Response, header};
use rethread::{SessionId, Tag};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a JSON body that are shown. Beyond: only the size.
const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// Characters of a text that a client has chosen.
const MAX_TEXT_CHARS: usize = 128;

/// A running tape.
pub(crate) struct Tape {
    file: TapeFile,
    has_payloads: bool,
    exchanges: AtomicU64,
}

impl Tape {
    pub(crate) fn start(dir: &Path, has_payloads: bool) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Tape {
            file: TapeFile::create(dir)?,
            has_payloads,
            exchanges: AtomicU64::new(1),
        }))
    }

    /// Waits until everything is written, for a bounded time.
    pub(crate) fn close(&self) {
        self.file.close();
    }

    /// A request has arrived. Returns the recorder of its body.
    pub(crate) fn request<B>(self: &Arc<Self>, request: &Request<B>) -> (u64, Recorder) {
        let number = self.exchanges.fetch_add(1, Ordering::Relaxed);
        let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let session = text("mcp-session-id").and_then(SessionId::parse);
        let mut entry = json!({
            "at": "request",
            "exchange": number,
            "method": request.method().as_str(),
            "path": shortened(request.uri().path()),
        });
        if let Some(session) = session {
            entry["session"] = Tag::of_session(&session).to_string().into();
        }
        // A valid id is two numbers. Anything else could be a secret.
        let is_cursor = |id: &&str| id.len() <= 64 && id.bytes().all(|c| c.is_ascii_digit() || c == b'-');
        match text("last-event-id") {
            Some(cursor) if is_cursor(&cursor) => entry["cursor"] = cursor.into(),
            Some(_) => entry["cursor"] = "other".into(),
            None => {}
        }
        self.file.add(entry);
        (number, Recorder::new(self, number, Direction::In, false))
    }

    /// The head of a response. Returns the recorder of its body.
    pub(crate) fn response<B>(self: &Arc<Self>, number: u64, response: &Response<B>) -> Recorder {
        let kind = response.headers().get(header::CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let gap = response.headers().contains_key("rethread-gap");
        let mut entry = json!({
            "at": "response",
            "exchange": number,
            "status": response.status().as_u16(),
            "body": if is_stream { "stream" } else { "whole" },
        });
        if gap {
            entry["gap"] = true.into();
        }
        self.file.add(entry);
        Recorder::new(self, number, Direction::Out, is_stream)
    }

    fn show(&self, message: &[u8]) -> Value {
        match self.has_payloads {
            true => shape::payload(message),
            false => shape::shape(message),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

/// Records one body. Dropping it before the end means that the connection was cut.
pub(crate) struct Recorder {
    tape: Arc<Tape>,
    exchange: u64,
    direction: Direction,
    content: Content,
    bytes: usize,
    last_id: Option<String>,
    is_ended: bool,
}

enum Content {
    Whole(Vec<u8>),
    Stream(FrameSplitter),
}

impl Recorder {
    fn new(tape: &Arc<Tape>, exchange: u64, direction: Direction, is_stream: bool) -> Self {
        Recorder {
            tape: Arc::clone(tape),
            exchange,
            direction,
            content: match is_stream {
                true => Content::Stream(FrameSplitter::default()),
                false => Content::Whole(Vec::new()),
            },
            bytes: 0,
            last_id: None,
            is_ended: false,
        }
    }

    fn chunk(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len();
        let frames = match &mut self.content {
            Content::Whole(body) => {
                let room = MAX_MESSAGE_BYTES.saturating_sub(body.len());
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                return;
            }
            Content::Stream(splitter) => splitter.push(chunk),
        };
        for frame in frames {
            self.event(frame);
        }
    }

    fn event(&mut self, frame: Frame) {
        let mut entry = json!({ "at": "event", "exchange": self.exchange, "bytes": frame.bytes });
        if let Some(id) = frame.id {
            entry["id"] = id.as_str().into();
            self.last_id = Some(id);
        }
        if let Some(retry) = frame.retry {
            entry["retry"] = retry.into();
        }
        if frame.is_comment {
            entry["comment"] = true.into();
        }
        if !frame.data.is_empty() {
            entry["message"] = self.tape.show(&frame.data);
        }
        self.tape.file.add(entry);
    }

    fn end(&mut self, is_complete: bool) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        let content = std::mem::replace(&mut self.content, Content::Whole(Vec::new()));
        match (content, self.direction) {
            (Content::Whole(body), direction) if !body.is_empty() => {
                let message = match self.bytes > MAX_MESSAGE_BYTES {
                    true => json!("too long"),
                    false => self.tape.show(&body),
                };
                let at = if direction == Direction::In { "received" } else { "sent" };
                let entry = json!({ "at": at, "exchange": self.exchange, "bytes": self.bytes, "message": message });
                self.tape.file.add(entry);
            }
            _ => {}
        }
        if self.direction == Direction::Out {
            let how = if is_complete { "complete" } else { "cut" };
            let mut entry = json!({ "at": "end", "exchange": self.exchange, "how": how, "bytes": self.bytes });
            if let Some(id) = self.last_id.take() {
                entry["cursor"] = id.into();
            }
            self.tape.file.add(entry);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end(false);
    }
}

fn shortened(text: &str) -> &str {
    text.char_indices()
        .nth(MAX_TEXT_CHARS)
        .map_or(text, |(end, _)| &text[..end])
}
