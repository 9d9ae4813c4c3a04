//! Listening to a child: answers to whoever asked, everything else to where it belongs.

use super::bounded;
use super::link::{Link, Said};
use super::text::sanitised;
use super::{Aside, Question, wire};
use bytes::Bytes;
use rethread_proto::jsonrpc::{self, EnvelopeError, Limits, Message, Payload, RequestId, RpcError};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStdout;
use tokio::sync::mpsc::error::TrySendError;

/// The longest line. Beyond: the child is ended, since what it meant cannot be told to anybody.
const LINE: u64 = 32 << 20;
/// How deep and how many: a child is trusted more than a stranger, but not without end.
const ENVELOPE: Limits = Limits {
    depth: 120,
    batch: 1_000,
    id_bytes: 1024,
};

/// What a child writes.
pub(super) type Stdout = BufReader<ChildStdout>;

pub(super) fn buffered(stdout: ChildStdout) -> Stdout {
    BufReader::with_capacity(64 << 10, stdout)
}

/// Reads what a child that is ending still writes, for nobody: a pipe that is closed or full would be an error of the child.
/// Never returns, since others may hold the pipe open after the child.
pub(super) async fn discard(stdout: &mut Stdout) {
    while let Ok(read @ 1..) = stdout.fill_buf().await.map(<[u8]>::len) {
        stdout.consume(read);
    }
    std::future::pending::<()>().await;
}

/// Why nobody listens to a child any more.
pub(super) enum End {
    /// Nobody wants to.
    Dismissed,
    /// It has nothing more to say.
    Silent,
    /// It cannot be listened to.
    Broken(String),
}

/// Listens to a child.
pub(super) struct Reading {
    pub(super) link: std::sync::Weak<Link>,
    pub(super) name: Arc<str>,
    pub(super) aside: bounded::Sender<Aside>,
    pub(super) shared: bool,
}

