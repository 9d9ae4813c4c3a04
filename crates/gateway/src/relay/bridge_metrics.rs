//! Metrics of the era bridge.

use rethread_proto::bridge::{Dropped, Translation};

/// Counts a message that cannot be carried between the eras.
pub(super) fn dropped(server: &str, way: Translation, what: Dropped) {
    let server = server.to_owned();
    metrics::counter!("rethread_bridge_dropped_total", "server" => server, "way" => way.as_str(), "what" => what.as_str())
        .increment(1);
}
