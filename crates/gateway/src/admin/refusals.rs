//! The last refusals, for the snapshot and the feed.

use super::snapshot::now;
use parking_lot::Mutex;
use rethread::Tag;
use rethread_proto::rfc3339::Rfc3339;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;

/// Refusals that are kept for the snapshot.
const MAX_REFUSALS: usize = 100;

/// A request that was refused.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RefusalRow {
    time: Rfc3339,
    server: Arc<str>,
    /// The label of the metric.
    reason: &'static str,
    status: u16,
    /// The session that the request named, whether it exists or not.
    session: Option<Tag>,
}

impl RefusalRow {
    pub(crate) fn new(server: Arc<str>, reason: &'static str, status: u16, session: Option<Tag>) -> Self {
        RefusalRow {
            time: Rfc3339(now()),
            server,
            reason,
            status,
            session,
        }
    }
}

/// The last refusals of all servers. They are few, so they are recorded whether somebody reads or not.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<(u64, VecDeque<RefusalRow>)>);

impl Refusals {
    pub(crate) fn record(&self, refusal: RefusalRow) {
        let (count, rows) = &mut *self.0.lock();
        *count += 1;
        if rows.len() == MAX_REFUSALS {
            rows.pop_front();
        }
        rows.push_back(refusal);
    }

    pub(super) fn all(&self) -> VecDeque<RefusalRow> {
        self.0.lock().1.clone()
    }

    /// The refusals after the first `seen`, as far as they are kept, and their number in all.
    pub(super) fn after(&self, seen: u64) -> (u64, Vec<RefusalRow>) {
        let (count, rows) = &*self.0.lock();
        let new = usize::try_from(count - seen).unwrap_or(usize::MAX).min(rows.len());
        (*count, rows.range(rows.len() - new..).cloned().collect())
    }

    pub(super) fn count(&self) -> u64 {
        self.0.lock().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_10_last_refusals_are_kept_and_reported_once() {
        let refusals = Refusals::default();
        for _ in 0..150 {
            refusals.record(RefusalRow::new("files".into(), "origin", 403, None));
        }
        assert_eq!(refusals.all().len(), MAX_REFUSALS);
        let (seen, new) = refusals.after(149);
        assert_eq!((seen, new.len()), (150, 1));
        assert!(refusals.after(seen).1.is_empty());
        assert_eq!(refusals.after(0).1.len(), MAX_REFUSALS);
    }
}
