//! The child of all stateless requests of one caller (GW-07).

use super::child_slot::{self, ChildSlot, RunningChild};
use super::tool_list::{self, ToolList};
use super::unavailable::{start_error, unavailable_error, with_timeout};
use crate::child::{ChildKind, ChildOwner, ChildPool, ChildStart, OverflowPolicy, StartError, StartedChild};
use crate::task::{self, AbortOnDrop};
use crate::upstream::codec::gateway_request_meta;
use crate::upstream::{LifeEvent, StopCause, UnsolicitedMessage, Upstream, UpstreamMessage, UpstreamUse, bounded};
use bytes::Bytes;
use rethread::{HeaderParams, Principal, RpcError};
use rethread_proto::bridge::down;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The longest time for which a result of `server/discover` is kept, whatever the server allows.
const MAX_DISCOVER_TTL: Duration = Duration::from_secs(3600);

/// The child of one stateless caller.
pub(super) struct SharedChild {
    pool: ChildPool,
    caller: Principal,
    slot: Mutex<ChildSlot<SharedRunningChild>>,
    created: Instant,
    /// A child that was unused for this long is ended.
    idle_timeout: Duration,
    /// Milliseconds after `created`.
    last_used: AtomicU64,
    /// The result of `server/discover`, until it expires.
    discovered: Mutex<Option<(Instant, Bytes)>>,
}

/// Header params of the tools. `None` until the first use, and after a change of the tool list.
type ToolCache = Arc<Mutex<Option<Arc<ToolList>>>>;

struct SharedRunningChild {
    child: RunningChild,
    /// Holds the gateway's own subscription, which is not a use of the child.
    _watch_task: AbortOnDrop,
    header_params: ToolCache,
}

impl AsRef<RunningChild> for SharedRunningChild {
    fn as_ref(&self) -> &RunningChild {
        &self.child
    }
}

impl SharedChild {
    pub(super) fn new(pool: ChildPool, caller: Principal, idle_timeout: Duration) -> Arc<Self> {
        Arc::new(SharedChild {
            pool,
            caller,
            slot: Mutex::default(),
            created: Instant::now(),
            idle_timeout,
            last_used: AtomicU64::new(0),
            discovered: Mutex::default(),
        })
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
    pub(super) async fn connection(self: &Arc<Self>) -> Result<UpstreamUse, RpcError> {
        self.with_child(|_| ()).await.map(|(connection, ())| connection)
    }

    async fn with_child<T>(
        self: &Arc<Self>,
        read: impl FnOnce(&SharedRunningChild) -> T,
    ) -> Result<(UpstreamUse, T), RpcError> {
        let now = self.created.elapsed().as_millis() as u64;
        self.last_used.store(now, Ordering::Relaxed);
        let mut slot = self.slot.lock().await;
        if slot.stopped {
            return Err(unavailable_error("the gateway is shutting down"));
        }
        if let Some(child) = slot.live_child() {
            return Ok((child.child.use_child(), read(child)));
        }
        slot.prepare_start().await?;
        let began = Instant::now();
        let start = ChildStart {
            kind: ChildKind::Shared,
            principal: self.caller.clone(),
            overflow: OverflowPolicy::CancelCall,
            idle_limit: Some(self.idle_timeout),
        };
        let started = match self.pool.start(start).await {
            // A missing place is not a crash, so it does not count for the backoff.
            Err(busy @ StartError::Busy { .. }) => return Err(start_error(busy)),
            started => started.map(receive).map_err(start_error),
        };
        let child = slot.fill(started)?;
        child.child.connection.record(LifeEvent::Started {
            replayed: false,
            took: began.elapsed(),
            running: self.pool.counts().running,
        });
        let owner: Arc<dyn ChildOwner> = Arc::clone(self) as Arc<dyn ChildOwner>;
        self.pool
            .attach(child.child.id, &child.child.connection, Arc::downgrade(&owner));
        Ok((child.child.use_child(), read(child)))
    }

    /// The header params of a tool. None if the child does not list its tools.
    pub(super) async fn header_params(self: &Arc<Self>, tool: &str) -> Option<Arc<HeaderParams>> {
        let child = self.with_child(|shared| Arc::clone(&shared.header_params));
        let (connection, cache) = child.await.ok()?;
        let mut cache = cache.lock().await;
        if cache.is_none() {
            let server = &self.pool.spawner().server;
            let fetch = tool_list::fetch(&server.name, &connection, Some(gateway_request_meta()));
            let fetched = with_timeout(server.start_timeout, "list its tools", fetch).await;
            *cache = fetched.ok().map(Arc::new);
        }
        cache.as_ref()?.header_params(tool)
    }

    /// The result of `server/discover`, kept for its `ttlMs`.
    pub(super) async fn discover(self: &Arc<Self>) -> Result<Bytes, RpcError> {
        let mut cache = self.discovered.lock().await;
        if let Some((expires, discovered)) = &*cache
            && Instant::now() < *expires
        {
            return Ok(discovered.clone());
        }
        let params = Bytes::from(json!({ "_meta": gateway_request_meta() }).to_string());
        let connection = self.connection().await?;
        let request = connection.request("server/discover", &params);
        let limit = self.pool.spawner().server.start_timeout;
        let discovered = with_timeout(limit, "answer `server/discover`", request).await;
        let discovered = discovered.inspect_err(|_| self.pool.report_failed_initialize())?;
        let ttl = Duration::from_millis(down::ttl_ms(&discovered)).min(MAX_DISCOVER_TTL);
        *cache = Some((Instant::now() + ttl, discovered.clone()));
        Ok(discovered)
    }

    /// Ends the child, and waits for its exit.
    pub(super) async fn stop(&self) {
        child_slot::stop(&self.slot).await;
    }
}

impl ChildOwner for SharedChild {
    fn unneeded_since(&self) -> Option<Instant> {
        let slot = self.slot.try_lock().ok()?;
        slot.live_child()?.child.connection.unused_since()
    }

