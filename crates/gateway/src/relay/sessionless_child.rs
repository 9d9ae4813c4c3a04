//! The child of all requests of one principal that name no session (GW-27): a lease without client capabilities.

use super::child_slot::{self, ChildSlot, RunningChild};
use super::unavailable::{start_error, unavailable_error, with_timeout};
use crate::child::{ChildKind, ChildOwner, ChildPool, ChildStart, OverflowPolicy, StartError, StartedChild};
use crate::task;
use crate::upstream::codec::gateway_client_info;
use crate::upstream::{LifeEvent, StopCause, UnsolicitedMessage, Upstream, UpstreamUse, bounded};
use rethread::{Principal, RpcError, Version};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The child is stopped after this time without a request.
const IDLE_LIMIT: Duration = Duration::from_secs(5 * 60);

/// The child of one principal.
pub(super) struct SessionlessChild {
    pool: ChildPool,
    principal: Principal,
    slot: Mutex<ChildSlot<RunningChild>>,
}

impl SessionlessChild {
    pub(super) fn new(pool: ChildPool, principal: Principal) -> Arc<Self> {
        Arc::new(SessionlessChild {
            pool,
            principal,
            slot: Mutex::default(),
        })
    }

    /// Whether it has no child and starts none.
    pub(super) fn is_vacant(&self) -> bool {
        self.slot.try_lock().is_ok_and(|slot| slot.child().is_none())
    }

    /// The connection to the child, which is started if it does not run.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<UpstreamUse, RpcError> {
        let mut slot = self.slot.lock().await;
        if slot.stopped {
            return Err(unavailable_error("the gateway is shutting down"));
        }
        if let Some(child) = slot.live_child() {
            return Ok(child.use_child());
        }
        slot.prepare_start().await?;
        let start = ChildStart {
            kind: ChildKind::Lease,
            principal: self.principal.clone(),
            overflow: OverflowPolicy::CancelCall,
            idle_limit: Some(IDLE_LIMIT),
        };
        let began = Instant::now();
        let started = match self.pool.start(start).await {
            Ok(child) => self.initialize(child).await,
            // A missing place is not a crash, so it does not count for the backoff.
            Err(busy @ StartError::Busy { .. }) => return Err(start_error(busy)),
            Err(error) => Err(start_error(error)),
        };
        let child = slot.fill(started)?;
        child.connection.record(LifeEvent::Started {
            replayed: false,
            took: began.elapsed(),
            running: self.pool.counts().running,
        });
        let owner: Arc<dyn ChildOwner> = Arc::clone(self) as Arc<dyn ChildOwner>;
        self.pool.attach(child.id, &child.connection, Arc::downgrade(&owner));
        Ok(child.use_child())
    }

    async fn initialize(&self, child: StartedChild) -> Result<RunningChild, RpcError> {
        let StartedChild {
            id,
            connection,
            messages,
        } = child;
        let receive_task = task::spawn(reject_questions(Arc::clone(&connection), messages));
        let child = RunningChild::new(id, Arc::clone(&connection), receive_task);
        let params = json!({
            "protocolVersion": Version::V2025_11_25.as_str(),
            "capabilities": {},
            "clientInfo": gateway_client_info(),
        });
        let (limit, params) = (self.pool.spawner().server.start_timeout, params.to_string().into());
        let request = connection.request("initialize", &params);
        with_timeout(limit, "answer `initialize`", request).await?;
        connection.notify("notifications/initialized", b"").await?;
        Ok(child)
    }

    /// Ends the child, and waits for its exit.
    pub(super) async fn stop(&self) {
        child_slot::stop(&self.slot).await;
    }
}

impl ChildOwner for SessionlessChild {
    fn unneeded_since(&self) -> Option<Instant> {
        let slot = self.slot.try_lock().ok()?;
        slot.live_child()?.connection.unused_since()
    }

    fn release(&self, cause: StopCause) -> bool {
        let Ok(mut slot) = self.slot.try_lock() else {
            return false; // a request has just got the child
        };
        let is_unneeded = |child: &RunningChild| child.connection.unused_since().is_some();
        if !slot.live_child().is_some_and(is_unneeded) {
            return false;
        }
        if let Some(child) = slot.take() {
            let running = self.pool.counts().running;
            child.connection.record(LifeEvent::Hibernated { cause, running });
        }
        true
    }
}

/// No client could answer a question here. Notifications reach nobody.
async fn reject_questions(connection: Arc<dyn Upstream>, mut messages: bounded::Receiver<UnsolicitedMessage>) {
    while let Some(message) = messages.recv().await {
        if let UnsolicitedMessage::Question(question) = message {
            let error = RpcError::method_not_found(&question.method);
            connection.answer(&question.id, Err(&error)).await;
        }
    }
}
