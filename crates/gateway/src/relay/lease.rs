//! The children of a legacy server that serve one modern caller (GW-06).
//!
//! A call that may ask its client holds its child alone, because nothing in a question of a child names the call. Other calls
//! share a child. A lease without use has no children, and starts them again.

mod leased;
mod queue;
mod slots;
mod subscriptions;

pub(super) use leased::LeaseUse;
pub(super) use subscriptions::Subscription;

use super::bridge_metrics;
use super::tool_list::{self, ToolList};
use super::unavailable::{start_error, unavailable_error, with_timeout};
use crate::child::{ChildKind, ChildOwner, ChildPool, ChildStart, OverflowPolicy, RestartBackoff, StartedChild};
use crate::settings::BridgeSettings;
use crate::task::{self, AbortOnDrop};
use crate::upstream::{LifeEvent, StopCause, UnsolicitedMessage, Upstream, UpstreamUse, bounded};
use bytes::Bytes;
use leased::Levels;
use parking_lot::Mutex;
use queue::SlotQueue;
use rethread::{HeaderParams, Principal, RpcError, Version};
use rethread_proto::bridge::{Dropped, Translation, up};
use rethread_proto::subscription::{Change, Filter, Offered};
use serde_json::{Value, json};
use slots::SlotId;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use subscriptions::LeaseSubscriptions;
use tokio::sync::{Mutex as AsyncMutex, OnceCell};

/// How long a child may take to answer a small request of the gateway itself.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Distinguishes the leases of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LeaseKey {
    pub(super) principal: Principal,
    pub(super) fingerprint: String,
    pub(super) name: String,
    pub(super) version: String,
}

/// The children that serve one modern caller.
pub(super) struct Lease {
    pool: ChildPool,
    principal: Principal,
    /// The params of `initialize` for every child.
    initialize_params: Bytes,
    cancel_grace: Duration,
    slots: SlotQueue<LeaseCell>,
    subscriptions: Arc<LeaseSubscriptions>,
    /// One change of the subscribed URIs at a time.
    subscribing: AsyncMutex<()>,
    tools: AsyncMutex<Option<Arc<ToolList>>>,
    backoff: Mutex<RestartBackoff>,
    /// The time base of `backoff`.
    created: Instant,
}

/// A child that is started by the first call that needs it.
type LeaseCell = Arc<OnceCell<Arc<LeaseChild>>>;

/// A running child of a lease. Dropping it ends the child.
pub(super) struct LeaseChild {
    connection: Arc<dyn Upstream>,
    started: Instant,
    pub(super) initialize_result: Bytes,
    capabilities: Value,
    levels: AsyncMutex<Levels>,
    /// The pool knows it by a weak reference.
    _owner: Arc<LeaseChildOwner>,
    _receive_task: AbortOnDrop,
}

impl Lease {
    pub(super) fn new(
        pool: ChildPool,
        principal: Principal,
        initialize_params: Bytes,
        cancel_grace: Duration,
    ) -> Arc<Self> {
        let limit = pool.spawner().server.bridge.lease_children;
        Arc::new(Lease {
            pool,
            principal,
            initialize_params,
            cancel_grace,
            slots: SlotQueue::new(limit),
            subscriptions: Arc::default(),
            subscribing: AsyncMutex::default(),
            tools: AsyncMutex::default(),
            backoff: Mutex::default(),
            created: Instant::now(),
        })
    }

    fn bridge(&self) -> &BridgeSettings {
        &self.pool.spawner().server.bridge
    }

    /// The roots of the settings.
    pub(super) fn roots(&self) -> &[String] {
        &self.bridge().roots
    }

    fn server(&self) -> &str {
        &self.pool.spawner().server.name
    }

    /// Whether it has no child and no subscription.
    pub(super) fn is_vacant(&self) -> bool {
        self.slots.len() == 0 && self.subscriptions.is_empty()
    }