    fn release(&self, cause: StopCause) -> bool {
        let Ok(mut slot) = self.slot.try_lock() else {
            return false; // a request has just got the child
        };
        let is_unneeded = |shared: &SharedRunningChild| shared.child.connection.unused_since().is_some();
        if !slot.live_child().is_some_and(is_unneeded) {
            return false;
        }
        if let Some(shared) = slot.take() {
            let running = self.pool.counts().running;
            shared.child.connection.record(LifeEvent::Hibernated { cause, running });
        }
        true
    }
}

/// Starts the tasks that receive the messages of a new child.
fn receive(child: StartedChild) -> SharedRunningChild {
    let StartedChild {
        id,
        connection,
        messages,
    } = child;
    let header_params = ToolCache::default();
    let receive_task = task::spawn(reject_questions(Arc::clone(&connection), messages));
    let watch_task = task::spawn(watch_tools(Arc::downgrade(&connection), Arc::clone(&header_params)));
    SharedRunningChild {
        child: RunningChild::new(id, connection, receive_task),
        _watch_task: AbortOnDrop::new(watch_task),
        header_params,
    }
}

/// Rejects questions that belong to no request: a stateless client has no stream for them.
async fn reject_questions(connection: Arc<dyn Upstream>, mut messages: bounded::Receiver<UnsolicitedMessage>) {
    while let Some(message) = messages.recv().await {
        if let UnsolicitedMessage::Question(question) = message {
            let error = RpcError::method_not_found(&question.method);
            connection.answer(&question.id, Err(&error)).await;
        }
    }
}

/// Clears the cache when the child reports that its tools have changed.
async fn watch_tools(connection: Weak<dyn Upstream>, cache: ToolCache) {
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
            UpstreamMessage::Notification { method, .. } if method == "notifications/tools/list_changed" => {
                *cache.lock().await = None;
            }
            UpstreamMessage::Response(_) | UpstreamMessage::SubscriptionEnded => return,
            _ => {}
        }
    }
}
