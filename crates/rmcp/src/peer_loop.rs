//! An rmcp `Peer` and the loop that forwards its messages.
//!
//! rmcp creates a peer only together with a loop that drains it into a transport. This module runs that loop over an
//! internal transport. The transport carries no client requests, only notifications and answers to questions. Outgoing
//! messages do not name their call, so a loop serves one call at a time.

use crate::client_identity::ClientIdentity;
use crate::notification_handler::{NotificationHandler, StartSignal};
use crate::peer_pool::Registry;
use crate::questions::OpenQuestions;
use crate::{peer_refcount, questions, route};
use rethread::{Context, Peer};
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, InitializeRequestParams, JsonRpcMessage, RequestMetaObject,
    ServerJsonRpcMessage,
};
use rmcp::service::{RunningService, serve_directly};
use rmcp::transport::Transport;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use tokio::sync::mpsc;

static NEXT_LOOP_ID: AtomicU64 = AtomicU64::new(0);

/// Messages that may wait for the loop. Beyond this, the sender waits.
const MAX_INBOX_MESSAGES: usize = 16;

/// The destination of the messages of a peer.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    /// The stream of a running call.
    Call(Context),
    /// The session.
    Session(Peer),
    /// A stateless call that has ended. Only change notifications go out, to its caller's subscriptions.
    AfterCall(Context),
    /// No call or session uses the loop.
    Unassigned,
}

impl Destination {
    pub(crate) fn session(&self) -> Option<&Peer> {
        match self {
            Destination::Call(cx) => cx.session(),
            Destination::Session(peer) => Some(peer),
            Destination::AfterCall(_) | Destination::Unassigned => None,
        }
    }

    /// The destination once the call has ended.
    pub(crate) fn after_call(&self) -> Destination {
        match self {
            Destination::Call(cx) => match cx.session() {
                Some(peer) => Destination::Session(peer.clone()),
                None => Destination::AfterCall(cx.clone()),
            },
            other => other.clone(),
        }
    }
}

/// The message has no destination any more.
#[derive(Debug, thiserror::Error)]
#[error("the call has ended and has no session")]
pub(crate) struct NoDestination;

/// A running peer loop. Dropping it closes the peer's transport.
pub(crate) struct PeerLoop {
    running: RunningService<RoleServer, NotificationHandler>,
    shared: Arc<LoopState>,
    /// Reference count of the peer while no handler holds it. `None` if the count cannot be read.
    base_refcount: Option<usize>,
    client: parking_lot::Mutex<ClientIdentity>,
}

/// State shared between a `PeerLoop` and its transport.
pub(crate) struct LoopState {
    destination: parking_lot::Mutex<Destination>,
    /// Number of messages that have been routed.
    routed: AtomicUsize,
    pub(crate) inbox: mpsc::Sender<ClientJsonRpcMessage>,
    pub(crate) questions: OpenQuestions,
    pub(crate) registry: Registry,
    pub(crate) id: u64,
}

impl PeerLoop {
    /// Starts a loop for a client with this `info`. Requires a tokio runtime.
    pub(crate) fn start(
        destination: Destination,
        info: InitializeRequestParams,
        registry: Registry,
        handler: NotificationHandler,
    ) -> Self {
        let (inbox, incoming) = mpsc::channel(MAX_INBOX_MESSAGES);
        let shared = Arc::new(LoopState {
            destination: parking_lot::Mutex::new(destination),
            routed: AtomicUsize::new(0),
            inbox,
            questions: OpenQuestions::default(),
            registry,
            id: NEXT_LOOP_ID.fetch_add(1, Ordering::Relaxed),
        });
        let transport = LoopTransport {
            shared: Arc::clone(&shared),
            incoming,
        };
        let running = serve_directly(handler, transport, Some(info));
        PeerLoop {
            base_refcount: peer_refcount::references(running.peer()),
            client: parking_lot::Mutex::default(),
            running,
            shared,
        }
    }

    pub(crate) fn peer(&self) -> &rmcp::Peer<RoleServer> {
        self.running.peer()
    }

    pub(crate) fn shared(&self) -> &Arc<LoopState> {
        &self.shared
    }

    pub(crate) fn id(&self) -> u64 {
        self.shared.id
    }

    /// Updates the peer's client information from the `_meta` of a stateless request.
    pub(crate) fn set_client(&self, meta: &RequestMetaObject) {
        if let Some(client) = self.client.lock().update(meta) {
            self.peer().set_peer_info(client);
        }
    }

    /// Redirects all later messages.
    pub(crate) fn set_destination(&self, destination: Destination) {
        *self.shared.destination.lock() = destination;
    }

    /// Cancels open questions and removes the destination. Call it only when no handler holds the peer.
    pub(crate) fn reset(&self) {
        self.shared.questions.cancel_all();
        self.set_destination(Destination::Unassigned);
    }

    /// Whether no handler holds the peer and every message has been routed.
    ///
    /// A free loop stays silent until it is leased again.
    pub(crate) fn is_free(&self) -> bool {
        let unshared = self.base_refcount.is_some() && peer_refcount::references(self.peer()) == self.base_refcount;
        unshared && peer_refcount::messages_sent(self.peer()) == Some(self.shared.routed.load(Ordering::Acquire))
    }
}

impl LoopState {
    /// Passes a notification to the server and waits until its handler was polled once.
    ///
    /// Later calls therefore see everything that the handler does before its first wait.
    pub(crate) async fn notify_server(&self, notification: ClientNotification, start: StartSignal) {
        let message = ClientJsonRpcMessage::notification(notification);
        let _ = self.inbox.send(message).await; // fails only if the session has ended
        start.wait().await;
    }

    pub(crate) fn destination(&self) -> Destination {
        self.destination.lock().clone()
    }
}

/// The transport that rmcp's loop drains the peer into.
struct LoopTransport {
    shared: Arc<LoopState>,
    incoming: mpsc::Receiver<ClientJsonRpcMessage>,
}

type SendFuture = Pin<Box<dyn Future<Output = Result<(), NoDestination>> + Send>>;

impl Transport<RoleServer> for LoopTransport {
    type Error = NoDestination;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), NoDestination>> + Send + 'static {
        let destination = self.shared.destination();
        let shared = Arc::clone(&self.shared);
        let mut future: SendFuture = match message {
            JsonRpcMessage::Notification(message) => {
                Box::pin(route::send_notification(destination, shared, message.notification))
            }
            JsonRpcMessage::Request(message) => {
                questions::spawn(&shared, destination, message.id, message.request);
                Box::pin(std::future::ready(Ok(())))
            }
            // The loop receives no requests, so it sends no responses.
            _ => Box::pin(std::future::ready(Ok(()))),
        };
        // rmcp completes each message in its own task. Polling once here keeps messages in order.
        let first_poll = future.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop()));
        self.shared.routed.fetch_add(1, Ordering::Release);
        async move {
            match first_poll {
                Poll::Ready(result) => result,
                Poll::Pending => future.await,
            }
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), NoDestination> {
        self.shared.questions.cancel_all();
        Ok(())
    }
}