    pub(super) fn count(&self, what: Dropped) {
        bridge_metrics::dropped(self.server(), Translation::Up, what);
    }

    /// A child for a call. A call that may ask uses it `alone`.
    pub(super) async fn child(self: &Arc<Self>, alone: bool) -> Result<LeaseUse, RpcError> {
        let deadline = tokio::time::Instant::now() + self.bridge().lease_wait;
        loop {
            let taken = tokio::time::timeout_at(deadline, self.slots.take(alone)).await;
            let (slot, cell) = taken.map_err(|_| {
                let message =
                    "every process of this client is in use, also by calls that wait for input; try again later";
                RpcError::internal(message).with_data(json!({ "reason": "busy" }))
            })?;
            let mut guard = SlotGuard {
                lease: self,
                slot: Some(slot),
            };
            let mut turn = None;
            let started = cell.get_or_try_init(|| async {
                let child = self.start(slot).await?;
                // Until the child is in its slot, a new subscription would miss it.
                turn = Some(self.subscribing.lock().await);
                self.subscribe_started(&child).await;
                Ok(child)
            });
            let child = match started.await {
                Ok(child) => Arc::clone(child),
                Err(error) => {
                    self.slots.remove(slot);
                    return Err(error);
                }
            };
            drop(turn);
            let in_use = UpstreamUse::new(&child.connection);
            if !child.connection.is_alive() {
                self.slots.remove(slot);
                continue;
            }
            guard.slot = None;
            return Ok(LeaseUse {
                lease: Arc::clone(self),
                child,
                slot,
                in_use: Some(in_use),
                alone,
                is_finished: false,
            });
        }
    }

    /// Starts a child and initializes it for the client.
    async fn start(self: &Arc<Self>, slot: SlotId) -> Result<Arc<LeaseChild>, RpcError> {
        let delay = self.backoff.lock().delay(self.created.elapsed());
        tokio::time::sleep(delay.map_err(unavailable_error)?).await;
        let start = ChildStart {
            kind: ChildKind::Lease,
            principal: self.principal.clone(),
            overflow: OverflowPolicy::CancelCall,
            idle_limit: Some(self.bridge().lease_idle),
        };
        let began = Instant::now();
        let StartedChild {
            id,
            connection,
            messages,
        } = self.pool.start(start).await.map_err(start_error)?;
        let receive_task = task::spawn(receive(Arc::downgrade(self), slot, Arc::clone(&connection), messages));
        let receive_task = AbortOnDrop::new(receive_task);
        let initialized = self.initialize(&connection).await;
        let initialize_result = initialized.inspect_err(|_| {
            self.pool.report_failed_initialize();
            let now = self.created.elapsed();
            self.backoff.lock().record_crash(now, Duration::ZERO);
        })?;
        connection.record(LifeEvent::Started {
            replayed: false,
            took: began.elapsed(),
            running: self.pool.counts().running,
        });
        let result: Value = serde_json::from_slice(&initialize_result).unwrap_or_default();
        let owner = Arc::new(LeaseChildOwner {
            lease: Arc::downgrade(self),
            slot,
            connection: Arc::downgrade(&connection),
        });
        let weak_owner: Weak<dyn ChildOwner> = Arc::downgrade(&(Arc::clone(&owner) as Arc<dyn ChildOwner>));
        self.pool.attach(id, &connection, weak_owner);
        Ok(Arc::new(LeaseChild {
            connection,
            started: began,
            initialize_result,
            capabilities: result["capabilities"].clone(),
            levels: AsyncMutex::default(),
            _owner: owner,
            _receive_task: receive_task,
        }))
    }

