//! A minimal SSE parser for single-line messages. Lines end in LF or CR LF.

use anyhow::{Result, ensure};
use std::ops::Range;

/// An event with an id or data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    /// Empty if absent.
    pub(crate) id: &'a [u8],
    /// Empty for a priming event.
    pub(crate) data: &'a [u8],
}

/// Positions of the fields of a block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    id: Range<usize>,
    data: Range<usize>,
    /// Including the empty line at its end.
    pub(crate) length: usize,
}

impl Block {
    /// Whether the block is more than a comment or a `retry`.
    pub(crate) fn is_event(&self) -> bool {
        !self.id.is_empty() || !self.data.is_empty()
    }

    pub(crate) fn of<'a>(&self, text: &'a [u8]) -> Event<'a> {
        Event {
            id: &text[self.id.clone()],
            data: &text[self.data.clone()],
        }
    }
}

/// Finds the first complete block of `text`.
pub(crate) fn block(text: &[u8]) -> Result<Option<Block>> {
    let mut block = Block::default();
    let mut at = 0;
    while let Some(end) = memchr::memchr(b'\n', &text[at..]) {
        let next = at + end + 1;
        let line = text[at..next - 1].strip_suffix(b"\r").unwrap_or(&text[at..next - 1]);
        if line.is_empty() {
            block.length = next;
            return Ok(Some(block));
        }
        if let Some(value) = value(line, b"data:") {
            ensure!(block.data.is_empty(), "data with more than one line");
            block.data = at + value..at + line.len();
        } else if let Some(value) = value(line, b"id:") {
            block.id = at + value..at + line.len();
        }
        at = next;
    }
    Ok(None)
}

/// The position of the value if the line has this field.
fn value(line: &[u8], name: &[u8]) -> Option<usize> {
    let rest = line.strip_prefix(name)?;
    Some(name.len() + usize::from(rest.first() == Some(&b' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_block_is_not_returned() {
        let text = b"id: 1-0\r\ndata: {\"a\":1}\r\n\r\nrest";
        let end = text.len() - 4;
        for cut in 0..end {
            assert!(block(&text[..cut]).unwrap().is_none(), "at {cut}");
        }
        let found = block(text).unwrap().unwrap();
        assert_eq!(found.length, end);
        let event = found.of(text);
        assert_eq!((event.id, event.data), (&b"1-0"[..], &b"{\"a\":1}"[..]));
    }

    #[test]
    fn comment_and_retry_are_not_events() {
        for text in [&b": still here\n\n"[..], b"retry: 1000\n\n", b"\n"] {
            assert!(!block(text).unwrap().unwrap().is_event());
        }
        let priming = block(b"id: 1-0\ndata:\n\n").unwrap().unwrap();
        assert!(priming.is_event());
    }
}
