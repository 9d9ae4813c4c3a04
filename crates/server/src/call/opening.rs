//! The start of a session, for a handler with state for each session, such as a child process.

use crate::call::peer::Peer;
use crate::node::server_info::ServerInfo;
use crate::session::previous_state::PreviousState;
use bytes::Bytes;
use http::request::Parts;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::refusal::Reason;
use rethread_proto::{Principal, Version};
use serde::Deserialize;
use serde_json::{Value, json};

/// A session that is being opened or restored.
#[derive(Clone, Debug)]
pub struct SessionStart {
    pub(crate) peer: Peer,
    pub(crate) params: Bytes,
    pub(crate) version: Version,
    pub(crate) earlier: Option<PreviousState>,
    pub(crate) parts: Option<Box<Parts>>,
}

impl SessionStart {
    /// The client. Messages wait until it has sent `notifications/initialized`.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The raw `params` of its `initialize`.
    pub fn params(&self) -> &Bytes {
        &self.params
    }

    /// The revision that this server negotiates; for a restored session, the one that was negotiated before.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The principal that opened it.
    pub fn principal(&self) -> &Principal {
        self.peer.principal()
    }

    /// The head of the HTTP request that opens or restores it; only for a handler that
    /// [wants it](crate::HandlerOptions::wants_request_head).
    pub fn parts(&self) -> Option<&Parts> {
        self.parts.as_deref()
    }

    /// The state of a restored session in its previous process. `None` for a new session.
    pub fn previous_state(&self) -> Option<&PreviousState> {
        self.earlier.as_ref()
    }
}

/// The reason why a session is not opened.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The JSON-RPC error is the response to `initialize`.
    #[error("the session is refused: {0}")]
    Refused(RpcError),
    /// A temporary failure: the client gets 503 and may try again. The text is the reason.
    #[error("the session cannot begin now: {0}")]
    Unavailable(String),
}

impl From<RpcError> for OpenError {
    fn from(error: RpcError) -> Self {
        OpenError::Refused(error)
    }
}

impl OpenError {
    /// The response to `initialize` on a transport without HTTP statuses.
    pub(crate) fn into_error(self) -> RpcError {
        match self {
            OpenError::Refused(error) => error,
            OpenError::Unavailable(what) => RpcError::internal(what),
        }
    }

    /// The response to a request that would restore the session. The session is not lost, so the client may try again.
    pub(crate) fn into_reason(self) -> Reason {
        Reason::Upstream(self.into_error().message)
    }
}

/// The answer to `initialize`.
#[derive(Clone, Debug, Default)]
pub struct InitializeReply(Option<Bytes>);

/// The parts of the `initialize` result that the transport needs.
pub(crate) struct Negotiated {
    pub(crate) version: Version,
    /// The server's capabilities in this session, if they differ from those in every session.
    pub(crate) declared: Option<Value>,
    pub(crate) answer: Bytes,
}

impl InitializeReply {
    /// The reply of [`Handler::info`](crate::Handler::info) with the revision of [`SessionStart::version`].
    pub fn standard() -> Self {
        InitializeReply(None)
    }

    /// An `initialize` result that is JSON already. Its `protocolVersion` becomes the revision of the session.
    pub fn raw(result: impl Into<Bytes>) -> Self {
        InitializeReply(Some(result.into()))
    }

    pub(crate) fn negotiate(self, info: &ServerInfo, proposed: Version) -> Result<Negotiated, RpcError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ReplyMembers {
            protocol_version: String,
            #[serde(default)]
            capabilities: Value,
        }
        let Some(answer) = self.0 else {
            return Ok(Negotiated {
                version: proposed,
                declared: None,
                answer: standard(info, proposed).to_string().into(),
            });
        };
        let given: ReplyMembers = serde_json::from_slice(&answer)
            .map_err(|e| RpcError::internal(format!("the server's answer to initialize is malformed: {e}")))?;
        let version = given.protocol_version.parse().map_err(|_| {
            RpcError::internal(format!(
                "the server speaks protocol version {}, which is not served here",
                given.protocol_version
            ))
        })?;
        Ok(Negotiated {
            version,
            declared: Some(given.capabilities),
            answer,
        })
    }
}

/// The `initialize` result of a server that gives all clients the same one.
fn standard(info: &ServerInfo, version: Version) -> Value {
    let mut result = json!({
        "protocolVersion": version.as_str(),
        "capabilities": info.capabilities,
        "serverInfo": { "name": info.name, "version": info.version },
    });
    if let Some(title) = &info.title {
        result["serverInfo"]["title"] = json!(title);
    }
    if let Some(instructions) = &info.instructions {
        result["instructions"] = json!(instructions);
    }
    result
}
