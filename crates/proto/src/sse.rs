//! Server-Sent Events: encodes frames and decodes blocks.
//!
//! A frame is built once. A [`Draft`] leaves room before the message for the event id, which is not known before the stream
//! numbers the message. Numbering writes into that room. The payload for the store and the frame for the socket are slices of
//! the same allocation.

mod decode;

use crate::event_id::{IdPrefix, Seq};
use crate::version::Version;
use bytes::{Buf as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::ops::Range;

pub use decode::{Block, Decoder, TooLong};

/// A keep-alive: a comment that no parser turns into an event (SSE-04).
pub const KEEP_ALIVE: &[u8] = b":\n\n";

const ID: &[u8] = b"id: ";
const DATA: &[u8] = b"data: ";
const NEWLINE_DATA: &[u8] = b"\ndata: ";
const NO_DATA: &[u8] = b"\ndata:\n\n";
const RETRY: &[u8] = b"retry: ";
const END: &[u8] = b"\n\n";
/// Room for `id: `, a plain event id of any size, and `data: `. A longer id costs a copy.
const HEADROOM_BYTES: usize = 56;

/// A message without a number.
#[derive(Debug)]
pub struct Draft(Vec<u8>);

impl Draft {
    /// A draft of the message that `write` appends to the buffer.
    pub fn new(expected: usize, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut buffer = Vec::with_capacity(HEADROOM_BYTES + expected + END.len());
        buffer.resize(HEADROOM_BYTES, 0);
        write(&mut buffer);
        blank_newlines(&mut buffer[HEADROOM_BYTES..]);
        Draft(buffer)
    }

    /// A draft of a message that exists as bytes.
    pub fn copy_of(message: &[u8]) -> Self {
        Draft::new(message.len(), |out| out.extend_from_slice(message))
    }

    /// The message.
    pub fn payload(&self) -> &[u8] {
        &self.0[HEADROOM_BYTES..]
    }

    /// The message alone, without a frame.
    pub fn into_payload(self) -> Bytes {
        Bytes::from(self.0).slice(HEADROOM_BYTES..)
    }

    /// The frame of the event `seq` in a stream whose ids begin with `prefix`.
    pub fn number(mut self, prefix: &IdPrefix, seq: Seq) -> Frame {
        let prefix = prefix.as_bytes();
        let mut digits = itoa::Buffer::new();
        let number = digits.format(seq.0).as_bytes();
        let parts = [ID, prefix, number, NEWLINE_DATA];
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > HEADROOM_BYTES {
            let mut wider = vec![0; length - HEADROOM_BYTES];
            wider.extend_from_slice(&self.0);
            return Frame::finish(wider, length, &parts);
        }
        Frame::finish(std::mem::take(&mut self.0), HEADROOM_BYTES, &parts)
    }

    /// A frame with an event name and no id: the framing of 2024-11-05 (LEG-02).
    pub fn named(self, event: &'static str) -> Frame {
        Frame::finish(self.0, HEADROOM_BYTES, &[b"event: ", event.as_bytes(), NEWLINE_DATA])
    }

    /// A line instead of an event: stdio carries messages in this way (GW-01).
    pub fn line(mut self) -> Frame {
        let end = self.0.len();
        self.0.push(b'\n');
        let whole = Bytes::from(self.0);
        Frame {
            payload: whole.slice(HEADROOM_BYTES..end),
            wire: whole.slice(HEADROOM_BYTES..),
        }
    }

    /// A frame without an id. A client cannot resume from it (SSE-11, STO-02).
    pub fn unnumbered(self) -> Frame {
        Frame::finish(self.0, HEADROOM_BYTES, &[DATA])
    }
}

/// SSE-02: one message, one `data:` line. JSON has newlines only between tokens, where a space is equivalent.
fn blank_newlines(mut json: &mut [u8]) {
    while let Some(at) = memchr::memchr2(b'\n', b'\r', json) {
        json[at] = b' ';
        json = &mut json[at + 1..];
    }
}

/// A message and its frame, in one allocation.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The bytes for the socket.
    pub wire: Bytes,
    /// The bytes for the store.
    pub payload: Bytes,
}

impl Frame {
    fn finish(mut buffer: Vec<u8>, payload_at: usize, head: &[&[u8]]) -> Frame {
        let mut at = payload_at;
        for part in head.iter().rev() {
            at -= part.len();
            buffer[at..at + part.len()].copy_from_slice(part);
        }
        let payload_end = buffer.len();
        buffer.extend_from_slice(END);
        let mut wire = Bytes::from(buffer);
        let payload = wire.slice(payload_at..payload_end);
        wire.advance(at);
        Frame { wire, payload }
    }
}

