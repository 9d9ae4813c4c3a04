//! A response body that another node sends in chunks.

use super::outbox::{MAX_UNREAD_CHUNKS, send};
use super::outgoing::Outgoing;
use crate::node::Node;
use crate::stream::body::Chunks;
use bytes::Bytes;
use rethread_proto::cluster::ChunkStep;
use rethread_proto::cluster::mail::{ForwardId, MailHead};
use rethread_store::Incarnation;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::sync::{mpsc, watch};

/// A part of a body that has arrived.
pub(super) enum BodyPart {
    Chunk(Bytes),
    /// The body is complete. A channel that closes without it has lost a part.
    End,
}

/// The forwarded request of a body.
pub(super) trait OpenForward: Send {
    fn id(&self) -> &ForwardId;
    /// Sends a message to the serving node. The caller does not wait for it.
    fn send_later(&self, head: MailHead);
    /// Whether the serving node needs no message that the client has left.
    fn set_over(&mut self, is_over: bool);
}

/// A response body that another node sends in chunks.
pub(super) struct ChunkBody {
    parts: mpsc::Receiver<BodyPart>,
    state: BodyState,
    forward: Box<dyn OpenForward>,
    /// Chunks that were read.
    read: Arc<AtomicU64>,
    /// Chunks that were read and not reported yet.
    unreported: u32,
    is_event_stream: bool,
    /// Whether the client has no part of an event.
    is_between_events: bool,
    interruption: Pin<Box<dyn Future<Output = Interruption> + Send>>,
    /// The last event if the serving node dies.
    on_death: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyState {
    Open,
    Complete,
    Broken,
}

/// Why a body ends without its last chunk.
enum Interruption {
    /// The serving node is dead.
    Died,
    /// This node stops. The client opens the stream again elsewhere.
    Closing,
    /// The serving node does not answer.
    Silent,
}

impl ChunkBody {
    pub(super) fn new(
        parts: mpsc::Receiver<BodyPart>,
        forward: Box<dyn OpenForward>,
        probe: Probe,
        reconnections: watch::Receiver<u64>,
        request: &Outgoing,
        is_event_stream: bool,
    ) -> Self {
        let read = Arc::clone(&probe.read);
        ChunkBody {
            parts,
            state: BodyState::Open,
            read,
            unreported: 0,
            is_event_stream,
            is_between_events: true,
            interruption: Box::pin(probe.interruption(reconnections, request.has_end)),
            on_death: request.on_death.clone(),
            forward,
        }
    }

    /// A chunk goes to the client, so the serving node may send more.
    fn report(&mut self) {
        let total = self.read.fetch_add(1, Ordering::Relaxed) + 1;
        self.unreported += 1;
        if self.unreported as usize >= MAX_UNREAD_CHUNKS / 2 {
            let head = MailHead::Credit {
                request: self.forward.id().clone(),
                chunks: std::mem::take(&mut self.unreported),
                total: Some(total),
            };
            self.forward.send_later(head);
        }
    }

    /// The last part of a body that was interrupted. A client takes no incomplete JSON for complete, and no part of an event
    /// for an event: a stream of events may just end, because its client resumes it.
    fn interrupt(&mut self, interruption: &Interruption) -> Option<Bytes> {
        let is_dead = matches!(interruption, Interruption::Died);
        self.forward.set_over(is_dead); // another node gets the message that nobody waits
        let last = std::mem::take(&mut self.on_death);
        let ends_well = self.is_event_stream
            && match interruption {
                Interruption::Died => last.is_empty() || self.is_between_events,
                Interruption::Closing => true,
                Interruption::Silent => false,
            };
        if !ends_well {
            self.state = BodyState::Broken;
            return None;
        }
        self.state = BodyState::Complete;
        (is_dead && !last.is_empty()).then_some(last)
    }
}

impl Chunks for ChunkBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.state != BodyState::Open {
            return Poll::Ready(None);
        }
        Poll::Ready(match self.parts.poll_recv(cx) {
            Poll::Ready(Some(BodyPart::Chunk(chunk))) => {
                self.report();
                self.is_between_events = chunk.ends_with(b"\n\n");
                Some(chunk)
            }
            Poll::Ready(Some(BodyPart::End)) => {
                self.forward.set_over(true);
                self.state = BodyState::Complete;
                None
            }
            Poll::Ready(None) => {
                self.state = BodyState::Broken;
                None
            }
            Poll::Pending => {
                let interruption = ready!(self.interruption.as_mut().poll(cx));
                self.interrupt(&interruption)
            }
        })
    }

    fn is_broken(&self) -> bool {
        self.state == BodyState::Broken
    }
}

/// Finds out whether the next chunk will come.
pub(super) struct Probe {
    pub(super) node: Arc<Node>,
    /// The serving node.
    pub(super) to: Incarnation,
    pub(super) id: ForwardId,
    /// Chunks that the client has read.
    pub(super) read: Arc<AtomicU64>,
    /// Decides the next step after a silence.
    pub(super) silence: Box<dyn Fn() -> ChunkStep + Send + Sync>,
}

impl Probe {
    /// Waits for the end of the wait. It is polled only while the client waits for a chunk.
    async fn interruption(self, mut reconnections: watch::Receiver<u64>, has_end: bool) -> Interruption {
        let Some(cluster) = self.node.cluster() else {
            return std::future::pending().await;
        };
        let mut closing = self.node.closing.subscribe();
        let dead = self.node.membership.when_dead(cluster, &self.to);
        tokio::pin!(dead);
        loop {
            let step = tokio::select! {
                () = &mut dead => return Interruption::Died,
                _ = closing.wait_for(|closing| *closing), if !has_end => return Interruption::Closing,
                _ = reconnections.changed() => ChunkStep::Ask,
                () = tokio::time::sleep(self.node.membership.lease()) => (self.silence)(),
            };
            match step {
                ChunkStep::Ask => self.ask(),
                ChunkStep::Break => return Interruption::Silent,
                _ => {}
            }
        }
    }

    /// Asks the serving node, and repeats the credit, which may be lost.
    fn ask(&self) {
        let credit = MailHead::Credit {
            request: self.id.clone(),
            chunks: 0,
            total: Some(self.read.load(Ordering::Relaxed)),
        };
        let question = MailHead::Ask {
            request: self.id.clone(),
        };
        let (node, to) = (Arc::clone(&self.node), self.to.clone());
        tokio::spawn(async move {
            for head in [credit, question] {
                let _ = send(&node, &to, head, Bytes::new()).await; // repeated after the next lease
            }
        });
    }
}
