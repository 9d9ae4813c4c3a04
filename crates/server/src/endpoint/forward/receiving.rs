//! The node of the connection: it sends a request to another node, and the response to the client.

use super::chunk_body::{BodyPart, ChunkBody, OpenForward, Probe};
use super::outbox::{MAX_UNREAD_CHUNKS, RETRY_PAUSE, send};
use super::outgoing::Outgoing;
use super::read_mail::ReadMail;
use crate::node::telemetry::{ForwardKind, ForwardOutcome};
use crate::node::{Node, random};
use crate::session::Session;
use crate::stream::body::Body;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use parking_lot::Mutex;
use rethread_proto::cluster::mail::{
    ForwardEndpoint, ForwardId, ForwardedContent, ForwardedRequest, MailHead, principal_names,
};
use rethread_proto::cluster::{ChunkSequence, ChunkStep, Claim, Delivery, Forward, ForwardStep};
use rethread_proto::event_id::Seq;
use rethread_proto::refusal::Reason;
use rethread_proto::stream::ReaderStart;
use rethread_proto::{Ordinal, Principal};
use rethread_store::{ClusterStore, Incarnation, MailId, StoreError};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// Changes when wake-ups are lost and when they arrive again. The store may have restarted without its last writes.
    reconnections: watch::Sender<u64>,
    pub(super) read_mail: Arc<ReadMail>,
}

/// A request that another node runs.
struct Waiting {
    /// `None` after the head has arrived.
    head: Option<oneshot::Sender<Head>>,
    chunks: ChunkSequence,
    parts: mpsc::Sender<BodyPart>,
    /// Whether the serving node knows the request, when it was asked.
    known: Arc<watch::Sender<bool>>,
    /// Whether this node waits for it before it stops.
    has_end: bool,
}

/// A request that runs here for another node.
pub(super) struct Running {
    /// Dropping it ends the request.
    pub(super) _client: oneshot::Sender<()>,
    /// The number of the last chunk that may be sent.
    pub(super) credit: watch::Sender<u64>,
    /// Chunks that were sent.
    pub(super) sent: u64,
}

struct Head {
    status: u16,
    headers: Vec<(String, String)>,
    content: ForwardedContent,
    body: Bytes,
}

/// The end of the wait for a head. `None` if the lease of this node has ended.
struct Reply(Option<Head>);

impl Reply {
    fn step(&self, forward: &mut Forward) -> ForwardStep {
        match &self.0 {
            Some(_) => forward.replied(),
            None => forward.lease_ended(),
        }
    }
}

/// Why a forward gave no response.
#[derive(Debug)]
pub(crate) enum ForwardError {
    /// The serving node died before it ran the request, which may be routed again.
    NotRun,
    /// The serving node died while it ran the request.
    Died,
    /// The lease of this node has ended. The request may have run.
    LeaseEnded,
    /// The store cannot be reached, or the mailbox is full.
    Refused(Reason),
}

