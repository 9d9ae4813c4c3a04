//! Delivers the client's notifications to a server.
//!
//! Only rmcp can construct a `NotificationContext`. Notifications therefore pass through the loop of a peer.

use crate::peer_pool::PeerLease;
use parking_lot::Mutex;
use rmcp::model::{ClientNotification, ClientRequest, ServerConfig, ServerResult};
use rmcp::service::{NotificationContext, RequestContext, Service};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

type NotificationFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
type HandlerFn = dyn Fn(ClientNotification, NotificationContext<RoleServer>) -> NotificationFuture + Send + Sync;

/// The notification half of a server. The default has no server and ignores notifications.
#[derive(Clone, Default)]
pub(crate) struct NotificationHandler(Option<Arc<HandlerFn>>);

impl NotificationHandler {
    pub(crate) fn of<S: ServerHandler>(server: &Arc<S>) -> Self {
        let server = Arc::clone(server);
        NotificationHandler(Some(Arc::new(move |notification, context| {
            let server = Arc::clone(&server);
            Box::pin(async move {
                if let Err(error) = Service::handle_notification(&*server, notification, context).await {
                    tracing::debug!(%error, "notification handler failed");
                }
            })
        })))
    }
}

impl Service<RoleServer> for NotificationHandler {
    async fn handle_request(
        &self,
        request: ClientRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let method = request.method().to_owned();
        Err(ErrorData::internal_error(
            format!("{method} must not pass through a peer loop"),
            None,
        ))
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        mut context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // The guard lives until the handler returns.
        let guard = context.extensions.remove::<NotificationGuard>();
        if let Some(handler) = &self.0 {
            let mut future = handler(notification, context);
            let first_poll = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
            if let Some(guard) = &guard {
                guard.signal_start();
            }
            if first_poll.is_pending() {
                future.await;
            }
        }
        Ok(())
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::default()
    }
}

/// Resources that a notification holds until its handler returns: a permit, and the lease of its peer loop.
#[derive(Clone)]
pub(crate) struct NotificationGuard(Arc<Mutex<GuardState>>);

struct GuardState {
    start: Option<oneshot::Sender<()>>,
    /// `None` if the peer loop is leased by someone else.
    _lease: Option<PeerLease>,
    _permit: OwnedSemaphorePermit,
}

/// Resolves after the first poll of a notification handler, or when the handler can no longer run.
///
/// Do not wait for the handler to return: it may ask the client, and the client may wait for this POST.
pub(crate) struct StartSignal(oneshot::Receiver<()>);

impl NotificationGuard {
    pub(crate) fn new(lease: Option<PeerLease>, permit: OwnedSemaphorePermit) -> (Self, StartSignal) {
        let (start, wait) = oneshot::channel();
        let state = GuardState {
            start: Some(start),
            _lease: lease,
            _permit: permit,
        };
        (NotificationGuard(Arc::new(Mutex::new(state))), StartSignal(wait))
    }

    fn signal_start(&self) {
        if let Some(start) = self.0.lock().start.take() {
            let _ = start.send(()); // the receiver may have been dropped
        }
    }
}

impl StartSignal {
    pub(crate) async fn wait(self) {
        let _ = self.0.await; // fails only if the loop closed first
    }
}
