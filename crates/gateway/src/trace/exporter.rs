//! Sends spans to a collector in batches. Never delays a call: spans beyond the queue are dropped.

use super::otlp::{self, Span};
use crate::auth::fetch;
use crate::byte_budget::ByteBudget;
use crate::task;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, header};
use http_body_util::Full;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

/// Calls whose spans wait for the collector, and the bytes of these spans. Beyond either: dropped and counted.
const MAX_QUEUED_CALLS: usize = 4096;
const MAX_QUEUED_BYTES: usize = 8 << 20;
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
    bytes: Arc<ByteBudget>,
    /// Calls whose spans were dropped since the log said so.
    dropped: AtomicU64,
}

impl Exporter {
    pub(super) fn start(destination: Destination) -> Self {
        let (exporter, commands) = Self::queue();
        task::spawn(export(commands, destination, Arc::clone(&exporter.bytes)));
        exporter
    }

    fn queue() -> (Self, mpsc::Receiver<Command>) {
        let (queue, commands) = mpsc::channel(MAX_QUEUED_CALLS);
        let exporter = Exporter {
            queue,
            bytes: Arc::new(ByteBudget::new(MAX_QUEUED_BYTES)),
            dropped: AtomicU64::new(0),
        };
        (exporter, commands)
    }

    /// Queues the spans of one call. Never waits.
    pub(super) fn send(&self, spans: Vec<Span>) {
        if !self.try_send(spans) {
            if self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!("traces dropped: the collector does not keep up");
            }
        } else if self.dropped.load(Ordering::Relaxed) > 0 {
            let calls = self.dropped.swap(0, Ordering::Relaxed);
            tracing::warn!(calls, "traces are exported again; those of these calls are lost");
        }
    }

    fn try_send(&self, spans: Vec<Span>) -> bool {
        let bytes = queued_bytes(&spans);
        if !self.bytes.try_reserve(bytes) {
            return false;
        }
        let is_sent = self.queue.try_send(Command::Spans(spans)).is_ok();
        if !is_sent {
            self.bytes.release(bytes);
        }
        is_sent
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

/// The memory of the spans of one call in the queue.
fn queued_bytes(spans: &[Span]) -> usize {
    spans.iter().map(Span::memory_bytes).sum()
}

async fn export(mut commands: mpsc::Receiver<Command>, destination: Destination, bytes: Arc<ByteBudget>) {
    let mut has_failed = false;
    while let Some(first) = commands.recv().await {
        let deadline = Instant::now() + BATCH_DELAY;
        let (mut batch, mut flushed) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                Command::Spans(spans) => {
                    bytes.release(queued_bytes(&spans));
                    batch.extend(spans);
                }
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

#[cfg(test)]
mod tests {
    use super::super::SpanContext;
    use super::super::otlp::{AttributeValue, SpanKind};
    use super::*;

    fn span(text_bytes: usize) -> Span {
        Span {
            context: SpanContext::root([1; 16], [1; 8]),
            parent: None,
            links: Vec::new(),
            name: "tools/call".to_owned(),
            kind: SpanKind::Server,
            start: 0,
            end: 0,
            attributes: vec![("x", AttributeValue::Text("x".repeat(text_bytes)))],
            error: None,
        }
    }

    /// OPS-19: a collector that stalls costs a bounded number of calls and of bytes.
    #[test]
    fn ops_19_queue_is_bounded_in_calls_and_in_bytes() {
        let queued = |text_bytes: usize| {
            let (exporter, _commands) = Exporter::queue();
            (0..2 * MAX_QUEUED_CALLS)
                .filter(|_| exporter.try_send(vec![span(text_bytes)]))
                .count()
        };
        assert_eq!(queued(1), MAX_QUEUED_CALLS);
        let large = queued(64 << 10);
        assert!((100..=128).contains(&large), "{large}");
    }

    #[test]
    fn ops_19_dropped_calls_are_counted_until_the_queue_has_room() {
        let (exporter, mut commands) = Exporter::queue();
        for _ in 0..MAX_QUEUED_CALLS + 3 {
            exporter.send(vec![span(1)]);
        }
        assert_eq!(exporter.dropped.load(Ordering::Relaxed), 3);
        assert!(commands.try_recv().is_ok());
        exporter.send(vec![span(1)]);
        assert_eq!(exporter.dropped.load(Ordering::Relaxed), 0);
    }
}
