//! A POST that waits for the form of its answer: a JSON object, or a stream (design D5, D8).
//!
//! The handler is polled right here, without a task. It gets one of its own only when the answer becomes a stream or the
//! client leaves: then it must outlive this future.

use crate::call::active_call::ActiveCall;
use crate::call::outlet::Outlet;
use crate::call::run::{Finished, HandlerFuture, run_detached};
use crate::stream::reader_body::ReaderBody;
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

pub(crate) struct Answering {
    work: Option<HandlerFuture>,
    running: Arc<ActiveCall>,
    outlet: Arc<Outlet>,
    upgrade_after: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

/// The form that the answer took.
#[allow(clippy::large_enum_variant)] // it lives for one match
pub(crate) enum Answered {
    Json(Bytes),
    Stream(ReaderBody),
    /// The client cancelled the call before there was anything to say.
    Cancelled,
}

impl Answering {
    pub(crate) fn new(
        work: HandlerFuture,
        running: Arc<ActiveCall>,
        outlet: Arc<Outlet>,
        upgrade_after: Duration,
    ) -> Self {
        Answering {
            work: Some(work),
            running,
            outlet,
            upgrade_after,
            timer: None,
        }
    }

    /// Whether the answer is a stream however soon it comes.
    pub(crate) fn streams_at_once(&self) -> bool {
        self.upgrade_after.is_zero()
    }

    fn hand_over(&mut self) {
        if let Some(work) = self.work.take() {
            tokio::spawn(run_detached(work, Arc::clone(&self.running)));
        }
    }
}

impl Future for Answering {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answered> {
        let this = &mut *self;
        let outlet = Arc::clone(&this.outlet);
        let finished = this.work.as_mut().map(|work| work.as_mut().poll(cx));
        if let Some(Poll::Ready(finished)) = finished {
            this.work = None;
            if let Finished::Json(body) = finished {
                return Poll::Ready(Answered::Json(body));
            }
        } else if outlet.stream().is_none() {
            let delay = this.upgrade_after;
            let silent_too_long = delay.is_zero() || {
                let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(delay)));
                timer.as_mut().poll(cx).is_ready()
            };
            if silent_too_long {
                outlet.upgrade();
            }
        }
        if let Some(reader) = outlet.take_reader() {
            this.hand_over();
            return Poll::Ready(Answered::Stream(reader));
        }
        if outlet.is_cancelled_or_register(cx.waker()) || this.work.is_none() {
            this.hand_over();
            return Poll::Ready(Answered::Cancelled);
        }
        // Another task may have spoken between the look for a stream and the persistence of the waker.
        match outlet.take_reader() {
            Some(reader) => {
                this.hand_over();
                Poll::Ready(Answered::Stream(reader))
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if self.work.is_some() {
            self.running.client_left();
            self.hand_over();
        }
    }
}
