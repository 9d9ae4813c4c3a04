//! A response that is a complete stream from the start: stored and sent in one piece, without writer and reader.

use super::Session;
use bytes::Bytes;
use rethread_proto::event_id::StreamKind;
use rethread_proto::jsonrpc::RequestId;
use rethread_proto::sse;
use rethread_proto::stream::complete;
use rethread_store::{Appended, StoreError, StoreFuture, StreamInfo};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A complete stream that is being stored.
pub(crate) struct CompleteStream {
    wire: Bytes,
    events: usize,
    stored: StoreFuture<Result<Appended, StoreError>>,
}

impl Session {
    /// The answer to `call` as a stream.
    pub(crate) fn complete_stream(self: &Arc<Self>, call: &RequestId, answer: Bytes) -> CompleteStream {
        let ordinal = self.state.lock().ordinals.issue(StreamKind::Call);
        let info = StreamInfo::new(StreamKind::Call, vec![call.clone()], self.node.name.clone());
        let params = self.stream_owner().params(ordinal, info);
        let (batch, wire) = complete(&params, answer, self.node.timing.retry.as_millis() as u64);
        CompleteStream {
            events: batch.events.len(),
            wire,
            stored: self.node.store.append(&self.stream_key(ordinal), batch),
        }
    }
}

impl CompleteStream {
    /// The bytes, when they are stored. `None` if another process owns the session now.
    pub(crate) fn poll_bytes(&mut self, session: &Session, cx: &mut Context<'_>) -> Poll<Bytes> {
        let stored = ready!(Pin::new(&mut self.stored).poll(cx));
        Poll::Ready(match stored {
            Ok(_) => {
                session.node.metrics.appended(self.events);
                std::mem::take(&mut self.wire)
            }
            Err(error) if error.is_outage() => {
                session.node.metrics.store_lost(&error); // STO-02: the client gets it now or never
                sse::without_ids(&self.wire).into()
            }
            Err(error) => {
                session.refused(error);
                Bytes::new()
            }
        })
    }
}
