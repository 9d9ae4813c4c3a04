//! Lines of JSON-RPC on a pair of byte streams, both eras: the stdio transport.

use crate::call::response_future::CallResponse;
use crate::endpoint::bound_session;
use crate::endpoint::modern::{self, StatelessRequest, StatelessResponse};
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::server::Server;
use crate::endpoint::service::McpService;
use crate::session::Transport;
use crate::stream::body::Chunks;
use crate::stream::events::Messages;
use bytes::Bytes;
use rethread_proto::gate::mirror::Stateless;
use rethread_proto::jsonrpc::{self, Message, Payload, Request, RequestId};
use rethread_proto::refusal::Reason;
use rethread_proto::sse::Draft;
use rethread_proto::stream::Framing;
use rethread_proto::{Era, Principal, Refusal, Version};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

impl McpService {
    /// Serves one client over lines, such as stdin and stdout, until the input ends. The session ends with it: running
    /// calls are cancelled. Whatever the revision, one message is one line.
    pub async fn serve_lines(
        &self,
        input: impl AsyncBufRead + Unpin + Send,
        output: impl AsyncWrite + Unpin + Send,
    ) -> io::Result<()> {
        let inner = &self.inner;
        inner.start_background();
        let connection = bound_session::open(inner, Principal::anonymous(), Transport::Lines, |_| None)
            .map_err(|reason| io::Error::other(Refusal::new(reason).error().to_string()))?;
        let session = Arc::clone(&connection.session);
        let (lines, waiting) = mpsc::channel(inner.node.limits.queued_lines().max(1));
        let reader = LineReader {
            inner,
            lines: lines.clone(),
            stateless: HashMap::new(),
            tasks: JoinSet::new(),
        };
        tokio::select! {
            read = reader.read(input, &session) => read,
            () = forward_chunks(connection, &lines) => Ok(()),
            written = write(output, waiting) => written,
        }
    }
}

async fn write(mut output: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Bytes>) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        output.write_all(&line).await?;
        while let Ok(line) = lines.try_recv() {
            output.write_all(&line).await?;
        }
        output.flush().await?;
    }
    Ok(())
}

struct LineReader<'a> {
    inner: &'a Arc<Server>,
    lines: mpsc::Sender<Bytes>,
    /// Stateless requests under way: on this transport a notification cancels them.
    stateless: HashMap<RequestId, AbortHandle>,
    tasks: JoinSet<()>,
}

