//! A call while it runs: what its context, its canceller and its connection share (D8).

use crate::call::ask_error::{AskError, WITHDRAWN};
use crate::call::exchange::{Exchange, TooLate};
use crate::call::request_extensions::RequestExtensions;
use crate::call::response_sink::Emitted;
use crate::session::{CancelHandle, Session, Waiter};
use parking_lot::Mutex;
use rethread_proto::exchange::ClientGone;
use rethread_proto::jsonrpc::{Method, ProgressToken, Report, RequestId, write_notification};
use rethread_proto::questions::Question;
use rethread_proto::sse::{Draft, EncodeMessage};
use rethread_proto::{ClientCapabilities, LogLevel, Version};
use rethread_store::Retain;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// A call that runs.
pub(crate) struct ActiveCall {
    pub(crate) exchange: Arc<Exchange>,
    /// The index of its request: not 0 only in a batch.
    index: usize,
    /// The method, for operators.
    method: Method,
    pub(crate) extensions: RequestExtensions,
    /// Questions that this call has asked on its stream.
    questions: Mutex<Vec<Question>>,
    cancelled: AtomicBool,
    /// Notified when the call is cancelled, and when no client can come back for it.
    changed: Notify,
    ended: AtomicBool,
}

impl ActiveCall {
    /// The call of the request `index` of an exchange.
    pub(crate) fn new(
        exchange: Arc<Exchange>,
        index: usize,
        method: Method,
        extensions: RequestExtensions,
    ) -> Arc<Self> {
        Arc::new(ActiveCall {
            exchange,
            index,
            method,
            extensions,
            questions: Mutex::default(),
            cancelled: AtomicBool::new(false),
            changed: Notify::new(),
            ended: AtomicBool::new(false),
        })
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn version(&self) -> Version {
        self.exchange.version
    }

    /// The session that the call belongs to, if it belongs to one.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        self.exchange.session()
    }

    pub(crate) fn id(&self) -> RequestId {
        self.exchange.request(self.index, |request| request.id.clone())
    }

    pub(crate) fn progress_token(&self) -> Option<ProgressToken> {
        self.exchange
            .request(self.index, |request| request.progress_token.clone())
    }

    /// The capabilities of the client, from the session or from the request.
    pub(crate) fn client(&self) -> ClientCapabilities {
        match self.session() {
            Some(session) => session.client(),
            None => self.exchange.request(self.index, |request| request.client.capabilities),
        }
    }

    /// Whether the server declares `capability`.
    pub(crate) fn declares(&self, capability: &str) -> bool {
        match self.session() {
            Some(session) => session.declares(capability),
            None => self.exchange.node.info.declares(capability),
        }
    }

    /// Emits a message of this call. Waits for a reader that is far behind, for a bounded time.
    pub(crate) async fn emit(&self, message: impl EncodeMessage) -> Result<(), TooLate> {
        self.check_running()?;
        let emitted = self.exchange.emit(message, Retain::None)?;
        self.wait_for_room(emitted).await
    }

    /// Emits a log message, if the request that waits now wants its level (LOG-02).
    pub(crate) async fn emit_log(&self, level: LogLevel, message: impl EncodeMessage) -> Result<(), TooLate> {
        self.check_running()?;
        let emitted = self.exchange.emit_log(level, message)?;
        self.wait_for_room(emitted).await
    }

    /// Reports progress, if the client asked for it. Numbers must rise: one that does not is dropped (PRG-01).
    pub(crate) async fn report(&self, report: Report<'_>) -> Result<(), TooLate> {
        self.check_running()?;
        let emitted = self.exchange.report(self.index, report)?;
        self.wait_for_room(emitted).await
    }

    /// The response of a batch goes on after one of its calls has ended, but that call emits nothing more (PRG-01).
    pub(crate) fn check_running(&self) -> Result<(), TooLate> {
        if self.has_ended() { Err(TooLate) } else { Ok(()) }
    }

    /// Handlers hold this future in theirs, so the waiting, which is rare, is boxed.
    async fn wait_for_room(&self, emitted: Option<Emitted>) -> Result<(), TooLate> {
        match emitted {
            Some(Emitted { sink, emission }) if !emission.has_room => {
                if Box::pin(sink.wait_for_room()).await {
                    return Ok(());
                }
                self.cancel(); // the client does not read (SSE-14)
                Err(TooLate)
            }
            _ => Ok(()),
        }
    }

    /// Marks the call as ended. False if it has ended before.
    pub(crate) fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Cancels the call: its handler is notified, and there will be no reply.
    pub(crate) fn cancel(&self) {
        // Ended first, notified afterwards: a handler that wakes at once must not be able to reply.
        let was_running = self.end();
        self.cancelled.store(true, Ordering::Release);
        self.changed.notify_waiters();
        if was_running {
            let questions = std::mem::take(&mut *self.questions.lock());
            for question in questions {
                self.withdraw(question);
            }
            self.exchange.cancel();
        }
    }

    /// Opens a question of this call in its session.
    pub(crate) fn ask(&self, session: &Session, waiter: Waiter) -> Result<Question, AskError> {
        let asked = session.questions.lock().ask(waiter);
        let question = asked.map_err(|_| AskError::TooMany)?;
        {
            let mut questions = self.questions.lock();
            if !self.has_ended() {
                questions.push(question); // a cancellation that comes now finds it
                return Ok(question);
            }
        }
        session.questions.lock().abandon(question);
        Err(AskError::Ended)
    }

    /// A question is settled, or the client has never seen it.
    pub(crate) fn forget(&self, question: Question) {
        self.questions.lock().retain(|open| *open != question);
        if let Some(session) = self.session() {
            session.questions.lock().abandon(question);
        }
    }

    /// The handler does not wait for the answer any more: the client need not give one (S2C-06).
    pub(crate) fn withdraw(&self, question: Question) {
        self.questions.lock().retain(|open| *open != question);
        let Some(session) = self.session() else { return };
        if !session.questions.lock().abandon(question) {
            return; // settled already
        }
        let params = json!({ "requestId": question.id(), "reason": WITHDRAWN });
        let draft = Draft::new(160, |out| {
            write_notification(out, "notifications/cancelled", &params).expect("these params are plain JSON");
        });
        let _ = self.exchange.emit(draft, Retain::None); // the call has ended, and its stream too
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(crate) async fn cancelled(&self) {
        self.when(|| self.is_cancelled()).await;
    }

    /// Waits until no client can read the response.
    pub(crate) async fn unreadable(&self) {
        self.when(|| self.is_cancelled() || self.exchange.is_unreachable())
            .await;
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

    /// The connection that waited for the response is gone.
    pub(crate) fn client_gone(&self) {
        match self.exchange.client_gone() {
            ClientGone::Continue => {}
            ClientGone::FailQuestions => self.changed.notify_waiters(),
            ClientGone::Cancel => {
                self.cancel(); // CAN-03
                self.exchange.cancel(); // also if the call has ended, and its reply waits for room
            }
        }
    }
}

impl CancelHandle for ActiveCall {
    fn cancel(&self) {
        ActiveCall::cancel(self);
    }

    fn method(&self) -> &str {
        self.method.as_str()
    }
}
