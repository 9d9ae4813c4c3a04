//! The needs for an upstream: its uses, and its questions that wait for an answer.

use super::Upstream;
use parking_lot::Mutex;
use rethread_proto::jsonrpc::RequestId;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::AbortHandle;

/// The uses and open questions of one upstream.
#[derive(Debug)]
pub(crate) struct Activity(Mutex<ActivityState>);

#[derive(Debug)]
struct ActivityState {
    /// Live [`UpstreamUse`]s.
    uses: usize,
    last_used: Instant,
    /// Questions of the server that wait for the client's answer.
    questions: Vec<(RequestId, AbortHandle)>,
    /// The upstream has ended.
    is_closed: bool,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Activity(Mutex::new(ActivityState {
            uses: 0,
            last_used: Instant::now(),
            questions: Vec::new(),
            is_closed: false,
        }))
    }

    /// Counts as the end of a use.
    pub(crate) fn touch(&self) {
        self.0.lock().last_used = Instant::now();
    }

    pub(super) fn unused_since(&self) -> Option<Instant> {
        let mut state = self.0.lock();
        state.questions.retain(|(_, task)| !task.is_finished());
        (state.uses == 0 && state.questions.is_empty()).then_some(state.last_used)
    }

    pub(super) fn add_question(&self, id: RequestId, task: AbortHandle) {
        let mut state = self.0.lock();
        if state.is_closed {
            return task.abort();
        }
        state.questions.retain(|(_, task)| !task.is_finished());
        state.questions.push((id, task));
    }

    pub(super) fn cancel_question(&self, id: &RequestId) {
        let state = self.0.lock();
        for (_, task) in state.questions.iter().filter(|(question, _)| question == id) {
            task.abort();
        }
    }

    /// The upstream has ended: nobody waits for answers any more.
    pub(crate) fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        for (_, task) in std::mem::take(&mut state.questions) {
            task.abort();
        }
    }
}

/// Keeps an upstream needed. Its owner hands this out under the lock under which it gives an upstream up.
#[derive(Debug)]
pub(crate) struct UpstreamUse(Arc<dyn Upstream>);

impl UpstreamUse {
    pub(crate) fn new(upstream: &Arc<dyn Upstream>) -> Self {
        upstream.activity().0.lock().uses += 1;
        UpstreamUse(Arc::clone(upstream))
    }
}

impl Drop for UpstreamUse {
    fn drop(&mut self) {
        let mut state = self.0.activity().0.lock();
        state.uses -= 1;
        state.last_used = Instant::now();
    }
}

impl Deref for UpstreamUse {
    type Target = Arc<dyn Upstream>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