impl Reading {
    /// Reads until the child or its last user is gone. Once `past` resolves only what is there already is read.
    pub(super) async fn run(self, stdout: &mut Stdout, past: impl Future<Output = End>) -> End {
        tokio::pin!(past);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded = (&mut *stdout).take(LINE + 1);
            let read = tokio::select! {
                biased;
                () = self.aside.closed() => return End::Dismissed,
                read = bounded.read_until(b'\n', &mut line) => read,
                end = &mut past => return end,
            };
            match read {
                Ok(0) => return End::Silent,
                Ok(read) if read as u64 > LINE => {
                    return End::Broken(format!("it wrote a line of more than {LINE} bytes"));
                }
                Ok(_) => {}
                Err(error) => return End::Broken(format!("its stdout cannot be read: {error}")),
            }
            let text = line.trim_ascii();
            if text.is_empty() {
                continue;
            }
            let messages = match jsonrpc::parse(&Bytes::copy_from_slice(text), &ENVELOPE) {
                Ok(Payload::One(message)) => vec![message],
                Ok(Payload::Batch(messages)) => messages,
                Err(error) => {
                    tracing::warn!(
                        server = &*self.name,
                        "child wrote a line that is no message: {}",
                        sanitised(text)
                    );
                    self.refuse(error);
                    continue;
                }
            };
            for message in messages {
                // A client that does not listen must not keep the child of an ended session.
                tokio::select! {
                    () = self.take(message) => {}
                    () = self.aside.closed() => return End::Dismissed,
                }
            }
        }
    }

    /// A question that cannot be passed on is answered here: the child may wait for it.
    fn refuse(&self, error: EnvelopeError) {
        if let (EnvelopeError::InvalidParams { id: Some(id), what }, Some(link)) = (error, self.link.upgrade()) {
            let error = serde_json::to_vec(&RpcError::invalid_params(what)).unwrap_or_default();
            let _ = link.input.try_send(wire::answer(&id, Err(&error))); // it reads nothing: it asks in vain
        }
    }

    async fn take(&self, message: Message) {
        match message {
            Message::Answer(answer) => {
                let number = number(&answer.id);
                // It leaves the list with its answer: nothing that comes later can belong to it.
                match number.and_then(|number| self.link.upgrade()?.state.lock().calls.remove(&number)) {
                    Some(call) => self.say(number, &call, Said::Answered(answer.outcome)).await,
                    None => tracing::debug!(server = &*self.name, "child answers a request that nobody waits for"),
                }
            }
            Message::Notification(note) => {
                let (method, params) = (note.method.as_str(), Bytes::copy_from_slice(note.params.as_json()));
                self.notified(method, params).await;
            }
            Message::Request(request) => {
                let asked = Question {
                    id: request.id,
                    method: request.method.as_str().to_owned(),
                    params: Bytes::copy_from_slice(request.params.as_json()),
                };
                self.asked(asked).await;
            }
        }
    }

    async fn notified(&self, method: &str, params: Bytes) {
        let to = match method {
            "notifications/progress" => match wire::progress_number(&params) {
                Some(number) => self.call(number).map(|call| (number, call)),
                None => None,
            },
            "notifications/cancelled" => {
                if let Some(id) = wire::cancelled(&params) {
                    if let Some((number, subscription)) = number(&id).and_then(|number| self.subscription(number)) {
                        return self.say(Some(number), &subscription, Said::Ended).await;
                    }
                    for (number, call) in self.calls() {
                        self.say(Some(number), &call, Said::Withdrawn(id.clone())).await;
                    }
                    drop(self.aside.send(Aside::Withdrawn(id)).await);
                }
                return;
            }
            rethread::CLOSE_CONNECTION => {
                let called = wire::cancelled(&params).as_ref().and_then(number);
                if let Some(call) = called.and_then(|number| self.call(number)) {
                    self.say(called, &call, Said::Closes).await;
                }
                return;
            }
            // Said in the middle of a call, and nobody else can have caused it.
            "notifications/message" => self.only_call(),
            _ => wire::subscription_number(&params).and_then(|number| Some((number, self.call(number)?))),
        };
        let method = method.to_owned();
        match to {
            Some((number, call)) => self.say(Some(number), &call, Said::Notified { method, params }).await,
            None if method == "notifications/progress" => {} // too late, or never asked for
            None => drop(self.aside.send(Aside::Notified { method, params }).await),
        }
    }

    /// Says something to a call. A child of one session waits for it; a child of all does not, since the others would wait
    /// too (GW-12): a call that does not listen is given up.
    async fn say(&self, number: Option<u64>, call: &bounded::Sender<Said>, said: Said) {
        if !self.shared {
            return drop(call.send(said).await);
        }
        if let Err(TrySendError::Full(_)) = call.try_send(said)
            && let (Some(link), Some(number)) = (self.link.upgrade(), number)
        {
            tracing::warn!(
                server = &*self.name,
                "a client reads too slowly: its request is given up"
            );
            link.state.lock().calls.remove(&number);
            link.cancel(number);
        }
    }

    /// A question goes to the stream of the call that caused it. Lines do not tell which one that is: with several it is
    /// most likely the latest, and the client can answer on any.
    async fn asked(&self, question: Question) {
        if question.method == "ping" {
            // The gateway is its client, and is there. A child may ask so before there is anybody else.
            if let Some(link) = self.link.upgrade() {
                let _ = link.input.try_send(wire::answer(&question.id, Ok(b"{}"))); // it reads nothing: it asks in vain
            }
            return;
        }
        match self.calls().pop() {
            Some((number, call)) => self.say(Some(number), &call, Said::Asked(question)).await,
            None => drop(self.aside.send(Aside::Asked(question)).await),
        }
    }

    fn call(&self, number: u64) -> Option<bounded::Sender<Said>> {
        self.link.upgrade()?.state.lock().calls.get(&number).cloned()
    }

    /// A subscription. Other numbers of ours may be the child's own for its questions: each side counts for itself.
    fn subscription(&self, number: u64) -> Option<(u64, bounded::Sender<Said>)> {
        let link = self.link.upgrade()?;
        let state = link.state.lock();
        let call = state
            .calls
            .get(&number)
            .filter(|_| state.subscriptions.contains(&number));
        call.map(|call| (number, call.clone()))
    }

    fn only_call(&self) -> Option<(u64, bounded::Sender<Said>)> {
        let mut calls = self.calls();
        if calls.len() == 1 { calls.pop() } else { None }
    }

    /// What the child works on for clients, subscriptions aside.
    fn calls(&self) -> Vec<(u64, bounded::Sender<Said>)> {
        let all = |link: Arc<Link>| {
            let state = link.state.lock();
            let at_work =
                |(number, _): &(&u64, _)| !state.subscriptions.contains(number) && !state.own.contains(number);
            let calls = state.calls.iter().filter(at_work);
            calls.map(|(number, call)| (*number, call.clone())).collect()
        };
        self.link.upgrade().map_or_else(Vec::new, all)
    }
}

/// The number under which we sent a request.
fn number(id: &RequestId) -> Option<u64> {
    std::str::from_utf8(id.as_json()).ok()?.parse().ok()
}