impl LineReader<'_> {
    async fn read(
        mut self,
        mut input: impl AsyncBufRead + Unpin,
        session: &Arc<crate::session::Session>,
    ) -> io::Result<()> {
        let limit = self.inner.node.limits.body_bytes() as u64;
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut input).take(limit + 1).read_until(b'\n', &mut line).await?;
            if read == 0 {
                return Ok(());
            }
            if read as u64 > limit {
                self.refuse(&Reason::BodyTooLarge { limit: limit as usize }.into())
                    .await;
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a line is longer than the limit",
                ));
            }
            let text = Bytes::copy_from_slice(line.trim_ascii());
            if text.is_empty() {
                continue;
            }
            let taken = match jsonrpc::parse(&text, &self.inner.node.limits.envelope()) {
                Ok(payload) => self.take(session, payload).await,
                Err(error) => Err(error.into()),
            };
            if let Err(refusal) = taken {
                self.refuse(&refusal).await;
            }
            while self.tasks.try_join_next().is_some() {}
            self.stateless.retain(|_, task| !task.is_finished());
        }
    }

    async fn refuse(&self, refusal: &Refusal) {
        let _ = self.lines.send(line(&refusal.body())).await; // nobody listens: the input ends soon
    }

    /// VER-04 without headers: `_meta` alone names the era.
    async fn take(&mut self, session: &Arc<crate::session::Session>, payload: Payload) -> Result<(), Refusal> {
        let params = match &payload {
            Payload::One(Message::Request(request)) => Some(&request.params),
            Payload::One(Message::Notification(note)) => Some(&note.params),
            _ => None,
        };
        let served = self.inner.node.revisions;
        match params.and_then(jsonrpc::Params::meta_protocol_version) {
            None => {
                if let Payload::One(Message::Notification(note)) = &payload
                    && note.method.as_str() == "notifications/cancelled"
                    && let Some(task) = note
                        .params
                        .cancelled_request()
                        .and_then(|id| self.stateless.remove(&id))
                {
                    task.abort();
                    return Ok(());
                }
                bound_session::take(self.inner, session, payload, RequestHead::default()).await
            }
            Some(named) => {
                let version = named
                    .parse()
                    .ok()
                    .filter(|v: &Version| v.era() == Era::Modern && served.serves(*v));
                match (version, payload) {
                    (Some(version), Payload::One(Message::Request(request))) => {
                        let id = request.id.clone();
                        let taken = self.stateless(version, request).await;
                        taken.map_err(|reason| Refusal::new(reason).about(Some(&id)))
                    }
                    (Some(_), Payload::One(Message::Notification(note))) => {
                        if let Some(task) = note
                            .params
                            .cancelled_request()
                            .and_then(|id| self.stateless.remove(&id))
                        {
                            task.abort();
                        }
                        Ok(())
                    }
                    (_, payload) => {
                        let id = match &payload {
                            Payload::One(message) => message.request_id().cloned(),
                            Payload::Batch(_) => None,
                        };
                        let reason = Reason::UnsupportedVersion {
                            requested: named,
                            served,
                        };
                        Err(Refusal::new(reason).about(id.as_ref()))
                    }
                }
            }
        }
    }

    /// VER-05 without headers; what it leads to is the same as over HTTP.
    async fn stateless(&mut self, version: Version, request: Request) -> Result<(), Reason> {
        let parts = Stateless::read(&request.params)?;
        let id = request.id.clone();
        let (caller, head) = ((version, Principal::anonymous()), RequestHead::default());
        let begun = match modern::admit(&self.inner.node, caller, &request, &parts, head.extensions())? {
            Ok(sender) => {
                let stateless = StatelessRequest {
                    version,
                    request,
                    sender,
                    framing: Framing::Line,
                };
                modern::begin(self.inner, stateless, head)?
            }
            Err(unknown) => StatelessResponse::Answered(unknown),
        };
        let lines = self.lines.clone();
        let task = match begun {
            StatelessResponse::Answered(json) => {
                let _ = self.lines.send(line(&json.message)).await; // nobody listens: the input ends soon
                return Ok(());
            }
            StatelessResponse::Subscribed(subscription) => self.tasks.spawn(forward_messages(subscription, lines)),
            StatelessResponse::Call(response) => self.tasks.spawn(async move {
                match response.await {
                    CallResponse::Json(json) => drop(lines.send(line(&json.message)).await),
                    CallResponse::Direct(body) => forward_chunks(*body, &lines).await,
                    CallResponse::Logged(_) | CallResponse::Events(_) | CallResponse::Empty => {} // not of this era, or cancelled
                }
            }),
        };
        self.stateless.insert(id, task);
        Ok(())
    }
}

/// A message as a line, without line breaks of its own (GW-01).
fn line(message: &[u8]) -> Bytes {
    Draft::copy_of(message).line().wire
}

/// Writes what a connection gets, until it ends.
async fn forward_chunks(mut chunks: impl Chunks, lines: &mpsc::Sender<Bytes>) {
    while let Some(chunk) = poll_fn(|cx| chunks.poll_chunk(cx)).await {
        if lines.send(chunk).await.is_err() {
            return;
        }
    }
}

async fn forward_messages(mut messages: impl Messages, lines: mpsc::Sender<Bytes>) {
    while let Some(batch) = poll_fn(|cx| messages.poll_messages(cx)).await {
        for message in batch {
            if lines.send(line(&message)).await.is_err() {
                return;
            }
        }
    }
}
