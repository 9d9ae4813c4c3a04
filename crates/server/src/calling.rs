//! A call in a session, from its handler's first step to the response. A future by hand, because one is made for every call,
//! and a smaller one is faster.

use crate::answering::{Answered, Answering};
use crate::respond;
use crate::session::{CompleteStream, Session};
use crate::stream::body::Body;
use http::Response;
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

impl Calling {
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
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        let this = &mut *self;
        let (version, unbuffered) = (this.session.version(), this.session.node.is_unbuffered());
        if this.complete.is_none() {
            match ready!(Pin::new(&mut this.answering).poll(cx)) {
                Answered::Json(body) if this.answering.streams_at_once() => {
                    this.complete = Some(this.session.complete_stream(&this.id, body));
                }
                Answered::Json(body) => return Poll::Ready(respond::json(body)),
                Answered::Stream(reader) => return Poll::Ready(respond::stream(reader, version, unbuffered)),
                Answered::Cancelled => return Poll::Ready(respond::no_events(version, unbuffered)),
            }
        }
        match &mut this.complete {
            Some(complete) => {
                let bytes = ready!(complete.poll_bytes(&this.session, cx));
                Poll::Ready(respond::whole_stream(bytes, version, unbuffered))
            }
            None => Poll::Pending, // it was set above
        }
    }
}
