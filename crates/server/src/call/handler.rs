//! What users write: a [`Handler`], which answers calls.

use crate::call::context::Context;
use crate::call::opening::{InitializeReply, OpenError, SessionStart};
use crate::call::peer::Peer;
pub use crate::node::server_info::ServerInfo;
use bytes::Bytes;
use http::request::Parts;
pub use rethread_proto::gate::mirror::HeaderParams;
pub use rethread_proto::jsonrpc::RpcError;
use rethread_proto::jsonrpc::{Params, Request, RequestId};
pub use rethread_proto::mrtr::InputRequests;
use rethread_proto::{Principal, SessionId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

/// An MCP server without its transport: it is told of calls and answers them.
///
/// The transport itself answers `initialize`, `ping` and `logging/setLevel`, keeps track of `resources/subscribe`, and
/// delivers whatever the handler says through its [`Context`]. On session-era revisions a handler outlives its
/// connection: a client that goes away changes nothing for it, and what it says is kept for the client's return. It is
/// asked to stop through [`Context::cancelled`], and dropped if it does not within the configured grace.
///
/// A handler that panics answers `-32603`; the panic stays in its call.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn handle(&self, call: Call, cx: &Context) -> impl Future<Output = Result<Reply, RpcError>> + Send;

    /// Who this server is and what it can do: the answer to `initialize`. Asked once, when the service is built.
    fn info(&self) -> ServerInfo {
        ServerInfo::default()
    }

    /// Which arguments of a tool are mirrored in `Mcp-Param-*` headers, and must equal them (2026-07-28, HDR-04). `None`
    /// if the tool has none, or is unknown.
    fn header_params(&self, tool: &str, caller: &Principal) -> impl Future<Output = Option<Arc<HeaderParams>>> + Send {
        let _ = (tool, caller);
        async { None }
    }

    /// A session begins: the client has said `initialize`, or has come back to one whose process is gone. For handlers that
    /// keep something for each session, or that answer `initialize` in their own words. Whatever is kept must be given up
    /// in [`on_session_closed`](Self::on_session_closed), which follows every opening that succeeded.
    ///
    /// An error refuses the session; one that comes back may be tried again.
    fn open(&self, opening: &SessionStart) -> impl Future<Output = Result<InitializeReply, OpenError>> + Send {
        let _ = opening;
        async { Ok(InitializeReply::standard()) }
    }

    /// A session has ended: by its client, by expiry, or with its connection.
    fn on_session_closed(&self, session: &SessionId) {
        let _ = session;
    }

    /// Whether this handler answers every request itself but `ping`, and hears every notification but cancellations: for
    /// those that pass them on. On 2026-07-28 `subscriptions/listen` is its business too, and so are `requestState` and
    /// `inputResponses`, which stay in the params. Only what the transport has sealed itself, because this handler asked
    /// through its [`Context`], is the transport's: that retry takes up the waiting call and is not passed on. A relay
    /// behind a relay cannot ask so, since the outer one takes the seal for its own. Otherwise the transport answers `logging/setLevel`, and keeps back log
    /// messages below the level that was set.
    fn relays(&self) -> bool {
        false
    }

    /// Whether this handler also wants to hear what the transport can settle alone: `notifications/initialized` and
    /// `notifications/cancelled`, `logging/setLevel`, and `server/discover` (2026-07-28), which it then answers. The
    /// transport keeps its books all the same: the level that was agreed to, say, holds for [`Context::log`].
    fn hears_all(&self) -> bool {
        false
    }

    /// Whether [`handle`](Self::handle) serves this `subscriptions/listen` (2026-07-28). Otherwise the transport does, and
    /// tells of what [`Notifier`](crate::Notifier) and [`Context::list_changed`] announce.
    fn listens(&self, params: &Params, caller: &Principal) -> bool {
        let _ = (params, caller);
        self.relays()
    }

    /// Whether this handler wants the whole head of the HTTP request with everything it is told: see [`Call::take_parts`].
    /// The request's extensions are then in there, and not in [`Context::extensions`].
    fn wants_parts(&self) -> bool {
        false
    }

    /// Hears a notification of the client that the transport has no use for, such as
    /// `notifications/roots/list_changed`. The client's POST is answered when this returns.
    fn on_notification(&self, notice: Notification, peer: &Peer) -> impl Future<Output = ()> + Send {
        let _ = (notice, peer);
        async {}
    }
}

/// One request for a handler.
#[derive(Clone, Debug)]
pub struct Call {
    pub(crate) request: Request,
    /// Only a call that repeats an earlier one has any.
    pub(crate) inputs: Option<Box<Inputs>>,
    pub(crate) parts: Option<Box<Parts>>,
}

/// What the client sends along when it calls again with the input that an earlier answer asked for (2026-07-28).
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub(crate) responses: BTreeMap<String, Bytes>,
    pub(crate) state: Option<Bytes>,
}

impl Inputs {
    /// The client's answer to the input request `key`; `None` if there is none, -32602 if it is not what was asked for.
    pub fn response<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, RpcError> {
        let read = |raw: &Bytes| serde_json::from_slice(raw);
        let response = self.responses.get(key).map(read).transpose();
        response.map_err(|e| RpcError::invalid_params(format!("invalid input response {key}: {e}")))
    }

