//! Runs one request on one server and converts its result.

use crate::convert::to_rpc;
use crate::peer_pool::PeerLease;
use crate::{input_required, request};
use http::request::Parts;
use rethread::{Call, Context, Reply, RpcError, Version};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientRequest, ErrorCode, GetPromptRequestParams,
    GetPromptResponse, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, RequestMetaObject,
    ServerResult,
};
use rmcp::service::{RequestContext, Service};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use tokio_util::sync::CancellationToken;

/// Everything that the request context is built from, except the request itself.
pub(crate) struct CallSetup<'a> {
    pub(crate) cx: &'a Context,
    pub(crate) lease: &'a PeerLease,
    pub(crate) parts: Option<Parts>,
}

impl CallSetup<'_> {
    pub(crate) fn context(
        &self,
        call: &Call,
        meta: RequestMetaObject,
        parts: Option<Parts>,
    ) -> RequestContext<RoleServer> {
        if self.cx.session().is_none() {
            self.lease.set_client(&meta);
        }
        let mut context = RequestContext::new(request::request_id(call), self.lease.peer());
        context.meta = meta;
        if let Some(parts) = parts {
            context.extensions.insert(parts);
        }
        context.extensions.insert(self.cx.clone());
        context
    }
}

/// Handles a call.
pub(crate) async fn serve<S: ServerHandler>(server: &S, call: &Call, setup: CallSetup<'_>) -> Result<Reply, RpcError> {
    if input_required::may_require_input(call.method()) {
        return input_required::serve(server, call, setup).await;
    }
    let (request, meta) = request::parse(call)?;
    let mut setup = setup;
    let parts = setup.parts.take();
    let context = setup.context(call, meta, parts);
    let is_set_level = matches!(request, ClientRequest::SetLevelRequest(_));
    let ct = context.ct.clone();
    let result = run_cancellable(Service::handle_request(server, request, context), setup.cx, ct).await;
    match result {
        Ok(ServerResult::DiscoverResult(mut discovered)) => {
            let served = setup.cx.revisions();
            discovered.supported_versions.retain(|version| {
                let known: Option<Version> = version.as_str().parse().ok();
                known.is_some_and(|version| served.serves(version))
            });
            reply(&ServerResult::DiscoverResult(discovered))
        }
        Ok(result) => reply(&result),
        // A logging server may lack `set_level`: the transport filters by level.
        Err(error)
            if is_set_level
                && error.code == ErrorCode::METHOD_NOT_FOUND
                && server.get_info().capabilities.logging.is_some() =>
        {
            Ok(Reply::empty())
        }
        Err(error) => Err(to_rpc(error)),
    }
}

/// The requests that may have an input-required result (MRTR-01).
pub(crate) enum MultiRoundRequest {
    Tool(CallToolRequestParams),
    Prompt(GetPromptRequestParams),
    Resource(ReadResourceRequestParams),
}

/// Calls the server with the same checks and conversions as rmcp's own dispatch.
pub(crate) async fn call_server<S: ServerHandler>(
    server: &S,
    request: MultiRoundRequest,
    context: RequestContext<RoleServer>,
    cx: &Context,
    declares_tasks: impl Fn() -> bool,
) -> Result<ServerResult, ErrorData> {
    let modern = cx.session().is_none();
    let supported = server.supported_protocol_versions();
    if modern && !supported.contains(&ProtocolVersion::V_2026_07_28) {
        return Err(ErrorData::unsupported_protocol_version(
            ProtocolVersion::V_2026_07_28,
            &supported,
        ));
    }
    let ct = context.ct.clone();
    let handling = async {
        Ok(match request {
            MultiRoundRequest::Tool(params) => match server.call_tool(params, context).await? {
                CallToolResponse::Task(_) if !declares_tasks() => return Err(tasks_not_declared()),
                response => response.into(),
            },
            MultiRoundRequest::Prompt(params) => GetPromptResponse::into(server.get_prompt(params, context).await?),
            MultiRoundRequest::Resource(params) => {
                ReadResourceResponse::into(server.read_resource(params, context).await?)
            }
        })
    };
    let mut result: ServerResult = run_cancellable(handling, cx, ct)
        .await
        .map_err(|mut error: ErrorData| {
            if modern && error.code == ErrorCode::RESOURCE_NOT_FOUND {
                error.code = ErrorCode::INVALID_PARAMS;
            }
            error
        })?;
    if modern {
        result.fill_missing_cache_hints();
    } else {
        result.strip_result_type_for_legacy_peer();
    }
    Ok(result)
}

fn tasks_not_declared() -> ErrorData {
    ErrorData::missing_required_client_capability(ClientCapabilities::builder().enable_tasks().build())
}

/// Runs a handler and cancels its token when the call is cancelled.
///
/// As in rmcp, the token is also cancelled when the handler returns.
pub(crate) async fn run_cancellable<T>(handling: impl Future<Output = T>, cx: &Context, ct: CancellationToken) -> T {
    let _cancel_on_return = ct.clone().drop_guard();
    let mut handling = pin!(handling);
    tokio::select! {
        biased;
        result = &mut handling => return result,
        () = cx.cancelled() => ct.cancel(),
    }
    handling.await // the transport limits how long this may take
}

/// Converts a panic into an error, for code outside a call. The transport catches panics inside calls.
pub(crate) async fn catch_panic<T>(future: impl Future<Output = Result<T, RpcError>>) -> Result<T, RpcError> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))).unwrap_or_else(|_| {
            tracing::error!("server panicked in initialize");
            Poll::Ready(Err(RpcError::internal("the server failed to initialize the session")))
        })
    })
    .await
}

pub(crate) fn reply(result: &ServerResult) -> Result<Reply, RpcError> {
    let json = serde_json::to_vec(result);
    let json =
        json.map_err(|e| RpcError::internal(format!("the server's result cannot be serialized as JSON: {e}")))?;
    Ok(Reply::raw(json))
}
