//! Splits the bytes of a response into SSE events. Pure.

/// An event that is longer is cut: the tape must not hold a whole response in memory.
const MAX_EVENT_BYTES: usize = 256 << 10;

/// One block of an SSE stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) id: Option<String>,
    /// `data`, without line breaks between its lines.
    pub(super) data: Vec<u8>,
    pub(super) is_comment: bool,
    pub(super) retry: Option<u64>,
    pub(super) bytes: usize,
}

/// Collects chunks until a block is complete.
#[derive(Debug, Default)]
pub(super) struct FrameSplitter {
    line: Vec<u8>,
    frame: Frame,
}

impl FrameSplitter {
    /// Takes a chunk. Returns the blocks that it completes.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Vec<Frame> {
        let mut complete = Vec::new();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_EVENT_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            self.frame.bytes += piece.len();
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let line = line.trim_ascii_end();
                match line.is_empty() {
                    true => complete.push(std::mem::take(&mut self.frame)),
                    false => self.field(line),
                }
            }
        }
        complete
    }

    fn field(&mut self, line: &[u8]) {
        let value = |prefix: &[u8]| line.strip_prefix(prefix).map(<[u8]>::trim_ascii_start);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if line.starts_with(b":") {
            self.frame.is_comment = true;
        } else if let Some(id) = value(b"id:") {
            self.frame.id = Some(text(id));
        } else if let Some(retry) = value(b"retry:") {
            self.frame.retry = text(retry).parse().ok();
        } else if let Some(data) = value(b"data:") {
            let room = MAX_EVENT_BYTES.saturating_sub(self.frame.data.len());
            self.frame.data.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_complete_whatever_the_chunks_are() {
        let stream = b"id: 1-1\ndata: {\"a\":1}\n\n: hello\n\nretry: 500\n\nid: 1-2\ndata: x\n\n";
        for size in 1..stream.len() {
            let mut splitter = FrameSplitter::default();
            let frames: Vec<_> = stream.chunks(size).flat_map(|chunk| splitter.push(chunk)).collect();
            assert_eq!(frames.len(), 4, "{size}");
            assert_eq!(frames[0].id.as_deref(), Some("1-1"));
            assert_eq!(frames[0].data, b"{\"a\":1}");
            assert!(frames[1].is_comment && frames[1].data.is_empty());
            assert_eq!(frames[2].retry, Some(500));
            assert_eq!(frames.iter().map(|frame| frame.bytes).sum::<usize>(), stream.len());
        }
    }
}
