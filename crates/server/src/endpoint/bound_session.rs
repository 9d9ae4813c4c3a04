//! A session that is bound to its connection: one stream carries everything, and the session ends with it. HTTP+SSE and
//! stdio share this.

use crate::call::exchange::Exchange;
use crate::call::opening::OpenError;
use crate::call::reply::Reply;
use crate::call::request_meta::RequestMeta;
use crate::call::unhandled_call::UnhandledCall;
use crate::endpoint::dispatch::{self, ReplySlot};
use crate::endpoint::legacy;
use crate::endpoint::open_session;
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::server::Server;
use crate::node::session_end::SessionEnd;
use crate::session::registry::Registry;
use crate::session::{Session, Transport};
use crate::stream::body::Chunks;
use crate::stream::reader_body::ReaderBody;
use bytes::Bytes;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::jsonrpc::{Message, Payload, Request as RpcRequest};
use rethread_proto::refusal::Reason;
use rethread_proto::stream::ReaderStart;
use rethread_proto::{Era, Principal, Refusal, SessionId};
use rethread_store::SessionKey;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// Opens a session with its one stream. `greeting` goes out first.
pub(crate) fn open(
    inner: &Server,
    principal: Principal,
    transport: Transport,
    greeting: impl FnOnce(&SessionId) -> Option<Bytes>,
) -> Result<Connection, Reason> {
    let place = inner.sessions.reserve(&inner.node, &principal)?;
    let key = SessionKey {
        session: (inner.new_session_id)(),
        principal,
    };
    let session = Session::new(&inner.node, key, transport);
    place.fill(&session);
    let stream = session.open_live_stream();
    session.set_live_stream(&stream);
    let start = ReaderStart {
        first: greeting(&session.key.session),
        ..ReaderStart::default()
    };
    Ok(Connection {
        reader: session.open_reader(stream, start, true),
        session,
        sessions: Arc::clone(&inner.sessions),
    })
}

/// Handles a message. All responses go to the session's stream (LEG-02).
pub(crate) async fn take(
    inner: &Server,
    session: &Arc<Session>,
    payload: Payload,
    request_head: RequestHead,
) -> Result<(), Refusal> {
    match payload {
        Payload::Batch(_) => Err(Reason::InvalidRequest("this transport has no batches".into()).into()), // LEG-05
        Payload::One(Message::Notification(note)) => {
            dispatch::notified(inner, session, note, &request_head).await;
            Ok(())
        }
        Payload::One(Message::Answer(answer)) => Ok(session.answer(answer)?),
        Payload::One(Message::Request(request)) => call(inner, session, request, request_head).await,
    }
}

async fn call(
    inner: &Server,
    session: &Arc<Session>,
    request: RpcRequest,
    request_head: RequestHead,
) -> Result<(), Refusal> {
    let id = request.id.clone();
    let stream = session.live_stream().ok_or(Reason::UnknownSession)?;
    let exchange = Exchange::connection_bound(session, stream, RequestMeta::in_session(&request));
    let slot = ReplySlot::new(&exchange, 0);
    if request.method.as_str() == "initialize" {
        let (unhandled, started) = (
            UnhandledCall::in_session(session, &request, request_head.extensions()),
            Instant::now(),
        );
        let reply = initialize(inner, session, &request, &request_head).await;
        match &reply {
            Ok(_) => unhandled.succeeded(started),
            Err(error) => unhandled.failed(started, error),
        }
        slot.reply(reply).await;
        return Ok(());
    }
    let served = dispatch::serve_on_stream(inner, session, slot, request, request_head).await;
    served.map_err(|(slot, reason)| {
        slot.close();
        Refusal::new(reason).about(Some(&id))
    })
}

/// `initialize`: any session-era revision (LEG-04). One succeeds; another gets an error.
async fn initialize(
    inner: &Server,
    session: &Arc<Session>,
    request: &RpcRequest,
    request_head: &RequestHead,
) -> Result<Reply, RpcError> {
    let asked = legacy::asked_version(&inner.node, request)?;
    let served = inner.node.revisions;
    let version = served.negotiate(&asked).filter(|v| v.era() == Era::Legacy);
    let version = version.ok_or_else(|| RpcError::invalid_params("no protocol version of this transport is served"))?;
    let opened = open_session::open_session(inner, session, request, version, request_head).await;
    let answer = opened.map_err(OpenError::into_error)?.keep();
    session.opened(request_head.extensions(), false);
    Ok(Reply::raw(answer))
}

/// The connection that is the session: when it goes, the session ends (LEG-03).
pub(crate) struct Connection {
    reader: Box<ReaderBody>,
    pub(crate) session: Arc<Session>,
    sessions: Arc<Registry>,
}

impl Chunks for Connection {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.reader.poll_chunk(cx)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.sessions.end(&self.session, SessionEnd::Disconnected).detach();
    }
}
