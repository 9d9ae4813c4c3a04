//! A call while it runs: its handler, its cancellation, its end (design D8).

use crate::call::outlet::{Outlet, TooLate};
use crate::call::stateless_request::Direct;
use crate::node::Node;
use crate::session::{CancelHandle, Session, Waiter};
use http::Extensions;
use parking_lot::Mutex;
use rethread_proto::ClientCapabilities;
use rethread_proto::LogLevel;
use rethread_proto::jsonrpc::{Progress, ProgressToken, Report, Request, RequestId, write_notification};
use rethread_proto::questions::{Question, TooManyQuestions};
use rethread_proto::sse::{Draft, EncodeMessage};
use rethread_proto::{Principal, Version};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// A call that runs: what its context, its canceller and its connection share.
pub(crate) struct ActiveCall {
    pub(crate) node: Arc<Node>,
    pub(crate) version: Version,
    pub(crate) venue: CallScope,
    pub(crate) extensions: Extensions,
    /// Questions this call waits for.
    questions: Mutex<Vec<Question>>,
    cancelled: AtomicBool,
    /// Told of cancellation, and of a client that can never come back.
    changed: Notify,
    pub(crate) ended: AtomicBool,
}

/// Where a call is heard: in a session, whose streams outlive connections, or in one request only.
pub(crate) enum CallScope {
    Session(InSession),
    Request(Arc<Direct>),
}

/// A call in a session.
pub(crate) struct InSession {
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) id: RequestId,
    pub(crate) progress_token: Option<ProgressToken>,
    last_progress: Mutex<Option<f64>>,
}

impl ActiveCall {
    /// A call in the session of `outlet`.
    pub(crate) fn in_session(request: &Request, outlet: Arc<Outlet>, extensions: Extensions) -> Arc<Self> {
        let session = &outlet.session;
        let (node, version) = (Arc::clone(&session.node), session.version());
        let venue = CallScope::Session(InSession {
            id: request.id.clone(),
            progress_token: request.params.progress_token(),
            last_progress: Mutex::new(None),
            outlet,
        });
        Self::new(node, version, venue, extensions)
    }

    /// A call that one request brought, and nothing else is known of.
    pub(crate) fn in_request(direct: Arc<Direct>, extensions: Extensions) -> Arc<Self> {
        let (node, version) = (Arc::clone(&direct.node), direct.version);
        Self::new(node, version, CallScope::Request(direct), extensions)
    }

    fn new(node: Arc<Node>, version: Version, venue: CallScope, extensions: Extensions) -> Arc<Self> {
        Arc::new(ActiveCall {
            node,
            version,
            venue,
            extensions,
            questions: Mutex::default(),
            cancelled: AtomicBool::new(false),
            changed: Notify::new(),
            ended: AtomicBool::new(false),
        })
    }

