//! Payloads on the disk, beside the database: files that are only ever appended to, and deleted as a whole.
//!
//! What a commit brings goes to a segment in one piece, before the database has the rows that point to it. So whoever
//! finds a row finds the bytes, as long as nothing but the process dies. When the power fails, a row may be there and its
//! bytes may not: rows hold a checksum, and what was not synced is looked at when the store is opened (see `journal.rs`).
//! Tables hold only rows whose bytes are on the disk (see `Db::rotate`).
//!
//! What is on the disk is soon given up by the page cache too: it is read only if a client comes back, and the memory is
//! better reused for what is written next than taken anew for every page.

use crate::chunk::Spot;
use crate::private;
use crate::tail::Tail;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// What stands before the payloads of a row: whose they are and how many bytes. With it a segment can be read from its
/// start to its end.
pub(crate) const LABEL: usize = 24;

/// The label of payloads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Label {
    pub(crate) stream: u64,
    /// The last event of the row.
    pub(crate) last: u64,
    pub(crate) bytes: u64,
}

impl Label {
    pub(crate) fn encode(self) -> [u8; LABEL] {
        let mut bytes = [0; LABEL];
        for (place, number) in bytes
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip([self.stream, self.last, self.bytes])
        {
            *place = u64::to_le_bytes(number);
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = crate::coding::Reader(bytes);
        Some(Label {
            stream: reader.u64()?,
            last: reader.u64()?,
            bytes: reader.u64()?,
        })
    }
}

/// So much of what was written last stays in the page cache: of that a slow reader may be in want.
const CACHED: u64 = 16 << 20;

/// More than the payloads of a row have, unless it is one event alone.
const LARGE: u64 = 1 << 20;

/// The files by their numbers, at some moment.
pub(crate) type Catalog = Arc<HashMap<u64, Arc<File>>>;

/// The files of an open store.
#[derive(Debug)]
pub(crate) struct Segments {
    dir: PathBuf,
    catalog: RwLock<Catalog>,
    /// The one that is written.
    active: Mutex<Option<Arc<Written>>>,
    /// Those that were written since they were synced last.
    unsynced: Mutex<Vec<Arc<Written>>>,
    /// Whether one was made since the folder was synced.
    nameless: AtomicBool,
    /// Held while they are synced: who comes second must not return before it is done.
    syncing: Mutex<()>,
}

/// A segment that was written to.
#[derive(Debug)]
struct Written {
    number: u64,
    file: File,
    length: AtomicU64,
    /// So much of it the page cache was told to give up.
    released: AtomicU64,
}

impl Written {
    fn new(number: u64, file: File) -> Self {
        Written {
            number,
            file,
            length: AtomicU64::new(0),
            released: AtomicU64::new(0),
        }
    }

    /// The page cache need not keep what is before `end`.
    fn release(&self, end: u64) {
        let begin = self.released.fetch_max(end, Ordering::Relaxed);
        #[cfg(target_os = "linux")]
        if let Some(length) = end.checked_sub(begin).and_then(std::num::NonZeroU64::new) {
            // Advice: whether it is taken changes nothing.
            let _ = rustix::fs::fadvise(&self.file, begin, Some(length), rustix::fs::Advice::DontNeed);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = begin;
    }
}

impl Segments {
    /// Opens all that are there. What is found may not be on the disk yet: nobody knows who wrote it.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let (mut catalog, mut unsynced) = (HashMap::new(), Vec::new());
        for (number, path) in list(dir)? {
            let file = File::open(path)?;
            unsynced.push(Arc::new(Written::new(number, file.try_clone()?)));
            catalog.insert(number, Arc::new(file));
        }
        Ok(Segments {
            dir: dir.to_owned(),
            unsynced: Mutex::new(unsynced),
            nameless: AtomicBool::new(true),
            catalog: RwLock::new(Arc::new(catalog)),
            active: Mutex::default(),
            syncing: Mutex::default(),
        })
    }

    /// The files as they are now, while `look` takes note of something that must not be older or newer. A file is in the
    /// catalog before a row points to it, and until after none does.
    pub(crate) fn catalog<T>(&self, look: impl FnOnce() -> T) -> (Catalog, T) {
        let catalog = self.catalog.read();
        let seen = look();
        (Arc::clone(&catalog), seen)
    }

    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.catalog.read().keys().copied().collect()
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        let catalog = self.catalog.read();
        let sizes = catalog.values().filter_map(|file| file.metadata().ok());
        sizes.map(|data| data.len()).sum()
    }

