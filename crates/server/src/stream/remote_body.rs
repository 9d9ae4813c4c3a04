//! A response body that reads a stream whose writer is on another node: a cursor over the store, and a wake-up.

use super::body::Chunks;
use super::keep_alive::KeepAlive;
use crate::node::{Node, telemetry};
use bytes::Bytes;
use parking_lot::Mutex;
use rethread_proto::Version;
use rethread_proto::event_id::Seq;
use rethread_proto::stream::{Close, Input, Reader, ReaderStart, RemoteRead, Step, StreamParams, TakeOutcome};
use rethread_store::{Incarnation, Page, ReadLimit, ReaderToken, StoreError, StoreFuture, StreamKey, Watch};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A remote reader, as its session knows it.
pub(crate) struct RemoteReader {
    pub(crate) key: StreamKey,
    /// The node of the stream's writer when the reader was attached.
    pub(crate) writer: Option<Incarnation>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_woken: bool,
    close: Option<Close>,
    waker: Option<Waker>,
}

impl RemoteReader {
    pub(crate) fn new(key: StreamKey, writer: Option<Incarnation>) -> Self {
        RemoteReader {
            key,
            writer,
            state: Mutex::default(),
        }
    }

    /// There may be something to read.
    pub(crate) fn wake(&self) {
        self.change(|state| state.is_woken = true);
    }

    /// Asks the connection to close while the stream continues.
    pub(crate) fn close(&self, close: Close) {
        self.change(|state| state.close = Some(close));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the reader was woken since the last call. Otherwise the waker is stored.
    fn poll_woken(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.is_woken) {
            return true;
        }
        state.waker = Some(cx.waker().clone());
        false
    }
}

/// The session of a remote reader.
pub(crate) trait RemoteHost: Send + Sync {
    /// The connection is gone.
    fn remote_detached(&self, reader: &Arc<RemoteReader>);
}

/// A connection that reads a stream of another node.
pub(crate) struct RemoteBody {
    pub(crate) shared: Arc<RemoteReader>,
    token: ReaderToken,
    params: StreamParams,
    reader: Reader,
    page: Option<StoreFuture<Result<Page, StoreError>>>,
    watch: Pin<Box<dyn Future<Output = Option<Watch>> + Send>>,
    keep_alive: KeepAlive,
    /// A wake-up led to the next read.
    was_woken: bool,
    node: Arc<Node>,
    host: Arc<dyn RemoteHost>,
}

impl RemoteBody {
    /// The body of a connection that is attached to the stream as `token`.
    pub(crate) fn new(
        shared: Arc<RemoteReader>,
        token: ReaderToken,
        params: StreamParams,
        (start, version): (ReaderStart, Version),
        keep_alive: Option<Duration>,
        node: Arc<Node>,
        host: Arc<dyn RemoteHost>,
    ) -> Self {
        let retry_millis = node.timing.retry.as_millis() as u64;
        telemetry::remote_reader(1.0);
        RemoteBody {
            watch: changed(node.store.watch(&shared.key)),
            reader: Reader::remote(&params, start, version, retry_millis),
            page: None,
            keep_alive: KeepAlive::new(keep_alive),
            was_woken: false,
            shared,
            token,
            params,
            node,
            host,
        }
    }

    fn poll_page(&mut self, cursor: Seq, cx: &mut Context<'_>) -> Poll<Input> {
        let (node, key, token) = (&self.node, &self.shared.key, &self.token);
        let page = self.page.get_or_insert_with(|| match node.cluster() {
            Some(cluster) => cluster.read_as(key, token, cursor, ReadLimit::default()),
            None => StoreFuture::ready(Err(StoreError::Displaced)), // only clusters have remote readers
        });
        let page = std::task::ready!(Pin::new(page).poll(cx));
        self.page = None;
        if std::mem::take(&mut self.was_woken) {
            telemetry::woken(page.as_ref().is_ok_and(|page| !page.events.is_empty()));
        }
        let read = match &page {
            Ok(page) => RemoteRead::Page(page),
            Err(error) if error.is_outage() => RemoteRead::StoreFailed,
            Err(_) => RemoteRead::Ended,
        };
        Poll::Ready(self.reader.remote_page(&self.params, read))
    }

    /// Waits for a wake-up, or for the next keep-alive. Then the reader looks at the store, in case a wake-up was lost.
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(close) = self.shared.state.lock().close.take() {
            return match self.reader.taken(&self.params, TakeOutcome::Close(close)) {
                Input::Send(chunk) => Poll::Ready(Some(chunk)),
                _ => Poll::Ready(None),
            };
        }
        let mut is_woken = self.shared.poll_woken(cx);
        if let Poll::Ready(watch) = self.watch.as_mut().poll(cx) {
            self.watch = match watch {
                Some(watch) => changed(watch),
                None => Box::pin(std::future::pending()), // the stream is forgotten: the read below finds out
            };
            is_woken = true;
        }
        if is_woken {
            self.was_woken = true;
            self.reader.woken();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let comment = std::task::ready!(self.keep_alive.poll(cx));
        self.reader.woken();
        Poll::Ready(comment)
    }
}

/// The next wake-up of a watch. `None` if no other can come.
fn changed(mut watch: Watch) -> Pin<Box<dyn Future<Output = Option<Watch>> + Send>> {
    Box::pin(async move { watch.changed().await.then_some(watch) })
}

impl Chunks for RemoteBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let input = match self.reader.step() {
                Step::Send(chunk) => return Poll::Ready(Some(chunk)),
                Step::End | Step::Take => return Poll::Ready(None),
                Step::Read(cursor) => std::task::ready!(self.poll_page(cursor, cx)),
                Step::Wait => return self.poll_wait(cx),
            };
            match input {
                Input::Send(chunk) => {
                    self.keep_alive.reset();
                    return Poll::Ready(Some(chunk));
                }
                Input::Continue => {}
                Input::Overtaken => telemetry::overtaken(),
                Input::Wait => return self.poll_wait(cx),
            }
        }
    }
}

impl Drop for RemoteBody {
    fn drop(&mut self) {
        telemetry::remote_reader(-1.0);
        if let Some(cluster) = self.node.cluster()
            && let Err(later) = cluster.detach(&self.shared.key, &self.token).now()
        {
            tokio::spawn(later);
        }
        self.host.remote_detached(&self.shared);
    }
}
