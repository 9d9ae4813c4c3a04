//! The counters of callers that were admitted. Each authenticated request needs one.

use metrics::Counter;
use parking_lot::RwLock;
use rethread_proto::auth::AuthOutcome;
use std::sync::Arc;

/// Providers whose counter is kept. Beyond: the counter is looked up for each request.
const MAX_PROVIDERS: usize = 64;

/// The counter of each provider. A registered one is incremented without a lookup of its labels and without an allocation.
#[derive(Default)]
pub(crate) struct AdmittedCallers(RwLock<Vec<(Arc<str>, Counter)>>);

impl AdmittedCallers {
    /// Counts one request.
    pub(crate) fn count(&self, provider: &Arc<str>) {
        let is_same = |known: &Arc<str>| Arc::ptr_eq(known, provider) || known == provider;
        if let Some((_, counter)) = self.0.read().iter().find(|(known, _)| is_same(known)) {
            counter.increment(1);
            return;
        }
        let counter = super::auth_counter(provider, AuthOutcome::Ok);
        counter.increment(1);
        let mut counters = self.0.write();
        if counters.len() < MAX_PROVIDERS && !counters.iter().any(|(known, _)| is_same(known)) {
            counters.push((Arc::clone(provider), counter));
        }
    }
}
