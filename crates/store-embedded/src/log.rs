//! The open log: its files, and the last written, committed and durable group.

use crate::data_dir::DataDir;
use crate::group::GroupBuffer;
use crate::private::sync_dir;
use crate::recovery::Recovered;
use crate::segment::{self, SegmentFile};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tokio::sync::oneshot;

/// Segments whose files wait for their reuse. At most 64 MiB.
const MAX_SPARE_SEGMENTS: usize = 4;

/// The files of an open store. After a failure the store opens a new `Log`.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) dir: Arc<DataDir>,
    files: Mutex<BTreeMap<u32, Arc<SegmentFile>>>,
    /// The segment that groups are written to. Locked during a write.
    head: Mutex<Arc<SegmentFile>>,
    /// Its number, for reads that must not wait for a write.
    head_number: AtomicU32,
    /// The next segment, created in advance so that no commit waits for it.
    prepared: Mutex<Option<Arc<SegmentFile>>>,
    /// Segments without references, whose files become later segments. To overwrite a file costs a third of the CPU time of
    /// a new one: the system has its pages and blocks already.
    spares: Mutex<Vec<Arc<SegmentFile>>>,
    /// Segments with unsynced bytes, oldest first.
    dirty: Mutex<Vec<Arc<SegmentFile>>>,
    /// Held during a sync.
    syncing: Mutex<()>,
    /// The last group in the files.
    written: AtomicU64,
    /// The last group whose operations were acknowledged.
    committed: AtomicU64,
    /// The last durable group.
    durable: AtomicU64,
    /// Reads that wait for a commit.
    waiting: Mutex<Vec<(u64, oneshot::Sender<()>)>>,
    failed: AtomicBool,
}

impl Log {
    pub(crate) fn new(dir: Arc<DataDir>, recovered: &Recovered) -> Self {
        let head = &recovered.files[&recovered.end.segment];
        Log {
            dir,
            head: Mutex::new(Arc::clone(head)),
            head_number: AtomicU32::new(head.number),
            files: Mutex::new(recovered.files.clone()),
            prepared: Mutex::new(None),
            spares: Mutex::default(),
            dirty: Mutex::default(),
            syncing: Mutex::default(),
            written: AtomicU64::new(recovered.commit),
            committed: AtomicU64::new(recovered.commit),
            durable: AtomicU64::new(recovered.commit),
            waiting: Mutex::default(),
            failed: AtomicBool::new(false),
        }
    }

    /// Writes a group to the end of the current segment. True if the segment had no unsynced bytes before.
    pub(crate) fn write(&self, group: &GroupBuffer, commit: u64) -> io::Result<bool> {
        let head = self.head.lock();
        match group.contiguous() {
            Some(bytes) => head.write_at(&mut [IoSlice::new(bytes)], group.offset())?,
            None => head.write_at(&mut group.slices(), group.offset())?,
        }
        let first = head.mark_dirty();
        if first {
            self.dirty.lock().push(Arc::clone(&head));
        }
        self.written.store(commit, Ordering::SeqCst);
        Ok(first)
    }

