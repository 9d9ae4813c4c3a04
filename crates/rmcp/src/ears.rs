//! How a server hears notifications of the client.
//!
//! rmcp lets nobody else make the context that comes with one, so they pass through the loop of a line.

use crate::pool::Lease;
use parking_lot::Mutex;
use rmcp::model::{ClientNotification, ClientRequest, ServerConfig, ServerResult};
use rmcp::service::{NotificationContext, RequestContext, Service};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

type Heard = Pin<Box<dyn Future<Output = ()> + Send>>;
type Hearing = dyn Fn(ClientNotification, NotificationContext<RoleServer>) -> Heard + Send + Sync;

/// The server behind a line, as far as the line knows it.
#[derive(Clone, Default)]
pub(crate) struct Ears(Option<Arc<Hearing>>);

impl Ears {
    pub(crate) fn of<S: ServerHandler>(server: &Arc<S>) -> Self {
        let server = Arc::clone(server);
        Ears(Some(Arc::new(move |note, context| {
            let server = Arc::clone(&server);
            Box::pin(async move {
                if let Err(error) = Service::handle_notification(&*server, note, context).await {
                    tracing::debug!(%error, "a notification could not be handled");
                }
            })
        })))
    }
}

impl Service<RoleServer> for Ears {
    async fn handle_request(
        &self,
        request: ClientRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let method = request.method().to_owned();
        Err(ErrorData::internal_error(format!("{method} came the wrong way"), None))
    }

    async fn handle_notification(
        &self,
        note: ClientNotification,
        mut context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let until_heard = context.extensions.remove::<Hold>();
        if let Some(hearing) = &self.0 {
            let mut heard = hearing(note, context);
            let begun = poll_fn(|cx| Poll::Ready(heard.as_mut().poll(cx))).await;
            if let Some(hold) = &until_heard {
                hold.begun();
            }
            if begun.is_pending() {
                heard.await;
            }
        }
        Ok(())
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::default()
    }
}

/// What a notification holds until it has been heard: its line, unless that is another's, and its place among those at work.
#[derive(Clone)]
pub(crate) struct Hold(Arc<Mutex<Held>>);

struct Held {
    begun: Option<oneshot::Sender<()>>,
    _lease: Option<Lease>,
    _permit: OwnedSemaphorePermit,
}

/// Resolves when the server has begun to hear a notification, or never will: what it does before it first waits for something is
/// done by then. It cannot be waited for to its end, since it may ask the client, which may be waiting for us.
pub(crate) struct Begun(oneshot::Receiver<()>);

impl Hold {
    pub(crate) fn new(lease: Option<Lease>, permit: OwnedSemaphorePermit) -> (Self, Begun) {
        let (begun, wait) = oneshot::channel();
        let held = Held {
            begun: Some(begun),
            _lease: lease,
            _permit: permit,
        };
        (Hold(Arc::new(Mutex::new(held))), Begun(wait))
    }

    fn begun(&self) {
        if let Some(begun) = self.0.lock().begun.take() {
            let _ = begun.send(()); // nobody waits any more
        }
    }
}

impl Begun {
    pub(crate) async fn wait(self) {
        let _ = self.0.await; // an error: the line was closed before
    }
}
