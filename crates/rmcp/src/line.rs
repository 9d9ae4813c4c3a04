//! A line to the client: a `Peer` of rmcp, and where what is said through it goes.
//!
//! rmcp makes peers only together with a loop that drains them into a transport. So a line is such a loop with nothing in
//! it: no requests ever come in through its transport, only notifications and the answers to what the handler asks. What
//! goes out is not marked with the call it comes from; the line knows, because it serves one call at a time.

use crate::ears::{Begun, Ears};
use crate::pool::Ledger;
use crate::question::Questions;
use crate::stateless::Introduced;
use crate::{probe, question, route};
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

/// The next line's number.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Answers that wait for the loop to take them.
const INBOX: usize = 16;

/// Where what is said goes.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// To the stream of a call that runs.
    Call(Context),
    /// To the session.
    Session(Peer),
    /// A call without a session has ended: to nobody but its caller's subscriptions.
    Late(Context),
    /// The line is nobody's.
    Nowhere,
}

impl Place {
    /// The session, if there is one.
    pub(crate) fn session(&self) -> Option<&Peer> {
        match self {
            Place::Call(cx) => cx.session(),
            Place::Session(peer) => Some(peer),
            Place::Late(_) | Place::Nowhere => None,
        }
    }

    /// Where what is said goes once the call has ended.
    pub(crate) fn afterwards(&self) -> Place {
        match self {
            Place::Call(cx) => match cx.session() {
                Some(peer) => Place::Session(peer.clone()),
                None => Place::Late(cx.clone()),
            },
            other => other.clone(),
        }
    }
}

/// What cannot be said any more.
#[derive(Debug, thiserror::Error)]
#[error("the call has ended, and there is no session to say it in")]
pub(crate) struct Unsent;

/// A line. Dropping it closes it: its peer then says that the transport is closed.
pub(crate) struct Line {
    running: RunningService<RoleServer, Ears>,
    shared: Arc<Shared>,
    /// How many hold the peer when no handler does.
    holders: Option<usize>,
    client: parking_lot::Mutex<Introduced>,
}

/// What a line and its loop share.
pub(crate) struct Shared {
    place: parking_lot::Mutex<Place>,
    /// How many messages have been given a place to go to.
    routed: AtomicUsize,
    pub(crate) inbox: mpsc::Sender<ClientJsonRpcMessage>,
    pub(crate) questions: Questions,
    pub(crate) ledger: Ledger,
    /// The line's name.
    pub(crate) number: u64,
}

impl Line {
    /// Opens a line to a client that is known as `info`. Needs a runtime.
    pub(crate) fn open(place: Place, info: InitializeRequestParams, ledger: Ledger, ears: Ears) -> Self {
        let (inbox, answers) = mpsc::channel(INBOX);
        let shared = Arc::new(Shared {
            place: parking_lot::Mutex::new(place),
            routed: AtomicUsize::new(0),
            inbox,
            questions: Questions::default(),
            ledger,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        });
        let wire = Wire {
            shared: Arc::clone(&shared),
            answers,
        };
        let running = serve_directly(ears, wire, Some(info));
        Line {
            holders: probe::holders(running.peer()),
            client: parking_lot::Mutex::default(),
            running,
            shared,
        }
    }

    pub(crate) fn peer(&self) -> &rmcp::Peer<RoleServer> {
        self.running.peer()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn number(&self) -> u64 {
        self.shared.number
    }

    /// Who the client is, by what its request says.
    pub(crate) fn introduce(&self, meta: &RequestMetaObject) {
        if let Some(client) = self.client.lock().client(meta) {
            self.peer().set_peer_info(client);
        }
    }

    /// What is said from now on goes to `place`.
    pub(crate) fn lead_to(&self, place: Place) {
        *self.shared.place.lock() = place;
    }

    /// Nobody holds the peer: nobody waits for answers.
    pub(crate) fn clear(&self) {
        self.shared.questions.drop_all();
        self.lead_to(Place::Nowhere);
    }

    /// Whether no handler holds the peer, and all that was said through it has gone its way: nothing will ever be said here
    /// again unless the line is given to somebody.
    pub(crate) fn is_free(&self) -> bool {
        let alone = self.holders.is_some() && probe::holders(self.peer()) == self.holders;
        alone && probe::sent(self.peer()) == Some(self.shared.routed.load(Ordering::Acquire))
    }
}

impl Shared {
    /// Lets the server behind the line hear a notification, and waits until it has begun to: calls that come later find
    /// done what it does at once.
    pub(crate) async fn hear(&self, note: ClientNotification, begun: Begun) {
        let note = ClientJsonRpcMessage::notification(note);
        let _ = self.inbox.send(note).await; // the line is closed, and so is the session
        begun.wait().await;
    }

    pub(crate) fn place(&self) -> Place {
        self.place.lock().clone()
    }
}

/// The transport under a line.
struct Wire {
    shared: Arc<Shared>,
    answers: mpsc::Receiver<ClientJsonRpcMessage>,
}

type Saying = Pin<Box<dyn Future<Output = Result<(), Unsent>> + Send>>;

impl Transport<RoleServer> for Wire {
    type Error = Unsent;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = Result<(), Unsent>> + Send + 'static {
        let place = self.shared.place();
        let shared = Arc::clone(&self.shared);
        let mut saying: Saying = match message {
            JsonRpcMessage::Notification(said) => Box::pin(route::tell(place, shared, said.notification)),
            JsonRpcMessage::Request(asked) => {
                question::put(&shared, place, asked.id, asked.request);
                Box::pin(std::future::ready(Ok(())))
            }
            _ => Box::pin(std::future::ready(Ok(()))), // nothing was asked of a line, so it answers nothing
        };
        // rmcp completes each message in a task of its own. It is begun here, so that what is said first is first.
        let begun = saying.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop()));
        self.shared.routed.fetch_add(1, Ordering::Release);
        async move {
            match begun {
                Poll::Ready(said) => said,
                Poll::Pending => saying.await,
            }
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.answers.recv().await
    }

    async fn close(&mut self) -> Result<(), Unsent> {
        self.shared.questions.drop_all();
        Ok(())
    }
}
