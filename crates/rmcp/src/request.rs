//! Converts a client's request to rmcp's types.
//!
//! rmcp parses a message by trying one type after another. In a small call that costs more than everything else.
//! Here the method is known, so the params are parsed once, into the right type.

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

pub(crate) fn request_id(call: &Call) -> RequestId {
    number_or_string(call.id().as_json())
}

/// Parses a request and its `_meta`, which rmcp passes separately.
pub(crate) fn parse(call: &Call) -> Result<(ClientRequest, RequestMetaObject), RpcError> {
    Ok(match call.method() {
        "tools/call" => typed(call, |params| {
            ClientRequest::CallToolRequest(CallToolRequest::new(params))
        })?,
        "tools/list" => paginated(call, |request| {
            ClientRequest::ListToolsRequest(request as ListToolsRequest)
        })?,
        "resources/read" => typed(call, |p| {
            ClientRequest::ReadResourceRequest(ReadResourceRequest::new(p))
        })?,
        "resources/list" => paginated(call, |r| ClientRequest::ListResourcesRequest(r as ListResourcesRequest))?,
        "resources/templates/list" => paginated(call, |request| {
            ClientRequest::ListResourceTemplatesRequest(request as ListResourceTemplatesRequest)
        })?,
        "prompts/get" => typed(call, |params| {
            ClientRequest::GetPromptRequest(GetPromptRequest::new(params))
        })?,
        "prompts/list" => paginated(call, |r| ClientRequest::ListPromptsRequest(r as ListPromptsRequest))?,
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

/// Parses required params.
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

fn paginated<M: Default>(
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

/// Parses a notification and its `_meta`. Returns `None` for a known method with invalid params: rmcp cannot represent
/// it.
pub(crate) fn notification(
    notification: &rethread::Notification,
) -> Option<(ClientNotification, NotificationMetaObject)> {
    #[derive(Deserialize)]
    struct OnlyMeta {
        #[serde(rename = "_meta")]
        meta: Option<JsonObject>,
    }
    let meta = || -> NotificationMetaObject {
        let params = notification.params::<OnlyMeta>().ok();
        params.and_then(|p| p.meta).unwrap_or_default().into()
    };
    Some(match notification.method() {
        "notifications/initialized" => {
            let typed = InitializedNotification {
                method: Default::default(),
                extensions: Default::default(),
            };
            (ClientNotification::InitializedNotification(typed), meta())
        }
        "notifications/roots/list_changed" => {
            let typed = RootsListChangedNotification {
                method: Default::default(),
                extensions: Default::default(),
            };
            (ClientNotification::RootsListChangedNotification(typed), meta())
        }
        "notifications/cancelled" => {
            let mut params: CancelledNotificationParam = notification.params().ok()?;
            let meta = params.meta.take().unwrap_or_default();
            let typed: CancelledNotification = Notification::new(params);
            (ClientNotification::CancelledNotification(typed), meta)
        }
        "notifications/progress" => {
            let mut params: ProgressNotificationParam = notification.params().ok()?;
            let meta = params.meta.take().unwrap_or_default();
            let typed: ProgressNotification = Notification::new(params);
            (ClientNotification::ProgressNotification(typed), meta)
        }
        method => {
            let mut params = if notification.raw_params().raw().is_empty() {
                None
            } else {
                Some(notification.params::<Value>().ok()?)
            };
            let meta = params.as_mut().map(|params| take_meta(params).0).unwrap_or_default();
            let typed = CustomNotification::new(method, params);
            (ClientNotification::CustomNotification(typed), meta.into())
        }
    })
}
