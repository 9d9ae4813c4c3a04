//! A client's request in rmcp's types.
//!
//! rmcp reads a message by trying one type after the other, which costs more than everything else in a small call. Here
//! the method is known, so the params are read once, as what they must be.

use crate::convert::number_or_string;
use rethread::{Call, RpcError};
use rmcp::model::{
    CallToolRequest, CancelTaskRequest, CancelledNotification, ClientNotification, ClientRequest, CompleteRequest,
    CustomNotification, CustomRequest, DiscoverRequest, DiscoverRequestParams, GetPromptRequest, GetTaskRequest,
    InitializedNotification, JsonObject, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest,
    ListToolsRequest, MetaObject, Notification, NotificationMetaObject, PaginatedRequestParams, ProgressNotification,
    ReadResourceRequest, RequestMetaObject, RequestOptionalParam, RequestParamsMeta, RootsListChangedNotification,
    SetLevelRequest, SubscribeRequest, SubscriptionsListenRequest, UnsubscribeRequest, UpdateTaskRequest,
};
use rmcp::model::{CancelledNotificationParam, ProgressNotificationParam, RequestId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The id of a call, as rmcp writes it.
pub(crate) fn id(call: &Call) -> RequestId {
    number_or_string(call.id().as_json())
}

/// A request and its `_meta`, which rmcp keeps apart.
pub(crate) fn read(call: &Call) -> Result<(ClientRequest, RequestMetaObject), RpcError> {
    Ok(match call.method() {
        "tools/call" => typed(call, |params| {
            ClientRequest::CallToolRequest(CallToolRequest::new(params))
        })?,
        "tools/list" => listed(call, |request| {
            ClientRequest::ListToolsRequest(request as ListToolsRequest)
        })?,
        "resources/read" => typed(call, |p| {
            ClientRequest::ReadResourceRequest(ReadResourceRequest::new(p))
        })?,
        "resources/list" => listed(call, |r| ClientRequest::ListResourcesRequest(r as ListResourcesRequest))?,
        "resources/templates/list" => listed(call, |request| {
            ClientRequest::ListResourceTemplatesRequest(request as ListResourceTemplatesRequest)
        })?,
        "prompts/get" => typed(call, |params| {
            ClientRequest::GetPromptRequest(GetPromptRequest::new(params))
        })?,
        "prompts/list" => listed(call, |r| ClientRequest::ListPromptsRequest(r as ListPromptsRequest))?,
        "completion/complete" => typed(call, |p| ClientRequest::CompleteRequest(CompleteRequest::new(p)))?,
        "logging/setLevel" => typed(call, |params| {
            ClientRequest::SetLevelRequest(SetLevelRequest::new(params))
        })?,
        "resources/subscribe" => typed(call, |p| ClientRequest::SubscribeRequest(SubscribeRequest::new(p)))?,
        "resources/unsubscribe" => typed(call, |p| ClientRequest::UnsubscribeRequest(UnsubscribeRequest::new(p)))?,
        "subscriptions/listen" => typed(call, |params| {
            ClientRequest::SubscriptionsListenRequest(SubscriptionsListenRequest::new(params))
        })?,
        "tasks/get" => typed(call, |params| {
            ClientRequest::GetTaskRequest(GetTaskRequest::new(params))
        })?,
        "tasks/update" => typed(call, |params| {
            ClientRequest::UpdateTaskRequest(UpdateTaskRequest::new(params))
        })?,
        "tasks/cancel" => typed(call, |params| {
            ClientRequest::CancelTaskRequest(CancelTaskRequest::new(params))
        })?,
        "server/discover" => {
            let (_, meta) = custom(call)?;
            let request = DiscoverRequest::new(DiscoverRequestParams {});
            (ClientRequest::DiscoverRequest(request), meta)
        }
        method => {
            let (params, meta) = custom(call)?;
            let request = CustomRequest::new(method, params);
            (ClientRequest::CustomRequest(request), meta)
        }
    })
}

/// The params of a request that must have some.
pub(crate) fn params<P: DeserializeOwned + RequestParamsMeta>(call: &Call) -> Result<(P, RequestMetaObject), RpcError> {
    let mut params: P = call.params()?;
    let meta = params.meta_mut().take().unwrap_or_default();
    Ok((params, meta))
}

fn typed<P: DeserializeOwned + RequestParamsMeta>(
    call: &Call,
    wrap: impl FnOnce(P) -> ClientRequest,
) -> Result<(ClientRequest, RequestMetaObject), RpcError> {
    let (params, meta) = params(call)?;
    Ok((wrap(params), meta))
}

fn listed<M: Default>(
    call: &Call,
    wrap: impl FnOnce(RequestOptionalParam<M, PaginatedRequestParams>) -> ClientRequest,
) -> Result<(ClientRequest, RequestMetaObject), RpcError> {
    let mut request = RequestOptionalParam {
        method: M::default(),
        params: None,
        extensions: rmcp::model::Extensions::new(),
    };
    let mut meta = None;
    if !call.raw_params().raw().is_empty() {
        let mut params: PaginatedRequestParams = call.params()?;
        meta = params.meta.take();
        request.params = Some(params);
    }
    Ok((wrap(request), meta.unwrap_or_default()))
}

fn custom(call: &Call) -> Result<(Option<Value>, RequestMetaObject), RpcError> {
    if call.raw_params().raw().is_empty() {
        return Ok((None, RequestMetaObject::new()));
    }
    let mut params: Value = call.params()?;
    let meta = take_meta(&mut params);
    Ok((Some(params), RequestMetaObject(meta)))
}

fn take_meta(params: &mut Value) -> MetaObject {
    let meta = params.as_object_mut().and_then(|params| params.remove("_meta"));
    match meta {
        Some(Value::Object(meta)) => MetaObject(meta),
        _ => MetaObject::default(),
    }
}

/// A notification and its `_meta`. One of a known kind that cannot be read is nothing that rmcp has a place for.
pub(crate) fn notification(notice: &rethread::Notification) -> Option<(ClientNotification, NotificationMetaObject)> {
    #[derive(Deserialize)]
    struct OnlyMeta {
        #[serde(rename = "_meta")]
        meta: Option<JsonObject>,
    }
    let meta = || -> NotificationMetaObject {
        let params = notice.params::<OnlyMeta>().ok();
        params.and_then(|p| p.meta).unwrap_or_default().into()
    };
    Some(match notice.method() {
        "notifications/initialized" => {
            let note = InitializedNotification {
                method: Default::default(),
                extensions: Default::default(),
            };
            (ClientNotification::InitializedNotification(note), meta())
        }
        "notifications/roots/list_changed" => {
            let note = RootsListChangedNotification {
                method: Default::default(),
                extensions: Default::default(),
            };
            (ClientNotification::RootsListChangedNotification(note), meta())
        }
        "notifications/cancelled" => {
            let mut params: CancelledNotificationParam = notice.params().ok()?;
            let meta = params.meta.take().unwrap_or_default();
            let note: CancelledNotification = Notification::new(params);
            (ClientNotification::CancelledNotification(note), meta)
        }
        "notifications/progress" => {
            let mut params: ProgressNotificationParam = notice.params().ok()?;
            let meta = params.meta.take().unwrap_or_default();
            let note: ProgressNotification = Notification::new(params);
            (ClientNotification::ProgressNotification(note), meta)
        }
        method => {
            let mut params = if notice.raw_params().raw().is_empty() {
                None
            } else {
                Some(notice.params::<Value>().ok()?)
            };
            let meta = params.as_mut().map(|params| take_meta(params).0).unwrap_or_default();
            let note = CustomNotification::new(method, params);
            (ClientNotification::CustomNotification(note), meta.into())
        }
    })
}
