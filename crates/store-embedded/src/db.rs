//! The database under the store, tuned for it.

use crate::chunk::{Chunk, Data};
use crate::keys;
use crate::segments::{self, Catalog, Segments};
use crate::tail::Tail;
use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::{Database, Iter, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Slice, Snapshot};
use rethread_store::Seq;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Blocks of tables that were read. Small: what is read again soon is in the page cache too.
const CACHE: u64 = 8 << 20;
/// What is written is kept in memory up to here, and then becomes a table.
pub(crate) const MEMTABLE: u64 = 8 << 20;
/// So much is in memory at most before a writer waits. The thread that makes tables of it also merges tables, and does
/// one after the other.
const WRITE_BUFFER: u64 = 3 * MEMTABLE;
/// Small tables, so that to merge some does not take long: nothing else is done meanwhile.
const TABLE: u64 = 8 << 20;
/// The smallest there is.
const JOURNALS: u64 = 64 << 20;
const KEYSPACE: &str = "rethread";

/// An open database. Cheap to clone; when the last clone goes, it is closed and its lock is free.
#[derive(Clone)]
pub(crate) struct Db {
    database: Database,
    keyspace: Keyspace,
    memtable: u64,
    pub(crate) segments: Arc<Segments>,
    pub(crate) progress: Arc<Progress>,
}

/// How many commits were made, and how many of these are on the disk for sure.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    written: AtomicU64,
    synced: AtomicU64,
}

impl Progress {
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::SeqCst)
    }

    /// So many commits were made before a sync that is done.
    pub(crate) fn is_synced(&self, written: u64) {
        self.synced.fetch_max(written, Ordering::SeqCst);
    }
}

impl Db {
    /// Opens the database in one directory, with the segments in another. When so much is in memory, it becomes a table.
    pub(crate) fn open(path: &Path, segments: &Path, memtable: u64) -> Result<Self, fjall::Error> {
        let segments = Arc::new(Segments::open(segments)?);
        let database = Database::builder(path)
            .cache_size(CACHE)
            .max_journaling_size(JOURNALS)
            .max_cached_files(Some(128))
            // One only: of two, one would spin while the other merges tables, and one that has died of a full disk would
            // leave the other to fill the queue that `commit` then waits for without end.
            .worker_threads(1)
            .open()?;
        let keyspace = database.keyspace(KEYSPACE, || {
            KeyspaceCreateOptions::default()
                // Never: see `make_table`.
                .max_memtable_size(u64::MAX)
                .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(TABLE)))
                .manual_journal_persist(true)
        })?;
        Ok(Db {
            database,
            keyspace,
            memtable,
            segments,
            progress: Arc::default(),
        })
    }

    /// Everything as it stands now: no commit that comes later is seen.
    pub(crate) fn view(&self) -> View<'_> {
        let (catalog, snapshot) = self.segments.catalog(|| self.database.snapshot());
        View {
            snapshot,
            catalog,
            keyspace: &self.keyspace,
        }
    }

    pub(crate) fn batch(&self) -> Changes {
        Changes {
            batch: self.database.batch(),
            keyspace: self.keyspace.clone(),
        }
    }

    /// Makes the `n`th commit, and if `sync` says so waits for the disk. What it points to is written first.
    pub(crate) fn commit(&self, changes: Changes, tail: &Tail, n: u64, sync: bool) -> Result<(), fjall::Error> {
        self.make_table()?;
        if !tail.is_empty() {
            self.segments.append(tail)?;
        }
        if sync {
            self.segments.sync()?;
        }
        let mode = if sync {
            PersistMode::SyncData
        } else {
            PersistMode::Buffer
        };
        changes.batch.durability(Some(mode)).commit()?;
        self.progress.written.store(n, Ordering::SeqCst);
        if sync {
            self.progress.is_synced(n);
        }
        Ok(())
    }

    /// Makes a table of what is in memory if that is enough for one, and waits while the database lags behind.
    ///
    /// The database would do both by itself, but badly. It asks its thread for a table after every commit; when that thread
    /// merges tables meanwhile, a thousand such messages fill its queue, and when it then sends itself one more it waits
    /// for ever. And it waits inside of the commit, where it does not notice that the thread has died.
    fn make_table(&self) -> Result<(), fjall::Error> {
        use fjall::AbstractTree as _;
        loop {
            let behind = self.keyspace.sealed_memtable_count();
            if behind == 0 && self.keyspace.tree.active_memtable().size() > self.memtable {
                self.rotate()?;
            }
            let much = self.database.write_buffer_size() > WRITE_BUFFER;
            if !much && behind < 3 && self.keyspace.l0_table_count() < 20 {
                return Ok(());
            }
            self.alive()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the database still works: an error in a thread of its own shows itself only when it is asked.
    pub(crate) fn alive(&self) -> Result<(), fjall::Error> {
        self.database.persist(PersistMode::Buffer)
    }

    pub(crate) fn sync(&self) -> Result<(), fjall::Error> {
        let written = self.progress.written();
        self.segments.sync()?;
        self.database.persist(PersistMode::SyncAll)?;
        self.progress.is_synced(written);
        Ok(())
    }

    /// How many commits there were, in the counting of the database.
    pub(crate) fn written(&self) -> u64 {
        self.database.visible_seqno()
    }

    /// Up to which of these the tables hold everything, so that the journal is no longer needed.
    pub(crate) fn in_tables(&self) -> u64 {
        use fjall::AbstractTree as _;
        self.keyspace.tree.get_highest_persisted_seqno().unwrap_or(0)
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        self.database.disk_space().unwrap_or(0) + self.segments.disk_bytes()
    }

    /// Bytes of the tables alone: what [`Db::clear_away`] can make smaller.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.keyspace.disk_space()
    }

    /// Writes the tables anew without what is deleted, when [`Db::rotate`] was called. Takes a while, and the old tables
    /// are still there after it, until it is called once more.
    pub(crate) fn clear_away(&self) -> Result<(), fjall::Error> {
        while self.keyspace.sealed_memtable_count() > 0 {
            self.alive()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        self.keyspace.major_compact()
    }

    /// Makes a table of what is in memory. Only then does the database let go of tables that it has replaced, and only
    /// if a few commits came in between.
    ///
    /// Only the writer may do so: a table must not hold a row whose payloads are not on the disk, since tables are not
    /// looked at when the store is opened after the power has failed.
    pub(crate) fn rotate(&self) -> Result<(), fjall::Error> {
        self.segments.sync()?;
        self.keyspace.rotate_memtable().map(|_| ())
    }
}

/// A state of the database.
pub(crate) struct View<'a> {
    snapshot: Snapshot,
    catalog: Catalog,
    keyspace: &'a Keyspace,
}