    /// The session the call belongs to, if it belongs to one.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        match &self.venue {
            CallScope::Session(place) => Some(&place.outlet.session),
            CallScope::Request(_) => None,
        }
    }

    pub(crate) fn id(&self) -> RequestId {
        match &self.venue {
            CallScope::Session(place) => place.id.clone(),
            CallScope::Request(direct) => direct.request(|request| request.id.clone()),
        }
    }

    pub(crate) fn progress_token(&self) -> Option<ProgressToken> {
        match &self.venue {
            CallScope::Session(place) => place.progress_token.clone(),
            CallScope::Request(direct) => direct.request(|request| request.progress_token.clone()),
        }
    }

    /// What the client can do: as the session knows, or as this request said.
    pub(crate) fn client(&self) -> ClientCapabilities {
        match &self.venue {
            CallScope::Session(place) => place.outlet.session.client(),
            CallScope::Request(direct) => direct.request(|request| request.client),
        }
    }

    pub(crate) fn principal(&self) -> Principal {
        match &self.venue {
            CallScope::Session(place) => place.outlet.session.key.principal.clone(),
            CallScope::Request(direct) => direct.principal.clone(),
        }
    }

    /// Whether the client wants log messages of this level (LOG-01, LOG-02).
    pub(crate) fn wants_log(&self, level: LogLevel) -> bool {
        match &self.venue {
            CallScope::Session(place) => place.outlet.session.log_level().is_none_or(|least| level >= least),
            CallScope::Request(direct) => direct.wants_log(level),
        }
    }

    /// Whether the server said that it can do `capability`.
    pub(crate) fn declares(&self, capability: &str) -> bool {
        match self.session() {
            Some(session) => session.declares(capability),
            None => self.node.info.declares(capability),
        }
    }

    /// Says something that belongs to this call. Waits for a reader that is far behind, for a bounded time.
    ///
    /// Handlers hold this future in theirs, so the waiting, which is rare, is boxed.
    pub(crate) async fn say(&self, words: impl EncodeMessage) -> Result<(), TooLate> {
        match &self.venue {
            CallScope::Session(place) => {
                let said = place.outlet.say(words, rethread_store::Retain::None)?;
                if let Some(stream) = said.map(|said| said.stream).filter(|stream| !stream.has_room()) {
                    Box::pin(stream.wait_for_room()).await;
                }
                Ok(())
            }
            CallScope::Request(direct) => {
                let said = direct.say(words.draft().into_payload());
                self.has_said(direct, said).await
            }
        }
    }

    /// Reports progress, if the client asked for it. Numbers must rise: one that does not is dropped (PRG-01).
    pub(crate) async fn report(&self, report: Report<'_>) -> Result<(), TooLate> {
        match &self.venue {
            CallScope::Session(place) => {
                let Some(token) = &place.progress_token else {
                    return Ok(());
                };
                if let Report::Value { progress, .. } = report {
                    let mut last = place.last_progress.lock();
                    if !progress.is_finite() || last.is_some_and(|last| progress <= last) {
                        return Ok(());
                    }
                    *last = Some(progress);
                }
                self.say(Progress { token, report }).await
            }
            CallScope::Request(direct) => self.has_said(direct, direct.report(report)).await,
        }
    }

    async fn has_said(&self, direct: &Direct, said: Result<bool, TooLate>) -> Result<(), TooLate> {
        let said = match said {
            Ok(true) => Ok(()),
            Ok(false) => Box::pin(direct.room()).await,
            Err(late) => Err(late),
        };
        if said.is_err() {
            self.cancel(); // nobody reads: the request is as good as gone (SSE-14)
        }
        said
    }

    /// Cancels the call: its handler is told, and no answer will come.
    pub(crate) fn cancel(&self) {
        // Ended first, told afterwards: a handler that wakes at once must not be able to answer.
        let running = !self.ended.swap(true, Ordering::AcqRel);
        self.cancelled.store(true, Ordering::Release);
        self.changed.notify_waiters();
        if running {
            let questions = std::mem::take(&mut *self.questions.lock());
            for question in questions {
                self.withdraw(question);
            }
            match &self.venue {
                CallScope::Session(place) => place.outlet.end_cancelled(),
                CallScope::Request(direct) => direct.abandon(),
            }
        }
    }

    /// Opens a question of this call in its session.
    pub(crate) fn ask(&self, session: &Session, waiter: Waiter) -> Result<Question, TooManyQuestions> {
        let question = session.questions.lock().ask(waiter)?;
        self.questions.lock().push(question);
        Ok(question)
    }

    /// A question is settled, or was never heard of.
    pub(crate) fn forget(&self, question: Question) {
        self.questions.lock().retain(|open| *open != question);
        if let Some(session) = self.session() {
            session.questions.lock().abandon(question);
        }
    }

    /// Nobody waits for the answer any more: the client need not bother (S2C-06).
    pub(crate) fn withdraw(&self, question: Question) {
        self.questions.lock().retain(|open| *open != question);
        let CallScope::Session(place) = &self.venue else { return };
        if !place.outlet.session.questions.lock().abandon(question) {
            return; // settled already
        }
        let params = json!({ "requestId": question.id(), "reason": crate::call::ask_error::WITHDRAWN });
        let draft = Draft::new(160, |out| {
            write_notification(out, "notifications/cancelled", &params).expect("these params are plain JSON");
        });
        let _ = place.outlet.say(draft, rethread_store::Retain::None); // the call is over: so is its stream
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(crate) async fn cancelled(&self) {
        self.when(|| self.is_cancelled()).await;
    }

    /// Waits until the call can no longer be answered to anybody.
    pub(crate) async fn pointless(&self) {
        let unreachable = || match &self.venue {
            CallScope::Session(place) => place.outlet.is_unreachable(),
            CallScope::Request(_) => false, // such a call is cancelled instead (CAN-03)
        };
        self.when(|| self.is_cancelled() || unreachable()).await;
    }

    async fn when(&self, condition: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if condition() {
                return;
            }
            changed.await;
        }
    }

    /// The client hung up before the answer took form.
    pub(crate) fn client_left(&self) {
        match &self.venue {
            CallScope::Session(place) => {
                if place.outlet.client_left() {
                    self.changed.notify_waiters();
                }
            }
            CallScope::Request(_) => self.cancel(), // CAN-03
        }
    }
}

impl CancelHandle for ActiveCall {
    fn cancel(&self) {
        ActiveCall::cancel(self);
    }
}
