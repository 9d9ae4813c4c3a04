//! A connection that reads a stream of another node, as its session knows it.

use parking_lot::Mutex;
use rethread_proto::stream::Close;
use rethread_store::{Incarnation, StreamKey};
use std::task::{Context, Poll, Waker};

/// A remote reader. Its session wakes it and closes it.
pub(crate) struct RemoteReader {
    pub(crate) key: StreamKey,
    /// The node of the stream's writer when the reader was attached.
    pub(crate) writer: Option<Incarnation>,
    state: Mutex<State>,
}

/// A request of the session to one of its remote readers.
pub(super) enum Signal {
    /// Close the connection.
    Close(Close),
    /// Read the store.
    Read,
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

    /// The latest request of the session. Without one, the waker is stored under the same lock, so that none is missed.
    pub(super) fn poll_signal(&self, cx: &Context<'_>) -> Poll<Signal> {
        let mut state = self.state.lock();
        if let Some(close) = state.close.take() {
            return Poll::Ready(Signal::Close(close));
        }
        if std::mem::take(&mut state.is_woken) {
            return Poll::Ready(Signal::Read);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
