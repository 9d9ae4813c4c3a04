//! Checkpoints: the encoded index, so that opening does not replay the whole log. See `docs/store-format.md`.

use crate::coding::{Decoder, Wire, wire_struct};
use crate::group::{FORMAT, Location};
use crate::index::Index;
use crate::index::session::{Blob, PushQueue, Session};
use crate::index::stream::{Ended, HeldEvent, Stream};
use crate::private;
use crate::segment;
use crate::watches::Watches;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"rethread";
const EXTENSION: &str = "checkpoint";
const TEMPORARY: &str = "checkpoint.tmp";
/// Bytes before the index.
const HEADER_BYTES: usize = 24;

/// The state of the log at one moment.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) index: Index,
    /// The last group in the checkpoint.
    pub(crate) commit: u64,
    /// The end of that group.
    pub(crate) end: Location,
}

wire_struct!(Blob { at, part });
wire_struct!(Ended { at, ticket });
wire_struct!(HeldEvent { seq, retain, at, part });
wire_struct!(PushQueue { floor, messages, cost });
wire_struct!(Session { key, record, epoch, touched, high_water, ended, streams, queue; changed: 0 });
wire_struct!(Stream {
    info, epoch, last, purged, ended, answers_lost, buried, damaged, bytes, events;
    changed: 0, watches: Watches::default()
});

/// Encodes a checkpoint of `index` after `commit`, which ends at `end`.
pub(crate) fn encode(index: &Index, store: u64, commit: u64, end: Location) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + index.totals.streams as usize * 128);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]); // the checksum
    bytes.extend_from_slice(&store.to_le_bytes());
    (commit, end).encode(&mut bytes);
    (index.next_session, index.next_ticket).encode(&mut bytes);
    let lengths: Vec<(u32, u64)> = index.segments.iter().map(|(number, used)| (number, used.len)).collect();
    lengths.encode(&mut bytes);
    index.sessions.len().encode(&mut bytes);
    for (number, session) in &index.sessions {
        number.encode(&mut bytes);
        session.encode(&mut bytes);
    }
    let crc = crc32c::crc32c(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Parses a checkpoint of this store. `None` if it is damaged.
pub(crate) fn decode(bytes: &[u8], store: u64) -> Option<Checkpoint> {
    let (start, rest) = bytes.split_at_checked(16)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&[&start[..12], &[0; 4]].concat()), rest);
    let valid = start[..8] == MAGIC && start[8..12] == FORMAT.to_le_bytes() && start[12..] == crc.to_le_bytes();
    let decoder = &mut Decoder(rest);
    if !valid || decoder.array()? != store.to_le_bytes() {
        return None;
    }
    let (commit, end) = Wire::decode(decoder)?;
    let mut index = Index::default();
    (index.next_session, index.next_ticket) = Wire::decode(decoder)?;
    for (number, len) in Vec::<(u32, u64)>::decode(decoder)? {
        index.segments.set_len(number, len);
    }
    let mut node: Arc<str> = Arc::default();
    for _ in 0..usize::decode(decoder)? {
        let (number, mut session): (u64, Session) = Wire::decode(decoder)?;
        for (_, stream) in &mut session.streams {
            share(&mut Arc::make_mut(&mut stream.info).node, &mut node);
        }
        index.restore_session(number, session);
    }
    index.sort_ended();
    decoder.0.is_empty().then_some(Checkpoint { index, commit, end })
}

/// Uses one allocation for consecutive equal names. Most streams belong to the same node.
fn share(name: &mut Arc<str>, latest: &mut Arc<str>) {
    if *name != *latest {
        *latest = Arc::clone(name);
    }
    *name = Arc::clone(latest);
}

/// Writes a checkpoint. Deletes all others except that of commit `fallback`.
pub(crate) fn write(dir: &Path, commit: u64, bytes: &[u8], fallback: u64) -> io::Result<()> {
    private::write_file(&path(dir, commit), &dir.join(TEMPORARY), |file| file.write_all(bytes))?;
    private::sync_dir(dir)?;
    for other in list_commits(dir)? {
        if other != commit && other != fallback {
            fs::remove_file(path(dir, other))?;
        }
    }
    Ok(())
}

/// The commits of the checkpoints in a directory, in order.
pub(crate) fn list_commits(dir: &Path) -> io::Result<Vec<u64>> {
    segment::list_numbers(dir, path)
}

pub(crate) fn path(dir: &Path, commit: u64) -> PathBuf {
    dir.join(format!("{commit:020}.{EXTENSION}"))
}

/// Bytes of all checkpoints.
pub(crate) fn disk_bytes(dir: &Path) -> u64 {
    let commits = list_commits(dir).unwrap_or_default();
    let size = |commit| fs::metadata(path(dir, commit)).map_or(0, |data| data.len());
    commits.into_iter().map(size).sum()
}