    /// The handler's own bytes, as it gave them to [`Reply::input_required`]. They were sealed in between: nobody else can
    /// have made or changed them, and they belong to this caller and these arguments.
    pub fn state(&self) -> Option<&[u8]> {
        self.state.as_deref()
    }
}

impl Call {
    pub(crate) fn new(request: Request, parts: Option<Box<Parts>>) -> Self {
        Call {
            request,
            inputs: None,
            parts,
        }
    }

    /// The head of the HTTP request that brought this call, the caller's [`Principal`] among its extensions; once, and
    /// only for a handler that [wants it](Handler::wants_parts). `None` on transports without HTTP.
    pub fn take_parts(&mut self) -> Option<Parts> {
        self.parts.take().map(|parts| *parts)
    }

    /// The method that is called.
    pub fn method(&self) -> &str {
        self.request.method.as_str()
    }

    /// The client's name for this request.
    pub fn id(&self) -> &RequestId {
        &self.request.id
    }

    /// The raw arguments.
    pub fn raw_params(&self) -> &Params {
        &self.request.params
    }

    /// The arguments as `T`; what does not fit becomes `-32602` and says why.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        read(&self.request.params)
    }

    /// The input that came with this call, if it repeats an earlier one that asked for some.
    pub fn inputs(&self) -> &Inputs {
        static NONE: Inputs = Inputs {
            responses: BTreeMap::new(),
            state: None,
        };
        self.inputs.as_deref().unwrap_or(&NONE)
    }
}

/// One notification for a handler.
#[derive(Clone, Debug)]
pub struct Notification {
    pub(crate) note: rethread_proto::jsonrpc::Notification,
    pub(crate) parts: Option<Box<Parts>>,
}

impl Notification {
    /// The method.
    pub fn method(&self) -> &str {
        self.note.method.as_str()
    }

    /// The raw arguments.
    pub fn raw_params(&self) -> &Params {
        &self.note.params
    }

    /// The arguments as `T`.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        read(&self.note.params)
    }

    /// The head of the HTTP request that brought this notification, as [`Call::take_parts`].
    pub fn take_parts(&mut self) -> Option<Parts> {
        self.parts.take().map(|parts| *parts)
    }
}

fn read<T: DeserializeOwned>(params: &Params) -> Result<T, RpcError> {
    params
        .read()
        .map_err(|e| RpcError::invalid_params(format!("invalid params: {e}")))
}

/// The answer to a call: the `result` of the JSON-RPC response, or a wish for input.
#[derive(Clone, Debug)]
pub struct Reply(pub(crate) Kind);

/// What a handler wants of the client before it can answer.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) requests: InputRequests,
    pub(crate) state: Option<Vec<u8>>,
    pub(crate) meta: Option<Bytes>,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Result(Bytes),
    InputRequired(Wish),
}

impl Reply {
    /// About how many bytes it keeps.
    pub(crate) fn size(&self) -> usize {
        match &self.0 {
            Kind::Result(json) => json.len(),
            Kind::InputRequired(wish) => wish.state.as_ref().map_or(0, Vec::len),
        }
    }

    /// An answer that is anything that serializes to a JSON object.
    ///
    /// # Panics
    /// If `result` cannot be written as JSON (a map with keys that are no strings, say). The call then answers
    /// `-32603`.
    pub fn json(result: impl Serialize) -> Self {
        let json = serde_json::to_vec(&result).expect("a reply must be serializable as JSON");
        Reply(Kind::Result(json.into()))
    }

    /// An answer that is JSON already. It is passed on as it is.
    pub fn raw(json: impl Into<Bytes>) -> Self {
        Reply(Kind::Result(json.into()))
    }

    /// `{}`: done, nothing to say.
    pub fn empty() -> Self {
        Reply(Kind::Result(Bytes::from_static(b"{}")))
    }

    /// Asks the client for input and ends the call (2026-07-28): the client calls again with its answers in
    /// [`Call::inputs`]. `state` is whatever the handler wants to find there again; nothing is kept on the server.
    ///
    /// Most handlers are simpler with [`Context::elicit`] and its siblings, which work on every revision and keep their
    /// place in the code. This form survives restarts, because nothing waits.
    pub fn input_required(requests: InputRequests, state: Option<Vec<u8>>) -> Self {
        Reply(Kind::InputRequired(Wish {
            requests,
            state,
            meta: None,
        }))
    }

    /// Gives a wish for input a `_meta` of its own; a result has its own words for that. What is no JSON object is left out.
    #[must_use]
    pub fn with_meta(mut self, meta: impl Serialize) -> Self {
        if let Kind::InputRequired(wish) = &mut self.0 {
            let json = serde_json::to_vec(&meta).unwrap_or_default();
            wish.meta = json.starts_with(b"{").then(|| json.into());
        }
        self
    }

    /// The result, where only a result will do.
    pub(crate) fn into_result(self) -> Result<Bytes, RpcError> {
        match self.0 {
            Kind::Result(json) => Ok(json),
            Kind::InputRequired(..) => Err(RpcError::internal(
                "this tool asks for input in a way that needs protocol version 2026-07-28",
            )),
        }
    }
}
