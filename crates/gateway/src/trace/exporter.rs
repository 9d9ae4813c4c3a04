//! Sends spans to a collector in batches. Never delays a call: spans beyond the queue are dropped.

use super::otlp::{self, Span};
use crate::auth::fetch;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, header};
use http_body_util::Full;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

/// Spans that wait for the collector. Beyond: dropped.
const MAX_QUEUED_SPANS: usize = 4096;
/// Spans of one request.
const MAX_BATCH_SPANS: usize = 512;
/// How long the first span of a batch waits for others.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// How long the collector may take. Beyond: the batch is dropped.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of the program waits for the last batch.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Where spans are sent.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    pub(super) url: String,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) service: String,
}

enum Command {
    Spans(Vec<Span>),
    Flush(oneshot::Sender<()>),
}

/// The queue of the exporter.
pub(super) struct Exporter {
    queue: mpsc::Sender<Command>,
    is_full: AtomicBool,
}

impl Exporter {
    pub(super) fn start(destination: Destination) -> Self {
        let (queue, commands) = mpsc::channel(MAX_QUEUED_SPANS);
        tokio::spawn(export(commands, destination));
        Exporter {
            queue,
            is_full: AtomicBool::new(false),
        }
    }

    pub(super) fn send(&self, spans: Vec<Span>) {
        let is_full = self.queue.try_send(Command::Spans(spans)).is_err();
        if is_full && !self.is_full.swap(is_full, Ordering::Relaxed) {
            tracing::warn!("traces dropped: the collector does not keep up");
        } else if !is_full {
            self.is_full.store(false, Ordering::Relaxed);
        }
    }

    /// Sends what waits, for a bounded time.
    pub(super) async fn close(&self) {
        let (done, flushed) = oneshot::channel();
        let closing = async {
            if self.queue.send(Command::Flush(done)).await.is_ok() {
                let _ = flushed.await;
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, closing).await;
    }
}

async fn export(mut commands: mpsc::Receiver<Command>, destination: Destination) {
    let mut has_failed = false;
    while let Some(first) = commands.recv().await {
        let deadline = Instant::now() + BATCH_DELAY;
        let (mut batch, mut flushed) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                Command::Spans(spans) => batch.extend(spans),
                Command::Flush(done) => flushed.push(done),
            }
            if batch.len() >= MAX_BATCH_SPANS || !flushed.is_empty() {
                break;
            }
            next = timeout_at(deadline, commands.recv()).await.ok().flatten();
        }
        if !batch.is_empty() {
            let sent = timeout(EXPORT_TIMEOUT, post(&destination, &batch)).await;
            let problem = match sent {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the collector does not answer".to_owned()),
            };
            if let Some(problem) = &problem
                && !has_failed
            {
                tracing::warn!(spans = batch.len(), problem, "traces not exported");
            }
            has_failed = problem.is_some();
        }
        flushed.into_iter().for_each(|done| {
            let _ = done.send(());
        });
    }
}

async fn post(destination: &Destination, batch: &[Span]) -> Result<Bytes, fetch::FetchError> {
    let body = otlp::encode(&destination.service, env!("CARGO_PKG_VERSION"), batch);
    let mut request = Request::post("/")
        .body(Full::from(body))
        .map_err(|_| fetch::FetchError::InvalidUrl)?;
    let headers = request.headers_mut();
    headers.extend(destination.headers.iter().cloned());
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    fetch::send(&destination.url, request).await
}
