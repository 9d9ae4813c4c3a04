//! A handler of any type.
//!
//! The transport knows its handler only by this trait, so it is compiled once, with this crate. Otherwise every program would
//! compile the whole transport again for each of its handlers.

use crate::call::active_call::ActiveCall;
use crate::call::handler::Handler;
use crate::call::opening::{InitializeReply, OpenError, SessionStart};
use crate::call::peer::Peer;
use crate::call::request::{Call, Notification};
use crate::call::run::{HandlerFuture, handler_future};
use rethread_proto::gate::mirror::HeaderParams;
use rethread_proto::jsonrpc::Params;
use rethread_proto::{InlineStr, Principal};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A future of a handler. A future without state needs no allocation.
type AnyFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The methods of [`Handler`] that the transport calls while it serves.
pub(crate) trait AnyHandler: Send + Sync {
    /// Runs the handler on `call`. Nothing happens until the future is polled.
    fn run(self: Arc<Self>, call: Call, running: Arc<ActiveCall>) -> HandlerFuture;

    fn header_params(
        self: Arc<Self>,
        tool: InlineStr,
        params: Params,
        caller: Principal,
    ) -> AnyFuture<'static, Option<Arc<HeaderParams>>>;

    fn open<'a>(&'a self, opening: &'a SessionStart) -> AnyFuture<'a, Result<InitializeReply, OpenError>>;

    fn serves_subscription(&self, params: &Params, caller: &Principal) -> bool;

    fn on_notification<'a>(&'a self, notice: Notification, peer: &'a Peer) -> AnyFuture<'a, ()>;

    fn on_push_stream_opened(&self, peer: &Peer);

    fn may_unload(&self, peer: &Peer) -> bool;
}

impl<H: Handler> AnyHandler for H {
    fn run(self: Arc<Self>, call: Call, running: Arc<ActiveCall>) -> HandlerFuture {
        handler_future(self, call, running)
    }

    fn header_params(
        self: Arc<Self>,
        tool: InlineStr,
        params: Params,
        caller: Principal,
    ) -> AnyFuture<'static, Option<Arc<HeaderParams>>> {
        Box::pin(async move { Handler::header_params(&*self, tool.as_str(), &params, &caller).await })
    }

    fn open<'a>(&'a self, opening: &'a SessionStart) -> AnyFuture<'a, Result<InitializeReply, OpenError>> {
        Box::pin(Handler::open(self, opening))
    }

    fn serves_subscription(&self, params: &Params, caller: &Principal) -> bool {
        Handler::serves_subscription(self, params, caller)
    }

    fn on_notification<'a>(&'a self, notice: Notification, peer: &'a Peer) -> AnyFuture<'a, ()> {
        Box::pin(Handler::on_notification(self, notice, peer))
    }

    fn on_push_stream_opened(&self, peer: &Peer) {
        Handler::on_push_stream_opened(self, peer);
    }

    fn may_unload(&self, peer: &Peer) -> bool {
        Handler::may_unload(self, peer)
    }
}