/// Appends the frame of a stored event, for a replay.
pub fn write_event(out: &mut Vec<u8>, prefix: &IdPrefix, seq: Seq, payload: &[u8]) {
    write_id(out, prefix, seq);
    out.extend_from_slice(NEWLINE_DATA);
    out.extend_from_slice(payload);
    out.extend_from_slice(END);
}

/// Appends the frame of a message. Returns the range of the payload in `out`.
pub fn write_message(out: &mut Vec<u8>, prefix: &IdPrefix, seq: Seq, message: &[u8]) -> Range<usize> {
    write_encoded(out, prefix, seq, |out| AnyLines(message).write(out))
}

/// Appends the frame of a one-line message that `write` appends. Returns the range of the payload in `out`.
pub fn write_encoded(out: &mut Vec<u8>, prefix: &IdPrefix, seq: Seq, write: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
    write_id(out, prefix, seq);
    out.extend_from_slice(NEWLINE_DATA);
    let start = out.len();
    write(out);
    let payload = start..out.len();
    out.extend_from_slice(END);
    payload
}

/// A message that can be written into a draft of its own, or into a shared buffer.
pub trait EncodeMessage: Sized {
    /// An estimate of its bytes.
    fn size(&self) -> usize;

    /// Appends it, on one line (SSE-02).
    fn write(&self, out: &mut Vec<u8>);

    /// Makes a draft of it.
    fn draft(self) -> Draft {
        let mut buffer = Vec::with_capacity(HEADROOM_BYTES + self.size() + END.len());
        buffer.resize(HEADROOM_BYTES, 0);
        self.write(&mut buffer);
        Draft(buffer)
    }
}

impl EncodeMessage for Draft {
    fn size(&self) -> usize {
        self.payload().len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.payload());
    }

    fn draft(self) -> Draft {
        self
    }
}

/// A message that is already on one line.
#[derive(Clone, Debug)]
pub struct OneLine(pub Bytes);

impl EncodeMessage for OneLine {
    fn size(&self) -> usize {
        self.0.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

/// A message that may have newlines between its tokens.
#[derive(Clone, Copy, Debug)]
pub struct AnyLines<'a>(pub &'a [u8]);

impl EncodeMessage for AnyLines<'_> {
    fn size(&self) -> usize {
        self.0.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_one_line(out, |out| out.extend_from_slice(self.0));
    }
}

/// Appends the message that `write` appends, on one line (SSE-02).
pub fn write_one_line(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    blank_newlines(&mut out[start..]);
}

