//! Metrics of the era bridge.

use rethread_proto::bridge::{Dropped, Translation};

const DROPPED: &str = "rethread_bridge_dropped_total";

/// Describes the metrics for monitors.
pub(super) fn describe() {
    metrics::describe_counter!(DROPPED, "Messages that could not be carried between the eras");
}

/// Counts a message that cannot be carried between the eras.
pub(super) fn dropped(server: &str, way: Translation, what: Dropped) {
    let server = server.to_owned();
    metrics::counter!(DROPPED, "server" => server, "way" => way.as_str(), "what" => what.as_str()).increment(1);
}
