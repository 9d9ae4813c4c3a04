//! The calls of a session by their progress tokens, and the questions to its client by theirs.
//!
//! Most handlers report progress through the peer of the call. One that reports it through another peer of the session,
//! such as the one it got with `initialize`, names the call by its token alone.
//!
//! rmcp gives every question a token, but counts them for each peer. The client sees them under names that are unique in
//! the session, and what it reports under one goes back to the peer that asked.

use crate::line::Shared;
use parking_lot::Mutex;
use rethread::Context;
use rmcp::model::{NumberOrString, ProgressToken};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Both tables are as large as what runs: calls and questions, which have limits of their own.
#[derive(Default)]
pub(crate) struct Tokens {
    calls: Mutex<HashMap<ProgressToken, Context>>,
    questions: Mutex<HashMap<ProgressToken, (Weak<Shared>, ProgressToken)>>,
}

impl Tokens {
    /// Takes note of a call until the guard is dropped. Two calls with one token are the client's mistake: the later has it.
    pub(crate) fn enter(self: &Arc<Self>, token: ProgressToken, cx: &Context) -> Reporting {
        self.calls.lock().insert(token.clone(), cx.clone());
        Reporting {
            tokens: Arc::clone(self),
            id: cx.request_id(),
            token,
        }
    }

    pub(crate) fn call(&self, token: &ProgressToken) -> Option<Context> {
        self.calls.lock().get(token).cloned()
    }

    /// Gives the token of a question a name of its own until the guard is dropped.
    pub(crate) fn rename(self: &Arc<Self>, line: &Arc<Shared>, token: &mut Value) -> Option<Renamed> {
        let own: ProgressToken = serde_json::from_value(token.clone()).ok()?;
        let name = format!("{}.{}", line.number, own.0);
        *token = Value::String(name.clone());
        let name = ProgressToken(NumberOrString::String(name.into()));
        let asker = (Arc::downgrade(line), own);
        self.questions.lock().insert(name.clone(), asker);
        Some(Renamed {
            tokens: Arc::clone(self),
            name,
        })
    }

    /// Who asked the question with this token, and its token there.
    pub(crate) fn asker(&self, token: &ProgressToken) -> Option<(Arc<Shared>, ProgressToken)> {
        let (line, own) = self.questions.lock().get(token).cloned()?;
        Some((line.upgrade()?, own))
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
        let mut calls = self.tokens.calls.lock();
        if calls.get(&self.token).is_some_and(|cx| cx.request_id() == self.id) {
            calls.remove(&self.token);
        }
    }
}

/// A question whose progress the client may report.
pub(crate) struct Renamed {
    tokens: Arc<Tokens>,
    name: ProgressToken,
}

impl Drop for Renamed {
    fn drop(&mut self) {
        self.tokens.questions.lock().remove(&self.name);
    }
}
