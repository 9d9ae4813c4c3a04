//! Talking to a child: requests out, answers back to whoever asked, and its life as a whole.

use super::bounded::{self, QueuedBytes};
use super::process::{Ground, Pipes, Process, Room};
use super::reading::{End, Reading, buffered, discard};
use super::text::sanitised;
use super::{Aside, Question, gone, wire};
use bytes::Bytes;
use parking_lot::Mutex;
use rethread::{Answer, AskError, RpcError};
use rethread_proto::jsonrpc::RequestId;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};

/// Bounds of the lines on their way to a child. Beyond: the sender waits.
const MAX_QUEUED_LINES: usize = 256;
const MAX_QUEUED_LINE_BYTES: usize = 8 << 20;
/// Bounds of the messages on their way from a child to one call, or to no call. Beyond: the child of one session waits; a call
/// on a shared child is given up.
const MAX_QUEUED_MESSAGES: usize = 64;
const MAX_QUEUED_MESSAGE_BYTES: usize = 4 << 20;
/// A child that takes nothing from its stdin for this long is not asked any more.
const STUCK: Duration = Duration::from_secs(10);
/// What a child that has ended may have left in its stdout or stderr is there by then. Others may hold the pipe open for ever.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A child at work. When the last handle is dropped the child is ended.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) input: bounded::Sender<Bytes>,
    pub(super) state: Mutex<State>,
    ended: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    last: u64,
    pub(super) calls: BTreeMap<u64, bounded::Sender<Said>>,
    /// Calls that are subscriptions: nothing but changes belongs to them.
    pub(super) subscriptions: BTreeSet<u64>,
    /// Calls of the gateway itself: nothing but the answer belongs to them.
    pub(super) own: BTreeSet<u64>,
    /// Questions of the child that are with its client.
    questions: Vec<(RequestId, AbortHandle)>,
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

impl QueuedBytes for Said {
    fn queued_bytes(&self) -> usize {
        match self {
            Said::Notified { method, params } => method.len() + params.len(),
            Said::Asked(question) => question.queued_bytes(),
            Said::Withdrawn(id) => id.as_json().len(),
            Said::Ended | Said::Closes => 0,
            Said::Answered(Ok(raw) | Err(raw)) => raw.len(),
        }
    }
}

/// A call that the child works on. Dropping it before it is answered cancels it.
#[derive(Debug)]
pub(crate) struct Calling {
    link: Arc<Link>,
    number: u64,
    said: bounded::Receiver<Said>,
    over: bool,
}

impl Link {
    /// Starts a child and listens to it. What belongs to no call goes to the returned channel, which ends with the child.
    /// A child that is `shared` by many clients waits for none of them.
    pub(crate) fn start(
        ground: &Ground,
        room: Room,
        shared: bool,
    ) -> io::Result<(Arc<Self>, bounded::Receiver<Aside>)> {
        let (process, pipes) = ground.start(room)?;
        let Pipes { stdin, stdout, stderr } = pipes;
        let name: Arc<str> = ground.server.name.as_str().into();
        let (input, lines) = bounded::channel(MAX_QUEUED_LINES, MAX_QUEUED_LINE_BYTES);
        let (aside, asides) = bounded::channel(MAX_QUEUED_MESSAGES, MAX_QUEUED_MESSAGE_BYTES);
        let (has_ended, ended) = watch::channel(false);
        let link = Arc::new(Link {
            input,
            state: Mutex::default(),
            ended,
        });
        tracing::debug!(server = &*name, pid = process.group, "child started");
        let logging = tokio::spawn(log_stderr(stderr, Arc::clone(&name)));
        let reading = Reading {
            link: Arc::downgrade(&link),
            name,
            aside,
            shared,
        };
        tokio::spawn(keep(process, lines, stdin, reading, stdout, logging, has_ended));
        Ok((link, asides))
    }

    /// Sends a client's request; its progress token becomes the gateway's.
    pub(crate) async fn call(self: &Arc<Self>, method: &str, params: &Bytes) -> Result<Calling, RpcError> {
        self.begin(method, params, false).await
    }

    /// Sends a request of the gateway itself, and waits for the answer.
    pub(crate) async fn ask(self: &Arc<Self>, method: &str, params: &Bytes) -> Result<Bytes, RpcError> {
        self.begin(method, params, true).await?.answered().await
    }

