//! Requests that may run in a view, and the end of that view.
//!
//! A view is closed while its session lives on: another node takes it over, or nobody has used it here for long. A request that
//! has found the view must not lose it before its call is registered. So a view admits requests, a view with an admitted
//! request is not closed, and a view that is being closed admits none. In a store with one member a view is closed only if unused
//! sessions leave the memory.

use super::Session;
use rethread_proto::StreamKind;
use std::sync::Arc;

/// Keeps a view open until it is dropped.
#[must_use]
pub(crate) struct Admission(Option<Arc<Session>>);

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.admissions.leave();
        }
    }
}

impl Session {
    /// Admits a request. `None` while the view is being closed: its session must be looked up again.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Admission> {
        if self.node.cluster().is_none() && !self.node.unused.unloads() {
            return Some(Admission(None));
        }
        self.admissions.enter().then(|| Admission(Some(Arc::clone(self))))
    }

    /// Stops admitting requests, if none is admitted and the view has nothing to do: no call runs, and no call stream waits for
    /// its reader or for the store. The caller holds the lock of the session in `Registry::restoring`, so that requests that
    /// are not admitted wait for the result.
    pub(crate) fn begin_close(&self) -> bool {
        if !self.admissions.begin_close() {
            return false;
        }
        let state = self.state.lock();
        let has_call_stream = || state.streams.keys().any(|ordinal| ordinal.kind() == StreamKind::Call);
        let is_unused = state.calls.is_empty() && !has_call_stream();
        drop(state);
        if !is_unused {
            self.abort_close();
        }
        is_unused
    }

    /// The view stays open.
    pub(crate) fn abort_close(&self) {
        self.admissions.abort_close();
    }
}
