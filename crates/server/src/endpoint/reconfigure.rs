//! Changes of an endpoint while clients are served: for a configuration that is read again.

use crate::endpoint::service::McpService;
use crate::node::limits::Limits;
use rethread_proto::gate::{BadEntry, HeadPolicy, HostPolicy, OriginPolicy};
use std::sync::Arc;

impl McpService {
    /// The same endpoint for other names and other pages: for a configuration that is read again while clients are
    /// served. Registry, calls and streams are shared with `self`, which goes on with what it was built with.
    ///
    /// The lists replace those of [`Builder::allow_host`](crate::Builder::allow_host) and
    /// [`Builder::allow_origin`](crate::Builder::allow_origin).
    pub fn with_access<'a>(
        &self,
        hosts: impl IntoIterator<Item = &'a str>,
        origins: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, BadEntry> {
        let mut policy = HeadPolicy::clone(&self.policy);
        policy.hosts = HostPolicy::default();
        policy.origins = OriginPolicy::default();
        for host in hosts {
            policy.hosts.allow(host)?;
        }
        for origin in origins {
            policy.origins.allow(origin)?;
        }
        Ok(McpService {
            inner: Arc::clone(&self.inner),
            policy: Arc::new(policy),
            authenticator: self.authenticator.clone(),
        })
    }

    /// The same endpoint with other limits: for a configuration that is read again while clients are served. Nothing ends: what is
    /// beyond a lower limit goes on, and new work is refused until there is room.
    ///
    /// They hold for all endpoints that share the registry of `self`, except those of headers, which hold for the returned one. Sessions and
    /// streams that exist keep the bounds of their buffers: `waiting_*`, `questions_per_session` and `window_*`.
    #[must_use]
    pub fn with_limits(&self, limits: &Limits) -> Self {
        self.inner.node.set_limits(limits);
        let mut policy = HeadPolicy::clone(&self.policy);
        policy.max_header_bytes = limits.header_bytes;
        policy.max_headers = limits.headers;
        McpService {
            inner: Arc::clone(&self.inner),
            policy: Arc::new(policy),
            authenticator: self.authenticator.clone(),
        }
    }
}
