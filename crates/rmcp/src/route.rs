//! Routes a handler's notification to its destination.

use crate::convert::{log_level, number_or_string};
use crate::peer_loop::{Destination, LoopState, NoDestination};
use crate::peer_pool::Registry;
use crate::server_subscriptions::Change;
use rethread::{CLOSE_CONNECTION, Context, ListKind};
use rmcp::model::{GetMeta, LoggingMessageNotification, ProgressNotification, ProgressToken, ServerNotification};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

pub(crate) async fn send_notification(
    destination: Destination,
    shared: Arc<LoopState>,
    notification: ServerNotification,
) -> Result<(), NoDestination> {
    use ServerNotification as N;
    match notification {
        N::ProgressNotification(progress) => send_progress(&destination, &shared, progress).await,
        N::LoggingMessageNotification(message) => send_log(&destination, message).await,
        N::CancelledNotification(cancelled) => {
            // The handler cancels its own question. The client knows it by another id.
            if let Some(id) = &cancelled.params.request_id {
                shared.questions.cancel(id);
            }
            Ok(())
        }
        N::SubscriptionsAcknowledgedNotification(acknowledged) => {
            if let (Destination::Call(cx), Registry::Stateless(subscriptions)) = (&destination, &shared.registry) {
                subscriptions.insert(shared.id, cx, acknowledged.params.notifications.clone());
            }
            send(&destination, &N::SubscriptionsAcknowledgedNotification(acknowledged)).await
        }
        // A notification with a subscription id belongs on the stream of that subscription.
        change if has_subscription_id(&change) => send(&destination, &change).await,
        N::ToolListChangedNotification(_) => list_changed(&destination, &shared, ListKind::Tools),
        N::PromptListChangedNotification(_) => list_changed(&destination, &shared, ListKind::Prompts),
        N::ResourceListChangedNotification(_) => list_changed(&destination, &shared, ListKind::Resources),
        N::ResourceUpdatedNotification(updated) => {
            let uri = updated.params.uri;
            match &destination {
                Destination::Call(cx) | Destination::AfterCall(cx) => {
                    cx.resource_updated(&uri);
                    notify_subscriptions(cx, &shared, &Change::Updated(uri));
                }
                Destination::Session(peer) => peer.resource_updated(&uri),
                Destination::Unassigned => return Err(NoDestination),
            }
            Ok(())
        }
        N::CustomNotification(custom) if custom.method == CLOSE_CONNECTION => {
            if let Destination::Call(cx) = &destination {
                cx.close_connection().await;
            }
            Ok(())
        }
        other => send(&destination, &other).await,
    }
}

fn has_subscription_id(notification: &ServerNotification) -> bool {
    notification.get_meta().subscription_id().is_some()
}

fn list_changed(destination: &Destination, shared: &LoopState, list: ListKind) -> Result<(), NoDestination> {
    match destination {
        Destination::Call(cx) | Destination::AfterCall(cx) => {
            cx.list_changed(list);
            notify_subscriptions(cx, shared, &list.into());
        }
        Destination::Session(peer) => peer.list_changed(list),
        Destination::Unassigned => return Err(NoDestination),
    }
    Ok(())
}

/// Notifies the caller's subscriptions that servers handle. A session has none.
fn notify_subscriptions(cx: &Context, shared: &LoopState, change: &Change) {
    if let Registry::Stateless(subscriptions) = &shared.registry {
        subscriptions.notify(&cx.principal(), change);
    }
}

/// Sends progress to the call that its token names, independent of the reporting peer (PRG-01).
///
/// Progress of a call that has ended is dropped.
async fn send_progress(
    destination: &Destination,
    shared: &LoopState,
    notification: ProgressNotification,
) -> Result<(), NoDestination> {
    let params = &notification.params;
    let token = &params.progress_token;
    let own_call = match destination {
        Destination::Call(cx) if progress_token(cx).as_ref() == Some(token) => Some(cx.clone()),
        _ => None,
    };
    let Some(cx) = own_call.or_else(|| call_with_token(shared, token)) else {
        return Ok(());
    };
    let (progress, message) = (params.progress, params.message.as_deref());
    let sent = match params.total {
        Some(total) => cx.progress_of(progress, total, message).await,
        None => cx.progress(progress, message).await,
    };
    sent.map_err(|_| NoDestination)
}

/// The call of the same session with this token.
fn call_with_token(shared: &LoopState, token: &ProgressToken) -> Option<Context> {
    match &shared.registry {
        Registry::Session(tokens) => tokens.call(token),
        Registry::Stateless(_) => None,
    }
}

/// The progress token of a call, in rmcp's type.
pub(crate) fn progress_token(cx: &Context) -> Option<ProgressToken> {
    let token = cx.progress_token()?;
    Some(ProgressToken(number_or_string(token.as_json())))
}

/// Sends a log message if the client wants its level (LOG-01, LOG-02).
async fn send_log(destination: &Destination, message: LoggingMessageNotification) -> Result<(), NoDestination> {
    let level = log_level(message.params.level);
    let wanted = match destination {
        Destination::Call(cx) => cx.wants_log(level),
        Destination::Session(peer) => peer.wants_log(level),
        Destination::AfterCall(_) | Destination::Unassigned => return Err(NoDestination),
    };
    if !wanted {
        return Ok(());
    }
    send(destination, &ServerNotification::LoggingMessageNotification(message)).await
}

/// Sends on the stream of the call, or in the session if the call has ended.
async fn send(destination: &Destination, notification: &ServerNotification) -> Result<(), NoDestination> {
    let (method, params) = method_and_params(notification).ok_or(NoDestination)?;
    if let Destination::Call(cx) = destination
        && cx.notify(&method, &params).await.is_ok()
    {
        return Ok(());
    }
    let peer = destination.session().ok_or(NoDestination)?;
    peer.push(&method, &params).map_err(|_| NoDestination)
}

/// Splits a message into its method and params.
pub(crate) fn method_and_params(message: &impl Serialize) -> Option<(String, Value)> {
    let Value::Object(mut message) = serde_json::to_value(message).ok()? else {
        return None;
    };
    let Some(Value::String(method)) = message.remove("method") else {
        return None;
    };
    Some((method, message.remove("params").unwrap_or(Value::Null)))
}
