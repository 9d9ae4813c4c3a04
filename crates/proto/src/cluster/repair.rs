//! Repairs after the store has lost its last writes: a restart or a failover.

use super::Incarnation;
use crate::event_id::StreamKind;

/// A stream that the store has as open.
#[derive(Clone, Copy, Debug)]
pub struct OpenStream<'a> {
    /// The kind of the stream.
    pub kind: StreamKind,
    /// The node that wrote it last.
    pub writer: Option<&'a Incarnation>,
    /// Whether this node writes it now.
    pub is_live: bool,
}

impl OpenStream<'_> {
    /// Whether the store lacks the end of a stream that the node `here` has finished. Readers on other nodes would wait for
    /// ever, because its writer lives. A push stream has no end: its next reader continues it.
    pub fn lacks_its_end(&self, here: &Incarnation) -> bool {
        self.kind == StreamKind::Call && !self.is_live && self.writer == Some(here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rst_03_stream_that_its_live_writer_has_finished_lacks_its_end() {
        let (here, other) = (Incarnation::new(1, 0), Incarnation::new(2, 0));
        let finished = OpenStream {
            kind: StreamKind::Call,
            writer: Some(&here),
            is_live: false,
        };
        assert!(finished.lacks_its_end(&here));
        assert!(!finished.lacks_its_end(&other), "its writer decides");
        let runs = OpenStream {
            is_live: true,
            ..finished
        };
        assert!(!runs.lacks_its_end(&here));
        let push = OpenStream {
            kind: StreamKind::Push,
            ..finished
        };
        assert!(!push.lacks_its_end(&here));
    }
}
