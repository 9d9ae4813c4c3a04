//! The broadcast log, which is the bus between nodes.

use crate::cluster::{Inner, random_token};
use crate::coding::{decode_signal, encode_signal};
use crate::keys::ServerKeys;
use crate::reply::{Reply, unexpected};
use crate::scripts::SCRIPTS;
use crate::store::{RedisStore, StoreInner};
use rethread_store::{BroadcastId, Bus, Signal, StoreError, StoreFuture, Subscription};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Limits of the log. Beyond them the oldest broadcasts are dropped, and readers that missed them refresh everything.
const MAX_BROADCASTS: usize = 10_000;
const MAX_BROADCAST_BYTES: usize = 64 << 20;
/// Broadcasts of one read.
const MAX_READ_ENTRIES: usize = 100;
/// The delay after a failed read.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// The last broadcast of a server.
pub(crate) async fn last(cluster: &Inner, keys: &ServerKeys) -> Result<BroadcastId, StoreError> {
    let mut call = SCRIPTS.broadcasts.call(&keys.broadcasts());
    call.arg("").arg(MAX_READ_ENTRIES);
    let mut reply = cluster.connection.run(&SCRIPTS.broadcasts, &call).await?;
    Ok(BroadcastId(reply.text()?.into()))
}

/// The next broadcasts after a position.
enum Next {
    Broadcasts(Vec<(BroadcastId, Option<Signal>)>),
    /// Some broadcasts were dropped. Contains the last id.
    Lost(BroadcastId),
}

impl StoreInner {
    async fn next_broadcasts(&self, after: &BroadcastId) -> Result<Next, StoreError> {
        let after = if after.0.is_empty() { "0-0" } else { &after.0 };
        let mut call = SCRIPTS.broadcasts.call(&self.keys.broadcasts());
        call.arg(after).arg(MAX_READ_ENTRIES);
        let mut reply = Reply::of_array(self.cluster.connection.run_raw(&SCRIPTS.broadcasts, &call).await?)?;
        let outcome = reply.text()?;
        let last = BroadcastId(reply.text()?.into());
        if outcome == "lost" {
            return Ok(Next::Lost(last));
        }
        let mut entries = reply.array()?;
        let mut broadcasts = Vec::new();
        while !entries.is_empty() {
            let mut entry = entries.array()?;
            let id = BroadcastId(entry.text()?.into());
            let mut fields = entry.array()?;
            fields.next();
            broadcasts.push((id, decode_signal(fields.bytes()?)));
        }
        Ok(Next::Broadcasts(broadcasts))
    }

    /// Forwards new broadcasts to the subscribers of this process.
    async fn forward_broadcasts(&self) -> Result<(), StoreError> {
        loop {
            let after = self.bus_position.borrow().clone();
            match self.next_broadcasts(&after).await? {
                Next::Broadcasts(broadcasts) if broadcasts.is_empty() => return Ok(()),
                Next::Broadcasts(broadcasts) => {
                    for (id, signal) in broadcasts {
                        if let Some(signal) = signal {
                            let _ = self.bus.send((id.clone(), signal)); // fails only without subscribers
                        }
                        self.bus_position.send_replace(id);
                    }
                }
                Next::Lost(last) => {
                    tracing::warn!("broadcasts are lost; everything is read once");
                    self.bus_position.send_replace(last);
                    self.events.wake(&rethread_store::ClusterEvent::Reconnected);
                    return Ok(());
                }
            }
        }
    }

    async fn publish(&self, signal: &Signal) -> Result<(), StoreError> {
        let mut call = SCRIPTS.publish.call(&self.keys.broadcasts());
        call.arg(self.cluster.keys.broadcast_channel()).arg(&*self.keys.subject);
        call.arg(random_token()).arg(MAX_BROADCASTS).arg(MAX_BROADCAST_BYTES);
        call.arg(encode_signal(signal));
        let mut reply = self.cluster.connection.run(&SCRIPTS.publish, &call).await?;
        let id = BroadcastId(reply.text()?.into());
        // Wait until the subscribers of this process have the signal, so that a later subscriber does not get it.
        self.bus_grew.notify_one();
        let mut position = self.bus_position.subscribe();
        let forwarded = position.wait_for(|position| parse(position) >= parse(&id));
        let _ = timeout(self.cluster.options.timeout, forwarded).await; // a lost connection can delay it
        Ok(())
    }

    pub(crate) async fn broadcasts_after(
        &self,
        id: &BroadcastId,
    ) -> Result<Option<Vec<(BroadcastId, Signal)>>, StoreError> {
        let (mut after, mut all) = (id.clone(), Vec::new());
        loop {
            let broadcasts = match self.next_broadcasts(&after).await? {
                Next::Lost(_) => return Ok(None),
                Next::Broadcasts(broadcasts) => broadcasts,
            };
            let Some((last, _)) = broadcasts.last() else {
                return Ok(Some(all));
            };
            after = last.clone();
            all.extend(broadcasts.into_iter().filter_map(|(id, signal)| Some((id, signal?))));
        }
    }
}

/// A position as a pair of numbers.
fn parse(id: &BroadcastId) -> (u64, u64) {
    let parts = id.0.split_once('-').unwrap_or_default();
    (parts.0.parse().unwrap_or(0), parts.1.parse().unwrap_or(0))
}

/// Forwards broadcasts until the store is dropped. Holds the store only during a read.
pub(crate) async fn forward(store: Weak<StoreInner>) {
    while let Some(strong) = store.upgrade() {
        let grew = Arc::clone(&strong.bus_grew);
        let forwarded = strong.forward_broadcasts().await;
        drop(strong);
        match forwarded {
            Ok(()) => grew.notified().await,
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}

impl Bus for RedisStore {
    fn publish(&self, signal: Signal) -> StoreFuture<Result<(), StoreError>> {
        self.later(|store| async move { store.publish(&signal).await })
    }

    fn subscribe(&self) -> Subscription {
        Subscription::new(self.0.bus.subscribe())
    }
}

/// A position that scripts can compare.
pub(crate) fn check_position(id: &BroadcastId) -> Result<&str, StoreError> {
    let is_valid = id.0.split_once('-').is_some_and(|(time, count)| {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number(time) && is_number(count)
    });
    if is_valid { Ok(&id.0) } else { Err(unexpected()) }
}
