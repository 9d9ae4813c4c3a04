//! The files of the log.

use crate::group::{GROUP_HEADER_BYTES, GroupHeader, Location, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::private;
use std::fs::{self, File};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

const EXTENSION: &str = "log";

/// An open segment. Readers keep it open after its deletion. Its file may be longer than its groups: a reused file has
/// groups of an older segment behind them.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) number: u32,
    file: File,
    /// Whether it has unsynced bytes.
    dirty: AtomicBool,
}

impl SegmentFile {
    /// Creates an empty segment.
    pub(crate) fn create(dir: &Path, number: u32) -> io::Result<Self> {
        let mut options = private::file_options();
        let file = options.read(true).write(true).create_new(true);
        Ok(SegmentFile::new(number, file.open(path(dir, number))?))
    }

    /// Opens an existing segment for reads and writes.
    pub(crate) fn open(dir: &Path, number: u32) -> io::Result<Self> {
        let mut options = private::file_options();
        Ok(SegmentFile::new(
            number,
            options.read(true).write(true).open(path(dir, number))?,
        ))
    }

    /// Makes the file the segment `number`. Its groups stay in it, behind those that are written from now on.
    pub(crate) fn reuse(self, dir: &Path, number: u32) -> io::Result<Self> {
        fs::rename(path(dir, self.number), path(dir, number))?;
        Ok(SegmentFile::new(number, self.file))
    }

    pub(crate) fn new(number: u32, file: File) -> Self {
        SegmentFile {
            number,
            file,
            dirty: AtomicBool::new(false),
        }
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(crate) fn write_at(&self, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        let mut file = &self.file;
        while !slices.is_empty() {
            let written = match slices {
                [group] => write_once_at(file, group, offset), // the usual case: one system call
                _ => file
                    .seek(SeekFrom::Start(offset))
                    .and_then(|_| file.write_vectored(slices)),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut slices, written);
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    /// Marks the file as dirty. True if it was clean.
    pub(crate) fn mark_dirty(&self) -> bool {
        !self.dirty.swap(true, Ordering::SeqCst)
    }

    /// Makes all writes before this call durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.dirty.store(false, Ordering::SeqCst); // before the sync, because a concurrent write marks it again
        private::sync_file(&self.file)
    }

    /// The header of the segment. `None` if it is invalid.
    pub(crate) fn header(&self) -> io::Result<Option<SegmentHeader>> {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        match self.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| SegmentHeader::decode(&bytes)),
        }
    }

    /// Reads the group at a location, if its header is valid and the group ends before `len`.
    pub(crate) fn read_group(
        &self,
        at: Location,
        len: u64,
        store: u64,
        group: &mut Vec<u8>,
    ) -> io::Result<Option<GroupHeader>> {
        let offset = u64::from(at.offset);
        if offset + GROUP_HEADER_BYTES as u64 > len {
            return Ok(None);
        }
        group.resize(GROUP_HEADER_BYTES, 0);
        self.read_exact_at(group, offset)?;
        let header = GroupHeader::decode(group, store).filter(|header| offset + u64::from(header.len) <= len);
        if let Some(header) = header {
            group.resize(header.len as usize, 0);
            self.read_exact_at(group, offset)?;
        }
        Ok(header)
    }

    #[cfg(unix)]
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, buffer, offset)
    }

    #[cfg(windows)]
    pub(crate) fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(&self.file, buffer, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    buffer = &mut buffer[read..];
                    offset += read as u64;
                }
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
fn write_once_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_once_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

pub(crate) fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:010}.{EXTENSION}"))
}

/// The numbers of the segments in a directory, in order.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<u32>> {
    list_numbers(dir, path)
}

/// The numbers of the files in a directory that are named by `path`, in order.
pub(crate) fn list_numbers<N: FromStr + Ord + Copy>(dir: &Path, path: fn(&Path, N) -> PathBuf) -> io::Result<Vec<N>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let found = entry?.path();
        let number = found.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        numbers.extend(number.filter(|number| path(dir, *number) == found));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
