//! Chunked transfer encoding.

use super::invalid;
use std::io;

/// Decodes a chunked body incrementally.
#[derive(Debug, Default)]
pub(crate) struct Dechunker {
    state: Chunk,
    size: usize,
}

#[derive(Debug, Default, PartialEq)]
enum Chunk {
    #[default]
    Size,
    SizeLine,
    Data,
    DataEnd,
    Trailer {
        empty: bool,
    },
    Done,
}

impl Dechunker {
    /// Decodes bytes and passes the content to `each`. Returns the bytes read, which are all unless the body ends.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut at = 0;
        while at < bytes.len() && self.state != Chunk::Done {
            if self.state == Chunk::Data {
                let data = &bytes[at..bytes.len().min(at + self.size)];
                each(data);
                at += data.len();
                self.size -= data.len();
                if self.size == 0 {
                    self.state = Chunk::DataEnd;
                }
                continue;
            }
            let byte = bytes[at];
            at += 1;
            self.state = self.step(byte)?;
        }
        Ok(at)
    }

    /// Whether the last chunk and the trailer have been read.
    pub(crate) fn is_done(&self) -> bool {
        self.state == Chunk::Done
    }

    fn step(&mut self, byte: u8) -> io::Result<Chunk> {
        Ok(match (&self.state, byte) {
            (Chunk::Size | Chunk::SizeLine, b'\n') if self.size == 0 => Chunk::Trailer { empty: true },
            (Chunk::Size | Chunk::SizeLine, b'\n') => Chunk::Data,
            (Chunk::Size, b'\r' | b';' | b' ') => Chunk::SizeLine, // ignores the chunk extension
            (Chunk::Size, digit) => {
                let digit = (digit as char)
                    .to_digit(16)
                    .ok_or_else(|| invalid("invalid chunk size"))?;
                let size = self
                    .size
                    .checked_mul(16)
                    .and_then(|size| size.checked_add(digit as usize));
                self.size = size.ok_or_else(|| invalid("chunk size overflow"))?;
                Chunk::Size
            }
            (Chunk::SizeLine, _) => Chunk::SizeLine,
            (Chunk::DataEnd, b'\n') => Chunk::Size,
            (Chunk::DataEnd, b'\r') => Chunk::DataEnd,
            (Chunk::Trailer { empty }, b'\r') => Chunk::Trailer { empty: *empty },
            (Chunk::Trailer { empty: true }, b'\n') => Chunk::Done,
            (Chunk::Trailer { .. }, byte) => Chunk::Trailer { empty: byte == b'\n' },
            _ => return Err(invalid("chunk length mismatch")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_decode_for_every_split() {
        let framed = b"5\r\nhello\r\nA;x=y\r\n, world!!!\r\n0\r\nTrailer: x\r\n\r\nHTTP/1.1 next";
        for at in 0..framed.len() {
            let (mut chunks, mut out) = (Dechunker::default(), Vec::new());
            let mut used = chunks.feed(&framed[..at], |data| out.extend_from_slice(data)).unwrap();
            used += chunks
                .feed(&framed[used..], |data| out.extend_from_slice(data))
                .unwrap();
            assert_eq!(out, b"hello, world!!!", "split at {at}");
            assert!(chunks.is_done());
            assert_eq!(&framed[used..], b"HTTP/1.1 next", "split at {at}");
        }
    }

    #[test]
    fn invalid_chunks_are_refused() {
        for wrong in [&b"zz\r\n"[..], b"1\r\nab", b"fffffffffffffffffff\r\n"] {
            assert!(Dechunker::default().feed(wrong, |_| ()).is_err());
        }
    }
}
