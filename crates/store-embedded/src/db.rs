//! The database under the store, tuned for it.

use crate::head::decode_event;
use fjall::{Database, Iter, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Slice, Snapshot};
use rethread_store::{Pin, Seq};
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

/// Blocks of tables that were read. Small: what is read again soon is in the page cache too.
const CACHE: u64 = 8 << 20;
/// What is written is kept in memory up to here, and then becomes a table.
const MEMTABLE: u64 = 8 << 20;
/// The smallest there is.
const JOURNALS: u64 = 64 << 20;
const KEYSPACE: &str = "rethread";

/// An open database. Cheap to clone; when the last clone goes, it is closed and its lock is free.
#[derive(Clone)]
pub(crate) struct Db {
    database: Database,
    keyspace: Keyspace,
}

impl Db {
    pub(crate) fn open(path: &Path) -> Result<Self, fjall::Error> {
        let database = Database::builder(path)
            .cache_size(CACHE)
            .max_journaling_size(JOURNALS)
            .max_cached_files(Some(128))
            // One only: with two, one that has died of a full disk leaves the other to fill the queue that `commit`
            // then waits for without end.
            .worker_threads(1)
            .open()?;
        let keyspace = database.keyspace(KEYSPACE, || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE)
                .manual_journal_persist(true)
        })?;
        Ok(Db { database, keyspace })
    }

    /// Everything as it stands now: no commit that comes later is seen.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            snapshot: self.database.snapshot(),
            keyspace: &self.keyspace,
        }
    }

    pub(crate) fn batch(&self) -> Changes {
        Changes {
            batch: self.database.batch(),
            keyspace: self.keyspace.clone(),
        }
    }

    /// Commits, and if `sync` says so waits for the disk.
    pub(crate) fn commit(&self, changes: Changes, sync: bool) -> Result<(), fjall::Error> {
        self.wait_for_tables()?;
        let mode = if sync { PersistMode::SyncData } else { PersistMode::Buffer };
        changes.batch.durability(Some(mode)).commit()
    }

    /// Waits while the database lags behind with its tables. It would do so itself inside of the commit, but there it
    /// does not notice when the thread that makes the tables has died, and waits for ever.
    fn wait_for_tables(&self) -> Result<(), fjall::Error> {
        while self.keyspace.l0_table_count() >= 20 || self.keyspace.sealed_memtable_count() >= 3 {
            self.alive()?;
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Whether the database still works: an error in a thread of its own shows itself only when it is asked.
    pub(crate) fn alive(&self) -> Result<(), fjall::Error> {
        self.database.persist(PersistMode::Buffer)
    }

    pub(crate) fn sync(&self) -> Result<(), fjall::Error> {
        self.database.persist(PersistMode::SyncAll)
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
        self.database.disk_space().unwrap_or(0)
    }

    /// Bytes of the tables alone: what [`Db::clear_away`] can make smaller.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.keyspace.disk_space()
    }

    /// Writes the tables anew without what is deleted. Takes a while.
    pub(crate) fn clear_away(&self) -> Result<(), fjall::Error> {
        self.keyspace.rotate_memtable_and_wait()?;
        self.keyspace.major_compact()
    }
}

/// A state of the database.
pub(crate) struct View<'a> {
    snapshot: Snapshot,
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

    /// The events of a stream from `from` on.
    pub(crate) fn events(&self, stream: u64, from: Seq) -> impl Iterator<Item = Result<Stored, ReadError>> + use<> {
        self.prefix_from(&crate::keys::events(stream), &crate::keys::event(stream, from))
            .map(|guard| {
                let (key, value) = guard.into_inner()?;
                let [_, seq] = crate::keys::parts(&key).ok_or(ReadError::Garbled("the key of an event"))?;
                let (pin, _) = decode_event(&value).ok_or(ReadError::Garbled("an event"))?;
                let seq = Seq(seq);
                Ok(Stored { seq, pin, value })
            })
    }
}

/// An event as it is found.
pub(crate) struct Stored {
    pub(crate) seq: Seq,
    pub(crate) pin: Pin,
    value: Slice,
}

impl Stored {
    pub(crate) fn payload(&self) -> &[u8] {
        self.value.get(1..).unwrap_or_default()
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
