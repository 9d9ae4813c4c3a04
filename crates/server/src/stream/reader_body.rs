//! A response body that reads a stream: the socket's side of [`Reader`].
//!
//! Every connection runs the same loop. Its source differs: a stream of this node has a store and a live buffer, and a stream of
//! another node has a store and a wake-up.

use super::Stream;
use super::body::Chunks;
use super::keep_alive::KeepAlive;
use super::remote_reader::{RemoteReader, Signal};
use crate::node::Node;
use bytes::Bytes;
use rethread_proto::Version;
use rethread_proto::event_id::Seq;
use rethread_proto::stream::{
    ConnectionId, Framing, Input, MAX_BOUND_MESSAGES, Reader, ReaderStart, RemoteRead, Step, StreamClosed,
    StreamParams, TakeOutcome,
};
use rethread_store::{Page, ReadLimit, ReaderToken, StoreError, StoreFuture, StreamKey, Watch};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The session of a connection.
pub(crate) trait ConnectionHost: Send + Sync {
    /// Binds up to `max` waiting push messages to the stream. True if there were any. Fails if the session has ended.
    fn bind_waiting(
        self: Arc<Self>,
        connection: ConnectionId,
        stream: &Arc<Stream>,
        max: usize,
    ) -> Result<bool, StreamClosed>;

    /// The connection is gone. `was_reader` unless another connection has displaced it.
    fn detached(self: Arc<Self>, connection: ConnectionId, stream: &Arc<Stream>, takes_push: bool, was_reader: bool);

    /// A connection that read a stream of another node is gone.
    fn remote_detached(&self, reader: &Arc<RemoteReader>);
}

/// A connection that reads a stream.
pub(crate) struct ReaderBody {
    reader: Reader,
    page: Option<StoreFuture<Result<Page, StoreError>>>,
    keep_alive: KeepAlive,
    source: Source,
    host: Arc<dyn ConnectionHost>,
}

/// The node that writes the stream of a connection.
enum Source {
    Here(LocalSource),
    /// Boxed, because most connections read a stream of their own node.
    Elsewhere(Box<RemoteSource>),
}

impl Source {
    fn node(&self) -> &Node {
        match self {
            Source::Here(local) => &local.stream.node,
            Source::Elsewhere(remote) => &remote.node,
        }
    }
}

struct LocalSource {
    stream: Arc<Stream>,
    connection: ConnectionId,
    /// Whether the stream takes waiting push messages of its session.
    takes_push: bool,
    /// Whether the connection begins after an event that the client has seen.
    resumes: bool,
}

struct RemoteSource {
    shared: Arc<RemoteReader>,
    token: ReaderToken,
    params: StreamParams,
    watch: Pin<Box<dyn Future<Output = Option<Watch>> + Send>>,
    /// A wake-up led to the next read.
    was_woken: bool,
    node: Arc<Node>,
}

impl ReaderBody {
    /// The body of a connection that is attached to `stream`.
    pub(crate) fn new(
        stream: Arc<Stream>,
        connection: ConnectionId,
        start: ReaderStart,
        takes_push: bool,
        keep_alive: Option<Duration>,
        host: Arc<dyn ConnectionHost>,
    ) -> Self {
        let retry_millis = stream.node.timing.retry.as_millis() as u64;
        let resumes = start.resumes;
        let reader = Reader::new(start, stream.version, retry_millis);
        let source = LocalSource {
            stream,
            connection,
            takes_push,
            resumes,
        };
        ReaderBody {
            // A resume reads the store at once, before the socket is ready.
            page: reader.reads_after().map(|cursor| source.read(cursor)),
            reader,
            keep_alive: KeepAlive::new(keep_alive),
            source: Source::Here(source),
            host,
        }
    }

    /// The body of a connection that is attached as `token` to a stream of another node.
    pub(crate) fn remote(
        shared: Arc<RemoteReader>,
        token: ReaderToken,
        params: StreamParams,
        (start, version): (ReaderStart, Version),
        keep_alive: Option<Duration>,
        node: Arc<Node>,
        host: Arc<dyn ConnectionHost>,
    ) -> Self {
        let retry_millis = node.timing.retry.as_millis() as u64;
        node.metrics.events.remote_reader(1.0);
        ReaderBody {
            reader: Reader::remote(&params, start, version, retry_millis),
            page: None,
            keep_alive: KeepAlive::new(keep_alive),
            source: Source::Elsewhere(Box::new(RemoteSource {
                watch: changed(node.store.watch(&shared.key)),
                was_woken: false,
                shared,
                token,
                params,
                node,
            })),
            host,
        }
    }

    fn poll_page(&mut self, cursor: Seq, cx: &mut Context<'_>) -> Poll<Input> {
        let source = &self.source;
        let page = self.page.get_or_insert_with(|| match source {
            Source::Here(local) => local.read(cursor),
            Source::Elsewhere(remote) => remote.read(cursor),
        });
        let page = std::task::ready!(Pin::new(page).poll(cx));
        self.page = None;
        Poll::Ready(match &mut self.source {
            Source::Here(LocalSource { stream, connection, .. }) => {
                let caught_up = |cursor, bytes| stream.caught_up(*connection, cursor, bytes);
                self.reader.page(&stream.params, page.ok().as_ref(), caught_up)
            }
            Source::Elsewhere(remote) => {
                remote.report_use(&page);
                self.reader.remote_page(&remote.params, judged(&page))
            }
        })
    }