/// Appends a frame without an id: with an event name, or with none (SSE-11, LEG-02).
pub(crate) fn write_without_id(out: &mut Vec<u8>, event: Option<&str>, message: &impl EncodeMessage) {
    if let Some(event) = event {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(DATA);
    message.write(out);
    out.extend_from_slice(END);
}

/// The messages in frames of this module, framed again without ids. A client cannot resume from them (SSE-11, STO-02).
pub fn without_ids(wire: &[u8]) -> Vec<u8> {
    let mut bare = Vec::with_capacity(wire.len());
    let lines = wire.split(|byte| *byte == b'\n');
    for payload in lines.filter_map(|line| line.strip_prefix(DATA)) {
        write_unnumbered(&mut bare, payload);
    }
    bare
}

/// Appends the frame of a message that has no id.
pub fn write_unnumbered(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend_from_slice(DATA);
    out.extend_from_slice(payload);
    out.extend_from_slice(END);
}

/// Appends an event with an id and no data, so that the client stores the id as its cursor (SSE-05, RES-09).
pub fn write_priming(out: &mut Vec<u8>, prefix: &IdPrefix, seq: Seq) {
    write_id(out, prefix, seq);
    out.extend_from_slice(NO_DATA);
}

/// Appends a block that sets the client's reconnection delay and dispatches no event (SSE-07, T-18).
pub fn write_retry(out: &mut Vec<u8>, millis: u64) {
    out.extend_from_slice(RETRY);
    out.extend_from_slice(itoa::Buffer::new().format(millis).as_bytes());
    out.extend_from_slice(END);
}

/// Bytes that [`write_event`] writes for a payload of `payload` bytes.
pub fn event_len(prefix: &IdPrefix, seq: Seq, payload: usize) -> usize {
    id_len(prefix, seq) + NEWLINE_DATA.len() + payload + END.len()
}

/// Bytes that [`write_priming`] writes.
pub fn priming_len(prefix: &IdPrefix, seq: Seq) -> usize {
    id_len(prefix, seq) + NO_DATA.len()
}

/// Bytes that [`write_retry`] writes.
pub fn retry_len(millis: u64) -> usize {
    RETRY.len() + digits(millis) + END.len()
}

fn id_len(prefix: &IdPrefix, seq: Seq) -> usize {
    ID.len() + prefix.as_bytes().len() + digits(seq.0)
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

fn write_id(out: &mut Vec<u8>, prefix: &IdPrefix, seq: Seq) {
    out.extend_from_slice(ID);
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(seq.0).as_bytes());
}

/// Sets the headers of an SSE response (SSE-01, SSE-03).
pub fn apply_stream_headers(headers: &mut HeaderMap, version: Version, always_disable_buffering: bool) {
    const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    if version.disables_proxy_buffering() || always_disable_buffering {
        headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// SSE-02: the frame of a numbered message.
    #[test]
    fn sse_02_a_message_is_one_data_line() {
        let frame = Draft::copy_of(b"{\"a\":\r\n \"x\\ny\"\n}").number(&IdPrefix::new("5-"), Seq(2));
        assert_eq!(text(&frame.wire), "id: 5-2\ndata: {\"a\":   \"x\\ny\" }\n\n");
        assert_eq!(text(&frame.payload), "{\"a\":   \"x\\ny\" }");
    }

    #[test]
    fn sse_02_range_of_a_written_message_is_its_payload() {
        let (prefix, mut wire) = (IdPrefix::new("5-"), Vec::new());
        write_priming(&mut wire, &prefix, Seq::PRIMING);
        write_retry(&mut wire, 1000);
        let payload = write_message(&mut wire, &prefix, Seq(1), b"{\n\"data: \":\r1}");
        assert_eq!(text(&wire[payload]), "{ \"data: \": 1}");
        write_event(&mut wire, &prefix, Seq(2), b"{}");
        assert_eq!(text(&without_ids(&wire)), "data: { \"data: \": 1}\n\ndata: {}\n\n");
    }

    #[test]
    fn sse_02_message_with_newlines_is_encoded_on_one_line() {
        let message = AnyLines(b"{\n\"a\":\r\n1}");
        assert_eq!(written(|out| message.write(out)), "{ \"a\":  1}");
        let after_text = written(|out| {
            out.push(b'\n');
            message.write(out);
        });
        assert_eq!(after_text, "\n{ \"a\":  1}", "text before the message stays");
        assert_eq!(text(&message.draft().unnumbered().wire), "data: { \"a\":  1}\n\n");
    }

    #[test]
    fn sse_11_a_frame_without_a_number_has_no_id() {
        let frame = Draft::copy_of(b"{}").unnumbered();
        assert_eq!(text(&frame.wire), "data: {}\n\n");
        assert_eq!(text(&frame.payload), "{}");
    }

    #[test]
    fn leg_02_a_named_frame_has_an_event_name_and_no_id() {
        let frame = Draft::copy_of(b"{}").named("message");
        assert_eq!(text(&frame.wire), "event: message\ndata: {}\n\n");
        assert_eq!(
            text(&Draft::copy_of(b"{\n}").line().wire),
            "{ }\n",
            "GW-01: one message, one line"
        );
        assert_eq!(text(&frame.payload), "{}");
    }

    #[test]
    fn ids_longer_than_the_headroom_still_fit() {
        let prefix = IdPrefix::new("x".repeat(120));
        let frame = Draft::copy_of(b"{}").number(&prefix, Seq(u64::MAX));
        assert_eq!(
            text(&frame.wire),
            format!("id: {}{}\ndata: {{}}\n\n", "x".repeat(120), u64::MAX)
        );
        assert_eq!(text(&frame.payload), "{}");
    }

    /// SSE-05, SSE-07: priming events and `retry:` blocks.
    #[test]
    fn sse_05_sse_07_priming_and_retry_blocks() {
        let prefix = IdPrefix::new("4-");
        assert_eq!(written(|out| write_priming(out, &prefix, Seq(0))), "id: 4-0\ndata:\n\n");
        assert_eq!(written(|out| write_retry(out, 2000)), "retry: 2000\n\n");
    }

    /// SSE-01, SSE-03: the headers of a stream.
    #[test]
    fn sse_03_stream_headers_by_version() {
        for version in Version::ALL {
            let mut headers = HeaderMap::new();
            apply_stream_headers(&mut headers, version, false);
            assert_eq!(headers["content-type"], "text/event-stream");
            assert_eq!(headers["cache-control"], "no-cache, no-transform");
            assert_eq!(
                headers.contains_key("x-accel-buffering"),
                version == Version::V2026_07_28
            );
            apply_stream_headers(&mut headers, version, true);
            assert_eq!(headers["x-accel-buffering"], "no");
        }
    }

    proptest! {
        #[test]
        fn live_frames_and_replayed_frames_are_the_same_bytes(payload in "[ -~\u{e9}]{0,80}", ordinal: u64, seq: u64) {
            let prefix = IdPrefix::new(format!("{ordinal}-"));
            let frame = Draft::copy_of(payload.as_bytes()).number(&prefix, Seq(seq));
            let replayed = written(|out| write_event(out, &prefix, Seq(seq), &frame.payload));
            prop_assert_eq!(text(&frame.wire), replayed);
            prop_assert_eq!(text(&frame.payload), payload);
        }
    }
}
