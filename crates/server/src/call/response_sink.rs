//! The destination of the messages of a response: a stream of a session, or the connection that waits.

use crate::stream::direct_stream::DirectStream;
use crate::stream::{Emission, Stream};
use rethread_proto::event_id::Seq;
use std::sync::Arc;

/// The stream of a response.
#[derive(Clone)]
pub(crate) enum ResponseSink {
    /// A stream of a session: logged, or bound to the session's only connection.
    Session(Arc<Stream>),
    /// A stream that only the waiting connection reads.
    Direct(Arc<DirectStream>),
}

/// A message that was emitted.
pub(crate) struct Emitted {
    pub(crate) sink: ResponseSink,
    pub(crate) emission: Emission,
}

impl Emitted {
    pub(crate) fn new(sink: ResponseSink, emission: Emission) -> Self {
        Emitted { sink, emission }
    }
}

impl ResponseSink {
    /// Ends the stream without a message. Call it without any lock.
    pub(crate) fn seal(&self) {
        match self {
            ResponseSink::Session(stream) => stream.seal(),
            ResponseSink::Direct(stream) => stream.perform(stream.seal()),
        }
    }

    /// Wakes the connection that reads a direct stream.
    pub(crate) fn wake_direct(&self) {
        if let ResponseSink::Direct(stream) = self {
            stream.perform(stream.wake());
        }
    }

    /// A reader may exist from now on: a logged stream appends what it has.
    pub(crate) fn flush(&self) {
        if let ResponseSink::Session(stream) = self {
            stream.flush();
        }
    }

    /// A question on the stream is settled.
    pub(crate) fn release(&self, question: Seq) {
        if let ResponseSink::Session(stream) = self {
            stream.release(question);
        }
    }

    /// Whether a reply may be emitted now. A log takes it at once; without a log it waits for the reader like any message.
    pub(crate) fn takes_reply(&self) -> bool {
        match self {
            ResponseSink::Session(stream) => !stream.is_unlogged() || stream.has_room(),
            ResponseSink::Direct(stream) => stream.has_room(),
        }
    }

    /// Waits for a reader that is far behind, for a bounded time. False if nobody can read the stream any more.
    pub(crate) async fn wait_for_room(&self) -> bool {
        match self {
            ResponseSink::Session(stream) => {
                stream.wait_for_room().await;
                true
            }
            ResponseSink::Direct(stream) => stream.wait_for_room().await,
        }
    }
}
