//! Runs a handler: in the request's future, or in a task of its own (design D8).

use crate::call::active_call::{ActiveCall, CallScope};
use crate::call::context::Context;
use crate::call::handler::Handler;
use crate::call::reply::Reply;
use crate::call::request::Call;
use crate::node::telemetry;
use crate::session::Session;
use crate::session::connections::InUse;
use bytes::Bytes;
use rethread_proto::LogLevel;
use rethread_proto::jsonrpc::{RESULT_FRAME, Request, RpcError, code, write_error, write_result};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

/// How a call ended, for the POST that may still wait for it.
pub(crate) enum Finished {
    /// This is the whole answer.
    Json(Bytes),
    /// The answer went into a stream, or to nobody.
    Elsewhere,
}

/// A call at work. Dropping it ends the call without an answer.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Finished> + Send>>;

/// Sets a handler to work on `call`. Nothing happens until the work is polled.
pub(crate) fn work<H: Handler>(handler: Arc<H>, call: Call, running: Arc<ActiveCall>) -> HandlerFuture {
    let guard = Guard {
        use_of: running.session().map(Session::in_use),
        holds_permit: true,
        running,
    };
    Box::pin(async move {
        let running = Arc::clone(&guard.running);
        let remembers = running.session().and_then(|_| Remembering::of(&call.request));
        let method = call.request.method.clone();
        let context = Context::new(Arc::clone(&running));
        // A panic in a handler stays in its call (design D8), also one before its future is made: then there is none.
        let mut handling = pin!(catch_unwind(AssertUnwindSafe(|| handler.handle(call, &context))).ok());
        let mut result = std::future::poll_fn(|cx| {
            let polled = handling.as_mut().as_pin_mut().and_then(|handling| {
                let poll = AssertUnwindSafe(|| handling.poll(cx));
                catch_unwind(poll).ok()
            });
            polled.unwrap_or_else(|| {
                telemetry::panicked(method.as_str());
                Poll::Ready(Err(RpcError::internal("the server failed to handle this request")))
            })
        })
        .await;
        if let (Ok(_), Some(remembers)) = (&result, remembers)
            && let Some(session) = running.session()
            && let Err(error) = Box::pin(remembers.settle(session)).await
        {
            result = Err(error);
        }
        finish(&running, result, guard)
    })
}

/// What a call holds while it runs; it is given back even if the work is dropped half way.
struct Guard {
    running: Arc<ActiveCall>,
    use_of: Option<InUse>,
    holds_permit: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(use_of) = &self.use_of {
            use_of.session().end_call(&self.running.id(), &*self.running);
        }
        match &self.running.venue {
            CallScope::Session(_) => {
                self.running.node.calls.leave();
                self.running.node.grew_quieter();
            }
            CallScope::Request(direct) if self.holds_permit => direct.release_permit(),
            CallScope::Request(_) => {}
        }
    }
}

/// Runs what is left of a call whose connection no longer waits for it. A cancelled handler gets a grace.
pub(crate) async fn run_detached(work: HandlerFuture, running: Arc<ActiveCall>) {
    let grace = running.node.timing.cancel_grace;
    let overdue = async {
        running.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        _ = work => {}
        () = overdue => telemetry::abandoned(),
    }
}

/// What a session remembers of a call, once the handler has agreed to it.
enum Remembering {
    Subscribed(String),
    Unsubscribed(String),
    /// The level that a relay has set.
    Level(LogLevel),
}

impl Remembering {
    fn of(request: &Request) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Params {
            uri: Option<String>,
            level: Option<LogLevel>,
        }
        let params = || request.params.read::<Params>().ok();
        match request.method.as_str() {
            "resources/subscribe" => params()?.uri.map(Remembering::Subscribed),
            "resources/unsubscribe" => params()?.uri.map(Remembering::Unsubscribed),
            "logging/setLevel" => params()?.level.map(Remembering::Level),
            _ => None,
        }
    }

    async fn settle(self, session: &Session) -> Result<(), RpcError> {
        match self {
            Remembering::Subscribed(uri) if !session.subscribe(&uri).await => {
                Err(RpcError::invalid_params("too many subscriptions in this session"))
            }
            Remembering::Subscribed(_) => Ok(()),
            Remembering::Unsubscribed(uri) => {
                session.unsubscribe(&uri).await;
                Ok(())
            }
            Remembering::Level(level) => {
                session.set_log_level(level).await;
                Ok(())
            }
        }
    }
}

/// Delivers the reply of a handler.
fn finish(call: &ActiveCall, result: Result<Reply, RpcError>, mut guard: Guard) -> Finished {
    let place = match &call.venue {
        CallScope::Session(place) => place,
        CallScope::Request(direct) => {
            if !call.ended.swap(true, Ordering::AcqRel) {
                // The answer is there when a drain sees the permit.
                direct.finish(result);
                guard.holds_permit = false;
            }
            return Finished::Elsewhere;
        }
    };
    // The id is free again before the answer is out: a client may use it at once.
    drop(guard);
    if call.ended.swap(true, Ordering::AcqRel) {
        return Finished::Elsewhere; // cancelled: nobody wants the answer
    }
    let json = match result.and_then(Reply::into_result) {
        Ok(result) => {
            let expected = result.len() + place.id.as_json().len() + RESULT_FRAME; // exact: no byte is kept for nothing
            place.outlet.end(|out| write_result(out, &place.id, &result), expected)
        }
        Err(mut error) => {
            if error.code == code::MISSING_CAPABILITY {
                error.code = code::INTERNAL_ERROR; // sessions have no such code
            }
            place.outlet.end(|out| write_error(out, Some(&place.id), &error), 160)
        }
    };
    json.map_or(Finished::Elsewhere, Finished::Json)
}
