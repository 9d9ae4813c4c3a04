//! Comments on a silent connection (SSE-04). A failed write also reveals a dead peer.

use bytes::Bytes;
use rethread_proto::sse;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// One year. A longer pause is shortened, because an `Instant` plus a larger duration may overflow.
const MAX_KEEP_ALIVE: Duration = Duration::from_secs(365 * 24 * 3600);

/// A timer that exists only once a connection has been idle.
pub(crate) struct KeepAlive {
    /// `None` if the connection needs no comments.
    pause: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The last message, if it came after the timer was set. The timer is corrected when it fires: to reset it for each
    /// message would cost more than the message's frame.
    silent_since: Option<Instant>,
}

impl KeepAlive {
    pub(crate) fn new(pause: Option<Duration>) -> Self {
        let pause = pause.map(|pause| pause.min(MAX_KEEP_ALIVE));
        KeepAlive {
            pause,
            timer: None,
            silent_since: None,
        }
    }

    /// A message was sent: the pause starts again.
    pub(crate) fn reset(&mut self) {
        if self.timer.is_some() {
            self.silent_since = Some(Instant::now());
        }
    }

    /// A comment, when it is due.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(pause) = self.pause else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
        while timer.as_mut().poll(cx).is_ready() {
            let Some(since) = self.silent_since.take() else {
                timer.as_mut().reset(Instant::now() + pause);
                return Poll::Ready(Some(Bytes::from_static(sse::KEEP_ALIVE)));
            };
            timer.as_mut().reset(since + pause);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// SSE-04: the pause starts at the last message, whenever the timer fires.
    #[tokio::test(start_paused = true)]
    async fn sse_04_silent_stream_gets_a_comment() {
        const STEP: Duration = Duration::from_secs(1);
        let mut keep_alive = KeepAlive::new(Some(10 * STEP));
        let mut cx = Context::from_waker(Waker::noop());
        let mut heard = Vec::new();
        for second in 0..45 {
            if [4, 9, 30].contains(&second) {
                keep_alive.reset(); // a message
            }
            match keep_alive.poll(&mut cx) {
                Poll::Ready(comment) => heard.push((second, comment.unwrap().len())),
                Poll::Pending => {}
            }
            tokio::time::advance(STEP).await;
        }
        let times: Vec<_> = heard.iter().map(|(second, _)| *second).collect();
        assert_eq!(times, [19, 29, 40], "9 + 10, 10 later, 30 + 10");
        assert!(heard.iter().all(|(_, length)| *length == sse::KEEP_ALIVE.len()));
    }
}