    async fn initialize(&self, connection: &Arc<dyn Upstream>) -> Result<Bytes, RpcError> {
        let limit = self.pool.spawner().server.start_timeout;
        let request = connection.request("initialize", &self.initialize_params);
        let result = with_timeout(limit, "answer `initialize`", request).await?;
        let value: Value = serde_json::from_slice(&result).unwrap_or_default();
        let version = value["protocolVersion"].as_str().unwrap_or_default();
        if !version.parse::<Version>().is_ok_and(Version::has_sessions) {
            return Err(unavailable_error(format_args!(
                "it speaks protocol version {version:?}, which is not known here"
            )));
        }
        connection.notify("notifications/initialized", b"").await?;
        Ok(result)
    }

    /// Subscribes a child that was started to the URIs of the lease.
    async fn subscribe_started(&self, child: &LeaseChild) {
        if child.capabilities["resources"]["subscribe"] != true {
            return;
        }
        for uri in self.subscriptions.uris() {
            let refused = subscribe(&child.connection, "resources/subscribe", &uri).await;
            if let Err(error) = refused {
                tracing::warn!(server = self.server(), %error, "started child refuses a subscription");
            }
        }
    }

    /// The header params of a tool.
    pub(super) async fn header_params(self: &Arc<Self>, tool: &str) -> Option<Arc<HeaderParams>> {
        self.tools().await.ok()?.header_params(tool)
    }

    /// The tools of the server.
    pub(super) async fn tools(self: &Arc<Self>) -> Result<Arc<ToolList>, RpcError> {
        let known = self.tools.lock().await.clone();
        if let Some(known) = known {
            return Ok(known);
        }
        let mut leased = self.child(false).await?;
        let listed = self.list_tools(leased.connection()).await?;
        leased.finish();
        Ok(listed)
    }

    /// The same with a child that the caller uses.
    async fn list_tools(&self, connection: &Arc<dyn Upstream>) -> Result<Arc<ToolList>, RpcError> {
        let mut cache = self.tools.lock().await;
        if let Some(known) = &*cache {
            return Ok(Arc::clone(known));
        }
        let limit = self.pool.spawner().server.start_timeout;
        let fetch = tool_list::fetch(self.server(), connection, None);
        let fetched = Arc::new(with_timeout(limit, "list its tools", fetch).await?);
        *cache = Some(Arc::clone(&fetched));
        Ok(fetched)
    }

    /// Adds a subscription, after every child has been asked for its URIs. Returns it with the part that is honoured.
    pub(super) async fn listen(self: &Arc<Self>, filter: &Filter) -> Result<(ListenGuard, Filter), RpcError> {
        let mut leased = self.child(false).await?; // a lease without children has no changes
        let capability = |list: &str, name: &str| leased.child.capabilities[list][name] == true;
        let offered = Offered {
            tools: capability("tools", "listChanged"),
            prompts: capability("prompts", "listChanged"),
            resources: capability("resources", "listChanged"),
            subscribe: capability("resources", "subscribe"),
        };
        let _turn = self.subscribing.lock().await;
        let (subscription, first) = self.subscriptions.add(filter.honour(offered));
        let guard = ListenGuard {
            lease: Arc::clone(self),
            subscription,
        };
        let mut refused = Vec::new();
        for uri in first {
            for child in self.children() {
                if subscribe(&child.connection, "resources/subscribe", &uri).await.is_err() {
                    refused.push(uri);
                    break;
                }
            }
        }
        let honoured = guard.subscription.remove_uris(&refused);
        leased.finish();
        Ok((guard, honoured))
    }

    fn children(&self) -> Vec<Arc<LeaseChild>> {
        let cells = self.slots.children();
        cells.into_iter().filter_map(|(_, cell)| cell.get().cloned()).collect()
    }

    /// A child has exited.
    fn child_exited(&self, slot: SlotId) {
        let Some((_, cell)) = self.slots.children().into_iter().find(|(id, _)| *id == slot) else {
            return; // it was given up
        };
        self.slots.remove(slot);
        if let Some(child) = cell.get() {
            let now = self.created.elapsed();
            self.backoff.lock().record_crash(now, child.started.elapsed());
            self.subscriptions.end();
        }
    }

