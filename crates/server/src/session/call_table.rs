//! The running calls of a session.

use foldhash::fast::RandomState;
use rethread_proto::jsonrpc::RequestId;
use std::collections::HashMap;
use std::sync::Arc;

/// Running calls by id. A session usually has one call at a time, which is stored inline. With ten thousand sessions none of
/// them is in the processor's cache, and a separate table would be one more cache miss.
pub(super) struct CallTable<T: ?Sized> {
    one: Option<(RequestId, Arc<T>)>,
    others: HashMap<RequestId, Arc<T>, RandomState>,
}

impl<T: ?Sized> Default for CallTable<T> {
    fn default() -> Self {
        CallTable {
            one: None,
            others: HashMap::default(),
        }
    }
}

impl<T: ?Sized> CallTable<T> {
    pub(super) fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.others.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get(&self, id: &RequestId) -> Option<&Arc<T>> {
        match &self.one {
            Some((one, call)) if one == id => Some(call),
            _ if self.others.is_empty() => None,
            _ => self.others.get(id),
        }
    }

    /// Adds a call whose id is not in use.
    pub(super) fn insert(&mut self, id: &RequestId, call: &Arc<T>) {
        debug_assert!(self.get(id).is_none(), "an id in flight");
        if self.one.is_none() {
            self.one = Some((id.clone(), Arc::clone(call)));
        } else {
            self.others.insert(id.clone(), Arc::clone(call));
        }
    }

    /// Removes `call`, if the id still belongs to it.
    pub(super) fn remove(&mut self, id: &RequestId, call: &T) {
        let is_it = |running: &Arc<T>| std::ptr::addr_eq(&raw const **running, call);
        if !self.get(id).is_some_and(is_it) {
            return;
        }
        if self.one.as_ref().is_some_and(|(one, _)| one == id) {
            self.one = None;
        } else {
            self.others.remove(id);
            if self.others.is_empty() {
                self.others = HashMap::default(); // after a burst: frees the table
            }
        }
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = Arc<T>> {
        self.one
            .map(|(_, call)| call)
            .into_iter()
            .chain(self.others.into_values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// SES-10: the table contains exactly the running calls, and an ended call does not remove another one.
        #[test]
        fn ses_10_table_contains_the_running_calls(steps in proptest::collection::vec((0i64..4, any::<bool>()), 0..40)) {
            let (mut calls, mut model, mut over) = (CallTable::default(), HashMap::<i64, Arc<usize>>::new(), Vec::new());
            for (nth, (n, begins)) in steps.into_iter().enumerate() {
                let id = RequestId::from(n);
                if begins && !model.contains_key(&n) {
                    let call = Arc::new(nth);
                    calls.insert(&id, &call);
                    model.insert(n, call);
                } else if let Some(call) = model.remove(&n) {
                    calls.remove(&id, &call);
                    over.push((n, call));
                }
                for (n, call) in &over {
                    calls.remove(&RequestId::from(*n), call); // again: a second removal changes nothing
                }
                prop_assert_eq!(calls.len(), model.len());
                prop_assert_eq!(calls.is_empty(), model.is_empty());
                for n in 0..4 {
                    prop_assert_eq!(calls.get(&RequestId::from(n)), model.get(&n));
                }
            }
            let mut left: Vec<_> = calls.into_values().collect();
            let mut expected: Vec<_> = model.into_values().collect();
            left.sort();
            expected.sort();
            prop_assert_eq!(left, expected);
        }
    }
}
