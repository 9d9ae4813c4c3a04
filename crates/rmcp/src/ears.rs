//! How a server hears notifications of the client.
//!
//! rmcp lets nobody else make the context that comes with one, so they pass through the loop of a line.

use crate::pool::Lease;
use parking_lot::Mutex;
use rmcp::model::{ClientNotification, ClientRequest, ServerConfig, ServerResult};
use rmcp::service::{NotificationContext, RequestContext, Service};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

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
        let _until_heard = context.extensions.remove::<Hold>();
        if let Some(hearing) = &self.0 {
            hearing(note, context).await;
        }
        Ok(())
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::default()
    }
}

/// What a notification holds until it has been heard: its line, unless that is another's, and its place among those at work.
#[derive(Clone)]
pub(crate) struct Hold {
    _held: Arc<Mutex<(Option<Lease>, OwnedSemaphorePermit)>>,
}

impl Hold {
    pub(crate) fn new(lease: Option<Lease>, permit: OwnedSemaphorePermit) -> Self {
        Hold {
            _held: Arc::new(Mutex::new((lease, permit))),
        }
    }
}
