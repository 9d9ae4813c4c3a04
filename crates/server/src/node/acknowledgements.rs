//! Waits until every node that has a view of a session has seen a change of it.

use parking_lot::Mutex;
use rethread_store::{Incarnation, SessionKey};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long a change waits for the nodes that have a view. A node that is paused acknowledges later, and reads the record
/// before it serves the session again.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_millis(500);

/// The revision that acknowledges the end of a session.
pub(crate) const ENDED: u64 = u64::MAX;

/// Changes of this node that other nodes acknowledge. An entry lives as long as a request that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Acknowledgements(Mutex<HashMap<SessionKey, Arc<Entry>>>);

#[derive(Debug, Default)]
struct Entry {
    /// The highest revision that each node has acknowledged.
    seen: Mutex<HashMap<Incarnation, u64>>,
    changed: Notify,
    /// The number of requests that wait.
    waiting: Mutex<usize>,
}

impl Acknowledgements {
    /// Collects acknowledgements from now on. Call it before the change, because they may come before its result.
    pub(crate) fn expect(&self, key: &SessionKey) -> Expectation<'_> {
        let mut table = self.0.lock();
        let entry = Arc::clone(table.entry(key.clone()).or_default());
        *entry.waiting.lock() += 1;
        Expectation {
            table: self,
            key: key.clone(),
            entry,
        }
    }

    /// A node has seen the session at `revision`.
    pub(crate) fn acknowledge(&self, key: &SessionKey, by: Incarnation, revision: u64) {
        let entry = self.0.lock().get(key).cloned();
        if let Some(entry) = entry {
            let mut seen = entry.seen.lock();
            let highest = seen.entry(by).or_default();
            *highest = revision.max(*highest);
            drop(seen);
            entry.changed.notify_waiters();
        }
    }
}

/// A request that waits for acknowledgements.
pub(crate) struct Expectation<'a> {
    table: &'a Acknowledgements,
    key: SessionKey,
    entry: Arc<Entry>,
}

impl Expectation<'_> {
    /// Waits for all of `nodes`, but not for long. False if one of them is late.
    pub(crate) async fn wait(self, nodes: &[Incarnation], revision: u64) -> bool {
        let complete = async {
            loop {
                let changed = self.entry.changed.notified();
                let has_seen = |node| self.entry.seen.lock().get(node).is_some_and(|seen| *seen >= revision);
                if nodes.iter().all(has_seen) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(ACKNOWLEDGEMENT_TIMEOUT, complete).await.is_ok()
    }
}

impl Drop for Expectation<'_> {
    fn drop(&mut self) {
        let mut table = self.table.0.lock();
        let mut waiting = self.entry.waiting.lock();
        *waiting -= 1;
        if *waiting == 0 {
            table.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rethread_proto::{Principal, SessionId};

    fn key() -> SessionKey {
        SessionKey {
            principal: Principal::new("issuer", "alice"),
            session: SessionId::parse("one-session").unwrap(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn change_waits_for_every_view_but_not_for_long() {
        let table = Acknowledgements::default();
        let nodes = [Incarnation::new(1, 1), Incarnation::new(2, 2)];
        let expected = table.expect(&key());
        table.acknowledge(&key(), nodes[0].clone(), 7);
        table.acknowledge(&key(), nodes[1].clone(), 6);
        assert!(
            !expected.wait(&nodes, 7).await,
            "the second node has seen an earlier revision"
        );
        assert!(table.0.lock().is_empty(), "no entry is left behind");

        let expected = table.expect(&key());
        table.acknowledge(&key(), nodes[0].clone(), 8);
        table.acknowledge(&key(), nodes[1].clone(), ENDED);
        let start = tokio::time::Instant::now();
        assert!(expected.wait(&nodes, 7).await);
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(table.expect(&key()).wait(&[], 1).await);
    }
}
