//! Talking to a child: requests out, answers back to whoever asked, everything else to where it belongs.

use super::process::{Ground, Pipes, Process};
use super::text::sanitised;
use super::{Aside, Question, gone, wire};
use bytes::Bytes;
use parking_lot::Mutex;
use rethread::RpcError;
use rethread_proto::jsonrpc::{self, Limits, Message, Payload, RequestId};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, watch};

/// Lines on their way to a child. Beyond: whoever sends waits.
const LINES: usize = 256;
/// Messages on their way from a child to one call. Beyond: the child waits, which is its own session's matter only.
const SAID: usize = 64;
/// The longest line. Beyond: the child is ended, since what it meant cannot be told to anybody.
const LINE: u64 = 32 << 20;
/// How deep and how many: a child is trusted more than a stranger, but not without end.
const ENVELOPE: Limits = Limits {
    depth: 120,
    batch: 1_000,
};
/// A child that takes nothing from its stdin for this long is not asked any more.
const STUCK: Duration = Duration::from_secs(10);

/// A child at work. When the last handle is dropped the child is ended.
#[derive(Debug)]
pub(crate) struct Link {
    input: mpsc::Sender<Bytes>,
    state: Mutex<State>,
    ended: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    calls: BTreeMap<u64, mpsc::Sender<Said>>,
    /// Calls that are subscriptions: nothing but changes belongs to them.
    subscriptions: BTreeSet<u64>,
    /// Why the child is gone.
    gone: Option<Arc<str>>,
}

/// What a child says to a call.
#[derive(Debug)]
pub(crate) enum Said {
    /// A notification, its progress token still the gateway's.
    Notified { method: String, params: Bytes },
    /// A question to the client.
    Asked(Question),
    /// The child no longer waits for an answer.
    Withdrawn(RequestId),
    /// The child has ended a subscription.
    Ended,
    /// The client's connection is to be closed while the call goes on.
    Closes,
    /// The answer: the raw result, or the raw error.
    Answered(Result<Bytes, Bytes>),
}

/// A call that the child works on. Dropping it before it is answered cancels it.
#[derive(Debug)]
pub(crate) struct Calling {
    link: Arc<Link>,
    number: u64,
    said: mpsc::Receiver<Said>,
    over: bool,
}

impl Link {
    /// Starts a child and listens to it. What belongs to no call goes to the returned channel, which ends with the child.
    /// A child that is `shared` by many clients waits for none of them.
    pub(crate) fn start(ground: &Ground, shared: bool) -> io::Result<(Arc<Self>, mpsc::Receiver<Aside>)> {
        let (process, pipes) = ground.start()?;
        let Pipes { stdin, stdout, stderr } = pipes;
        let name: Arc<str> = ground.server.name.as_str().into();
        let (input, lines) = mpsc::channel(LINES);
        let (aside, asides) = mpsc::channel(SAID);
        let (has_ended, ended) = watch::channel(false);
        let link = Arc::new(Link {
            input,
            state: Mutex::default(),
            ended,
        });
        tracing::debug!(server = &*name, pid = process.group, "child started");
        tokio::spawn(log_stderr(stderr, Arc::clone(&name)));
        let reading = Reading {
            link: Arc::downgrade(&link),
            name,
            aside,
            shared,
        };
        tokio::spawn(keep(process, lines, stdin, reading, stdout, has_ended));
        Ok((link, asides))
    }

    /// Sends a request; its progress token becomes the gateway's.
    pub(crate) async fn call(self: &Arc<Self>, method: &str, params: &Bytes) -> Result<Calling, RpcError> {
        let (sender, said) = mpsc::channel(SAID);
        let number = {
            let mut state = self.state.lock();
            if let Some(why) = &state.gone {
                return Err(gone(why));
            }
            state.last += 1;
            let number = state.last;
            state.calls.insert(number, sender);
            if method == "subscriptions/listen" {
                state.subscriptions.insert(number);
            }
            number
        };
        let calling = Calling {
            link: Arc::clone(self),
            number,
            said,
            over: false,
        };
        let params = wire::with_progress_token(params, number);
        self.send(wire::request(number, method, &params)).await?;
        Ok(calling)
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: &[u8]) -> Result<(), RpcError> {
        self.send(wire::notification(method, params)).await
    }

