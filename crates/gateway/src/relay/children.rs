//! The choice of the children that serve a caller.

use super::Relay;
use super::lease::{Lease, LeaseKey};
use super::sessionless_child::SessionlessChild;
use super::shared_child::SharedChild;
use super::unavailable::unavailable_error;
use crate::metrics::ChildCounts;
use crate::upstream::codec;
use rethread::{HeaderParams, Principal, RpcError, Timing};
use rethread_proto::bridge::fingerprint::fingerprint;
use rethread_proto::bridge::up::{self as up_translation, ClientFacts};
use serde_json::json;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The pause between two warnings about requests without a session.
const SESSIONLESS_WARNING_INTERVAL: Duration = Duration::from_secs(3600);
/// How long the tools are kept for callers that share nothing.
const TOOLS_TTL: Duration = Duration::from_secs(60);
/// How many such entries are kept. Beyond: the tools are listed for each call.
const MAX_CACHED_TOOL_LISTS: usize = 64;

impl Relay {
    /// The lease of a modern caller. The flag says whether later requests find it again.
    pub(super) fn lease(&self, caller: &Principal, facts: &ClientFacts) -> Result<(Arc<Lease>, bool), RpcError> {
        let new = || {
            let params = up_translation::initialize_params(facts, &codec::gateway_client_info());
            let params = self.params_for_child(&params, caller);
            let grace = Timing::default().cancel_grace;
            Lease::new(self.0.pool.clone(), caller.clone(), params, grace)
        };
        if caller.is_anonymous() && !self.0.shares_anonymous {
            static LOGGED: Once = Once::new();
            LOGGED
                .call_once(|| tracing::info!("clients without a token share no process; `share = true` changes that"));
            return Ok((new(), false));
        }
        let (name, version) = facts.name_and_version();
        let key = LeaseKey {
            principal: caller.clone(),
            fingerprint: fingerprint(&facts.capabilities),
            name,
            version,
        };
        let mut leases = self.0.leases.lock();
        if let Some(lease) = leases.get(&key) {
            return Ok((Arc::clone(lease), true));
        }
        // Only a new client pays for the scan.
        leases.retain(|_, lease| Arc::strong_count(lease) > 1 || !lease.is_vacant());
        let limit = self.0.pool.spawner().server.max_children.saturating_mul(2);
        if leases.len() >= limit {
            let message = format!("{limit} clients are served already; try again later");
            return Err(RpcError::internal(message).with_data(json!({ "reason": "busy" })));
        }
        let lease = new();
        leases.insert(key, Arc::clone(&lease));
        Ok((lease, true))
    }

    pub(super) async fn lease_header_params(
        &self,
        tool: &str,
        caller: &Principal,
        facts: &ClientFacts,
    ) -> Option<Arc<HeaderParams>> {
        let (lease, is_shared) = self.lease(caller, facts).ok()?;
        if is_shared {
            return lease.header_params(tool).await;
        }
        // A lease of one request cannot keep them.
        let key = fingerprint(&facts.capabilities);
        let known = {
            let mut cache = self.0.unshared_tools.lock();
            cache.retain(|_, (since, _)| since.elapsed() < TOOLS_TTL);
            cache.get(&key).map(|(_, known)| Arc::clone(known))
        };
        let known = match known {
            Some(known) => known,
            None => {
                let fetched = lease.tools().await.ok()?;
                let mut cache = self.0.unshared_tools.lock();
                if cache.len() < MAX_CACHED_TOOL_LISTS {
                    cache.insert(key, (Instant::now(), Arc::clone(&fetched)));
                }
                fetched
            }
        };
        known.header_params(tool)
    }

    /// The child of a stateless caller. Fails beyond `2 * max_children` callers.
    pub(super) fn shared_child(&self, caller: &Principal) -> Result<Arc<SharedChild>, RpcError> {
        let mut children = self.0.shared_children.lock();
        if let Some(shared) = children.get(caller) {
            return Ok(Arc::clone(shared));
        }
        // Only a new caller pays for the scan.
        children.retain(|_, shared| !shared.is_expired());
        let limit = self.0.pool.spawner().server.max_children.saturating_mul(2);
        if children.len() >= limit {
            children.retain(|_, shared| !shared.is_vacant());
        }
        if children.len() >= limit {
            return Err(unavailable_error(format_args!(
                "{limit} callers are served already; try again later"
            )));
        }
        let shared = SharedChild::new(self.0.pool.clone(), caller.clone(), self.0.shared_idle);
        children.insert(caller.clone(), Arc::clone(&shared));
        Ok(shared)
    }

    /// The child for a request without a session. An anonymous caller that may share none gets one of its own, which ends with
    /// the request.
    pub(super) fn sessionless_child(&self, caller: &Principal) -> Result<Arc<SessionlessChild>, RpcError> {
        self.warn_sessionless();
        let new = || SessionlessChild::new(self.0.pool.clone(), caller.clone());
        if caller.is_anonymous() && !self.0.shares_anonymous {
            return Ok(new());
        }
        let mut children = self.0.sessionless_children.lock();
        if let Some(child) = children.get(caller) {
            return Ok(Arc::clone(child));
        }
        let limit = self.0.pool.spawner().server.max_children.saturating_mul(2);
        if children.len() >= limit {
            children.retain(|_, child| !child.is_vacant());
        }
        if children.len() >= limit {
            return Err(unavailable_error(format_args!(
                "{limit} callers are served already; try again later"
            )));
        }
        Ok(Arc::clone(children.entry(caller.clone()).or_insert_with(new)))
    }

    fn warn_sessionless(&self) {
        let mut warned = self.0.warned.lock();
        if warned.is_none_or(|last| last.elapsed() >= SESSIONLESS_WARNING_INTERVAL) {
            *warned = Some(Instant::now());
            tracing::warn!(
                server = self.0.pool.spawner().server.name,
                "a client sends no session id; its requests are served without a session"
            );
        }
    }

    /// The children of this moment.
    pub(crate) fn child_counts(&self) -> ChildCounts {
        let counts = self.0.pool.counts();
        let sessions = self.0.session_children.lock();
        ChildCounts {
            running: counts.running,
            needed: counts.needed,
            spare: counts.spare,
            hibernated: sessions.values().filter(|child| child.is_hibernated()).count(),
        }
    }

    /// Ends all children concurrently, each in bounded time.
    pub(crate) async fn stop_children(&self) {
        let session_children = std::mem::take(&mut *self.0.session_children.lock());
        let shared_children = std::mem::take(&mut *self.0.shared_children.lock());
        let sessionless_children = std::mem::take(&mut *self.0.sessionless_children.lock());
        let leases = std::mem::take(&mut *self.0.leases.lock());
        let mut stopping = JoinSet::new();
        for child in sessionless_children.into_values() {
            stopping.spawn(async move { child.stop().await });
        }
        for child in session_children.into_values() {
            stopping.spawn(async move { child.stop().await });
        }
        for lease in leases.into_values() {
            stopping.spawn(async move { lease.stop().await });
        }
        for child in shared_children.into_values() {
            stopping.spawn(async move { child.stop().await });
        }
        stopping.join_all().await;
        self.0.pool.close().await;
    }
}
