//! The users of a session: connections that read its streams, and calls that run.

use super::{Session, Transport};
use crate::node::stats::ConnectionKind;
use crate::stream::reader_body::{ConnectionHost, ReaderBody};
use crate::stream::remote_reader::RemoteReader;
use crate::stream::{Stream, StreamObserver};
use rethread_proto::StreamKind;
use rethread_proto::jsonrpc::RequestId;
use rethread_proto::stream::{ConnectionId, ReaderStart, StreamClosed};
use rethread_store::{QueuePosition, StoreError};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Session {
    /// Marks the session as used until the guard is dropped.
    pub(crate) fn in_use(self: &Arc<Self>) -> InUse {
        self.uses.fetch_add(1, Ordering::Relaxed);
        InUse {
            session: Arc::clone(self),
        }
    }

    /// Opens a connection that reads `stream`. It uses the session until it is dropped.
    pub(crate) fn open_reader(
        self: &Arc<Self>,
        stream: Arc<Stream>,
        start: ReaderStart,
        takes_push: bool,
    ) -> Box<ReaderBody> {
        self.node.connections.enter(self.connection_kind(&stream));
        self.uses.fetch_add(1, Ordering::Relaxed);
        let connection = stream.attach(start.cursor, start.resumes);
        if takes_push {
            self.push.listen(connection, &stream);
            if self.has_shared_push() {
                self.listen_shared(&stream);
            }
        }
        let host = Arc::clone(self) as Arc<dyn ConnectionHost>;
        Box::new(ReaderBody::new(
            stream,
            connection,
            start,
            takes_push,
            self.keep_alive(),
            host,
        ))
    }

    /// The kind of a connection that reads `stream`.
    fn connection_kind(&self, stream: &Stream) -> ConnectionKind {
        match (self.transport, stream.key.ordinal.kind()) {
            (Transport::HttpSse | Transport::Lines, _) => ConnectionKind::Sse,
            (Transport::Streamable, StreamKind::Call) => ConnectionKind::Call,
            (Transport::Streamable, StreamKind::Push) => ConnectionKind::Push,
        }
    }

    pub(super) fn unused(&self) {
        self.touch();
        self.uses.fetch_sub(1, Ordering::Relaxed);
        self.node.notify_drain();
    }
}

/// Prevents a session from expiring as idle.
pub(crate) struct InUse {
    session: Arc<Session>,
}

impl InUse {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.session.unused();
    }
}

impl ConnectionHost for Session {
    fn bind_waiting(
        self: Arc<Self>,
        connection: ConnectionId,
        stream: &Arc<Stream>,
        max: usize,
    ) -> Result<bool, StreamClosed> {
        if self.has_shared_push() {
            self.bind_again();
            return Ok(false);
        }
        self.push.take(connection, stream, max).map(|taken| taken > 0)
    }

    fn detached(self: Arc<Self>, connection: ConnectionId, stream: &Arc<Stream>, takes_push: bool, was_reader: bool) {
        if takes_push {
            self.push.leave(connection);
            if was_reader && self.has_shared_push() {
                self.unlisten_shared(stream);
            }
            if was_reader {
                self.push_reader_changed(stream);
            }
        }
        self.node.connections.leave(self.connection_kind(stream));
        self.unused();
    }

    fn remote_detached(&self, reader: &Arc<RemoteReader>) {
        self.forget_remote_reader(reader);
    }
}

impl StreamObserver for Session {
    fn stream_closed(&self, stream: &Stream) {
        self.stream_ended(stream);
    }

    fn append_refused(&self, error: StoreError) {
        self.refused(error);
    }

    fn push_settled(self: Arc<Self>, position: QueuePosition, appended: bool) {
        self.push_bound(position, appended);
    }

    fn runs_other_calls(&self, calls: &[RequestId]) -> bool {
        let running = &self.state.lock().calls;
        running.len() > calls.iter().filter(|id| running.get(id).is_some()).count()
    }
}
