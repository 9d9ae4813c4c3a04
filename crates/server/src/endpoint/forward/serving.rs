//! The node that serves a request of another node.

use super::outbox::{MAX_CHUNK_BYTES, MAX_UNREAD_CHUNKS, RETRY_PAUSE, send};
use super::receiving::{self, Running};
use crate::endpoint::request_head::Forwarded;
use crate::endpoint::server::Server;
use crate::stream::body::{Body, BodyContent};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body as _;
use rethread_proto::cluster::mail::{
    ForwardEndpoint, ForwardId, ForwardedContent, ForwardedRequest, MailHead, named_principal,
};
use rethread_proto::cluster::{Delivery, Execution, ExecutionStep};
use rethread_store::{MailId, StoreError, StreamKey};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// A whole body of at most this length travels with the head of its response.
const MAX_WHOLE_BYTES: usize = 8 << 20;
/// The longest wait for the log of a stream, and the pause between two looks. Without a log, the events go through the mailbox.
const LOG_TIMEOUT: Duration = Duration::from_millis(250);
const LOG_PAUSE: Duration = Duration::from_millis(5);

/// Serves requests that other nodes have forwarded, as if a client had sent them.
pub(crate) trait ServeForwarded: Send + Sync + 'static {
    fn serve_forwarded(
        self: Arc<Self>,
        request: Request<Bytes>,
        endpoint: ForwardEndpoint,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Serves a request of another node, if this node may and nobody else does: see [`Execution`].
pub(super) fn serve(server: &Arc<Server>, id: MailId, request: ForwardedRequest, body: Bytes) {
    let (client, client_left) = oneshot::channel();
    let credit = watch::Sender::new(MAX_UNREAD_CHUNKS as u64);
    let granted = credit.subscribe();
    let forward = request.id.clone();
    let running = Running {
        _client: client,
        credit,
        sent: 0,
    };
    if !server.forwards.begin(forward.clone(), running) {
        return; // the receiving node takes it back
    }
    let server = Arc::clone(server);
    tokio::spawn(async move {
        execute(&server, &id, request, body, client_left, granted).await;
        server.forwards.client_left(&forward);
        server.node.notify_drain();
    });
}

async fn execute(
    server: &Arc<Server>,
    id: &MailId,
    request: ForwardedRequest,
    body: Bytes,
    client_left: oneshot::Receiver<()>,
    granted: watch::Receiver<u64>,
) {
    let (node, forward) = (&server.node, request.id.clone());
    let (Some(cluster), Some(current)) = (node.cluster(), node.membership.current()) else {
        return;
    };
    // Without a lease the receiving node takes the request back.
    let (mut execution, mut step) = Execution::new(node.membership.holds());
    while step == ExecutionStep::Claim {
        let claim = receiving::claim(cluster, &current, id).await;
        step = execution.claimed(claim, node.membership.holds());
    }
    if step != ExecutionStep::Run {
        return;
    }
    let exchange = async {
        let Some(response) = respond(server, request, body).await else {
            return;
        };
        if execution.finished() == ExecutionStep::Reply {
            send_response(server, &forward, response, granted, &mut execution).await;
        }
    };
    // Until the end of the response: nobody else ends a response without a client.
    tokio::select! {
        () = exchange => {}
        _ = client_left => {} // dropping the request is what a closed connection does
        () = node.membership.when_dead(cluster, &forward.node) => {}
    }
}

async fn respond(server: &Arc<Server>, request: ForwardedRequest, body: Bytes) -> Option<Response<Body>> {
    let endpoint = request.endpoint;
    let request = http_request(&request, body)?;
    Some(Arc::clone(server).serve_forwarded(request, endpoint).await)
}

fn http_request(request: &ForwardedRequest, body: Bytes) -> Option<Request<Bytes>> {
    let principal = named_principal(&request.principal);
    let mut built = Request::builder().method(request.method.as_str()).uri(&request.target);
    for (name, value) in &request.headers {
        built = built.header(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
    }
    let mut built = built.body(body).ok()?;
    if !principal.is_anonymous() {
        built.extensions_mut().insert(principal);
    }
    built.extensions_mut().insert(Forwarded);
    Some(built)
}

async fn send_response(
    server: &Server,
    id: &ForwardId,
    response: Response<Body>,
    granted: watch::Receiver<u64>,
    execution: &mut Execution,
) {
    let (parts, body) = response.into_parts();
    let headers = parts.headers.iter().filter_map(|(name, value)| {
        let value = value.to_str().ok()?;
        Some((name.as_str().to_owned(), value.to_owned()))
    });
    let headers: Vec<_> = headers.collect();
    let head = |content| MailHead::Response {
        request: id.clone(),
        status: parts.status.as_u16(),
        headers: headers.clone(),
        content,
    };
    match body.into_content() {
        BodyContent::Whole(bytes) if bytes.len() <= MAX_WHOLE_BYTES => {
            reply(server, id, head(ForwardedContent::Whole), bytes, execution).await;
        }
        BodyContent::Whole(bytes) => {
            reply(server, id, head(ForwardedContent::Chunks), Bytes::new(), execution).await;
            send_chunks(server, id, Body::whole(bytes), granted).await;
        }
        BodyContent::Logged(key, reader) => {
            let has_log = has_log(server, &key).await;
            let content = match has_log {
                true => ForwardedContent::Stream { ordinal: key.ordinal.0 },
                false => ForwardedContent::Chunks,
            };
            reply(server, id, head(content), Bytes::new(), execution).await;
            if !has_log {
                send_chunks(server, id, reader, granted).await;
            } // otherwise the other node reads the log in place of this connection
        }
        BodyContent::Stream(body) => {
            reply(server, id, head(ForwardedContent::Chunks), Bytes::new(), execution).await;
            send_chunks(server, id, body, granted).await;
        }
    }
}

/// Whether the store has the log of a stream. Its first append may be on its way. A stream without a priming event has no log
/// before its first event, which may be much later.
async fn has_log(server: &Server, key: &StreamKey) -> bool {
    let deadline = Instant::now() + LOG_TIMEOUT;
    loop {
        match server.node.store.status(key).await {
            Ok(_) => return true,
            Err(StoreError::UnknownStream) if Instant::now() < deadline => tokio::time::sleep(LOG_PAUSE).await,
            Err(_) => return false,
        }
    }
}

/// Sends the head of a response, and tries again while somebody waits for it.
async fn reply(server: &Server, id: &ForwardId, head: MailHead, body: Bytes, execution: &mut Execution) {
    let node = &server.node;
    loop {
        let delivery = match send(node, &id.node, head.clone(), body.clone()).await {
            Ok(_) => Delivery::Stored,
            Err(StoreError::Full) => Delivery::Full,
            Err(_) => Delivery::StoreFailed,
        };
        let is_needed = node.membership.holds() && server.forwards.running.lock().contains_key(id);
        if execution.reply_delivered(delivery, is_needed) != ExecutionStep::Reply {
            return;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Sends a body in chunks, as fast as the client reads them. If that fails, the receiving node learns it when it asks for the next
/// chunk.
async fn send_chunks(server: &Server, id: &ForwardId, mut body: Body, mut granted: watch::Receiver<u64>) {
    let mut number = 0;
    loop {
        let chunk = match std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            None => None,
            Some(Ok(frame)) => frame.into_data().ok(),
            Some(Err(_)) => return,
        };
        let is_last = chunk.is_none();
        let mut rest = chunk.unwrap_or_default();
        loop {
            let part = rest.split_to(rest.len().min(MAX_CHUNK_BYTES));
            let is_end = is_last && rest.is_empty();
            if is_end || !part.is_empty() {
                number += 1;
                // The end needs no credit.
                if !is_end && granted.wait_for(|granted| *granted >= number).await.is_err() {
                    return; // the client has left
                }
                let head = MailHead::Chunk {
                    request: id.clone(),
                    number: Some(number),
                    is_last: is_end,
                };
                if !send_chunk(server, id, head, part).await {
                    return;
                }
                server.forwards.chunk_sent(id);
            }
            if rest.is_empty() {
                break;
            }
        }
        if is_last {
            return;
        }
    }
}

/// Sends one chunk, and tries again for a lease. The number of the chunk makes repetitions harmless. False without success.
async fn send_chunk(server: &Server, id: &ForwardId, head: MailHead, part: Bytes) -> bool {
    let node = &server.node;
    let deadline = Instant::now() + node.membership.lease();
    while send(node, &id.node, head.clone(), part.clone()).await.is_err() {
        if !node.membership.holds() || Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    true
}
