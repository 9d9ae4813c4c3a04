//! Progress tokens of a session: those of its calls, and those of its questions to the client.
//!
//! Most handlers report progress through the peer of the call. A handler may also use another peer of the session, such
//! as the one from `initialize`. Then only the token identifies the call.
//!
//! rmcp numbers the tokens of questions per peer. The client sees a token that is unique in the session. Its progress
//! on a question goes back to the peer that asked.

use crate::peer_loop::LoopState;
use parking_lot::Mutex;
use rethread::Context;
use rmcp::model::{NumberOrString, ProgressToken};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The limits of running calls and open questions bound both tables.
#[derive(Default)]
pub(crate) struct ProgressTokens {
    calls: Mutex<HashMap<ProgressToken, Context>>,
    questions: Mutex<HashMap<ProgressToken, (Weak<LoopState>, ProgressToken)>>,
}

impl ProgressTokens {
    /// Registers a call until the guard is dropped. If a client reuses a token, the later call gets the progress.
    pub(crate) fn register_call(self: &Arc<Self>, token: ProgressToken, cx: &Context) -> CallTokenGuard {
        self.calls.lock().insert(token.clone(), cx.clone());
        CallTokenGuard {
            tokens: Arc::clone(self),
            id: cx.request_id(),
            token,
        }
    }

    pub(crate) fn call(&self, token: &ProgressToken) -> Option<Context> {
        self.calls.lock().get(token).cloned()
    }

    /// Replaces the token of a question by one that is unique in the session, until the guard is dropped.
    pub(crate) fn register_question(
        self: &Arc<Self>,
        asker: &Arc<LoopState>,
        token: &mut Value,
    ) -> Option<QuestionTokenGuard> {
        let peer_token: ProgressToken = serde_json::from_value(token.clone()).ok()?;
        let text = format!("{}.{}", asker.id, peer_token.0);
        *token = Value::String(text.clone());
        let session_token = ProgressToken(NumberOrString::String(text.into()));
        let origin = (Arc::downgrade(asker), peer_token);
        self.questions.lock().insert(session_token.clone(), origin);
        Some(QuestionTokenGuard {
            tokens: Arc::clone(self),
            session_token,
        })
    }

    /// The peer loop that asked the question with this session token, and the token that its peer uses.
    pub(crate) fn asker(&self, session_token: &ProgressToken) -> Option<(Arc<LoopState>, ProgressToken)> {
        let (asker, peer_token) = self.questions.lock().get(session_token).cloned()?;
        Some((asker.upgrade()?, peer_token))
    }
}

/// Removes the token of a call on drop.
pub(crate) struct CallTokenGuard {
    tokens: Arc<ProgressTokens>,
    token: ProgressToken,
    id: rethread::RequestId,
}

impl Drop for CallTokenGuard {
    fn drop(&mut self) {
        let mut calls = self.tokens.calls.lock();
        if calls.get(&self.token).is_some_and(|cx| cx.request_id() == self.id) {
            calls.remove(&self.token);
        }
    }
}

/// Removes the token of a question on drop.
pub(crate) struct QuestionTokenGuard {
    tokens: Arc<ProgressTokens>,
    session_token: ProgressToken,
}

impl Drop for QuestionTokenGuard {
    fn drop(&mut self) {
        self.tokens.questions.lock().remove(&self.session_token);
    }
}
