//! One request for one server: the handler at work, and what it answers.

use crate::convert::to_rpc;
use crate::pool::Lease;
use crate::{inputs, request};
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

/// What a handler is told of a request, beside the request.
pub(crate) struct Setting<'a> {
    pub(crate) cx: &'a Context,
    pub(crate) lease: &'a Lease,
    pub(crate) parts: Option<Parts>,
}

impl Setting<'_> {
    pub(crate) fn context(
        &self,
        call: &Call,
        meta: RequestMetaObject,
        parts: Option<Parts>,
    ) -> RequestContext<RoleServer> {
        if self.cx.session().is_none() {
            self.lease.introduce(&meta);
        }
        let mut context = RequestContext::new(request::id(call), self.lease.peer());
        context.meta = meta;
        if let Some(parts) = parts {
            context.extensions.insert(parts);
        }
        context.extensions.insert(self.cx.clone());
        context
    }
}

/// Serves a call.
pub(crate) async fn serve<S: ServerHandler>(server: &S, call: &Call, setting: Setting<'_>) -> Result<Reply, RpcError> {
    if inputs::may_ask(call.method()) {
        return inputs::serve(server, call, setting).await;
    }
    let (request, meta) = request::read(call)?;
    let mut setting = setting;
    let parts = setting.parts.take();
    let context = setting.context(call, meta, parts);
    let lenient = matches!(request, ClientRequest::SetLevelRequest(_));
    let ct = context.ct.clone();
    let result = attended(Service::handle_request(server, request, context), setting.cx, ct).await;
    match result {
        Ok(ServerResult::DiscoverResult(mut found)) => {
            let served = setting.cx.revisions();
            found.supported_versions.retain(|version| {
                let ours: Option<Version> = version.as_str().parse().ok();
                ours.is_some_and(|version| served.serves(version))
            });
            reply(&ServerResult::DiscoverResult(found))
        }
        Ok(result) => reply(&result),
        // A server that logs need not know of levels: the transport keeps back what is below the level.
        Err(error)
            if lenient
                && error.code == ErrorCode::METHOD_NOT_FOUND
                && server.get_info().capabilities.logging.is_some() =>
        {
            Ok(Reply::empty())
        }
        Err(error) => Err(to_rpc(error)),
    }
}

/// The three requests whose answer may be a wish for input.
pub(crate) enum Asking {
    Tool(CallToolRequestParams),
    Prompt(GetPromptRequestParams),
    Resource(ReadResourceRequestParams),
}

/// One of the three, as rmcp's own dispatch would treat it.
pub(crate) async fn ask<S: ServerHandler>(
    server: &S,
    asking: Asking,
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
    let answer = async {
        Ok(match asking {
            Asking::Tool(params) => match server.call_tool(params, context).await? {
                CallToolResponse::Task(_) if !declares_tasks() => return Err(no_tasks()),
                response => response.into(),
            },
            Asking::Prompt(params) => GetPromptResponse::into(server.get_prompt(params, context).await?),
            Asking::Resource(params) => ReadResourceResponse::into(server.read_resource(params, context).await?),
        })
    };
    let mut result: ServerResult = attended(answer, cx, ct).await.map_err(|mut error: ErrorData| {
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

fn no_tasks() -> ErrorData {
    ErrorData::missing_required_client_capability(ClientCapabilities::builder().enable_tasks().build())
}

/// Runs a handler and tells it when the call is cancelled. It ends with the call, and so does everything that holds its
/// token: rmcp does the same.
pub(crate) async fn attended<T>(handling: impl Future<Output = T>, cx: &Context, ct: CancellationToken) -> T {
    let _ended = ct.clone().drop_guard();
    let mut handling = pin!(handling);
    tokio::select! {
        biased;
        done = &mut handling => return done,
        () = cx.cancelled() => ct.cancel(),
    }
    handling.await // for as long as the transport's grace lets it
}

/// A panic in a handler stays in what it was about. For what does not run in a call: there the transport sees to it.
pub(crate) async fn caught<T>(doing: impl Future<Output = Result<T, RpcError>>) -> Result<T, RpcError> {
    let mut doing = pin!(doing);
    std::future::poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| doing.as_mut().poll(cx))).unwrap_or_else(|_| {
            tracing::error!("a server panicked while a session began");
            Poll::Ready(Err(RpcError::internal("the server failed to begin the session")))
        })
    })
    .await
}

/// The answer, written once.
pub(crate) fn reply(result: &ServerResult) -> Result<Reply, RpcError> {
    let json = serde_json::to_vec(result);
    let json = json.map_err(|e| RpcError::internal(format!("the server's answer cannot be written as JSON: {e}")))?;
    Ok(Reply::raw(json))
}
