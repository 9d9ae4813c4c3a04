//! A stream that needs no live part: it is complete before anybody could read it.

use super::Session;
use crate::telemetry;
use bytes::Bytes;
use rethread_proto::event_id::{IdScope, Seq, StreamKind};
use rethread_proto::jsonrpc::RequestId;
use rethread_proto::sse;
use rethread_store::{Batch, Event, Retain, StoreError, StoreFuture, StreamInfo};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A stream from its first event to its last, on its way into the store.
pub(crate) struct Whole {
    wire: Bytes,
    events: usize,
    stored: StoreFuture<Result<(), StoreError>>,
}

impl Session {
    /// The answer to `call`, which was there before anybody could listen, as a stream: stored whole and sent whole, it needs no
    /// writer and no reader.
    pub(crate) fn answered_stream(&self, call: &RequestId, answer: Bytes) -> Whole {
        let ordinal = self.state.lock().ordinals.issue(StreamKind::Call);
        let info = StreamInfo {
            kind: StreamKind::Call,
            calls: vec![call.clone()],
            node: self.node.name.clone(),
        };
        let prefix = self.node.ids.prefix(&IdScope {
            session: &self.key.session,
            ordinal,
            node: &info.node,
            calls: &info.calls,
        });
        let primed = self.version().sends_priming_event();
        let retry = self.node.timing.retry.as_millis() as u64;
        // As large as it gets, to the byte: a buffer with room to spare needs a second allocation to be shared.
        let around = 14 + prefix.as_str().len();
        let primer = 22 + prefix.as_str().len() + 1 + retry.checked_ilog10().unwrap_or(0) as usize;
        let size = answer.len() + around + if primed { primer } else { 0 };
        let (mut wire, mut events) = (Vec::with_capacity(size), Vec::with_capacity(2));
        if primed {
            sse::write_priming(&mut wire, &prefix, Seq::PRIMING);
            sse::write_retry(&mut wire, retry);
            events.push(Event::new(Seq::PRIMING, Bytes::new()));
        }
        let place = sse::write_message(&mut wire, &prefix, Seq::FIRST, &answer);
        // The store keeps the answer and nothing else; the frame around it goes as soon as it is sent.
        let payload = if wire[place.clone()] == answer[..] {
            answer
        } else {
            Bytes::copy_from_slice(&wire[place]) // it had newlines
        };
        debug_assert_eq!(wire.len(), size);
        let wire = Bytes::from(wire);
        events.push(Event {
            seq: Seq::FIRST,
            payload,
            retain: Retain::Answer,
        });
        let batch = Batch {
            epoch: self.epoch,
            info: Some(info),
            released: Vec::new(),
            seals: true,
            events,
            taken: None,
        };
        let stored = self.node.store.append(&self.stream_key(ordinal), batch);
        Whole {
            events: 1 + usize::from(primed),
            wire,
            stored,
        }
    }
}

impl Whole {
    /// Its bytes, once they are stored; none if the session is not ours any more.
    pub(crate) fn poll_bytes(&mut self, session: &Session, cx: &mut Context<'_>) -> Poll<Bytes> {
        let stored = ready!(Pin::new(&mut self.stored).poll(cx));
        Poll::Ready(match stored {
            Ok(()) => {
                telemetry::appended(self.events);
                std::mem::take(&mut self.wire)
            }
            Err(error) if error.is_outage() => {
                telemetry::store_lost(&error); // STO-02: heard now, or never
                sse::without_ids(&self.wire).into()
            }
            Err(error) => {
                session.refused(error);
                Bytes::new()
            }
        })
    }
}
