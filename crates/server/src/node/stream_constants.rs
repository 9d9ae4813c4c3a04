//! The constants of all streams of a node. Changed limits replace them, and streams that exist keep theirs.

use crate::node::limits::Limits;
use rethread_proto::event_id::{IdPrefix, StreamKind};
use rethread_proto::stream::{Framing, StreamInfo, StreamLimits, StreamParams};
use rethread_store::Retention;
use std::sync::Arc;

/// The constants of all streams under the limits in force.
pub(super) struct StreamConstants {
    pub(super) limits: Arc<StreamLimits>,
    /// The constants of responses to stateless requests over HTTP, and on lines.
    pub(super) direct_events: Arc<StreamParams>,
    pub(super) direct_lines: Arc<StreamParams>,
}

impl StreamConstants {
    pub(super) fn new(limits: &Limits, retention: Retention, node: &Arc<str>) -> Self {
        let limits = Arc::new(limits.stream(retention));
        StreamConstants {
            direct_events: direct_params(Framing::Numbered, node, &limits),
            direct_lines: direct_params(Framing::Line, node, &limits),
            limits,
        }
    }
}

/// The constants of all streams without a log: nothing in them depends on the request.
fn direct_params(framing: Framing, node: &Arc<str>, limits: &Arc<StreamLimits>) -> Arc<StreamParams> {
    Arc::new(StreamParams {
        prefix: IdPrefix::new(""),
        framing,
        epoch: 0,
        info: StreamInfo::new(StreamKind::Call, Vec::new(), Arc::clone(node)).into(),
        primed: false,
        limits: Arc::clone(limits),
    })
}
