//! The body of every response.

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use rethread_store::StreamKey;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of a response: empty, one JSON object, or a stream of events.
///
/// Dropping a stream body ends the connection. The stream continues and can be resumed.
pub struct Body(Kind);

enum Kind {
    Whole(Bytes),
    /// A complete stream in one buffer. It is chunked like any other stream, because some clients read streams only in this
    /// way.
    Events(Bytes),
    Stream(Box<dyn Chunks>),
}

/// A response that ends before its end: a part of it is lost. The connection breaks, so that the client does not take the
/// response for a complete one. Only responses of other nodes break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of the response is lost")]
#[non_exhaustive]
pub struct BodyError;

/// The content of a body, for a response that another node sends.
pub(crate) enum BodyContent {
    /// Bytes.
    Whole(Bytes),
    /// The log of a stream. Another connection may read it in place of this one.
    Logged(StreamKey, Body),
    /// Events that are in no log.
    Stream(Body),
}

/// A connection that delivers events.
pub(crate) trait Chunks: Send {
    /// The stream whose log has everything that this connection delivers.
    fn logged_stream(&self) -> Option<&StreamKey> {
        None
    }

    /// The next chunk; `None` at the end of the connection.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;

    /// Whether the connection has ended before the end of its content.
    fn is_broken(&self) -> bool {
        false
    }
}

impl Body {
    pub(crate) fn empty() -> Self {
        Body(Kind::Whole(Bytes::new()))
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Body(Kind::Whole(bytes.into()))
    }

    pub(crate) fn events(bytes: Bytes) -> Self {
        Body(Kind::Events(bytes))
    }

    pub(crate) fn into_content(self) -> BodyContent {
        match self.0 {
            Kind::Whole(bytes) | Kind::Events(bytes) => BodyContent::Whole(bytes),
            Kind::Stream(chunks) => match chunks.logged_stream().cloned() {
                Some(key) => BodyContent::Logged(key, Body(Kind::Stream(chunks))),
                None => BodyContent::Stream(Body(Kind::Stream(chunks))),
            },
        }
    }

    pub(crate) fn stream(chunks: Box<dyn Chunks>) -> Self {
        Body(Kind::Stream(chunks))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Whole(bytes) | Kind::Events(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Whole(bytes) | Kind::Events(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Stream(chunks) => Poll::Ready(match std::task::ready!(chunks.poll_chunk(cx)) {
                Some(bytes) => Some(Ok(Frame::data(bytes))),
                None => chunks.is_broken().then_some(Err(BodyError)),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Whole(bytes) | Kind::Events(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Events(_) | Kind::Stream(_) => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Kind::Whole(_) => "Body(whole)",
            Kind::Events(_) | Kind::Stream(_) => "Body(stream)",
        })
    }
}