    /// Answers a question of the child.
    pub(crate) async fn answer(&self, id: &RequestId, outcome: Result<&[u8], &RpcError>) {
        let line = match outcome {
            Ok(result) => wire::answer(id, Ok(result)),
            Err(error) => wire::answer(id, Err(&serde_json::to_vec(error).unwrap_or_default())),
        };
        let _ = self.send(line).await; // a child that is gone waits for nothing
    }

    async fn send(&self, line: Bytes) -> Result<(), RpcError> {
        match tokio::time::timeout(STUCK, self.input.send(line)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(gone(&self.why_gone())),
            Err(_) => Err(RpcError::internal(
                "the server behind the gateway does not read what it is sent",
            )),
        }
    }

    /// Whether the child is still there.
    pub(crate) fn is_alive(&self) -> bool {
        self.state.lock().gone.is_none()
    }

    /// Whether nobody waits for anything, the gateway's own subscription aside.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.calls.len() <= state.subscriptions.len().min(1)
    }

    fn why_gone(&self) -> Arc<str> {
        self.state
            .lock()
            .gone
            .clone()
            .unwrap_or_else(|| "it was stopped".into())
    }

    /// Waits until the process and all it has started are gone.
    pub(crate) async fn ended(&self) {
        let _ = self.ended.clone().wait_for(|ended| *ended).await; // the sender is gone: so is the child
    }
}

impl Calling {
    /// What the child says next; `None` if it is gone.
    pub(crate) async fn next(&mut self) -> Option<Said> {
        let said = self.said.recv().await;
        self.over |= matches!(said, None | Some(Said::Answered(_)));
        said
    }

    /// The answer, when nothing else is of interest.
    pub(crate) async fn answered(mut self) -> Result<Bytes, RpcError> {
        loop {
            match self.next().await {
                Some(Said::Answered(outcome)) => return outcome.map_err(|error| read_error(&error)),
                Some(_) => {}
                None => return Err(self.gone()),
            }
        }
    }

    /// Why there is no answer.
    pub(crate) fn gone(&self) -> RpcError {
        if self.link.is_alive() {
            return RpcError::internal("this request was given up: its client reads too slowly");
        }
        gone(&self.link.why_gone())
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        {
            let mut state = self.link.state.lock();
            state.calls.remove(&self.number);
            state.subscriptions.remove(&self.number);
        }
        if !self.over {
            let params = format!("{{\"requestId\":{},\"reason\":\"the client gave up\"}}", self.number);
            // A child that does not even read has no use for it.
            let _ = self
                .link
                .input
                .try_send(wire::notification("notifications/cancelled", params.as_bytes()));
        }
    }
}

/// An error of a child, as it came.
pub(crate) fn read_error(raw: &[u8]) -> RpcError {
    serde_json::from_slice(raw)
        .unwrap_or_else(|_| RpcError::internal("the server behind the gateway sent a malformed error"))
}

/// The life of a child: its lines in, its lines out, its end.
async fn keep(
    mut process: Process,
    lines: mpsc::Receiver<Bytes>,
    stdin: ChildStdin,
    reading: Reading,
    stdout: ChildStdout,
    has_ended: watch::Sender<bool>,
) {
    let writing = tokio::spawn(write(lines, stdin));
    let name = Arc::clone(&reading.name);
    let link = reading.link.clone();
    let end = reading.run(stdout).await;
    // Its stdout has ended, or nobody talks to it any more. What it was is known when it is reaped.
    writing.abort();
    let _ = writing.await;
    let status = tokio::time::timeout(Duration::from_millis(100), process.ended()).await;
    let why: Arc<str> = match (&end, status) {
        (End::Dismissed, _) => "it was stopped".into(),
        (End::Broken(why), _) => why.as_str().into(),
        (End::Silent, Ok(Ok(status))) => format!("it ended ({status})").into(),
        (End::Silent, _) => "it closed its stdout".into(),
    };
    let calls = link.upgrade().map_or(0, |link| {
        let mut state = link.state.lock();
        state.gone = Some(Arc::clone(&why));
        std::mem::take(&mut state.calls).len()
    });
    let pid = process.group;
    process.stop().await;
    match end {
        End::Dismissed => tracing::debug!(server = &*name, pid, "child ended"),
        _ => tracing::warn!(server = &*name, pid, calls, "child is gone: {why}"),
    }
    has_ended.send_replace(true);
}

