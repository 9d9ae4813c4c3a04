//! A session that is its connection: one stream carries everything, and when it goes the session ends. What HTTP+SSE and
//! stdio have in common.

use crate::call::handler::Handler;
use crate::call::opening::OpenError;
use crate::call::outlet::Outlet;
use crate::call::request::Call;
use crate::call::run;
use crate::endpoint::legacy;
use crate::endpoint::open_session;
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::server::Server;
use crate::session::registry::Registry;
use crate::session::{Session, Transport};
use crate::stream::body::Chunks;
use crate::stream::reader_body::ReaderBody;
use bytes::Bytes;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::jsonrpc::{Message, Payload, Request as RpcRequest, write_error, write_result};
use rethread_proto::refusal::Reason;
use rethread_proto::stream::ReaderStart;
use rethread_proto::{Era, Principal, Refusal, SessionId};
use rethread_store::SessionKey;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Opens a session with its one stream. `greeting` goes out first.
pub(crate) fn open<H: Handler>(
    inner: &Server<H>,
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

/// Takes a message: whatever it leads to comes on the session's stream (LEG-02).
pub(crate) async fn take<H: Handler>(
    inner: &Server<H>,
    session: &Arc<Session>,
    payload: Payload,
    request_head: RequestHead,
) -> Result<(), Refusal> {
    match payload {
        Payload::Batch(_) => Err(Reason::InvalidRequest("this transport has no batches".into()).into()), // LEG-05
        Payload::One(Message::Notification(note)) => {
            legacy::notified(inner, session, note, &request_head).await;
            Ok(())
        }
        Payload::One(Message::Answer(answer)) => Ok(session.answer(answer)?),
        Payload::One(Message::Request(request)) => call(inner, session, request, request_head).await,
    }
}

async fn call<H: Handler>(
    inner: &Server<H>,
    session: &Arc<Session>,
    request: RpcRequest,
    request_head: RequestHead,
) -> Result<(), Refusal> {
    let id = request.id.clone();
    let stream = session.live_stream().ok_or(Reason::UnknownSession)?;
    let outlet = Outlet::shared(session, stream);
    let result = match request.method.as_str() {
        "initialize" => Some(hello(inner, session, &request, &request_head).await),
        _ if legacy::is_ours(session, &request) => {
            let done = legacy::answer_ourselves(session, &request).await;
            Some(done.map(|()| b"{}".to_vec()))
        }
        _ => None,
    };
    if let Some(result) = result {
        match result {
            Ok(result) => outlet.end(|out| write_result(out, &id, &result), result.len() + 64),
            Err(error) => outlet.end(|out| write_error(out, Some(&id), &error), 160),
        };
        return Ok(());
    }
    let (extensions, parts) = request_head.open();
    match legacy::begin(inner, session, &request, Arc::clone(&outlet), extensions) {
        Ok(Some(running)) => {
            let call = Call::new(request, parts);
            let work = run::work(Arc::clone(&inner.handler), call, Arc::clone(&running));
            tokio::spawn(run::run_detached(work, running));
            Ok(())
        }
        Ok(None) => {
            outlet.end(|out| write_error(out, Some(&id), &legacy::in_flight(&id)), 160);
            Ok(())
        }
        Err(reason) => Err(Refusal::new(reason).about(Some(&id))),
    }
}

/// `initialize`: any session-era revision (LEG-04). One succeeds; another gets an error.
async fn hello<H: Handler>(
    inner: &Server<H>,
    session: &Arc<Session>,
    request: &RpcRequest,
    request_head: &RequestHead,
) -> Result<Vec<u8>, RpcError> {
    let asked = legacy::asked_version(&inner.node, request)?;
    let served = inner.node.revisions;
    let version = served.negotiate(&asked).filter(|v| v.era() == Era::Legacy);
    let version = version.ok_or_else(|| RpcError::invalid_params("no protocol version of this transport is served"))?;
    let welcomed = open_session::open_session(inner, session, request, version, request_head).await;
    Ok(welcomed.map_err(OpenError::into_error)?.keep().to_vec())
}

/// The connection that is the session: when it goes, the session ends (LEG-03).
pub(crate) struct Connection {
    reader: ReaderBody,
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
        self.sessions.end(&self.session, "disconnected").detach();
    }
}
