//! A stream that is complete from the start: stored and sent in one piece, without writer and reader.

use super::core::StreamParams;
use super::{Batch, Event, Retain};
use crate::event_id::Seq;
use crate::sse;
use bytes::Bytes;
use std::sync::Arc;

/// The batch and the bytes of a stream that consists of one answer.
pub fn complete(params: &StreamParams, answer: Bytes, retry_millis: u64) -> (Batch, Bytes) {
    // Exact: a buffer with spare capacity would need a second allocation to be shared.
    let mut size = sse::event_len(&params.prefix, Seq::FIRST, answer.len());
    if params.primed {
        size += sse::priming_len(&params.prefix, Seq::PRIMING) + sse::retry_len(retry_millis);
    }
    let (mut wire, mut events) = (Vec::with_capacity(size), Vec::with_capacity(2));
    if params.primed {
        sse::write_priming(&mut wire, &params.prefix, Seq::PRIMING);
        sse::write_retry(&mut wire, retry_millis);
        events.push(Event::new(Seq::PRIMING, Bytes::new()));
    }
    let range = sse::write_message(&mut wire, &params.prefix, Seq::FIRST, &answer);
    debug_assert_eq!(wire.len(), size);
    // The store has its own copy of the answer, so that the frame can be freed after it was sent.
    let payload = if wire[range.clone()] == answer[..] {
        answer
    } else {
        Bytes::copy_from_slice(&wire[range]) // the answer had newlines
    };
    events.push(Event {
        seq: Seq::FIRST,
        payload,
        retain: Retain::Answer,
    });
    let batch = Batch {
        epoch: params.epoch,
        info: Some(Arc::clone(&params.info)),
        released: Vec::new(),
        seals: true,
        events,
        taken: None,
        gap: None,
    };
    (batch, wire.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::tests::params;

    #[test]
    fn http_07_complete_stream_is_stored_as_it_is_sent() {
        for primed in [false, true] {
            let params = params(primed);
            for answer in ["{\"id\":7}", "{\n\"id\":\r7}"] {
                let (batch, wire) = complete(&params, Bytes::from(answer), 1000);
                let line = answer.replace(['\n', '\r'], " ");
                let primer = if primed {
                    "id: 7-0\ndata:\n\nretry: 1000\n\n"
                } else {
                    ""
                };
                assert_eq!(wire, format!("{primer}id: 7-1\ndata: {line}\n\n"));
                let last = batch.events.last().unwrap();
                assert_eq!((last.seq, &last.payload[..]), (Seq::FIRST, line.as_bytes()));
                assert_eq!((batch.events.len(), batch.seals), (1 + usize::from(primed), true));
            }
        }
    }
}
