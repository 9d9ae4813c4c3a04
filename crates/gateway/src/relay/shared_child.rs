//! The child of all stateless requests of one caller (GW-07).

use super::child_slot::{self, AbortOnDrop, ChildSlot, RunningChild};
use super::header_params::{self, ToolHeaderParams};
use super::{unavailable_error, with_timeout};
use crate::child::codec::gateway_request_meta;
use crate::child::{
    ChildConnection, ChildMessage, ChildPermit, ChildSpawner, OverflowPolicy, UnsolicitedMessage, bounded,
};
use rethread::{HeaderParams, RpcError};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The shortest pause between two idle checks.
const MIN_IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The child of one stateless caller.
pub(super) struct SharedChild {
    spawner: ChildSpawner,
    slot: Mutex<ChildSlot<SharedRunningChild>>,
    created: Instant,
    /// A child that was unused for this long is ended.
    idle_timeout: Duration,
    /// Milliseconds after `created`.
    last_used: AtomicU64,
}

/// Header params of the tools. `None` until the first use, and after a change of the tool list.
type HeaderParamsCache = Arc<Mutex<Option<Arc<ToolHeaderParams>>>>;

struct SharedRunningChild {
    child: RunningChild,
    /// Holds the gateway's own subscription.
    watch_task: AbortOnDrop,
    header_params: HeaderParamsCache,
}

impl AsRef<RunningChild> for SharedRunningChild {
    fn as_ref(&self) -> &RunningChild {
        &self.child
    }
}

impl SharedRunningChild {
    /// Whether no request is in flight, other than the gateway's own subscription.
    fn is_idle(&self) -> bool {
        let own = usize::from(!self.watch_task.is_finished());
        self.child.connection.calls_in_flight() <= own
    }
}

impl SharedChild {
    pub(super) fn new(spawner: ChildSpawner, idle_timeout: Duration) -> Arc<Self> {
        let shared = Arc::new(SharedChild {
            spawner,
            slot: Mutex::default(),
            created: Instant::now(),
            idle_timeout,
            last_used: AtomicU64::new(0),
        });
        tokio::spawn(end_when_idle(Arc::downgrade(&shared)));
        shared
    }

    fn unused_for(&self) -> Duration {
        let last_used = Duration::from_millis(self.last_used.load(Ordering::Relaxed));
        self.created.elapsed().saturating_sub(last_used)
    }

    /// Whether it has no child and was unused for so long that it can be dropped.
    pub(super) fn is_expired(&self) -> bool {
        self.unused_for() >= self.idle_timeout * 2 && self.is_vacant()
    }

    /// Whether it has no child and starts none.
    pub(super) fn is_vacant(&self) -> bool {
        self.slot.try_lock().is_ok_and(|slot| slot.child().is_none())
    }

    /// The connection to the child, which is started if it does not run.
    pub(super) async fn connection(&self) -> Result<Arc<ChildConnection>, RpcError> {
        self.with_child(|child| Arc::clone(&child.child.connection)).await
    }

    async fn with_child<T>(&self, read: impl FnOnce(&SharedRunningChild) -> T) -> Result<T, RpcError> {
        let now = self.created.elapsed().as_millis() as u64;
        self.last_used.store(now, Ordering::Relaxed);
        let mut slot = self.slot.lock().await;
        if slot.stopped {
            return Err(unavailable_error("the gateway is shutting down"));
        }
        if let Some(child) = slot.live_child() {
            return Ok(read(child));
        }
        slot.prepare_start().await?;
        // A missing permit is not a crash, so it does not count for the backoff.
        let permit = self.spawner.acquire_permit().await.map_err(unavailable_error)?;
        let started = self.start(permit).map_err(unavailable_error);
        slot.fill(started).map(read)
    }

    fn start(&self, permit: ChildPermit) -> std::io::Result<SharedRunningChild> {
        let (connection, messages) = ChildConnection::start(&self.spawner, permit, OverflowPolicy::CancelCall)?;
        let header_params = HeaderParamsCache::default();
        let receive_task = tokio::spawn(reject_questions(Arc::clone(&connection), messages));
        let watch_task = tokio::spawn(watch_tools(Arc::downgrade(&connection), Arc::clone(&header_params)));
        Ok(SharedRunningChild {
            child: RunningChild::new(connection, receive_task),
            watch_task: AbortOnDrop(watch_task),
            header_params,
        })
    }

    /// The header params of a tool. None if the child does not list its tools.
    pub(super) async fn header_params(&self, tool: &str) -> Option<Arc<HeaderParams>> {
        let child = self.with_child(|shared| {
            let connection = Arc::clone(&shared.child.connection);
            (connection, Arc::clone(&shared.header_params))
        });
        let (connection, cache) = child.await.ok()?;
        let mut cache = cache.lock().await;
        if cache.is_none() {
            let limit = self.spawner.server.start_timeout;
            let fetched = with_timeout(limit, "list its tools", header_params::fetch(&connection)).await;
            *cache = fetched.ok().map(Arc::new);
        }
        cache.as_ref()?.get(tool).cloned()
    }

    /// Ends the child, and waits for its exit.
    pub(super) async fn stop(&self) {
        child_slot::stop(&self.slot).await;
    }
}

/// Ends the child when it was unused for `idle_timeout` and no request is in flight.
async fn end_when_idle(shared: Weak<SharedChild>) {
    while let Some(shared) = shared.upgrade() {
        let idle_timeout = shared.idle_timeout;
        let pause = idle_timeout.saturating_sub(shared.unused_for()).max(idle_timeout / 10);
        if shared.unused_for() >= idle_timeout {
            let mut slot = shared.slot.lock().await;
            if slot.child().is_some_and(SharedRunningChild::is_idle) {
                slot.clear();
            }
        }
        drop(shared);
        tokio::time::sleep(pause.max(MIN_IDLE_CHECK_INTERVAL)).await;
    }
}

/// Rejects questions that belong to no request: a stateless client has no stream for them.
async fn reject_questions(connection: Arc<ChildConnection>, mut messages: bounded::Receiver<UnsolicitedMessage>) {
    while let Some(message) = messages.recv().await {
        if let UnsolicitedMessage::Question(question) = message {
            let error = RpcError::method_not_found(&question.method);
            connection.respond(&question.id, Err(&error)).await;
        }
    }
}

/// Clears the cache when the child reports that its tools have changed.
async fn watch_tools(connection: Weak<ChildConnection>, cache: HeaderParamsCache) {
    let params = json!({ "_meta": gateway_request_meta(), "notifications": { "toolsListChanged": true } });
    let call = match connection.upgrade() {
        Some(connection) => {
            connection
                .call("subscriptions/listen", &params.to_string().into())
                .await
        }
        None => return,
    };
    let Ok(mut call) = call else { return };
    while let Some(message) = call.next().await {
        match message {
            ChildMessage::Notification { method, .. } if method == "notifications/tools/list_changed" => {
                *cache.lock().await = None;
            }
            ChildMessage::Response(_) | ChildMessage::SubscriptionEnded => return,
            _ => {}
        }
    }
}