impl Default for Forwards {
    fn default() -> Self {
        Forwards {
            next: AtomicU64::new(u64::from(u32::from_le_bytes(random())) << 32),
            waiting: Mutex::default(),
            running: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            reconnections: watch::Sender::new(0),
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

    /// The connection to the store was lost, or is back. Every forward that began before is in doubt: see
    /// [`Forward::store_reconnected`].
    pub(crate) fn store_reconnected(&self) {
        self.reconnections.send_modify(|number| *number += 1);
    }

    /// The lease of this node has ended. Replies go to a mailbox that this node does not read again, so every client that
    /// waits for one is answered now, and bodies break. Other nodes take this one for dead, so what it runs for them ends.
    pub(crate) fn lease_ended(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let running = std::mem::take(&mut *self.running.lock());
        drop((waiting, running)); // without the locks: the requests end
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
            ForwardEndpoint::Mcp => ForwardKind::Mcp,
            ForwardEndpoint::Messages => ForwardKind::Messages,
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
        // Room for all chunks that the other node may send without credit, and for the end.
        let (sender, parts) = mpsc::channel(MAX_UNREAD_CHUNKS + 2);
        self.waiting.lock().insert(
            number,
            Waiting {
                head: Some(head),
                chunks: ChunkSequence::new(),
                parts: sender,
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
        // After the registration, so that either this or the end of the lease finds the other one.
        if !(node.membership.holds() && node.membership.is_this_process(&id.node)) {
            guard.is_over = true;
            return Err(unavailable());
        }
        let mut reconnections = self.reconnections.subscribe(); // before the delivery, which may be lost
        let mail = ForwardedRequest {
            id,
            principal: principal_names(principal),
            method: request.method.clone(),
            target: request.target.clone(),
            headers: request.headers.clone(),
            endpoint,
        };
        let sent = send(node, to, MailHead::Request(mail), body).await;
        let head = self
            .wait(node, cluster, &guard, sent, replied, &mut reconnections)
            .await;
        let outcome = match &head {
            Ok(_) => ForwardOutcome::Replied,
            Err(ForwardError::NotRun) => ForwardOutcome::NotRun,
            Err(ForwardError::Died) => ForwardOutcome::Died,
            Err(ForwardError::LeaseEnded) => ForwardOutcome::LeaseEnded,
            Err(ForwardError::Refused(_)) => ForwardOutcome::Refused,
        };
        node.metrics.events.forwarded(kind, outcome, started.elapsed());
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
                let is_stream = is_event_stream(&head.headers);
                let probe = guard.probe();
                let body = ChunkBody::new(parts, Box::new(guard), probe, reconnections, request, is_stream);
                Body::stream(Box::new(body))
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
        reconnections: &mut watch::Receiver<u64>,
    ) -> Result<Head, ForwardError> {
        let (to, lease) = (&guard.to, node.membership.lease());
        let mut forward = Forward::new();
        let mut step = forward.delivered(match &sent {
            Ok(_) => Delivery::Stored,
            Err(StoreError::Full) => Delivery::Full,
            Err(_) => Delivery::StoreFailed,
        });
        let mut reply = None;
        let mut known = guard.known.subscribe();
        loop {
            step = match step {
                ForwardStep::Wait | ForwardStep::SendClientLeft => tokio::select! {
                    biased;
                    head = &mut replied => reply.insert(Reply(head.ok())).step(&mut forward),
                    answer = known.changed() => {
                        let is_known = answer.is_err() || *known.borrow_and_update();
                        forward.executor_answered(is_known)
                    }
                    // Before the death of the node: a claim proves nothing after a reconnection.
                    _ = reconnections.changed() => forward.store_reconnected(),
                    () = node.membership.when_dead(cluster, to) => forward.executor_died(),
                    () = tokio::time::sleep(lease) => forward.mail_may_be_lost(),
                },
                ForwardStep::Ask => {
                    let head = MailHead::Ask {
                        request: guard.id.clone(),
                    };
                    guard.send_later(head); // asked again after the next lease
                    ForwardStep::Wait
                }
                ForwardStep::Claim => match &sent {
                    Ok(mail) => tokio::select! {
                        biased;
                        head = &mut replied => reply.insert(Reply(head.ok())).step(&mut forward),
                        claim = claim(cluster, to, mail) => {
                            if reconnections.has_changed().unwrap_or(false) {
                                let _ = forward.store_reconnected(); // during the claim
                            }
                            forward.claimed(claim)
                        }
                    },
                    Err(_) => ForwardStep::Fail,
                },
                ForwardStep::Reply => {
                    let head = reply.and_then(|Reply(head)| head);
                    return head.ok_or(ForwardError::Refused(Reason::StoreUnavailable));
                }
                ForwardStep::RouteAgain => return Err(ForwardError::NotRun),
                ForwardStep::Refuse => return Err(ForwardError::Refused(Reason::Overloaded("forwarded requests"))),
                ForwardStep::Fail if reply.is_some() => return Err(ForwardError::LeaseEnded),
                ForwardStep::Fail => return Err(ForwardError::Died),
            };
        }
    }

    /// The serving node has answered whether it knows a request.
    pub(super) fn answered(&self, number: u64, is_known: bool, sent: Option<u64>) {
        let mut table = self.waiting.lock();
        let Some(waiting) = table.get_mut(&number) else { return };
        if waiting.head.is_some() {
            waiting.known.send_replace(is_known);
        } else if waiting.chunks.executor_answered(is_known, sent) == ChunkStep::Break {
            table.remove(&number); // without its last part the body is broken
        }
    }

    /// A lease has passed without the next chunk of a body.
    fn chunk_is_late(&self, number: u64) -> ChunkStep {
        let mut table = self.waiting.lock();
        table
            .get_mut(&number)
            .map_or(ChunkStep::Wait, |waiting| waiting.chunks.silence())
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

    pub(super) fn chunk(&self, request: u64, number: Option<u64>, chunk: Bytes, is_last: bool) {
        let mut table = self.waiting.lock();
        let Some(waiting) = table.get_mut(&request) else { return };
        let step = waiting.chunks.chunk(number, is_last);
        let send = |part| waiting.parts.try_send(part).is_ok();
        let is_open = match step {
            ChunkStep::Send => chunk.is_empty() || send(BodyPart::Chunk(chunk)),
            ChunkStep::SendLast => {
                let _ = (chunk.is_empty() || send(BodyPart::Chunk(chunk))) && send(BodyPart::End);
                false
            }
            ChunkStep::Wait | ChunkStep::Ask => true,
            ChunkStep::Break => false,
        };
        if !is_open {
            table.remove(&request); // the body ends when it has read what is in the channel
        }
    }

    pub(super) fn credit(&self, request: &ForwardId, chunks: u32, total: Option<u64>) {
        if let Some(running) = self.running.lock().get(request) {
            running.credit.send_modify(|credit| match total {
                Some(total) => *credit = (*credit).max(total.saturating_add(MAX_UNREAD_CHUNKS as u64)),
                None => *credit = credit.saturating_add(u64::from(chunks)),
            });
        }
    }

    /// Counts a chunk that is in the mailbox of the receiving node.
    pub(super) fn chunk_sent(&self, request: &ForwardId) {
        if let Some(running) = self.running.lock().get_mut(request) {
            running.sent += 1;
        }
    }

    /// The chunks of a response that were sent. `None` if the request does not run here.
    pub(super) fn sent_chunks(&self, request: &ForwardId) -> Option<u64> {
        self.running.lock().get(request).map(|running| running.sent)
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

fn is_event_stream(headers: &[(String, String)]) -> bool {
    let is_stream = |(name, value): &(String, String)| name == "content-type" && value.starts_with("text/event-stream");
    headers.iter().any(is_stream)
}

fn whole_body(head: &Head) -> Body {
    if is_event_stream(&head.headers) {
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

/// A request that another node runs. Dropping it notifies that node that the client has left.
struct ForwardGuard {
    forwards: Arc<Forwards>,
    node: Arc<Node>,
    /// The serving node.
    to: Incarnation,
    id: ForwardId,
    known: Arc<watch::Sender<bool>>,
    is_over: bool,
}

impl ForwardGuard {
    fn probe(&self) -> Probe {
        let (forwards, number) = (Arc::clone(&self.forwards), self.id.number);
        Probe {
            node: Arc::clone(&self.node),
            to: self.to.clone(),
            id: self.id.clone(),
            read: Arc::default(),
            silence: Box::new(move || forwards.chunk_is_late(number)),
        }
    }
}

impl OpenForward for ForwardGuard {
    fn id(&self) -> &ForwardId {
        &self.id
    }

    fn send_later(&self, head: MailHead) {
        let (node, to) = (Arc::clone(&self.node), self.to.clone());
        tokio::spawn(async move { send(&node, &to, head, Bytes::new()).await });
    }

    fn set_over(&mut self, is_over: bool) {
        self.is_over = is_over;
    }
}

impl Drop for ForwardGuard {
    fn drop(&mut self) {
        self.forwards.waiting.lock().remove(&self.id.number);
        self.node.notify_drain();
        if !self.is_over {
            self.send_later(MailHead::ClientLeft {
                request: self.id.clone(),
            });
        }
    }
}