    async fn begin(self: &Arc<Self>, method: &str, params: &Bytes, own: bool) -> Result<Calling, RpcError> {
        let (sender, said) = bounded::channel(MAX_QUEUED_MESSAGES, MAX_QUEUED_MESSAGE_BYTES);
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
            if own {
                state.own.insert(number);
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

    /// Puts a question of the child to its client, beside everything else, and hands it the answer. That may come long
    /// after the call on whose stream it was asked: only the child, its end or the end of the session withdraws it.
    pub(crate) fn put(
        self: &Arc<Self>,
        question: Question,
        asking: impl Future<Output = Result<Answer, AskError>> + Send + 'static,
    ) {
        let (link, id) = (Arc::clone(self), question.id.clone());
        let asked = tokio::spawn(async move {
            match asking.await {
                Ok(answer) => link.answer(&question.id, Ok(answer.raw())).await,
                Err(error) => link.answer(&question.id, Err(&error.into())).await,
            }
        });
        let mut state = self.state.lock();
        if state.gone.is_some() {
            return asked.abort();
        }
        state.questions.retain(|(_, asked)| !asked.is_finished());
        state.questions.push((id, asked.abort_handle()));
    }

    /// The child no longer waits for the answer to a question.
    pub(crate) fn withdraw(&self, id: &RequestId) {
        let state = self.state.lock();
        for (_, asked) in state.questions.iter().filter(|(asked, _)| asked == id) {
            asked.abort();
        }
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

    /// Tells the child that nobody waits for an answer any more.
    pub(super) fn cancel(&self, number: u64) {
        let params = format!("{{\"requestId\":{number},\"reason\":\"the client gave up\"}}");
        // A child that does not even read has no use for it.
        let _ = self
            .input
            .try_send(wire::notification("notifications/cancelled", params.as_bytes()));
    }

    /// Whether the child is still there.
    pub(crate) fn is_alive(&self) -> bool {
        self.state.lock().gone.is_none()
    }

    /// How many wait for something.
    pub(crate) fn calls(&self) -> usize {
        self.state.lock().calls.len()
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
    async fn answered(mut self) -> Result<Bytes, RpcError> {
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
            state.own.remove(&self.number);
        }
        if !self.over {
            self.link.cancel(self.number);
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
    lines: bounded::Receiver<Bytes>,
    stdin: ChildStdin,
    reading: Reading,
    stdout: ChildStdout,
    logging: JoinHandle<()>,
    has_ended: watch::Sender<bool>,
) {
    let (open, closed) = oneshot::channel();
    let writing = tokio::spawn(write(lines, stdin, open));
    let name = Arc::clone(&reading.name);
    let link = reading.link.clone();
    let mut stdout = buffered(stdout);
    let end = reading.run(&mut stdout, past(&mut process, closed)).await;
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
        for (_, asked) in std::mem::take(&mut state.questions) {
            asked.abort();
        }
        std::mem::take(&mut state.calls).len()
    });
    let pid = process.group;
    // It may write until it has ended (GW-08).
    tokio::select! {
        () = process.stop() => {}
        () = discard(&mut stdout) => {}
    }
    let _ = tokio::time::timeout(LAST_WORDS, logging).await; // whoever it left behind may hold its stderr open
    match end {
        End::Dismissed => tracing::debug!(server = &*name, pid, "child ended"),
        _ => tracing::warn!(server = &*name, pid, calls, "child is gone: {why}"),
    }
    has_ended.send_replace(true);
}

/// Resolves when nothing more can come of a child, whoever else may hold its stdout: it has ended, or it has closed its
/// stdin.
async fn past(process: &mut Process, closed: oneshot::Receiver<()>) -> End {
    let end = tokio::select! {
        biased;
        _ = process.ended() => End::Silent,
        _ = closed => End::Broken("it closed its stdin".to_owned()),
    };
    tokio::time::sleep(LAST_WORDS).await;
    end
}

/// Writes until the child does not read any more; `_open` is dropped then.
async fn write(mut lines: bounded::Receiver<Bytes>, mut stdin: ChildStdin, _open: oneshot::Sender<()>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(&line).await.is_err() {
            return; // its stdout tells what happened
        }
    }
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