async fn write(mut lines: mpsc::Receiver<Bytes>, mut stdin: ChildStdin) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(&line).await.is_err() {
            return; // its stdout tells what happened
        }
    }
}

/// Why nobody listens to a child any more.
enum End {
    /// Nobody wants to.
    Dismissed,
    /// It has nothing more to say.
    Silent,
    /// It cannot be listened to.
    Broken(String),
}

/// Listens to a child.
struct Reading {
    link: std::sync::Weak<Link>,
    name: Arc<str>,
    aside: mpsc::Sender<Aside>,
    shared: bool,
}

impl Reading {
    /// Reads until the child or its last user is gone.
    async fn run(self, stdout: ChildStdout) -> End {
        let mut stdout = BufReader::with_capacity(64 << 10, stdout);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded = (&mut stdout).take(LINE + 1);
            let read = tokio::select! {
                read = bounded.read_until(b'\n', &mut line) => read,
                () = self.aside.closed() => return End::Dismissed,
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
            match jsonrpc::parse(&Bytes::copy_from_slice(text), &ENVELOPE) {
                Ok(Payload::One(message)) => self.take(message).await,
                Ok(Payload::Batch(messages)) => {
                    for message in messages {
                        self.take(message).await;
                    }
                }
                Err(_) => {
                    tracing::warn!(
                        server = &*self.name,
                        "child wrote a line that is no message: {}",
                        sanitised(text)
                    );
                }
            }
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
                    id: request.id.detached(),
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
                    if let Some(subscription) = number(&id).and_then(|number| self.call(number)) {
                        return self.say(number(&id), &subscription, Said::Ended).await;
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
    async fn say(&self, number: Option<u64>, call: &mpsc::Sender<Said>, said: Said) {
        if !self.shared {
            return drop(call.send(said).await);
        }
        if let Err(mpsc::error::TrySendError::Full(_)) = call.try_send(said)
            && let (Some(link), Some(number)) = (self.link.upgrade(), number)
        {
            tracing::warn!(
                server = &*self.name,
                "a client reads too slowly: its request is given up"
            );
            link.state.lock().calls.remove(&number);
        }
    }

    /// A question goes to the stream of the call that caused it. Lines do not tell which one that is: with several it is
    /// most likely the latest, and the client can answer on any.
    async fn asked(&self, question: Question) {
        match self.calls().pop() {
            Some((number, call)) => self.say(Some(number), &call, Said::Asked(question)).await,
            None => drop(self.aside.send(Aside::Asked(question)).await),
        }
    }

    fn call(&self, number: u64) -> Option<mpsc::Sender<Said>> {
        self.link.upgrade()?.state.lock().calls.get(&number).cloned()
    }

    fn only_call(&self) -> Option<(u64, mpsc::Sender<Said>)> {
        let mut calls = self.calls();
        if calls.len() == 1 { calls.pop() } else { None }
    }

    /// What the child works on, subscriptions aside.
    fn calls(&self) -> Vec<(u64, mpsc::Sender<Said>)> {
        let all = |link: Arc<Link>| {
            let state = link.state.lock();
            let at_work = |(number, _): &(&u64, _)| !state.subscriptions.contains(number);
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

async fn log_stderr(stderr: impl AsyncRead + Unpin, name: Arc<str>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut stderr).take(64 << 10).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => tracing::info!(target: "rethread::child", "[{name}] {}", sanitised(&line)),
        }
    }
}
