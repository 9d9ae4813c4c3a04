//! The subscriptions of one lease. Any child may report a change, and every matching subscription gets it (requirements 4.1).

use parking_lot::Mutex;
use rethread_proto::subscription::{Change, Filter, FilterLimits, Pending};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// Changed URIs that wait for one slow reader. Beyond: the subscribed URI above them is reported.
const WAITING: FilterLimits = FilterLimits::new(256, 64 << 10);

/// The subscriptions of one lease.
#[derive(Default)]
pub(super) struct LeaseSubscriptions {
    state: Mutex<HubState>,
}

#[derive(Default)]
struct HubState {
    last_id: u64,
    listeners: HashMap<u64, Listener>,
    /// How many subscriptions have each URI.
    uris: HashMap<Box<str>, usize>,
}

struct Listener {
    filter: Filter,
    pending: Pending,
    /// The child is gone, so changes may be missing.
    has_ended: bool,
    changed: Arc<Notify>,
}

/// One subscription. Dropping it removes it from the lease.
pub(crate) struct Subscription {
    subscriptions: Arc<LeaseSubscriptions>,
    id: u64,
    changed: Arc<Notify>,
}

impl LeaseSubscriptions {
    /// Adds a subscription. Returns the URIs that no other one has.
    pub(super) fn add(self: &Arc<Self>, filter: Filter) -> (Subscription, Vec<Box<str>>) {
        let changed = Arc::new(Notify::new());
        let mut state = self.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let mut first = Vec::new();
        for uri in &filter.uris {
            let users = state.uris.entry(uri.clone()).or_insert(0);
            *users += 1;
            if *users == 1 {
                first.push(uri.clone());
            }
        }
        let listener = Listener {
            filter,
            pending: Pending::new(WAITING),
            has_ended: false,
            changed: Arc::clone(&changed),
        };
        state.listeners.insert(id, listener);
        let subscription = Subscription {
            subscriptions: Arc::clone(self),
            id,
            changed,
        };
        (subscription, first)
    }

    /// Every URI that a subscription has, for a child that starts.
    pub(super) fn uris(&self) -> Vec<Box<str>> {
        self.state.lock().uris.keys().cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().listeners.is_empty()
    }

    /// A child reports a change.
    pub(super) fn report(&self, change: &Change) {
        for listener in self.state.lock().listeners.values_mut() {
            if listener.pending.add(&listener.filter, change) {
                listener.changed.notify_one();
            }
        }
    }

    /// A child has exited: changes may be missing, so every subscription ends (SUB-06).
    pub(super) fn end(&self) {
        for listener in self.state.lock().listeners.values_mut() {
            listener.has_ended = true;
            listener.changed.notify_one();
        }
    }
}

impl Subscription {
    /// The next changes. `None` at the end.
    pub(crate) async fn next(&self) -> Option<Vec<Change>> {
        loop {
            {
                let mut state = self.subscriptions.state.lock();
                let listener = state.listeners.get_mut(&self.id)?;
                if !listener.pending.is_empty() {
                    return Some(listener.pending.take());
                }
                if listener.has_ended {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Removes the URIs that a child refused. Returns the filter that remains.
    pub(super) fn remove_uris(&self, refused: &[Box<str>]) -> Filter {
        let mut state = self.subscriptions.state.lock();
        release(&mut state.uris, refused);
        let Some(listener) = state.listeners.get_mut(&self.id) else {
            return Filter::default();
        };
        listener.filter.uris.retain(|uri| !refused.contains(uri));
        listener.filter.clone()
    }

    /// Ends the subscription. Returns the URIs that nobody has any more.
    pub(super) fn close(&self) -> Vec<Box<str>> {
        let mut state = self.subscriptions.state.lock();
        match state.listeners.remove(&self.id) {
            Some(listener) => release(&mut state.uris, &listener.filter.uris),
            None => Vec::new(),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.close();
    }
}

/// Counts down the users of URIs. Returns those without users.
fn release(users: &mut HashMap<Box<str>, usize>, uris: &[Box<str>]) -> Vec<Box<str>> {
    let mut last = Vec::new();
    for uri in uris {
        if let Some(count) = users.get_mut(uri) {
            *count -= 1;
            if *count == 0 {
                users.remove(uri);
                last.push(uri.clone());
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Box<str> {
        text.into()
    }

    fn filter(tools: bool, uris: &[&str]) -> Filter {
        let mut filter = Filter::default();
        filter.tools = tools;
        filter.uris = uris.iter().map(|uri| (*uri).into()).collect();
        filter
    }

    /// 4.1: the first subscription of a URI subscribes, and the last one unsubscribes.
    #[tokio::test]
    async fn line_4_1_uris_are_counted() {
        let subscriptions = Arc::new(LeaseSubscriptions::default());
        let (one, first) = subscriptions.add(filter(true, &["a:1", "a:2"]));
        assert_eq!(first.len(), 2);
        let (two, first) = subscriptions.add(filter(false, &["a:2", "a:3"]));
        assert_eq!(first, [uri("a:3")]);
        assert_eq!(one.close(), [uri("a:1")]);
        assert!(one.close().is_empty());
        assert_eq!(two.remove_uris(&[uri("a:3")]).uris, [uri("a:2")]);
        let mut uris = subscriptions.uris();
        uris.sort();
        assert_eq!(uris, [uri("a:2")]);
        drop(two);
        assert!(subscriptions.is_empty() && subscriptions.uris().is_empty());
    }

    /// SUB-08: equal changes are merged, each goes to every matching subscription, and the end comes after them.
    #[tokio::test]
    async fn sub_08_changes_reach_every_matching_subscription_once() {
        let subscriptions = Arc::new(LeaseSubscriptions::default());
        let (one, _) = subscriptions.add(filter(true, &["a:1"]));
        let (two, _) = subscriptions.add(filter(false, &["a:1"]));
        for change in [
            Change::Tools,
            Change::Tools,
            Change::Updated("a:1".into()),
            Change::Prompts,
        ] {
            subscriptions.report(&change);
        }
        assert_eq!(
            one.next().await.unwrap(),
            [Change::Tools, Change::Updated("a:1".into())]
        );
        assert_eq!(two.next().await.unwrap(), [Change::Updated("a:1".into())]);
        subscriptions.report(&Change::Tools);
        subscriptions.end();
        assert_eq!(one.next().await.unwrap(), [Change::Tools]);
        assert_eq!((one.next().await, two.next().await), (None, None));
    }
}