    /// Ends all children, and waits for their exit.
    pub(super) async fn stop(&self) {
        for child in self.children() {
            child.connection.stop();
            child.connection.ended().await;
        }
    }
}

/// Releases a slot whose child does not start.
struct SlotGuard<'a> {
    lease: &'a Lease,
    slot: Option<SlotId>,
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.lease.slots.release(slot);
        }
    }
}

/// A subscription. Its last URIs are unsubscribed when it is dropped.
pub(super) struct ListenGuard {
    lease: Arc<Lease>,
    pub(super) subscription: Subscription,
}

impl Drop for ListenGuard {
    fn drop(&mut self) {
        let unused = self.subscription.close();
        if unused.is_empty() {
            return;
        }
        let lease = Arc::clone(&self.lease);
        task::spawn(async move {
            let _turn = lease.subscribing.lock().await;
            let still_used = lease.subscriptions.uris();
            for uri in unused.iter().filter(|uri| !still_used.contains(uri)) {
                for child in lease.children() {
                    let _ = subscribe(&child.connection, "resources/unsubscribe", uri).await; // nobody listens any more
                }
            }
        });
    }
}

async fn subscribe(connection: &Arc<dyn Upstream>, method: &str, uri: &str) -> Result<Bytes, RpcError> {
    let params = Bytes::from(json!({ "uri": uri }).to_string());
    with_timeout(
        REQUEST_TIMEOUT,
        "answer a subscription",
        connection.request(method, &params),
    )
    .await
}

/// The owner of one child, for the pool.
struct LeaseChildOwner {
    lease: Weak<Lease>,
    slot: SlotId,
    connection: Weak<dyn Upstream>,
}

impl ChildOwner for LeaseChildOwner {
    fn unneeded_since(&self) -> Option<Instant> {
        let (lease, connection) = (self.lease.upgrade()?, self.connection.upgrade()?);
        // The last child of a lease with a subscription is needed.
        if !lease.subscriptions.is_empty() && lease.slots.len() == 1 {
            return None;
        }
        connection.unused_since()
    }

    fn release(&self, cause: StopCause) -> bool {
        let (Some(lease), Some(connection)) = (self.lease.upgrade(), self.connection.upgrade()) else {
            return true;
        };
        if self.unneeded_since().is_none() || !lease.slots.remove_unused(self.slot) {
            return false;
        }
        connection.stop();
        let running = lease.pool.counts().running;
        connection.record(LifeEvent::Hibernated { cause, running });
        true
    }
}

/// Receives the messages of a child that belong to no call.
async fn receive(
    lease: Weak<Lease>,
    slot: SlotId,
    connection: Arc<dyn Upstream>,
    mut messages: bounded::Receiver<UnsolicitedMessage>,
) {
    while let Some(message) = messages.recv().await {
        let Some(lease) = lease.upgrade() else { return };
        match message {
            UnsolicitedMessage::Question(question) => {
                let answer = up::answer_unsolicited(&question.method, &lease.bridge().roots);
                match &answer {
                    Ok(result) => connection.answer(&question.id, Ok(result)).await,
                    Err(error) => {
                        lease.count(Dropped::Question);
                        connection.answer(&question.id, Err(error)).await;
                    }
                }
            }
            UnsolicitedMessage::Notification { method, params } => match up::change(&method, &params) {
                Some(change) => {
                    if change == Change::Tools {
                        *lease.tools.lock().await = None;
                    }
                    lease.subscriptions.report(&change);
                }
                None if method == "notifications/message" => {
                    lease.count(Dropped::Log);
                    connection.record(LifeEvent::LogMessage(&params));
                }
                None => lease.count(Dropped::Notification),
            },
            UnsolicitedMessage::QuestionCancelled(_) => {}
        }
    }
    if let Some(lease) = lease.upgrade() {
        lease.child_exited(slot);
    }
}
