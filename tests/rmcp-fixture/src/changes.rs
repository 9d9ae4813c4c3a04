//! Changes, which are sent to every session and every subscription of the process.

#![expect(deprecated)] // clients still use logging

use rmcp::service::{ServiceError, SubscriptionContext, SubscriptionSendError, SubscriptionSink};
use rmcp::{Peer, RoleServer, model::ResourceUpdatedNotificationParam};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::time::MissedTickBehavior;

use crate::emit::message;
use crate::handler::Session;
use crate::resources::WATCHED;

/// A session that is further behind misses changes.
const MAX_PENDING_CHANGES: usize = 1024;

/// A change or a message for all clients.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Message(String),
    Tools,
    Prompts,
    Resources,
    Updated(&'static str),
}

/// Broadcasts changes to all subscribers.
pub struct Changes(Sender<Change>);

impl Default for Changes {
    fn default() -> Self {
        Changes(Sender::new(MAX_PENDING_CHANGES))
    }
}

impl Changes {
    pub(crate) fn publish(&self, change: Change) {
        let _ = self.0.send(change); // an error means that there are no receivers
    }

    /// Publishes a change of the watched resource every two seconds.
    pub async fn notify_watched_resource(&self) {
        let mut ticks = tokio::time::interval(Duration::from_secs(2));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.publish(Change::Updated(WATCHED));
        }
    }

    /// Forwards changes until the session ends.
    pub(crate) fn forward_to_session(&self, peer: Peer<RoleServer>, session: &Arc<Session>) {
        tokio::spawn(forward(self.0.subscribe(), peer, Arc::downgrade(session)));
    }

    /// Changes from now on.
    pub(crate) fn subscribe(&self) -> Receiver<Change> {
        self.0.subscribe()
    }

    /// Forwards changes until the subscription ends. `since` has those since the request arrived: a client may cause a change
    /// as soon as it has the acknowledgement, which rmcp sends before it calls `listen`.
    pub(crate) async fn forward_to_subscription(&self, since: Option<Receiver<Change>>, context: &SubscriptionContext) {
        let mut changes = since.unwrap_or_else(|| self.0.subscribe());
        loop {
            let change = tokio::select! {
                change = next(&mut changes) => change,
                () = context.cancelled() => return,
            };
            let Some(change) = change else { return };
            match notify_subscription(context.sink(), change).await {
                Ok(()) | Err(SubscriptionSendError::NotificationNotAccepted(_)) => {}
                Err(_) => return,
            }
        }
    }
}

async fn forward(mut changes: Receiver<Change>, peer: Peer<RoleServer>, session: Weak<Session>) {
    while let Some(change) = next(&mut changes).await {
        let Some(session) = session.upgrade() else { return };
        if notify_session(&peer, &session, change).await.is_err() || peer.is_transport_closed() {
            return;
        }
    }
}

/// The next change. Skips missed ones.
async fn next(changes: &mut Receiver<Change>) -> Option<Change> {
    loop {
        match changes.recv().await {
            Ok(change) => return Some(change),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

async fn notify_session(peer: &Peer<RoleServer>, session: &Session, change: Change) -> Result<(), ServiceError> {
    match change {
        Change::Message(text) => peer.notify_logging_message(message("fixture", text.into())).await,
        Change::Tools => peer.notify_tool_list_changed().await,
        Change::Prompts => peer.notify_prompt_list_changed().await,
        Change::Resources => peer.notify_resource_list_changed().await,
        Change::Updated(uri) if session.is_subscribed_to(uri) => {
            let updated = ResourceUpdatedNotificationParam::new(uri);
            peer.notify_resource_updated(updated).await
        }
        Change::Updated(_) => Ok(()),
    }
}

async fn notify_subscription(sink: &SubscriptionSink, change: Change) -> Result<(), SubscriptionSendError> {
    match change {
        Change::Message(_) => Ok(()), // only sessions get messages
        Change::Tools => sink.notify_tool_list_changed().await,
        Change::Prompts => sink.notify_prompt_list_changed().await,
        Change::Resources => sink.notify_resource_list_changed().await,
        Change::Updated(uri) => sink.notify_resource_updated(uri).await,
    }
}
