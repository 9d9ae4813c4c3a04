//! What changes, and who hears of it: every session and every subscription of the process.

#![expect(deprecated)] // logging, which clients still use

use rmcp::service::{ServiceError, SubscriptionContext, SubscriptionSendError, SubscriptionSink};
use rmcp::{Peer, RoleServer, model::ResourceUpdatedNotificationParam};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::time::MissedTickBehavior;

use crate::handler::Session;
use crate::resources::WATCHED;
use crate::say::message;

/// How many changes a session may be behind before it misses some.
const BACKLOG: usize = 1024;

/// Something that everybody hears of.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Message(String),
    Tools,
    Prompts,
    Resources,
    Updated(&'static str),
}

/// The way from whoever changes something to whoever wants to know.
pub struct Changes(Sender<Change>);

impl Default for Changes {
    fn default() -> Self {
        Changes(Sender::new(BACKLOG))
    }
}

impl Changes {
    pub(crate) fn tell(&self, change: Change) {
        let _ = self.0.send(change); // to nobody, if nobody is there
    }

    /// Says every two seconds that the watched resource changed.
    pub async fn touch_the_watched_resource(&self) {
        let mut ticks = tokio::time::interval(Duration::from_secs(2));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tell(Change::Updated(WATCHED));
        }
    }

    /// From now on until the session ends.
    pub(crate) fn forward_to(&self, peer: Peer<RoleServer>, session: &Arc<Session>) {
        tokio::spawn(forward(self.0.subscribe(), peer, Arc::downgrade(session)));
    }

    /// From now on until the subscription ends.
    pub(crate) async fn send_to(&self, context: &SubscriptionContext) {
        let mut changes = self.0.subscribe();
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

/// The next change; those that were missed are missed.
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
        Change::Message(_) => Ok(()), // is for sessions
        Change::Tools => sink.notify_tool_list_changed().await,
        Change::Prompts => sink.notify_prompt_list_changed().await,
        Change::Resources => sink.notify_resource_list_changed().await,
        Change::Updated(uri) => sink.notify_resource_updated(uri).await,
    }
}
