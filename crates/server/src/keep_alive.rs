//! Comments on a connection that has nothing to say (SSE-04). Writing them is also how a dead peer is found.

use bytes::Bytes;
use rethread_proto::sse;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// A timer that exists only once a connection has been idle.
pub(crate) struct KeepAlive {
    /// `None` where silence needs no breaking.
    pause: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl KeepAlive {
    pub(crate) fn new(pause: Option<Duration>) -> Self {
        // A year is as good as never, and can be added to any date.
        let pause = pause.map(|pause| pause.min(Duration::from_secs(365 * 24 * 3600)));
        KeepAlive { pause, timer: None }
    }

    /// Something was sent: the silence begins anew.
    pub(crate) fn reset(&mut self) {
        if let (Some(timer), Some(pause)) = (&mut self.timer, self.pause) {
            timer.as_mut().reset(Instant::now() + pause);
        }
    }

    /// A comment, when it is due.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(pause) = self.pause else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
        if timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(Instant::now() + pause);
            return Poll::Ready(Some(Bytes::from_static(sse::KEEP_ALIVE)));
        }
        Poll::Pending
    }
}
