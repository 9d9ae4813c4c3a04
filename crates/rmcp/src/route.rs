//! Where a notification of a handler goes.

use crate::convert::{level, number_or_string};
use crate::line::{Place, Shared, Unsent};
use crate::listening::Change;
use crate::pool::Ledger;
use rethread::{CLOSE_CONNECTION, Context, ListKind};
use rmcp::model::{GetMeta, LoggingMessageNotification, ProgressNotification, ProgressToken, ServerNotification};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// Says `notification` where it belongs.
pub(crate) async fn tell(place: Place, shared: Arc<Shared>, notification: ServerNotification) -> Result<(), Unsent> {
    use ServerNotification as Said;
    match notification {
        Said::ProgressNotification(progress) => report(&place, &shared, progress).await,
        Said::LoggingMessageNotification(message) => log(&place, message).await,
        Said::CancelledNotification(cancelled) => {
            // The handler no longer waits for an answer. The client knows the question by another id.
            if let Some(id) = &cancelled.params.request_id {
                shared.questions.withdraw(id);
            }
            Ok(())
        }
        Said::SubscriptionsAcknowledgedNotification(acknowledged) => {
            if let (Place::Call(cx), Ledger::Stateless(listening)) = (&place, &shared.ledger) {
                listening.accepted(shared.number, cx, acknowledged.params.notifications.clone());
            }
            say(&place, &Said::SubscriptionsAcknowledgedNotification(acknowledged)).await
        }
        // What a subscription is told is stamped with it, and travels on its stream.
        change if is_stamped(&change) => say(&place, &change).await,
        Said::ToolListChangedNotification(_) => list_changed(&place, &shared, ListKind::Tools),
        Said::PromptListChangedNotification(_) => list_changed(&place, &shared, ListKind::Prompts),
        Said::ResourceListChangedNotification(_) => list_changed(&place, &shared, ListKind::Resources),
        Said::ResourceUpdatedNotification(updated) => {
            let uri = updated.params.uri;
            match &place {
                Place::Call(cx) | Place::Late(cx) => {
                    cx.resource_updated(&uri);
                    announce(cx, &shared, &Change::Updated(uri));
                }
                Place::Session(peer) => peer.resource_updated(&uri),
                Place::Nowhere => return Err(Unsent),
            }
            Ok(())
        }
        Said::CustomNotification(custom) if custom.method == CLOSE_CONNECTION => {
            if let Place::Call(cx) = &place {
                cx.close_connection().await;
            }
            Ok(())
        }
        other => say(&place, &other).await,
    }
}

fn is_stamped(notification: &ServerNotification) -> bool {
    notification.get_meta().subscription_id().is_some()
}

fn list_changed(place: &Place, shared: &Shared, list: ListKind) -> Result<(), Unsent> {
    match place {
        Place::Call(cx) | Place::Late(cx) => {
            cx.list_changed(list);
            announce(cx, shared, &list.into());
        }
        Place::Session(peer) => peer.list_changed(list),
        Place::Nowhere => return Err(Unsent),
    }
    Ok(())
}

/// Without a session: to the subscriptions of this caller that servers serve themselves.
fn announce(cx: &Context, shared: &Shared, change: &Change) {
    if let Ledger::Stateless(listening) = &shared.ledger {
        listening.announce(&cx.principal(), change);
    }
}

/// Progress belongs to the call that its token names, whoever reports it (PRG-01). There is no progress of a call that has
/// ended.
async fn report(place: &Place, shared: &Shared, said: ProgressNotification) -> Result<(), Unsent> {
    let token = &said.params.progress_token;
    let own = match place {
        Place::Call(cx) if token_of(cx).as_ref() == Some(token) => Some(cx.clone()),
        _ => None,
    };
    let Some(cx) = own.or_else(|| other(shared, token)) else {
        return Ok(());
    };
    let (progress, message) = (said.params.progress, said.params.message.as_deref());
    let reported = match said.params.total {
        Some(total) => cx.progress_of(progress, total, message).await,
        None => cx.progress(progress, message).await,
    };
    reported.map_err(|_| Unsent)
}

/// The call of the same session that has this token.
fn other(shared: &Shared, token: &ProgressToken) -> Option<Context> {
    match &shared.ledger {
        Ledger::Session(tokens) => tokens.call(token),
        Ledger::Stateless(_) => None,
    }
}

/// The token of a call, as rmcp writes it.
pub(crate) fn token_of(cx: &Context) -> Option<ProgressToken> {
    let token = cx.progress_token()?;
    Some(ProgressToken(number_or_string(token.as_json())))
}

/// LOG-01, LOG-02: what the client does not want to hear is not said.
async fn log(place: &Place, message: LoggingMessageNotification) -> Result<(), Unsent> {
    let weight = level(message.params.level);
    let wanted = match place {
        Place::Call(cx) => cx.wants_log(weight),
        Place::Session(peer) => peer.wants_log(weight),
        Place::Late(_) | Place::Nowhere => return Err(Unsent),
    };
    if !wanted {
        return Ok(());
    }
    say(place, &ServerNotification::LoggingMessageNotification(message)).await
}

/// Says something on the stream of the call; in the session when the call has ended.
async fn say(place: &Place, notification: &ServerNotification) -> Result<(), Unsent> {
    let (method, params) = spelled(notification).ok_or(Unsent)?;
    if let Place::Call(cx) = place
        && cx.notify(&method, &params).await.is_ok()
    {
        return Ok(());
    }
    let peer = place.session().ok_or(Unsent)?;
    peer.push(&method, &params).map_err(|_| Unsent)
}

/// A message as method and params.
pub(crate) fn spelled(message: &impl Serialize) -> Option<(String, Value)> {
    let Value::Object(mut message) = serde_json::to_value(message).ok()? else {
        return None;
    };
    let Some(Value::String(method)) = message.remove("method") else {
        return None;
    };
    Some((method, message.remove("params").unwrap_or(Value::Null)))
}