impl View<'_> {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Slice>, fjall::Error> {
        self.snapshot.get(self.keyspace, key)
    }

    /// Every key that starts with `prefix`.
    pub(crate) fn prefix(&self, prefix: &[u8]) -> Iter {
        self.snapshot.prefix(self.keyspace, prefix)
    }

    /// Every key that starts with `prefix`, from `from` on.
    pub(crate) fn prefix_from(&self, prefix: &[u8], from: &[u8]) -> Iter {
        let mut end = prefix.to_vec();
        while end.pop_if(|last| *last == u8::MAX).is_some() {}
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let bounds = (Bound::Included(from.max(prefix)), Bound::Excluded(end.as_slice()));
        if from >= end.as_slice() {
            return self.snapshot.range::<&[u8], _>(self.keyspace, prefix..prefix);
        }
        self.snapshot.range::<&[u8], _>(self.keyspace, bounds)
    }

    /// The rows of events of a stream, from that on which holds `from` or comes after it.
    pub(crate) fn chunks(&self, stream: u64, from: Seq) -> impl Iterator<Item = Result<Chunk, ReadError>> + use<> {
        self.prefix_from(&keys::chunks(stream), &keys::chunk(stream, from))
            .map(|guard| {
                let (key, value) = guard.into_inner()?;
                let [_, last] = keys::parts(&key).ok_or(ReadError::Garbled("the key of events"))?;
                Chunk::decode(Seq(last), &value).ok_or(ReadError::Garbled("a row of events"))
            })
    }

    /// The payloads of a row; `None` if they are not what was written.
    pub(crate) fn payloads(&self, chunk: &Chunk) -> Result<Option<Bytes>, ReadError> {
        match &chunk.data {
            Data::Here(bytes) => Ok(Some(bytes.clone())),
            Data::There(spot) => Ok(segments::read(&self.catalog, *spot, chunk.bytes())?),
        }
    }

    /// A piece of a segment, as long as it goes.
    pub(crate) fn piece(&self, segment: u64, offset: u64, bytes: usize) -> Result<Vec<u8>, ReadError> {
        Ok(segments::piece(&self.catalog, segment, offset, bytes)?)
    }
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("the database cannot be read")]
    Database(#[from] fjall::Error),
    #[error("{0} is garbled")]
    Garbled(&'static str),
}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> Self {
        ReadError::Database(error.into())
    }
}

/// Changes that are made all at once.
pub(crate) struct Changes {
    batch: OwnedWriteBatch,
    keyspace: Keyspace,
}

impl Changes {
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.batch.insert(&self.keyspace, key, value);
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.batch.remove(&self.keyspace, key);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }
}
