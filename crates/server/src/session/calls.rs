//! The calls that run in a session.

use crate::call::Running;
use foldhash::fast::RandomState;
use rethread_proto::jsonrpc::RequestId;
use std::collections::HashMap;
use std::sync::Arc;

/// Running calls by their ids. Mostly there is one at a time, and it has its place in the session itself: of ten thousand sessions
/// none is in the processor's cache, and a table elsewhere would have to be fetched, too.
#[derive(Default)]
pub(super) struct Calls {
    one: Option<(RequestId, Arc<Running>)>,
    others: HashMap<RequestId, Arc<Running>, RandomState>,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.others.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get(&self, id: &RequestId) -> Option<&Arc<Running>> {
        match &self.one {
            Some((one, call)) if one == id => Some(call),
            _ if self.others.is_empty() => None,
            _ => self.others.get(id),
        }
    }

    /// Takes note of a call whose id is not in use.
    pub(super) fn insert(&mut self, id: &RequestId, call: &Arc<Running>) {
        debug_assert!(self.get(id).is_none(), "an id in flight");
        if self.one.is_none() {
            self.one = Some((id.clone(), Arc::clone(call)));
        } else {
            self.others.insert(id.clone(), Arc::clone(call));
        }
    }

    /// Forgets `call`, if the id is still its own.
    pub(super) fn remove(&mut self, id: &RequestId, call: &Running) {
        let is_it = |running: &Arc<Running>| std::ptr::eq(&**running, call);
        if !self.get(id).is_some_and(is_it) {
            return;
        }
        if self.one.as_ref().is_some_and(|(one, _)| one == id) {
            self.one = None;
        } else {
            self.others.remove(id);
            if self.others.is_empty() {
                self.others = HashMap::default(); // a burst is over: the room it took is given back
            }
        }
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = Arc<Running>> {
        self.one
            .map(|(_, call)| call)
            .into_iter()
            .chain(self.others.into_values())
    }
}
