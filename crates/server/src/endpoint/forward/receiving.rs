//! The node that a client talks to: it sends a request to another node, and the response to the client.

use super::outbox::{MAX_UNREAD_CHUNKS, RETRY_PAUSE, send};
use super::read_mail::ReadMail;
use crate::node::telemetry;
use crate::node::{Node, random};
use crate::session::Session;
use crate::session::orphan::OrphanCause;
use crate::stream::body::{Body, Chunks};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use parking_lot::Mutex;
use rethread_proto::cluster::mail::{
    ForwardEndpoint, ForwardId, ForwardedContent, ForwardedRequest, MailHead, principal_names,
};
use rethread_proto::cluster::{Claim, Delivery, Forward, ForwardStep};
use rethread_proto::event_id::Seq;
use rethread_proto::jsonrpc::{RequestId, error_message};
use rethread_proto::refusal::Reason;
use rethread_proto::sse::write_unnumbered;
use rethread_proto::stream::ReaderStart;
use rethread_proto::{Ordinal, Principal};
use rethread_store::{ClusterStore, Incarnation, MailId, StoreError};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};

/// The forwards of this node, at both ends.
pub(crate) struct Forwards {
    /// Begins at random: a service that replaces another one in the same process gets the replies for both.
    next: AtomicU64,
    /// Requests that wait for a response from another node. Each holds a connection of a client, and is bounded with them.
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// Requests that run here for other nodes.
    pub(super) running: Mutex<HashMap<ForwardId, Running>>,
    /// This node leaves, and takes no requests of other nodes. Changed under the lock of `running`.
    is_leaving: AtomicBool,
    pub(super) read_mail: Arc<ReadMail>,
}

/// A request that another node runs.
struct Waiting {
    head: Option<oneshot::Sender<Head>>,
    chunks: mpsc::Sender<Bytes>,
    /// Whether the serving node knows the request, when it was asked.
    known: Arc<watch::Sender<bool>>,
    /// Whether this node waits for it before it stops.
    has_end: bool,
}

/// A request that runs here for another node.
pub(super) struct Running {
    /// Dropping it ends the request.
    pub(super) _client: oneshot::Sender<()>,
    /// Parts that the client may still be sent.
    pub(super) credit: watch::Sender<u32>,
}

struct Head {
    status: u16,
    headers: Vec<(String, String)>,
    content: ForwardedContent,
    body: Bytes,
}

/// A request that another node shall serve.
#[derive(Clone)]
pub(crate) struct Outgoing {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    /// Whether its response ends by itself. A GET and a subscription do not.
    has_end: bool,
    /// The end of a body whose serving node dies. Empty if the client resumes the stream.
    on_death: Bytes,
}

/// Why a forward gave no response.
#[derive(Debug)]
pub(crate) enum ForwardError {
    /// The serving node died before it ran the request, which may be routed again.
    NotRun,
    /// The serving node died while it ran the request.
    Died,
    /// The store cannot be reached, or the mailbox is full.
    Refused(Reason),
}

/// Headers that are checked by the receiving node and are secrets, or that belong to one connection.
const KEPT_BACK: [HeaderName; 7] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::PROXY_AUTHORIZATION,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::CONTENT_LENGTH,
    header::UPGRADE,
];

impl Outgoing {
    /// A request with this head.
    pub(crate) fn new(parts: &Parts) -> Self {
        let headers = parts.headers.iter().filter(|(name, _)| !KEPT_BACK.contains(name));
        let headers =
            headers.filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())));
        Outgoing {
            method: parts.method.as_str().to_owned(),
            target: parts
                .uri
                .path_and_query()
                .map_or("/", |target| target.as_str())
                .to_owned(),
            headers: headers.collect(),
            has_end: parts.method != Method::GET,
            on_death: Bytes::new(),
        }
    }

    /// The same request, whose response does not end by itself.
    pub(crate) fn without_end(&self) -> Self {
        Outgoing {
            has_end: false,
            ..self.clone()
        }
    }

    /// The same request, which gets an error on its id if the serving node dies while it streams.
    pub(crate) fn with_error_on_death(&self, id: &RequestId) -> Self {
        let mut event = Vec::new();
        let error = OrphanCause::Restarted.error();
        write_unnumbered(&mut event, &error_message(Some(id), &error));
        Outgoing {
            on_death: event.into(),
            ..self.clone()
        }
    }
}

