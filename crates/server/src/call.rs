//! A call while it runs: its handler, its cancellation, its end (design D8).

use crate::context::Context;
use crate::handler::{Call, Handler, Reply, RpcError};
use crate::outlet::Outlet;
use crate::session::{InUse, Session, Waiter};
use crate::telemetry;
use bytes::Bytes;
use http::Extensions;
use parking_lot::Mutex;
use rethread_proto::jsonrpc::{ProgressToken, Request, RequestId, write_error, write_notification, write_result};
use rethread_proto::session::coordinator::{Question, TooManyQuestions};
use rethread_proto::sse::Draft;
use serde_json::json;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use tokio::sync::Notify;

/// A call that runs: what its context, its canceller and its connection share.
pub(crate) struct Running {
    pub(crate) id: RequestId,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) progress_token: Option<ProgressToken>,
    pub(crate) last_progress: Mutex<Option<f64>>,
    pub(crate) extensions: Extensions,
    /// Questions this call waits for.
    questions: Mutex<Vec<Question>>,
    cancelled: AtomicBool,
    /// Told of cancellation, and of a client that can never come back.
    changed: Notify,
    ended: AtomicBool,
}

/// How a call ended, for the POST that may still wait for it.
pub(crate) enum Finished {
    /// This is the whole answer.
    Json(Bytes),
    /// The answer went into a stream, or to nobody.
    Elsewhere,
}

/// A call at work. Dropping it ends the call without an answer.
pub(crate) type Work = Pin<Box<dyn Future<Output = Finished> + Send>>;

impl Running {
    pub(crate) fn new(request: &Request, outlet: Arc<Outlet>, extensions: Extensions) -> Arc<Self> {
        Arc::new(Running {
            id: request.id.clone(),
            outlet,
            progress_token: request.params.progress_token(),
            last_progress: Mutex::new(None),
            extensions,
            questions: Mutex::default(),
            cancelled: AtomicBool::new(false),
            changed: Notify::new(),
            ended: AtomicBool::new(false),
        })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.outlet.session
    }

    /// Cancels the call: its handler is told, and no answer will come.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.changed.notify_waiters();
        if !self.ended.swap(true, Ordering::AcqRel) {
            let questions = std::mem::take(&mut *self.questions.lock());
            for question in questions {
                self.withdraw(question);
            }
            self.outlet.end_cancelled();
        }
    }

    /// Opens a question of this call.
    pub(crate) fn ask(&self, waiter: Waiter) -> Result<Question, TooManyQuestions> {
        let question = self.session().questions.lock().ask(waiter)?;
        self.questions.lock().push(question);
        Ok(question)
    }

    /// A question is settled, or was never heard of.
    pub(crate) fn forget(&self, question: Question) {
        self.questions.lock().retain(|open| *open != question);
        self.session().questions.lock().abandon(question);
    }

    /// Nobody waits for the answer any more: the client need not bother (S2C-06).
    pub(crate) fn withdraw(&self, question: Question) {
        self.questions.lock().retain(|open| *open != question);
        if !self.session().questions.lock().abandon(question) {
            return; // settled already
        }
        let params = json!({ "requestId": question.id(), "reason": "the server no longer waits for this answer" });
        let draft = Draft::new(160, |out| {
            write_notification(out, "notifications/cancelled", &params).expect("these params are plain JSON");
        });
        let _ = self.outlet.say(draft, rethread_store::Pin::None); // the call is over: so is its stream
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(crate) async fn cancelled(&self) {
        self.when(|| self.is_cancelled()).await;
    }

    /// Waits until the call can no longer be answered to anybody.
    pub(crate) async fn pointless(&self) {
        self.when(|| self.is_cancelled() || self.outlet.is_unreachable()).await;
    }

    async fn when(&self, condition: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if condition() {
                return;
            }
            changed.await;
        }
    }

    /// The client hung up before the answer took form.
    pub(crate) fn client_left(&self) {
        if self.outlet.client_left() {
            self.changed.notify_waiters();
        }
    }

    fn finish(&self, result: Result<Reply, RpcError>) -> Finished {
        if self.ended.swap(true, Ordering::AcqRel) {
            return Finished::Elsewhere; // cancelled: nobody wants the answer
        }
        let json = match result {
            Ok(reply) => {
                let expected = reply.as_json().len() + self.id.as_json().len() + 48;
                self.outlet
                    .end(|out| write_result(out, &self.id, reply.as_json()), expected)
            }
            Err(error) => self.outlet.end(|out| write_error(out, Some(&self.id), &error), 160),
        };
        json.map_or(Finished::Elsewhere, Finished::Json)
    }
}

/// Sets a handler to work on `request`. Nothing happens until the work is polled.
pub(crate) fn work<H: Handler>(handler: Arc<H>, request: Request, running: Arc<Running>) -> Work {
    let guard = Guard {
        use_of: running.session().in_use(),
        running,
    };
    Box::pin(async move {
        let running = Arc::clone(&guard.running);
        let settles = Subscribing::of(&request);
        let method = request.method.clone();
        let context = Context::new(Arc::clone(&running));
        let mut handling = pin!(handler.handle(Call(request), &context));
        let mut result = std::future::poll_fn(|cx| {
            // A panic in a handler stays in its call (design D8).
            catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx))).unwrap_or_else(|_| {
                telemetry::panicked(method.as_str());
                Poll::Ready(Err(RpcError::internal("the server failed to handle this request")))
            })
        })
        .await;
        if let (Ok(_), Some(subscribing)) = (&result, settles)
            && let Err(error) = subscribing.settle(running.session())
        {
            result = Err(error);
        }
        // The id is free again before the answer is out: a client may use it at once.
        drop(guard);
        running.finish(result)
    })
}

/// What a call holds while it runs; it is given back even if the work is dropped half way.
struct Guard {
    running: Arc<Running>,
    use_of: InUse,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let session = self.use_of.session();
        session.end_call(&self.running.id, &self.running);
        session.node.calls.leave();
    }
}

/// Runs what is left of a call whose connection no longer waits for it. A cancelled handler gets a grace.
pub(crate) async fn run_out(work: Work, running: Arc<Running>) {
    let grace = running.session().node.timing.cancel_grace;
    let overdue = async {
        running.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        _ = work => {}
        () = overdue => telemetry::abandoned(),
    }
}

/// `resources/subscribe` and `resources/unsubscribe`: once the handler agrees, the session remembers.
enum Subscribing {
    On(String),
    Off(String),
}

impl Subscribing {
    fn of(request: &Request) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Params {
            uri: String,
        }
        let uri = || request.params.read::<Params>().ok().map(|params| params.uri);
        match request.method.as_str() {
            "resources/subscribe" => uri().map(Subscribing::On),
            "resources/unsubscribe" => uri().map(Subscribing::Off),
            _ => None,
        }
    }

    fn settle(self, session: &Session) -> Result<(), RpcError> {
        match self {
            Subscribing::On(uri) if !session.subscribe(&uri) => {
                Err(RpcError::invalid_params("too many subscriptions in this session"))
            }
            Subscribing::On(_) => Ok(()),
            Subscribing::Off(uri) => {
                session.unsubscribe(&uri);
                Ok(())
            }
        }
    }
}
