//! A connection that reads a stream of a session.

use crate::stream::body::Chunks;
use crate::stream::reader_body::ReaderBody;
use crate::stream::remote_body::RemoteBody;
use bytes::Bytes;
use std::task::{Context, Poll};

/// A connection that was opened for a GET.
pub(crate) struct GetConnection {
    pub(crate) reader: ConnectionBody,
    /// The id of the oldest retained event, if events after the cursor are gone.
    pub(crate) gap: Option<String>,
}

/// A connection that reads a stream of this node or of another one.
pub(crate) enum ConnectionBody {
    Local(Box<ReaderBody>),
    Remote(Box<RemoteBody>),
}

impl Chunks for ConnectionBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            ConnectionBody::Local(body) => body.poll_chunk(cx),
            ConnectionBody::Remote(body) => body.poll_chunk(cx),
        }
    }
}