    /// Appends to a segment, which is made if there is none of this number. Only the writer does so, and never to one
    /// that it did not make itself.
    pub(crate) fn append(&self, tail: &Tail) -> io::Result<()> {
        let number = tail.segment;
        let mut active = self.active.lock();
        let written = match &*active {
            Some(written) if written.number == number => written,
            _ => {
                let file = self.create(number)?;
                // Once more, though it may be synced: now the page cache can give up all of it.
                active.as_ref().inspect(|full| self.is_unsynced(full));
                active.insert(Arc::new(Written::new(number, file)))
            }
        };
        self.is_unsynced(written); // before it is written: a sync too many does no harm
        tail.write(&written.file)?;
        written.length.fetch_add(tail.len(), Ordering::Relaxed);
        Ok(())
    }

    fn is_unsynced(&self, written: &Arc<Written>) {
        let mut unsynced = self.unsynced.lock();
        if !unsynced.iter().any(|other| Arc::ptr_eq(other, written)) {
            unsynced.push(Arc::clone(written));
        }
    }

    /// Its name is not on the disk before it is synced.
    fn create(&self, number: u64) -> io::Result<File> {
        let path = self.path(number);
        let file = private::file_options().append(true).create_new(true).open(&path)?;
        let reading = Arc::new(File::open(&path)?);
        self.nameless.store(true, Ordering::SeqCst);
        self.change(|catalog| {
            catalog.insert(number, reading);
        });
        Ok(file)
    }

    /// Deletes a segment that no row points to any more, on the disk too. Who reads it meanwhile can go on.
    pub(crate) fn remove(&self, number: u64) -> io::Result<()> {
        self.change(|catalog| {
            catalog.remove(&number);
        });
        match fs::remove_file(self.path(number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<u64, Arc<File>>)) {
        let mut catalog = self.catalog.write();
        let mut changed = HashMap::clone(&catalog);
        change(&mut changed);
        *catalog = Arc::new(changed);
    }

    /// Whatever was appended before is on the disk when this returns.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let _turn = self.syncing.lock();
        let unsynced = std::mem::take(&mut *self.unsynced.lock());
        for (at, written) in unsynced.iter().enumerate() {
            let length = written.length.load(Ordering::Relaxed);
            written.file.sync_data()?;
            let is_last = at + 1 == unsynced.len();
            written.release(if is_last { length.saturating_sub(CACHED) } else { length });
        }
        if self.nameless.swap(false, Ordering::SeqCst) {
            crate::place::sync_dir(&self.dir)?;
        }
        Ok(())
    }

    fn path(&self, number: u64) -> PathBuf {
        path(&self.dir, number)
    }
}

/// The payloads at a spot, if they are what was written there.
pub(crate) fn read(catalog: &Catalog, spot: Spot, bytes: u64) -> io::Result<Option<Bytes>> {
    let Some(file) = catalog.get(&spot.segment) else {
        return Ok(None);
    };
    read_whole(file, spot, bytes)
}

/// A piece of a segment, as long as it goes.
pub(crate) fn piece(catalog: &Catalog, number: u64, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    match catalog.get(&number) {
        Some(file) => read_up_to(file, bytes, offset),
        None => Ok(Vec::new()),
    }
}

fn read_whole(file: &File, spot: Spot, bytes: u64) -> io::Result<Option<Bytes>> {
    // A garbled length must not take memory. To look at the file takes as long as to read a little.
    let end = spot.offset.checked_add(bytes);
    if bytes > LARGE && end.is_none_or(|end| file.metadata().map_or(true, |data| end > data.len())) {
        return Ok(None);
    }
    let payloads = read_up_to(file, bytes as usize, spot.offset)?;
    let whole = payloads.len() as u64 == bytes && xxh3_64(&payloads) == spot.sum;
    Ok(whole.then(|| Bytes::from(payloads)))
}

/// Whether a segment holds what a row says.
pub(crate) fn is_whole(dir: &Path, spot: Spot, bytes: u64) -> io::Result<bool> {
    match File::open(path(dir, spot.segment)) {
        Ok(file) => Ok(read_whole(&file, spot, bytes)?.is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.seg"))
}

fn list(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "seg") {
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            found.extend(number.map(|number| (number, path)));
        }
    }
    Ok(found)
}

/// Reads so many bytes, or up to the end of the file.
#[cfg(target_os = "linux")]
fn read_up_to(file: &File, bytes: usize, offset: u64) -> io::Result<Vec<u8>> {
    use rustix::{buffer::spare_capacity, io::Errno};
    let mut read = Vec::with_capacity(bytes); // and not zeroed, which takes as long as to read it
    while read.len() < bytes {
        let from = offset + read.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut read), from) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    read.truncate(bytes);
    Ok(read)
}

/// Reads so many bytes, or up to the end of the file.
#[cfg(not(target_os = "linux"))]
fn read_up_to(file: &File, bytes: usize, offset: u64) -> io::Result<Vec<u8>> {
    let (mut read, mut filled) = (vec![0; bytes], 0);
    while filled < bytes {
        match read_at(file, &mut read[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    read.truncate(filled);
    Ok(read)
}

#[cfg(all(unix, not(target_os = "linux")))]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}
