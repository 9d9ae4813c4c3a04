//! A body that a tape records.

use super::Recorder;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A body with its recorder, or without one.
pub(crate) struct TapedBody<B> {
    body: B,
    recorder: Option<Box<Recorder>>,
}

impl<B> TapedBody<B> {
    pub(crate) fn new(body: B, recorder: Option<Recorder>) -> Self {
        TapedBody {
            body,
            recorder: recorder.map(Box::new),
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TapedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(recorder) = &mut this.recorder {
            match &frame {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        recorder.chunk(data);
                    }
                    // hyper does not ask again when it knows that this was the last frame.
                    if this.body.is_end_stream() {
                        recorder.end(true);
                    }
                }
                Some(Err(_)) => recorder.end(false),
                None => recorder.end(true),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