    /// Asks the source when there is nothing to send.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        match &mut self.source {
            Source::Here(local) => match local.bind_waiting(&self.host) {
                Ok(false) => return Poll::Pending,
                Ok(true) => {}
                Err(StreamClosed) => self.reader.end(),
            },
            Source::Elsewhere(remote) => match std::task::ready!(remote.poll_signal(cx)) {
                Signal::Close(close) => {
                    return Poll::Ready(self.reader.taken(&remote.params, TakeOutcome::Close(close)));
                }
                Signal::Read => self.reader.woken(),
            },
        }
        Poll::Ready(Input::Continue)
    }

    /// Waits for the next keep-alive. A remote reader then looks at the store, in case a wake-up was lost.
    fn poll_keep_alive(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let comment = std::task::ready!(self.keep_alive.poll(cx));
        self.reader.woken();
        Poll::Ready(comment)
    }
}

impl LocalSource {
    fn read(&self, cursor: Seq) -> StoreFuture<Result<Page, StoreError>> {
        let stream = &self.stream;
        stream.node.store.read_after(&stream.key, cursor, ReadLimit::default())
    }

    /// Binds waiting push messages. True if there were any.
    fn bind_waiting(&self, host: &Arc<dyn ConnectionHost>) -> Result<bool, StreamClosed> {
        if !self.takes_push {
            return Ok(false);
        }
        Arc::clone(host).bind_waiting(self.connection, &self.stream, MAX_BOUND_MESSAGES)
    }
}

impl RemoteSource {
    fn read(&self, cursor: Seq) -> StoreFuture<Result<Page, StoreError>> {
        match self.node.cluster() {
            Some(cluster) => cluster.read_as(&self.shared.key, &self.token, cursor, ReadLimit::default()),
            None => StoreFuture::ready(Err(StoreError::Displaced)), // only clusters have remote readers
        }
    }

    /// Counts whether the wake-up before a read was useful.
    fn report_use(&mut self, page: &Result<Page, StoreError>) {
        if std::mem::take(&mut self.was_woken) {
            self.node
                .metrics
                .events
                .woken(page.as_ref().is_ok_and(|page| !page.events.is_empty()));
        }
    }

    /// The session or the store has something for this reader.
    fn poll_signal(&mut self, cx: &mut Context<'_>) -> Poll<Signal> {
        let mut signal = self.shared.poll_signal(cx);
        if signal.is_pending()
            && let Poll::Ready(watch) = self.watch.as_mut().poll(cx)
        {
            self.watch = match watch {
                Some(watch) => changed(watch),
                None => Box::pin(std::future::pending()), // the stream is forgotten: the next read finds out
            };
            signal = Poll::Ready(Signal::Read);
        }
        self.was_woken |= matches!(signal, Poll::Ready(Signal::Read));
        signal
    }
}

/// The next wake-up of a watch. `None` if no other can come.
fn changed(mut watch: Watch) -> Pin<Box<dyn Future<Output = Option<Watch>> + Send>> {
    Box::pin(async move { watch.changed().await.then_some(watch) })
}

fn judged(page: &Result<Page, StoreError>) -> RemoteRead<'_> {
    match page {
        Ok(page) => RemoteRead::Page(page),
        Err(error) if error.is_outage() => RemoteRead::StoreFailed,
        Err(_) => RemoteRead::Ended,
    }
}

impl Chunks for ReaderBody {
    fn logged_stream(&self) -> Option<&StreamKey> {
        let Source::Here(local) = &self.source else {
            return None;
        };
        // A GET is where push messages are bound, so it stays with this connection. Another connection has no cursor.
        let is_logged = local.stream.params.framing == Framing::Numbered && !local.takes_push && !local.resumes;
        is_logged.then_some(&local.stream.key)
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let input = match (self.reader.step(), &self.source) {
                (Step::Send(chunk), _) => return Poll::Ready(Some(chunk)),
                (Step::End, _) => return Poll::Ready(None),
                (Step::Read(cursor), _) => std::task::ready!(self.poll_page(cursor, cx)),
                (Step::Take, Source::Here(local)) => {
                    let taken = local.stream.take(local.connection, cx);
                    self.reader.taken(&local.stream.params, taken)
                }
                (Step::Take, Source::Elsewhere(_)) => return Poll::Ready(None), // a remote reader takes nothing
                (Step::Wait, _) => Input::Wait,
            };
            let input = match input {
                Input::Wait => match self.poll_source(cx) {
                    Poll::Ready(input) => input,
                    Poll::Pending => return self.poll_keep_alive(cx),
                },
                input => input,
            };
            match input {
                Input::Send(chunk) => {
                    self.keep_alive.reset();
                    return Poll::Ready(Some(chunk));
                }
                Input::Continue | Input::Wait => {}
                Input::Overtaken => self.source.node().metrics.events.overtaken(),
            }
        }
    }
}

impl Drop for ReaderBody {
    fn drop(&mut self) {
        match &self.source {
            Source::Here(local) => {
                let was_reader = local.stream.detach(local.connection);
                let host = Arc::clone(&self.host);
                host.detached(local.connection, &local.stream, local.takes_push, was_reader);
            }
            Source::Elsewhere(remote) => {
                remote.node.metrics.events.remote_reader(-1.0);
                if let Some(cluster) = remote.node.cluster()
                    && let Err(later) = cluster.detach(&remote.shared.key, &remote.token).now()
                {
                    tokio::spawn(later);
                }
                self.host.remote_detached(&remote.shared);
            }
        }
    }
}
