//! How a session begins in the handler: for `initialize`, and again after a restart.

use super::request_head::RequestHead;
use super::server::Server;
use crate::call::opening::{OpenError, SessionStart};
use crate::call::peer::Peer;
use crate::session::Session;
use crate::session::handshake::Handshake;
use crate::session::previous_state::PreviousState;
use rethread_proto::jsonrpc::{Request, RpcError};
use rethread_proto::refusal::Reason;
use rethread_proto::{Era, Version};
use rethread_store::SessionRecord;
use std::sync::Arc;

/// Asks the handler to open a session, and keeps what was negotiated.
pub(crate) async fn open_session(
    inner: &Server,
    session: &Arc<Session>,
    request: &Request,
    proposed: Version,
    request_head: &RequestHead,
) -> Result<OpenedSession, OpenError> {
    let handshake = session.begin_handshake()?;
    let opening = SessionStart {
        peer: Peer(Arc::clone(session)),
        params: bytes::Bytes::copy_from_slice(request.params.as_json()),
        version: proposed,
        earlier: None,
        parts: request_head.parts(),
    };
    let reply = inner.handler.open(&opening).await?;
    handshake.opened()?;
    let negotiated = reply.negotiate(&inner.node.info, proposed)?;
    if negotiated.version.era() != Era::Legacy || !inner.node.revisions.serves(negotiated.version) {
        return Err(RpcError::internal(format!(
            "the server speaks protocol version {}, which is not served here",
            negotiated.version
        ))
        .into());
    }
    session.set_negotiated(negotiated.version, opening.params, negotiated.declared);
    Ok(OpenedSession {
        handshake,
        answer: negotiated.answer,
    })
}

/// Asks the handler to open a session again whose process is gone.
pub(crate) async fn reopen_session(
    inner: &Server,
    session: &Arc<Session>,
    record: SessionRecord,
    request_head: &RequestHead,
) -> Result<OpenedSession, Reason> {
    let refused = |error| OpenError::Refused(error).into_reason();
    let handshake = session.begin_handshake().map_err(refused)?;
    let opening = SessionStart {
        peer: Peer(Arc::clone(session)),
        params: record.initialize_params,
        version: record.version,
        earlier: Some(PreviousState {
            initialized: record.initialized,
            log_level: record.log_level,
            subscriptions: record.subscriptions,
        }),
        parts: request_head.parts(),
    };
    let reply = inner.handler.open(&opening).await.map_err(OpenError::into_reason)?;
    handshake.opened().map_err(refused)?;
    let negotiated = reply.negotiate(&inner.node.info, record.version).map_err(refused)?;
    session.set_negotiated(record.version, opening.params, negotiated.declared);
    Ok(OpenedSession {
        handshake,
        answer: negotiated.answer,
    })
}

/// A session that the handler has opened. Unless it is kept, the handler is notified of its end: the client may leave
/// while its session is being made.
pub(crate) struct OpenedSession {
    handshake: Handshake,
    answer: bytes::Bytes,
}

impl OpenedSession {
    /// The session is in its place. Returns the answer to `initialize`.
    pub(crate) fn keep(self) -> bytes::Bytes {
        self.handshake.keep();
        self.answer
    }
}
