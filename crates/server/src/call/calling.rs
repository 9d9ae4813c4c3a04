//! A call in a session, from its handler's first step to the response. A future by hand, because one is made for every call,
//! and a smaller one is faster.

use crate::call::answering::{Answered, Answering};
use crate::session::{CompleteStream, Session};
use crate::stream::reader_body::ReaderBody;
use bytes::Bytes;
use rethread_proto::jsonrpc::RequestId;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

pub(crate) struct Calling {
    answering: Answering,
    /// The answer was there at once, is a stream all the same, and is on its way into the store.
    complete: Option<CompleteStream>,
    session: Arc<Session>,
    id: RequestId,
}

/// The answer to a call in a session.
#[allow(clippy::large_enum_variant)] // it lives for one match
pub(crate) enum Answer {
    /// One JSON object.
    Json(Bytes),
    /// A stream that is complete.
    Events(Bytes),
    /// A stream.
    Stream(ReaderBody),
    /// A stream without events: the call was cancelled (CAN-01).
    Empty,
}

impl Calling {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn new(answering: Answering, session: Arc<Session>, id: RequestId) -> Self {
        Calling {
            answering,
            complete: None,
            session,
            id,
        }
    }
}

impl Future for Calling {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let this = &mut *self;
        if this.complete.is_none() {
            match ready!(Pin::new(&mut this.answering).poll(cx)) {
                Answered::Json(body) if this.answering.streams_at_once() => {
                    this.complete = Some(this.session.complete_stream(&this.id, body));
                }
                Answered::Json(body) => return Poll::Ready(Answer::Json(body)),
                Answered::Stream(reader) => return Poll::Ready(Answer::Stream(reader)),
                Answered::Cancelled => return Poll::Ready(Answer::Empty),
            }
        }
        match &mut this.complete {
            Some(complete) => {
                let bytes = ready!(complete.poll_bytes(&this.session, cx));
                Poll::Ready(Answer::Events(bytes))
            }
            None => Poll::Pending, // it was set above
        }
    }
}