impl Default for Forwards {
    fn default() -> Self {
        Forwards {
            next: AtomicU64::new(u64::from(u32::from_le_bytes(random())) << 32),
            waiting: Mutex::default(),
            running: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            read_mail: Arc::default(),
        }
    }
}

impl Forwards {
    /// Whether no client waits for a request that another node runs. Requests without an end do not count.
    pub(crate) fn waits_for_none(&self) -> bool {
        !self.waiting.lock().values().any(|waiting| waiting.has_end)
    }

    /// Whether no other node waits for a request that runs here.
    pub(crate) fn serves_none(&self) -> bool {
        self.running.lock().is_empty()
    }

    /// Takes no more requests of other nodes. Their mail stays where it is.
    pub(crate) fn stop_serving(&self) {
        let _running = self.running.lock();
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Registers a request of another node. False if this node takes none.
    pub(super) fn begin(&self, request: ForwardId, running: Running) -> bool {
        let mut table = self.running.lock();
        let is_taken = !self.is_leaving.load(Ordering::Relaxed);
        if is_taken {
            table.insert(request, running);
        }
        is_taken
    }

    /// Sends a request to another node, and waits for its response. `session` reads the stream if the response is one.
    pub(crate) async fn forward(
        self: &Arc<Self>,
        node: &Arc<Node>,
        to: &Incarnation,
        (request, principal): (&Outgoing, &Principal),
        endpoint: ForwardEndpoint,
        body: Bytes,
        session: Option<&Arc<Session>>,
    ) -> Result<Response<Body>, ForwardError> {
        let started = Instant::now();
        let kind = match endpoint {
            ForwardEndpoint::Mcp => "mcp",
            ForwardEndpoint::Messages => "messages",
        };
        let unavailable = || ForwardError::Refused(Reason::StoreUnavailable);
        let (cluster, current) = node.cluster().zip(node.membership.current()).ok_or_else(unavailable)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = ForwardId {
            node: Incarnation::clone(&current),
            number,
        };
        let (head, replied) = oneshot::channel();
        let known = Arc::new(watch::Sender::new(true));
        let (chunks, parts) = mpsc::channel(MAX_UNREAD_CHUNKS as usize + 2);
        self.waiting.lock().insert(
            number,
            Waiting {
                head: Some(head),
                chunks,
                known: Arc::clone(&known),
                has_end: request.has_end,
            },
        );
        let mut guard = ForwardGuard {
            forwards: Arc::clone(self),
            node: Arc::clone(node),
            to: to.clone(),
            id: id.clone(),
            known,
            is_over: false,
        };
        let mail = ForwardedRequest {
            id,
            principal: principal_names(principal),
            method: request.method.clone(),
            target: request.target.clone(),
            headers: request.headers.clone(),
            endpoint,
        };
        let sent = send(node, to, MailHead::Request(mail), body).await;
        let head = self.wait(node, cluster, &guard, sent, replied).await;
        let outcome = match &head {
            Ok(_) => "replied",
            Err(ForwardError::NotRun) => "not_run",
            Err(ForwardError::Died) => "died",
            Err(ForwardError::Refused(_)) => "refused",
        };
        telemetry::forwarded(kind, outcome, started.elapsed());
        let head = head.inspect_err(|_| guard.is_over = true)?;
        let content = match head.content {
            ForwardedContent::Whole => {
                guard.is_over = true;
                whole_body(&head)
            }
            ForwardedContent::Stream { ordinal } => {
                guard.is_over = true;
                let start = ReaderStart {
                    cursor: Seq::PRIMING,
                    ..ReaderStart::default()
                };
                let session = session.ok_or_else(unavailable)?;
                let read = session.read_remote(Ordinal(ordinal), start).await;
                let (reader, _) = read.map_err(ForwardError::Refused)?;
                Body::stream(reader)
            }
            ForwardedContent::Chunks => {
                let (node, serving, has_end) = (Arc::clone(node), to.clone(), request.has_end);
                let died = async move {
                    let Some(cluster) = node.cluster() else {
                        return std::future::pending().await;
                    };
                    let mut closing = node.closing.subscribe();
                    tokio::select! {
                        () = node.membership.when_dead(cluster, &serving) => {}
                        // This node stops, and the client opens the stream again elsewhere.
                        _ = closing.wait_for(|closing| *closing), if !has_end => {}
                    }
                };
                Body::stream(Box::new(ChunkBody {
                    parts,
                    guard,
                    unread: 0,
                    died: Box::pin(died),
                    on_death: request.on_death.clone(),
                }))
            }
        };
        Ok(response(head.status, &head.headers, content))
    }

    /// Waits for the head of the response, as long as the serving node lives: see [`Forward`].
    async fn wait(
        &self,
        node: &Node,
        cluster: &dyn ClusterStore,
        guard: &ForwardGuard,
        sent: Result<MailId, StoreError>,
        mut replied: oneshot::Receiver<Head>,
    ) -> Result<Head, ForwardError> {
        let (to, lease) = (&guard.to, node.membership.lease());
        let mut forward = Forward::new();
        let mut step = forward.delivered(match &sent {
            Ok(_) => Delivery::Stored,
            Err(StoreError::Full) => Delivery::Full,
            Err(_) => Delivery::StoreFailed,
        });
        let mut head = None;
        let mut known = guard.known.subscribe();
        loop {
            step = match step {
                ForwardStep::Wait | ForwardStep::SendClientLeft => tokio::select! {
                    biased;
                    reply = &mut replied => {
                        head = reply.ok();
                        forward.replied()
                    }
                    answer = known.changed() => {
                        let is_known = answer.is_err() || *known.borrow_and_update();
                        forward.executor_answered(is_known)
                    }
                    () = node.membership.when_dead(cluster, to) => forward.executor_died(),
                    () = tokio::time::sleep(lease) => forward.mail_may_be_lost(),
                },
                ForwardStep::Ask => {
                    let head = MailHead::Ask {
                        request: guard.id.clone(),
                    };
                    let _ = send(node, to, head, Bytes::new()).await; // asked again after the next lease
                    ForwardStep::Wait
                }
                ForwardStep::Claim => match &sent {
                    Ok(mail) => forward.claimed(claim(cluster, to, mail).await),
                    Err(_) => ForwardStep::Fail,
                },
                ForwardStep::Reply => {
                    return head.ok_or(ForwardError::Refused(Reason::StoreUnavailable));
                }
                ForwardStep::RouteAgain => return Err(ForwardError::NotRun),
                ForwardStep::Refuse => return Err(ForwardError::Refused(Reason::Overloaded("forwarded requests"))),
                ForwardStep::Fail => return Err(ForwardError::Died),
            };
        }
    }

    pub(super) fn answered(&self, number: u64, is_known: bool) {
        if let Some(waiting) = self.waiting.lock().get(&number) {
            waiting.known.send_replace(is_known);
        }
    }

    pub(super) fn replied(
        &self,
        number: u64,
        status: u16,
        headers: Vec<(String, String)>,
        content: ForwardedContent,
        body: Bytes,
    ) {
        let sender = self
            .waiting
            .lock()
            .get_mut(&number)
            .and_then(|waiting| waiting.head.take());
        if let Some(sender) = sender {
            // An error means that the client has left meanwhile.
            let _ = sender.send(Head {
                status,
                headers,
                content,
                body,
            });
        }
    }

    pub(super) fn chunk(&self, number: u64, chunk: Bytes, is_last: bool) {
        let mut waiting = self.waiting.lock();
        let is_taken = waiting.get(&number).is_some_and(|waiting| {
            // The channel has room for all parts that the other node may send without credit.
            chunk.is_empty() || waiting.chunks.try_send(chunk).is_ok()
        });
        if is_last || !is_taken {
            waiting.remove(&number); // the body ends when it has read what is in the channel
        }
    }

    pub(super) fn credit(&self, request: &ForwardId, chunks: u32) {
        if let Some(running) = self.running.lock().get(request) {
            running.credit.send_modify(|credit| *credit += chunks);
        }
    }

    pub(super) fn client_left(&self, request: &ForwardId) {
        let running = self.running.lock().remove(request);
        drop(running); // without the lock: the request ends
    }
}

/// Removes a message from a mailbox. Waits a moment after a failure, so that the caller can try again.
pub(super) async fn claim(cluster: &dyn ClusterStore, mailbox: &Incarnation, mail: &MailId) -> Claim {
    match cluster.claim_mail(mailbox, mail).await {
        Ok(true) => Claim::Won,
        Ok(false) => Claim::Lost,
        Err(_) => {
            tokio::time::sleep(RETRY_PAUSE).await;
            Claim::StoreFailed
        }
    }
}

fn whole_body(head: &Head) -> Body {
    let is_stream = |(name, value): &(String, String)| name == "content-type" && value.starts_with("text/event-stream");
    if head.headers.iter().any(is_stream) {
        Body::events(head.body.clone())
    } else {
        Body::whole(head.body.clone())
    }
}

fn response(status: u16, headers: &[(String, String)], body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// A request that another node runs. Dropping it tells that node that the client has left.
struct ForwardGuard {
    forwards: Arc<Forwards>,
    node: Arc<Node>,
    to: Incarnation,
    id: ForwardId,
    known: Arc<watch::Sender<bool>>,
    is_over: bool,
}

impl Drop for ForwardGuard {
    fn drop(&mut self) {
        self.forwards.waiting.lock().remove(&self.id.number);
        self.node.notify_drain();
        if !self.is_over {
            let (node, to) = (Arc::clone(&self.node), self.to.clone());
            let head = MailHead::ClientLeft {
                request: self.id.clone(),
            };
            tokio::spawn(async move { send(&node, &to, head, Bytes::new()).await });
        }
    }
}

/// A response body that another node sends in parts.
struct ChunkBody {
    parts: mpsc::Receiver<Bytes>,
    guard: ForwardGuard,
    /// Parts that were read and not reported yet.
    unread: u32,
    /// The serving node is dead, or this node does not wait for the end.
    died: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The last part if the serving node dies.
    on_death: Bytes,
}

impl Chunks for ChunkBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let chunk = match self.parts.poll_recv(cx) {
            Poll::Ready(Some(chunk)) => chunk,
            Poll::Ready(None) => {
                self.guard.is_over = true;
                return Poll::Ready(None);
            }
            Poll::Pending => {
                std::task::ready!(self.died.as_mut().poll(cx));
                self.guard.is_over = true;
                self.parts.close(); // the next part is the end
                let last = std::mem::take(&mut self.on_death);
                return Poll::Ready((!last.is_empty()).then_some(last));
            }
        };
        self.unread += 1;
        if self.unread >= MAX_UNREAD_CHUNKS / 2 {
            let chunks = std::mem::take(&mut self.unread);
            let (node, to) = (Arc::clone(&self.guard.node), self.guard.to.clone());
            let head = MailHead::Credit {
                request: self.guard.id.clone(),
                chunks,
            };
            tokio::spawn(async move { send(&node, &to, head, Bytes::new()).await });
        }
        Poll::Ready(Some(chunk))
    }
}
