//! An event store for rmcp, which has none: in memory, indexed by stream, with the same bound as ours.

use futures_util::stream;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::{EventStore, EventStoreError, EventStream, ServerSseMessage};
use std::collections::{HashMap, VecDeque};

/// Stored streams. Beyond: the oldest is removed.
const MAX_STREAMS: usize = 16_384;

#[derive(Default)]
pub(super) struct RmcpEventStore(Mutex<StoredStreams>);

#[derive(Default)]
struct StoredStreams {
    streams: HashMap<String, Vec<ServerSseMessage>>,
    order: VecDeque<String>,
}

#[async_trait::async_trait]
impl EventStore for RmcpEventStore {
    async fn store_event(&self, stream: &str, event: &ServerSseMessage) -> Result<String, EventStoreError> {
        let mut stored = self.0.lock();
        if !stored.streams.contains_key(stream) {
            stored.streams.insert(stream.to_owned(), Vec::new());
            stored.order.push_back(stream.to_owned());
            if stored.order.len() > MAX_STREAMS
                && let Some(oldest) = stored.order.pop_front()
            {
                stored.streams.remove(&oldest);
            }
        }
        let events = stored.streams.entry(stream.to_owned()).or_default();
        let id = format!("{stream}#{}", events.len());
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        events.push(event);
        Ok(id)
    }

    async fn replay_events_after(&self, last: &str) -> Result<EventStream, EventStoreError> {
        let (name, number) = last.rsplit_once('#').ok_or("no such event")?;
        let after = number.parse::<usize>()? + 1;
        let stored = self.0.lock();
        let events = stored.streams.get(name).ok_or("no such stream")?;
        let missed = events.get(after..).unwrap_or_default().to_vec();
        Ok(Box::pin(stream::iter(missed)))
    }
}
