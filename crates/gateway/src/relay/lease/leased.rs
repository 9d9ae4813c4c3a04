//! The use of a child of a lease by one call.

use super::slots::SlotId;
use super::{Lease, LeaseChild, REQUEST_TIMEOUT};
use crate::relay::unavailable::with_timeout;
use crate::task;
use crate::upstream::{Upstream, UpstreamUse};
use bytes::Bytes;
use rethread::RpcError;
use rethread_proto::LogLevel;
use rethread_proto::bridge::up::tasks;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The use of a child by one call.
pub(in crate::relay) struct LeaseUse {
    pub(super) lease: Arc<Lease>,
    pub(in crate::relay) child: Arc<LeaseChild>,
    pub(super) slot: SlotId,
    pub(super) in_use: Option<UpstreamUse>,
    pub(super) alone: bool,
    /// The child has responded. Otherwise a late question of the call may still come.
    pub(super) is_finished: bool,
}

/// The log levels of the calls in flight at one child.
#[derive(Default)]
pub(super) struct Levels {
    wanted: BTreeMap<LogLevel, usize>,
    set: Option<LogLevel>,
}

impl LeaseUse {
    pub(in crate::relay) fn connection(&self) -> &Arc<dyn Upstream> {
        &self.child.connection
    }

    /// Whether no other call uses the child.
    pub(in crate::relay) fn is_alone(&self) -> bool {
        self.alone
    }

    /// The child has responded: nothing of the call can follow.
    pub(in crate::relay) fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Whether a tool of the child runs only as a task. A child without tasks is not asked.
    pub(in crate::relay) async fn requires_task(&self, tool: &str) -> Result<bool, RpcError> {
        if !tasks::serves_tool_tasks(&self.child.capabilities) {
            return Ok(false);
        }
        let tools = self.lease.list_tools(self.connection()).await?;
        Ok(tools.requires_task(tool))
    }

    /// The child logs at least at `level` until the call ends.
    pub(in crate::relay) async fn set_level(&self, level: Option<LogLevel>) -> LevelUse {
        let Some(level) = level.filter(|_| !self.child.capabilities["logging"].is_null()) else {
            return LevelUse {
                child: Arc::clone(&self.child),
                level: None,
            };
        };
        let mut levels = self.child.levels.lock().await;
        *levels.wanted.entry(level).or_insert(0) += 1;
        let in_use = LevelUse {
            child: Arc::clone(&self.child),
            level: Some(level),
        };
        let wanted = levels.wanted.keys().next().copied();
        if wanted != levels.set
            && let Some(wanted) = wanted
        {
            let params = Bytes::from(json!({ "level": wanted }).to_string());
            let request = self.child.connection.request("logging/setLevel", &params);
            match with_timeout(REQUEST_TIMEOUT, "set its log level", request).await {
                Ok(_) => levels.set = Some(wanted),
                Err(error) => tracing::debug!(%error, "child refuses a log level"),
            }
        }
        in_use
    }
}

impl Drop for LeaseUse {
    fn drop(&mut self) {
        let (lease, slot, in_use) = (Arc::clone(&self.lease), self.slot, self.in_use.take());
        if self.is_finished || !self.alone || !self.child.connection.is_alive() {
            return lease.slots.release(slot);
        }
        // GW-17: a late question of this call must not reach the next one.
        let (child, grace) = (Arc::clone(&self.child), lease.cancel_grace);
        task::spawn(async move {
            tokio::time::sleep(grace).await;
            drop((in_use, child));
            lease.slots.release(slot);
        });
    }
}

/// A log level that a call wants from its child.
pub(in crate::relay) struct LevelUse {
    child: Arc<LeaseChild>,
    level: Option<LogLevel>,
}

impl Drop for LevelUse {
    fn drop(&mut self) {
        let Some(level) = self.level.take() else { return };
        let child = Arc::clone(&self.child);
        task::spawn(async move {
            let mut levels = child.levels.lock().await;
            if let Some(count) = levels.wanted.get_mut(&level) {
                *count -= 1;
                if *count == 0 {
                    levels.wanted.remove(&level);
                }
            }
        });
    }
}
