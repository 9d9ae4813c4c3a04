//! Decodes an event stream as the HTML standard specifies: any line ending, any chunking.

/// The fields of one block, uninterpreted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// The last `id:` field.
    pub id: Option<String>,
    /// The last `event:` field.
    pub event: Option<String>,
    /// The `data:` fields, joined by newlines. `Some("")` for an empty `data:` line (T-02).
    pub data: Option<String>,
    /// The last valid `retry:` field, in milliseconds.
    pub retry: Option<u64>,
    /// Whether the block has a comment.
    pub comment: bool,
}

impl Block {
    fn is_empty(&self) -> bool {
        *self == Block::default()
    }
}

/// A block exceeds the decoder's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than the limit")]
pub struct TooLong;

/// Turns chunks of bytes into blocks.
#[derive(Debug)]
pub struct Decoder {
    line: Vec<u8>,
    block: Block,
    held: usize,
    after_cr: bool,
    at_start: bool,
    limit: usize,
}

impl Decoder {
    /// A decoder that refuses blocks of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Decoder {
            line: Vec::new(),
            block: Block::default(),
            held: 0,
            after_cr: false,
            at_start: true,
            limit,
        }
    }

    /// Decodes a chunk, and passes every complete block to `each`.
    pub fn feed(&mut self, mut chunk: &[u8], mut each: impl FnMut(Block)) -> Result<(), TooLong> {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_cr) && chunk[0] == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) else {
                return self.hold(chunk);
            };
            self.hold(&chunk[..end])?;
            self.after_cr = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            if let Some(block) = self.end_line() {
                each(block);
            }
        }
        Ok(())
    }

    fn hold(&mut self, part: &[u8]) -> Result<(), TooLong> {
        self.held += part.len();
        if self.held > self.limit {
            return Err(TooLong);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn end_line(&mut self) -> Option<Block> {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.at_start) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            self.held = 0;
            let block = std::mem::take(&mut self.block);
            return (!block.is_empty()).then_some(block);
        }
        let (name, value) = match memchr::memchr(b':', &line) {
            Some(at) => (
                &line[..at],
                line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..]),
            ),
            None => (&line[..], &b""[..]),
        };
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"" => self.block.comment = true,
            b"id" if !value.contains(&0) => self.block.id = Some(text()),
            b"event" => self.block.event = Some(text()),
            b"data" => match &mut self.block.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(&text());
                }
                none => *none = Some(text()),
            },
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.block.retry = text().parse().ok();
            }
            _ => {}
        }
        line.clear();
        self.line = line;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_id::{IdPrefix, Seq};
    use crate::sse;
    use proptest::prelude::*;

    fn decode(chunks: &[&[u8]]) -> Vec<Block> {
        let mut decoder = Decoder::new(1 << 20);
        let mut blocks = Vec::new();
        for chunk in chunks {
            decoder.feed(chunk, |block| blocks.push(block)).unwrap();
        }
        blocks
    }

    #[test]
    fn t_02_empty_data_line_is_data() {
        let [block] = &decode(&[b"id: 4-0\ndata:\n\n"])[..] else {
            panic!()
        };
        assert_eq!(block.id.as_deref(), Some("4-0"));
        assert_eq!(block.data.as_deref(), Some(""));
    }

    #[test]
    fn sse_04_keep_alive_yields_no_event() {
        let [block] = &decode(&[sse::KEEP_ALIVE])[..] else {
            panic!()
        };
        assert_eq!((&block.data, &block.id), (&None, &None));
        assert!(block.comment);
    }

    #[test]
    fn decodes_the_edge_cases_of_the_standard() {
        let blocks = decode(&[
            b"\xef\xbb\xbfdata:a\rdata: b\r\ndata\n\nretry: 10x\nretry: 25\nid: a\0b\nid:z\n\n\n\n: hi\nfoo: x\n\n",
        ]);
        assert_eq!(blocks.len(), 3);
        assert_eq!(blocks[0].data.as_deref(), Some("a\nb\n"));
        assert_eq!((blocks[1].retry, blocks[1].id.as_deref()), (Some(25), Some("z")));
        assert!(blocks[2].comment && blocks[2].data.is_none());
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut decoder = Decoder::new(1000);
        let result = (0..100).try_for_each(|_| decoder.feed(&[b'x'; 100], |_| ()));
        assert_eq!(result, Err(TooLong));
    }

    #[test]
    fn stream_split_at_any_byte_decodes_equally() {
        let mut stream = Vec::new();
        sse::write_priming(&mut stream, &IdPrefix::new("1-"), Seq(0));
        sse::write_retry(&mut stream, 500);
        stream.extend_from_slice(b"event: message\r\nid: 1-1\r\ndata: {\"t\":\"\xc3\xa9\xf0\x9f\x98\x80\"}\r\n\r\n");
        stream.extend_from_slice(sse::KEEP_ALIVE);
        sse::write_event(&mut stream, &IdPrefix::new("1-"), Seq(2), br#"{"x":1}"#);
        let whole = decode(&[&stream]);
        assert_eq!(whole.len(), 5);
        for at in 0..=stream.len() {
            assert_eq!(decode(&[&stream[..at], &stream[at..]]), whole, "split at {at}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(decode(&bytes), whole);
    }

    proptest! {
        #[test]
        fn encoded_frames_are_decoded(payloads in proptest::collection::vec("[^\\x00-\\x1f]{1,60}", 0..8), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let prefix = IdPrefix::new("9-");
            let mut stream = Vec::new();
            for (n, payload) in payloads.iter().enumerate() {
                sse::write_event(&mut stream, &prefix, Seq(n as u64), payload.as_bytes());
            }
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            at.extend([0, stream.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
            let blocks = decode(&chunks);
            prop_assert_eq!(blocks.len(), payloads.len());
            for (n, (block, payload)) in blocks.iter().zip(&payloads).enumerate() {
                prop_assert_eq!(block.data.as_deref(), Some(payload.as_str()));
                prop_assert_eq!(block.id.clone(), Some(prefix.id(Seq(n as u64))));
            }
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Decoder::new(100).feed(&bytes, |_| ());
        }
    }
}
