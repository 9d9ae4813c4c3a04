//! Runs a handler: in the request's future, or in a task of its own (D8).

use crate::call::active_call::ActiveCall;
use crate::call::call_scope::CallScope;
use crate::call::context::Context;
use crate::call::exchange::{Exchange, ReplyResult};
use crate::call::handler::Handler;
use crate::call::json_response::JsonResponse;
use crate::call::observed_call::ObservedCall;
use crate::call::reply::Reply;
use crate::call::request::Call;
use crate::session::Session;
use crate::session::connections::InUse;
use rethread_proto::LogLevel;
use rethread_proto::jsonrpc::{Request, RequestId, RpcError};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

/// How a call ended, for the response future that may wait for it.
pub(crate) enum HandlerEnd {
    /// This is the JSON body of the response.
    Json(JsonResponse),
    /// The reply is in a stream, waits for a retry, or nobody wants it.
    Elsewhere,
}

/// A handler at work. Dropping it ends the call without a reply.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = HandlerEnd> + Send>>;

/// Runs a handler on `call`. Nothing happens until the future is polled.
pub(crate) fn handler_future<H: Handler>(handler: Arc<H>, call: Call, running: Arc<ActiveCall>) -> HandlerFuture {
    let mut guard = CallGuard {
        observed: ObservedCall::start(&running.exchange.node, &call.request),
        in_session: running.session().map(|session| InSession {
            in_use: session.in_use(),
            id: Some(call.request.id.clone()),
        }),
        running,
    };
    Box::pin(async move {
        let running = Arc::clone(&guard.running);
        let remembers = running.session().and_then(|_| SessionChange::of(&call.request));
        let context = Context::new(Arc::clone(&running));
        // A panic in a handler stays in its call (D8), also one before its future is made: then there is none.
        let mut handling = pin!(catch_unwind(AssertUnwindSafe(|| handler.handle(call, &context))).ok());
        let mut result = std::future::poll_fn(|cx| {
            let polled = handling.as_mut().as_pin_mut().and_then(|handling| {
                let poll = AssertUnwindSafe(|| handling.poll(cx));
                catch_unwind(poll).ok()
            });
            polled.unwrap_or_else(|| {
                running
                    .exchange
                    .node
                    .metrics
                    .events
                    .panicked(guard.observed.method.as_str());
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
        if let Some(session) = running.session()
            && session.has_unstored_push()
        {
            Box::pin(session.push_stored()).await;
        }
        // The permit is free only after that: a drain must not overtake the reply. Waiting is rare, and therefore boxed.
        match finish(&running, result, &mut guard) {
            ReplyResult::Json(json) => HandlerEnd::Json(json),
            ReplyResult::Elsewhere => HandlerEnd::Elsewhere,
            no_room => Box::pin(settle_reply(&running.exchange, running.index(), no_room)).await,
        }
    })
}

/// The resources of a running call: its id and its permit. They are released even if the future is dropped in the middle.
struct CallGuard {
    running: Arc<ActiveCall>,
    observed: ObservedCall,
    /// The use of its session, and its id there.
    in_session: Option<InSession>,
}

struct InSession {
    in_use: InUse,
    /// `None` once it is free.
    id: Option<RequestId>,
}

impl CallGuard {
    /// The id is free before the reply is out: a client may use it again at once.
    fn release_id(&mut self) {
        if let Some(InSession { in_use, id }) = &mut self.in_session
            && let Some(id) = id.take()
        {
            in_use.session().end_call(&id, &*self.running);
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.release_id();
        self.observed.ended(&self.running);
        let exchange = &self.running.exchange;
        match &exchange.scope {
            CallScope::Session(session) => exchange.node.end_call(&session.key.principal),
            CallScope::Stateless(_) => exchange.release_permit(),
        }
        exchange.node.notify_drain();
    }
}

/// Runs what is left of a call whose connection no longer waits for it. A cancelled handler gets a grace.
pub(crate) async fn run_detached(work: HandlerFuture, running: Arc<ActiveCall>) {
    let grace = running.exchange.node.timing.cancel_grace;
    let overdue = async {
        running.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        finished = work => {
            if let HandlerEnd::Json(json) = finished {
                running.exchange.complete(json);
            }
        }
        () = overdue => running.exchange.node.metrics.events.abandoned(),
    }
}

/// A change of the session's state that a successful call causes.
enum SessionChange {
    Subscribed(String),
    Unsubscribed(String),
    /// The level that a relay has set.
    Level(LogLevel),
}

impl SessionChange {
    fn of(request: &Request) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Params {
            uri: Option<String>,
            level: Option<LogLevel>,
        }
        let params = || request.params.read::<Params>().ok();
        match request.method.as_str() {
            "resources/subscribe" => params()?.uri.map(SessionChange::Subscribed),
            "resources/unsubscribe" => params()?.uri.map(SessionChange::Unsubscribed),
            "logging/setLevel" => params()?.level.map(SessionChange::Level),
            _ => None,
        }
    }

    async fn settle(self, session: &Session) -> Result<(), RpcError> {
        match self {
            SessionChange::Subscribed(uri) if !session.subscribe(&uri).await => {
                Err(RpcError::invalid_params("too many subscriptions in this session"))
            }
            SessionChange::Subscribed(_) => Ok(()),
            SessionChange::Unsubscribed(uri) => {
                session.unsubscribe(&uri).await;
                Ok(())
            }
            SessionChange::Level(level) => {
                session.set_log_level(level).await;
                Ok(())
            }
        }
    }
}

/// Delivers the reply of a handler, or gives it back if the stream has no room for it.
fn finish(call: &ActiveCall, result: Result<Reply, RpcError>, guard: &mut CallGuard) -> ReplyResult {
    guard.release_id();
    if !call.end() {
        return ReplyResult::Elsewhere; // cancelled: nobody wants the reply
    }
    guard.observed.replied(&call.exchange.node, &result);
    call.exchange.reply(call.index(), result)
}

/// Delivers the reply to the request `index`. Waits if the stream has no room for it.
pub(crate) async fn reply(exchange: &Exchange, index: usize, result: Result<Reply, RpcError>) -> HandlerEnd {
    let replied = exchange.reply(index, result);
    settle_reply(exchange, index, replied).await
}

async fn settle_reply(exchange: &Exchange, index: usize, mut replied: ReplyResult) -> HandlerEnd {
    loop {
        match replied {
            ReplyResult::Json(json) => return HandlerEnd::Json(json),
            ReplyResult::Elsewhere => return HandlerEnd::Elsewhere,
            ReplyResult::NoRoom(sink, result) => {
                if !sink.wait_for_room().await {
                    exchange.cancel();
                    return HandlerEnd::Elsewhere;
                }
                replied = exchange.reply(index, result);
            }
        }
    }
}
