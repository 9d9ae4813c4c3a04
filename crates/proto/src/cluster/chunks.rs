//! The receiving end of a response body that travels in chunks through a mailbox.
//!
//! Chunks are numbered from 1 on. A store that restarts without its last writes may lose a chunk, the end of the body,
//! or the credit for more chunks. A hole breaks the body: the client must not take it for a complete one. Otherwise
//! the receiving node asks the executing node after a silence. Mailboxes keep their order, and the executing node
//! forgets a request after it has sent the last chunk. So an answer shows which chunks are missing.

/// Unanswered questions to the executing node after which the body is broken.
const MAX_UNANSWERED: u32 = 2;

/// The chunks of one body that have arrived.
#[derive(Debug, Default)]
pub struct ChunkSequence {
    received: u64,
    /// Unanswered questions to the executing node.
    unanswered: u32,
}

/// The next step of the receiving end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkStep {
    /// Nothing now.
    Wait,
    /// Send the chunk to the client.
    Send,
    /// Send the chunk to the client, and end the body.
    SendLast,
    /// Repeat the credit, and ask the executing node whether it knows the request.
    Ask,
    /// A part of the body is missing: end the response so that the client notices.
    Break,
}

impl ChunkSequence {
    /// A body of which nothing has arrived.
    pub const fn new() -> Self {
        ChunkSequence {
            received: 0,
            unanswered: 0,
        }
    }

    /// A chunk has arrived. Nodes of earlier versions send no numbers.
    pub fn chunk(&mut self, number: Option<u64>, is_last: bool) -> ChunkStep {
        let expected = self.received + 1;
        match number.unwrap_or(expected) {
            number if number < expected => ChunkStep::Wait, // a repeated delivery
            number if number > expected => ChunkStep::Break,
            number => {
                self.received = number;
                self.unanswered = 0;
                if is_last { ChunkStep::SendLast } else { ChunkStep::Send }
            }
        }
    }

    /// A lease has passed, and the client waits for the next chunk.
    pub fn silence(&mut self) -> ChunkStep {
        if self.unanswered == MAX_UNANSWERED {
            return ChunkStep::Break;
        }
        self.unanswered += 1;
        ChunkStep::Ask
    }

    /// The executing node has answered whether it knows the request, and how many chunks it had sent before its answer.
    pub fn executor_answered(&mut self, knows_request: bool, sent: Option<u64>) -> ChunkStep {
        self.unanswered = 0;
        if !knows_request || sent.is_some_and(|sent| sent > self.received) {
            return ChunkStep::Break;
        }
        ChunkStep::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_chunks_arrive_in_order_and_once() {
        let mut chunks = ChunkSequence::new();
        assert_eq!(chunks.chunk(Some(1), false), ChunkStep::Send);
        assert_eq!(chunks.chunk(Some(1), false), ChunkStep::Wait, "delivered twice");
        assert_eq!(chunks.chunk(Some(2), false), ChunkStep::Send);
        assert_eq!(chunks.chunk(None, false), ChunkStep::Send, "of an earlier version");
        assert_eq!(chunks.chunk(Some(4), true), ChunkStep::SendLast);
    }

    #[test]
    fn node_missing_chunk_breaks_the_body() {
        let mut chunks = ChunkSequence::new();
        assert_eq!(chunks.chunk(Some(2), true), ChunkStep::Break);
        let mut chunks = ChunkSequence::new();
        let _ = chunks.chunk(Some(1), false);
        assert_eq!(chunks.silence(), ChunkStep::Ask);
        assert_eq!(chunks.executor_answered(true, Some(1)), ChunkStep::Wait);
        assert_eq!(
            chunks.executor_answered(true, None),
            ChunkStep::Wait,
            "of an earlier version"
        );
        assert_eq!(
            chunks.executor_answered(true, Some(2)),
            ChunkStep::Break,
            "the chunk was in front of this answer"
        );
        assert_eq!(
            chunks.executor_answered(false, None),
            ChunkStep::Break,
            "the end was in front of this answer"
        );
    }

    #[test]
    fn node_that_does_not_answer_breaks_the_body() {
        let mut chunks = ChunkSequence::new();
        for _ in 0..MAX_UNANSWERED {
            assert_eq!(chunks.silence(), ChunkStep::Ask);
        }
        assert_eq!(chunks.chunk(Some(1), false), ChunkStep::Send);
        for _ in 0..MAX_UNANSWERED {
            assert_eq!(chunks.silence(), ChunkStep::Ask, "a chunk is an answer");
        }
        assert_eq!(chunks.silence(), ChunkStep::Break);
    }
}
