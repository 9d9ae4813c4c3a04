//! Wake-ups from other nodes.

use crate::cluster::Inner;
use crate::keys::SessionDigest;
use crate::link::in_time;
use crate::members::MAX_SILENCE;
use futures_util::StreamExt as _;
use redis::{Msg, RedisResult, cmd};
use rethread_store::{ClusterEvent, Incarnation, Ordinal, StreamKey};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// A node sends itself a message with this period, to detect a dead connection.
const TICK: Duration = Duration::from_secs(1);
/// The delay between two attempts to connect.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Receives wake-ups until the process has dropped its last store.
pub(crate) async fn run(inner: Weak<Inner>) {
    let mut is_first = true;
    while inner.strong_count() > 0 {
        if let Err(error) = receive(&inner, &mut is_first).await {
            tracing::debug!(%error, "wake-ups do not arrive");
        }
        if let Some(strong) = inner.upgrade() {
            strong.health.set_subscribed(None);
            if !is_first {
                strong.disconnected(); // at once: the connection for commands may be back first
            }
        }
        sleep(RETRY_DELAY).await;
    }
}

/// Subscribes and receives until the connection fails.
async fn receive(inner: &Weak<Inner>, is_first: &mut bool) -> RedisResult<()> {
    let Some(strong) = inner.upgrade() else { return Ok(()) };
    let (timeout, channel) = (strong.options.timeout, strong.keys.wake_channel());
    let mut identities = strong.identity.subscribe();
    let mut identity = identities.borrow_and_update().clone();
    let (mut sink, mut messages) = strong.connector.pub_sub().await?.split();
    let channels = [format!("{channel}{identity}"), strong.keys.broadcast_channel()];
    in_time(timeout, sink.subscribe(&channels[..])).await?;
    strong.health.set_subscribed(Some(identity.clone()));
    if !std::mem::replace(is_first, false) {
        tracing::info!("wake-ups arrive again");
        strong.reconnected();
    }
    drop(strong);
    let mut silence = interval(MAX_SILENCE / 4);
    silence.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            message = messages.next() => {
                let (Some(message), Some(inner)) = (message, inner.upgrade()) else { return Ok(()) };
                inner.dispatch(&message);
            }
            changed = identities.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let next = identities.borrow_and_update().clone();
                in_time(timeout, sink.subscribe(format!("{channel}{next}"))).await?;
                in_time(timeout, sink.unsubscribe(format!("{channel}{identity}"))).await?;
                identity = next;
                let Some(inner) = inner.upgrade() else { return Ok(()) };
                inner.health.set_subscribed(Some(identity.clone()));
            }
            _ = silence.tick() => {
                if inner.upgrade().is_none_or(|inner| inner.health.is_silent()) {
                    return Ok(());
                }
            }
        }
    }
}

/// Every second, sends a message to this process and sweeps the watches.
pub(crate) async fn tick(inner: Weak<Inner>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        for store in inner.servers() {
            store.sweep_watches();
        }
        inner.connection.follow_primary().await;
        let mut publish = cmd("PUBLISH");
        publish
            .arg(format!("{}{}", inner.keys.wake_channel(), inner.me()))
            .arg("t");
        if let Err(error) = inner.connection.command(&publish).await {
            tracing::debug!(%error, "the tick was not sent");
        }
    }
}

impl Inner {
    /// Forwards a wake-up: `<kind> <server> <session> <more>`. Ignores unknown kinds, which may come from a later
    /// version.
    fn dispatch(self: &Arc<Self>, message: &Msg) {
        let Ok(text) = std::str::from_utf8(message.get_payload_bytes()) else {
            return;
        };
        let mut words = text.split(' ');
        let kind = words.next().unwrap_or_default();
        if kind == "t" {
            return self.health.ticked();
        }
        let Some(store) = words.next().and_then(|subject| self.server(subject)) else {
            return;
        };
        if kind == "b" {
            return store.bus_grew.notify_one();
        }
        let Some(session) = words.next().and_then(SessionDigest::parse) else {
            return;
        };
        let rest = words.next().unwrap_or_default();
        let ordinal = || rest.parse().ok().map(Ordinal);
        let event = match kind {
            "g" => {
                if let Some(ordinal) = ordinal() {
                    store.watches.wake((session, ordinal));
                }
                None
            }
            "s" => store
                .views
                .changed(session)
                .zip(Incarnation::parse(rest))
                .map(|(key, by)| ClusterEvent::SessionChanged { key, by }),
            "q" => store.views.key(session).map(ClusterEvent::PushWaiting),
            "l" => store
                .views
                .key(session)
                .zip(ordinal())
                .map(|(session, ordinal)| ClusterEvent::GetRemoved(StreamKey { session, ordinal })),
            "r" => store
                .views
                .key(session)
                .zip(ordinal())
                .map(|(session, ordinal)| ClusterEvent::StreamChanged(StreamKey { session, ordinal })),
            _ => None,
        };
        if let Some(event) = event {
            store.events.wake(&event);
        }
    }
}
