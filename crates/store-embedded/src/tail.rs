//! Payloads that are yet to be written to a segment, at its end.

use bytes::Bytes;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write as _};
use std::ops::Range;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Payloads of this size are written from where they are; smaller ones are copied together first.
const LARGE: usize = 4 << 10;
/// A buffer that has grown larger than this is not kept.
const BUFFER: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Tail {
    pub(crate) segment: u64,
    parts: Vec<Part>,
    copied: Vec<u8>,
    length: u64,
}

#[derive(Debug)]
enum Part {
    Copied(Range<usize>),
    Given(Bytes),
}

impl Tail {
    #[cfg(test)]
    pub(crate) fn of(segment: u64) -> Self {
        Tail {
            segment,
            ..Tail::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        let start = self.copied.len();
        self.copied.extend_from_slice(bytes);
        self.length += bytes.len() as u64;
        match self.parts.last_mut() {
            Some(Part::Copied(range)) => range.end = self.copied.len(),
            _ => self.parts.push(Part::Copied(start..self.copied.len())),
        }
    }

    /// Adds payloads; returns their checksum.
    pub(crate) fn add(&mut self, payloads: &[Bytes]) -> u64 {
        if payloads.iter().all(|payload| payload.len() < LARGE) {
            let start = self.copied.len();
            payloads.iter().for_each(|payload| self.copy(payload));
            return xxh3_64(&self.copied[start..]);
        }
        let mut sum = Xxh3::new();
        for payload in payloads {
            sum.update(payload);
            if payload.len() < LARGE {
                self.copy(payload);
            } else {
                self.length += payload.len() as u64;
                self.parts.push(Part::Given(payload.clone()));
            }
        }
        sum.digest()
    }

    pub(crate) fn write(&self, mut file: &File) -> io::Result<()> {
        let slices = self.parts.iter().map(|part| match part {
            Part::Copied(range) => IoSlice::new(&self.copied[range.clone()]),
            Part::Given(bytes) => IoSlice::new(bytes),
        });
        let mut slices: Vec<IoSlice<'_>> = slices.collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match file.write_vectored(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// It is written.
    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.copied.clear();
        self.length = 0;
        if self.copied.capacity() > BUFFER {
            self.copied = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_small_are_written_in_their_order() {
        let mut tail = Tail::default();
        let payloads: Vec<Bytes> = [3, LARGE, 0, 5, 7, LARGE + 1, 2]
            .iter()
            .zip(b'a'..)
            .map(|(len, byte)| Bytes::from(vec![byte; *len]))
            .collect();
        tail.copy(b"label");
        let sum = tail.add(&payloads);
        let small = tail.add(&payloads[2..5]);
        let (one, other) = (payloads.concat(), payloads[2..5].concat());
        assert_eq!((sum, small), (xxh3_64(&one), xxh3_64(&other)));
        let file = tempfile::NamedTempFile::new().unwrap();
        tail.write(file.as_file()).unwrap();
        let expected = [&b"label"[..], &one, &other].concat();
        assert_eq!(std::fs::read(file.path()).unwrap(), expected);
        assert_eq!(tail.len(), expected.len() as u64);
        tail.clear();
        assert!(tail.is_empty());
    }
}
