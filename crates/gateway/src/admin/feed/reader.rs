//! The queue of one reader of the feed, and the body of its response.

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Events that wait for one reader. Beyond either bound it gets `reset`.
const MAX_QUEUED_EVENTS: usize = 4096;
const MAX_QUEUED_BYTES: usize = 1 << 20;

/// One server-sent event.
pub(super) fn event(name: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default(); // these types cannot fail
    format!("event: {name}\ndata: {data}\n\n").into()
}

pub(super) fn comment() -> Bytes {
    Bytes::from_static(b":\n\n")
}

/// The queue of one reader.
#[derive(Default)]
pub(super) struct Reader(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    events: VecDeque<Bytes>,
    bytes: usize,
    is_opened: bool,
    waker: Option<Waker>,
}

impl Reader {
    /// Whether it has got no opening yet.
    pub(super) fn is_new(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().is_opened, true)
    }

    /// Queues events. A queue that is too long is replaced by `reset`.
    pub(super) fn push(&self, events: &[Bytes]) {
        if events.is_empty() {
            return;
        }
        let mut queue = self.0.lock();
        queue.bytes += events.iter().map(Bytes::len).sum::<usize>();
        queue.events.extend(events.iter().cloned());
        if queue.events.len() > MAX_QUEUED_EVENTS || queue.bytes > MAX_QUEUED_BYTES {
            let reset = event("reset", &serde_json::Map::new());
            queue.bytes = reset.len();
            queue.events.clear();
            queue.events.push_back(reset);
        }
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The body of a feed. It ends with its connection.
pub(in crate::admin) struct FeedBody(pub(super) Arc<Reader>);

impl Body for FeedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut queue = self.0.0.lock();
        if queue.events.is_empty() {
            queue.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut bytes = BytesMut::with_capacity(queue.bytes);
        for event in std::mem::take(&mut queue.events) {
            bytes.extend_from_slice(&event);
        }
        queue.bytes = 0;
        Poll::Ready(Some(Ok(Frame::data(bytes.freeze()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reader: &Reader) -> String {
        let queue = reader.0.lock();
        queue
            .events
            .iter()
            .map(|event| String::from_utf8_lossy(event))
            .collect()
    }

    #[test]
    fn ops_10_slow_reader_is_reset_and_its_queue_stays_bounded() {
        let (slow, quick) = (Reader::default(), Reader::default());
        let small = event("state", &serde_json::json!({ "state": "ready" }));
        slow.push(&vec![small.clone(); MAX_QUEUED_EVENTS]);
        assert!(!text(&slow).contains("reset"));
        slow.push(std::slice::from_ref(&small));
        assert_eq!(text(&slow), "event: reset\ndata: {}\n\n");
        slow.push(std::slice::from_ref(&small));
        assert_eq!(text(&slow).matches("event:").count(), 2, "it goes on after the reset");
        let large = Bytes::from(vec![b'x'; MAX_QUEUED_BYTES / 2]);
        quick.push(&[large.clone(), large]);
        assert!(!text(&quick).contains("reset"));
        quick.push(&[small]);
        assert_eq!(text(&quick), "event: reset\ndata: {}\n\n");
    }
}
