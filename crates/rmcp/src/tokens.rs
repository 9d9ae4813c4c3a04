//! The calls of a session by their progress tokens.
//!
//! Most handlers report progress through the peer of the call. One that reports it through another peer of the session,
//! such as the one it got with `initialize`, names the call by its token alone.

use rethread::Context;
use rmcp::model::ProgressToken;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Tokens(parking_lot::Mutex<HashMap<ProgressToken, Context>>);

impl Tokens {
    /// Takes note of a call until the guard is dropped. Two calls with one token are the client's mistake: the later has it.
    pub(crate) fn enter(self: &Arc<Self>, token: ProgressToken, cx: &Context) -> Reporting {
        self.0.lock().insert(token.clone(), cx.clone());
        Reporting {
            tokens: Arc::clone(self),
            id: cx.request_id(),
            token,
        }
    }

    pub(crate) fn call(&self, token: &ProgressToken) -> Option<Context> {
        self.0.lock().get(token).cloned()
    }
}

/// A call that may report progress.
pub(crate) struct Reporting {
    tokens: Arc<Tokens>,
    token: ProgressToken,
    id: rethread::RequestId,
}

impl Drop for Reporting {
    fn drop(&mut self) {
        let mut calls = self.tokens.0.lock();
        if calls.get(&self.token).is_some_and(|cx| cx.request_id() == self.id) {
            calls.remove(&self.token);
        }
    }
}