    /// Syncs all written groups.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let _one_at_a_time = self.syncing.lock();
        if self.dir.distrusted().is_some() {
            // Another sync would succeed, because the system has marked the lost pages clean.
            return Err(io::Error::other("an earlier sync of the log failed"));
        }
        let written = self.written.load(Ordering::SeqCst);
        if written == self.durable.load(Ordering::SeqCst) {
            return Ok(());
        }
        let dirty = std::mem::take(&mut *self.dirty.lock());
        for file in dirty {
            file.sync().inspect_err(|_| self.dir.distrust(file.number))?;
        }
        self.durable.store(written, Ordering::SeqCst);
        Ok(())
    }

    /// Acknowledges all groups up to `commit`.
    pub(crate) fn publish(&self, commit: u64) {
        if self.committed.swap(commit, Ordering::SeqCst) == commit {
            return;
        }
        let mut waiting = self.waiting.lock();
        for (_, waiter) in waiting.extract_if(.., |(needed, _)| *needed <= commit) {
            let _ = waiter.send(()); // the reader may have dropped its future
        }
    }

    /// A receiver that resolves when `commit` is acknowledged and fails if the log fails. `None` if it is acknowledged.
    pub(crate) fn wait_for(&self, commit: u64) -> Option<oneshot::Receiver<()>> {
        if self.committed.load(Ordering::SeqCst) >= commit {
            return None;
        }
        let mut waiting = self.waiting.lock();
        // Check again under the lock: `publish` raises the number before it takes the lock.
        if self.committed.load(Ordering::SeqCst) >= commit {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        if !self.has_failed() {
            waiting.push((commit, sender));
        }
        Some(receiver)
    }

    /// Ends the log: no further group is acknowledged, and waiting reads fail.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
        self.waiting.lock().clear();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.written.load(Ordering::SeqCst) > self.durable.load(Ordering::SeqCst)
    }

    pub(crate) fn file(&self, number: u32) -> Option<Arc<SegmentFile>> {
        self.files.lock().get(&number).cloned()
    }

    /// The number of the segment that groups are written to.
    pub(crate) fn head(&self) -> u32 {
        self.head_number.load(Ordering::SeqCst)
    }

    /// Creates the next segment ahead of its use.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        let mut prepared = self.prepared.lock();
        if prepared.is_none() {
            *prepared = Some(self.create_next()?);
        }
        Ok(())
    }

    /// Continues with the next segment. Returns its number.
    pub(crate) fn roll(&self) -> io::Result<u32> {
        let mut prepared = self.prepared.lock();
        let next = match prepared.take() {
            Some(next) => next,
            None => self.create_next()?,
        };
        self.files.lock().insert(next.number, Arc::clone(&next));
        let number = next.number;
        *self.head.lock() = next;
        self.head_number.store(number, Ordering::SeqCst);
        Ok(number)
    }

    fn create_next(&self) -> io::Result<Arc<SegmentFile>> {
        let (dir, number) = (self.dir.log(), self.head() + 1);
        let next = match self.take_spare() {
            Some(spare) => spare.reuse(dir, number)?,
            None => SegmentFile::create(dir, number)?,
        };
        sync_dir(dir)?; // the name must be durable before any group in the file
        Ok(Arc::new(next))
    }

    /// A spare segment that no read has open.
    fn take_spare(&self) -> Option<SegmentFile> {
        let mut spares = self.spares.lock();
        let unused = spares.iter().position(|spare| Arc::strong_count(spare) == 1)?;
        Arc::into_inner(spares.swap_remove(unused))
    }

    /// Takes a segment without references out of the log. Its file is reused or deleted.
    pub(crate) fn retire(&self, number: u32) -> io::Result<()> {
        let retired = self.files.lock().remove(&number);
        {
            let mut spares = self.spares.lock();
            if spares.len() < MAX_SPARE_SEGMENTS
                && let Some(file) = retired
            {
                spares.push(file);
                return Ok(());
            }
        }
        self.delete(number)
    }

    /// Deletes the spare segments.
    pub(crate) fn delete_spares(&self) -> io::Result<()> {
        let spares = std::mem::take(&mut *self.spares.lock());
        spares.iter().try_for_each(|spare| self.delete(spare.number))
    }

    /// Deletes the file of a segment. Reads in progress finish, because they keep it open.
    fn delete(&self, number: u32) -> io::Result<()> {
        match fs::remove_file(segment::path(self.dir.log(), number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => sync_dir(self.dir.log()),
        }
    }

    /// Bytes of the files that no segment of the index uses.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let (prepared, spares) = (self.prepared.lock(), self.spares.lock());
        let files = prepared.iter().chain(spares.iter());
        files.map(|file| file.len().unwrap_or(0)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Location;
    use crate::recovery;
    use crate::simulated_disk;

    /// The system marks lost pages clean, so a second sync would succeed without writing them.
    #[test]
    fn log_is_not_durable_after_a_failed_sync() {
        let folder = tempfile::tempdir().unwrap();
        simulated_disk::install(folder.path(), BTreeMap::new());
        let log = open_log(&folder);
        let mut group = GroupBuffer::new(log.dir.store());
        group.begin(Location { segment: 1, offset: 0 }, None);
        group.finish(1, 0);
        log.write(&group, 1).unwrap();
        simulated_disk::with(|disk| disk.fail_after = Some(0));
        assert!(log.sync().is_err());
        assert!(log.sync().is_err(), "the failure is permanent for this log");
        assert_eq!((log.durable(), log.dir.distrusted()), (0, Some(1)));
    }

    fn open_log(folder: &tempfile::TempDir) -> Log {
        let dir = Arc::new(DataDir::lock(folder.path(), true).unwrap());
        let recovered = recovery::recover(&dir).unwrap();
        Log::new(dir, &recovered)
    }

    fn exists(log: &Log, number: u32) -> bool {
        segment::path(log.dir.log(), number).exists()
    }

    /// A read that is in progress must find its bytes, not those of a later segment.
    #[test]
    fn file_is_reused_when_no_read_has_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let log = open_log(&folder);
        let mut group = GroupBuffer::new(log.dir.store());
        group.begin(Location { segment: 1, offset: 0 }, None);
        group.finish(1, 0);
        log.write(&group, 1).unwrap();
        log.sync().unwrap();
        log.roll().unwrap();
        let read = log.file(1).unwrap();
        log.retire(1).unwrap();
        assert!(log.file(1).is_none());
        assert_eq!(log.spare_bytes(), group.len());
        log.roll().unwrap();
        assert_eq!(log.file(3).unwrap().len().unwrap(), 0, "segment 3 is a new file");
        drop(read);
        log.roll().unwrap();
        assert!(!exists(&log, 1));
        assert_eq!(
            log.file(4).unwrap().len().unwrap(),
            group.len(),
            "segment 4 is the file of segment 1"
        );
    }

    #[test]
    fn spare_segments_are_bounded_and_can_be_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let log = open_log(&folder);
        let last = MAX_SPARE_SEGMENTS as u32 + 2;
        while log.head() < last {
            log.roll().unwrap();
        }
        (1..last).for_each(|number| log.retire(number).unwrap());
        assert!((1..last - 1).all(|number| exists(&log, number)));
        assert!(!exists(&log, last - 1), "one more than the bound");
        log.delete_spares().unwrap();
        assert!(!(1..last).any(|number| exists(&log, number)));
        assert!(exists(&log, last));
    }
}
