//! Reads request bodies.

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame};
use rethread_proto::Refusal;
use rethread_proto::refusal::Reason;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

/// Reads a body under a limit. A body that arrives in one piece is not copied, and no timer is set for it.
pub(crate) async fn read_body<B: HttpBody>(body: B, limit: usize, patience: Duration) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > limit as u64 {
        return Err(Reason::BodyTooLarge { limit }.into());
    }
    let mut body = pin!(body);
    // One frame is kept as it came. With the second, all move to `joined`, and `first` is empty again.
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    let mut collect = pin!(async {
        while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let frame = frame.map_err(|_| Reason::BodyIncomplete)?;
            let Ok(mut data) = frame.into_data() else { continue };
            let size = data.remaining();
            if first.len() + joined.len() + size > limit {
                return Err(Reason::BodyTooLarge { limit });
            }
            if first.is_empty() && joined.is_empty() {
                first = data.copy_to_bytes(size);
            } else {
                joined.reserve(first.len() + size);
                joined.extend_from_slice(&std::mem::take(&mut first));
                joined.extend_from_slice(&data.copy_to_bytes(size));
            }
        }
        Ok(if joined.is_empty() { first } else { joined.freeze() })
    });
    let mut patience_ends = None;
    let collected = std::future::poll_fn(|cx| {
        if let Poll::Ready(collected) = collect.as_mut().poll(cx) {
            return Poll::Ready(collected);
        }
        let sleep = patience_ends.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        sleep.as_mut().poll(cx).map(|()| Err(Reason::BodyIncomplete))
    });
    collected.await.map_err(Refusal::from)
}

/// A body that has arrived completely, on another node.
pub(crate) struct WholeBody(Option<Bytes>);

impl WholeBody {
    pub(crate) fn new(bytes: Bytes) -> Self {
        WholeBody(Some(bytes))
    }
}

impl HttpBody for WholeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}
