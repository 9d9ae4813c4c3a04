//! The spans of the last calls of sessions, so that a resume can be linked to the call whose stream it reads.

use super::context::SpanContext;
use parking_lot::Mutex;
use rethread::Tag;
use rethread_proto::jsonrpc::RequestId;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

/// Calls whose spans are known. Beyond: the resume of the oldest one has no link.
const MAX_RECENT_CALLS: usize = 4096;

/// A hash of the session and the id of the request: a client may choose long ids.
type CallHash = u64;

#[derive(Default)]
pub(super) struct RecentCalls {
    hasher: RandomState,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` if the client does not want the trace recorded.
    spans: HashMap<CallHash, Option<SpanContext>>,
    /// Oldest first. Has each key of `spans` once.
    order: VecDeque<CallHash>,
}

impl RecentCalls {
    pub(super) fn add(&self, session: Tag, id: &RequestId, span: Option<SpanContext>) {
        let hash = self.hasher.hash_one((session, id));
        let mut state = self.state.lock();
        if state.spans.insert(hash, span).is_some() {
            return; // an id that was used again keeps its place
        }
        state.order.push_back(hash);
        if state.order.len() > MAX_RECENT_CALLS
            && let Some(oldest) = state.order.pop_front()
        {
            state.spans.remove(&oldest);
        }
    }

    /// The span of a call. The inner value is `None` if the client does not want it recorded.
    pub(super) fn span_of(&self, session: Tag, id: &RequestId) -> Option<Option<SpanContext>> {
        let hash = self.hasher.hash_one((session, id));
        self.state.lock().spans.get(&hash).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> RequestId {
        RequestId::from_json(&number.to_string()).unwrap()
    }

    #[test]
    fn ops_19_known_spans_are_bounded_and_the_last_ones_stay() {
        let calls = RecentCalls::default();
        let [session, other] = ["6b86b273ff34fce1", "0000000000000000"].map(|tag| Tag::parse(tag).unwrap());
        let span = |number: usize| SpanContext::root([1; 16], (number as u64 + 1).to_be_bytes());
        for number in 0..2 * MAX_RECENT_CALLS {
            calls.add(session, &id(number), Some(span(number)));
            calls.add(session, &id(number), Some(span(number)));
        }
        let state = calls.state.lock();
        assert_eq!(
            (state.spans.len(), state.order.len()),
            (MAX_RECENT_CALLS, MAX_RECENT_CALLS)
        );
        drop(state);
        let last = 2 * MAX_RECENT_CALLS - 1;
        assert_eq!(calls.span_of(session, &id(last)), Some(Some(span(last))));
        assert_eq!(calls.span_of(other, &id(last)), None);
        assert_eq!(calls.span_of(session, &id(0)), None);
        calls.add(other, &id(0), None);
        assert_eq!(calls.span_of(other, &id(0)), Some(None));
    }
}
