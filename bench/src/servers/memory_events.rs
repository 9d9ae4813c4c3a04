//! An event store for rmcp, which ships none: in memory, indexed by stream, bounded as ours is.

use futures_util::stream;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::{EventStore, EventStoreError, EventStream, ServerSseMessage};
use std::collections::{HashMap, VecDeque};

/// Streams that are kept; then the oldest goes.
const STREAMS: usize = 16_384;

#[derive(Default)]
pub(super) struct MemoryEvents(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    streams: HashMap<String, Vec<ServerSseMessage>>,
    order: VecDeque<String>,
}

#[async_trait::async_trait]
impl EventStore for MemoryEvents {
    async fn store_event(&self, stream: &str, event: &ServerSseMessage) -> Result<String, EventStoreError> {
        let mut kept = self.0.lock();
        if !kept.streams.contains_key(stream) {
            kept.streams.insert(stream.to_owned(), Vec::new());
            kept.order.push_back(stream.to_owned());
            if kept.order.len() > STREAMS
                && let Some(oldest) = kept.order.pop_front()
            {
                kept.streams.remove(&oldest);
            }
        }
        let events = kept.streams.entry(stream.to_owned()).or_default();
        let id = format!("{stream}#{}", events.len());
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        events.push(event);
        Ok(id)
    }

    async fn replay_events_after(&self, last: &str) -> Result<EventStream, EventStoreError> {
        let (name, number) = last.rsplit_once('#').ok_or("no such event")?;
        let after = number.parse::<usize>()? + 1;
        let kept = self.0.lock();
        let events = kept.streams.get(name).ok_or("no such stream")?;
        let missed = events.get(after..).unwrap_or_default().to_vec();
        Ok(Box::pin(stream::iter(missed)))
    }
}
