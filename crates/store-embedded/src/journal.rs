//! Looks at the journal before the database does, after the power has failed.
//!
//! What was not synced may be on the disk in part: some pages of a commit, and some of a later one. The database takes a
//! commit whose end is missing for the end of the journal, and a commit that has its end but not its middle for damage,
//! and does not open. Both are the same thing, a commit that nobody was promised, so here the journal is cut before it.
//!
//! The same is true of a commit that is whole but points to payloads that are not: these are in other files, and those
//! may have been written later.
//!
//! Unless it was promised: every commit tells how many were on the disk when it was written. If a later one says so of
//! the one that is broken, this is no torn write but damage.

use crate::books::Trace;
use crate::chunk::{Chunk, Spot};
use crate::segments;
use rethread_store::Seq;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// What the database writes into its `version` file. Of another format nothing is known here, and nothing is done.
const VERSION: &[u8] = b"FJL\x03";
const END: &[u8] = b"FJL\x03";

/// What became of a journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing is wrong with it.
    Whole,
    /// It was cut: how many bytes remain.
    Cut(u64),
    /// The first commit that is broken though it was on the disk.
    Broken(u64),
    /// This journal begins before the one that is numbered before it: the database would let the older hide the newer.
    Disordered(u64),
}

/// Looks at the journals and at the segments to which they point. Of a journal that is not the last one, no commit is
/// torn: it was synced before the next was begun. But the segments may not have been.
pub(crate) fn inspect(database: &Path, segments: &Path) -> io::Result<Found> {
    if fs::read(database.join("version")).ok().as_deref() != Some(VERSION) {
        return Ok(Found::Whole);
    }
    let journals = journals(database)?;
    let mut last = None;
    for (number, path) in &journals {
        let first = first_sequence(path)?;
        if first.is_some() && first <= last {
            return Ok(Found::Disordered(*number));
        }
        last = first.or(last);
    }
    let (mut found, mut durable, mut doubtful) = (Found::Whole, 0, Vec::<Doubtful>::new());
    for (index, (_, path)) in journals.iter().enumerate() {
        let see = |start: usize, commit: &Commit| {
            if let Some((number, trace)) = commit.number.zip(commit.trace) {
                if trace.durable > durable {
                    durable = trace.durable;
                    doubtful.retain(|other| other.number >= durable);
                }
                let mut spots = commit.spots.clone();
                spots.retain(|(spot, _)| spot.segment == trace.segment && spot.offset >= trace.start);
                doubtful.push(Doubtful {
                    number,
                    journal: index,
                    start: start as u64,
                    spots,
                });
            }
        };
        let judged = judge(&read(path)?, see);
        if index + 1 < journals.len() {
            continue;
        }
        if let Found::Cut(end) = judged {
            cut(path, end)?;
        }
        found = judged;
    }
    if let Found::Broken(_) = found {
        return Ok(found);
    }
    for commit in doubtful.iter().filter(|commit| commit.number >= durable) {
        for (spot, bytes) in &commit.spots {
            if !segments::is_whole(segments, *spot, *bytes)? {
                // What came later goes first, so that what is left is a beginning whenever this is interrupted.
                for (_, path) in journals[commit.journal + 1..].iter().rev() {
                    fs::remove_file(path)?;
                    crate::place::sync_dir(database)?;
                }
                cut(&journals[commit.journal].1, commit.start)?;
                return Ok(Found::Cut(commit.start));
            }
        }
    }
    Ok(found)
}

/// A commit whose payloads may not have reached the disk.
struct Doubtful {
    number: u64,
    /// Which of the journals holds it, and where it starts there.
    journal: usize,
    start: u64,
    spots: Vec<(Spot, u64)>,
}

fn cut(path: &Path, end: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.set_len(end)?;
    file.sync_all()
}

/// The journal with the highest number.
pub(crate) fn newest(database: &Path) -> io::Result<Option<PathBuf>> {
    Ok(journals(database)?.pop().map(|(_, path)| path))
}

/// Every journal, by number.
fn journals(database: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(database)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "jnl") {
            continue;
        }
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        journals.extend(number.map(|number| (number, path)));
    }
    journals.sort();
    Ok(journals)
}

/// The database's number of the first commit in a journal.
fn first_sequence(path: &Path) -> io::Result<Option<u64>> {
    let mut head = Vec::new();
    File::open(path)?.take(13).read_to_end(&mut head)?;
    let mut reader = Reader { bytes: &head, at: 0 };
    let mut start = || {
        let tag = reader.u8()?;
        reader.take(4)?;
        Some((tag, u64::from_le_bytes(reader.array()?)))
    };
    Ok(start().and_then(|(tag, sequence)| (tag == START).then_some(sequence)))
}

/// What is in a journal, without the zeroes at its end: it is made larger than it need be.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    const CHUNK: usize = 1 << 20;
    let (mut file, zeroes) = (File::open(path)?, vec![0; CHUNK]);
    let (mut bytes, mut used) = (Vec::new(), 0);
    loop {
        let before = bytes.len();
        let count = file.by_ref().take(CHUNK as u64).read_to_end(&mut bytes)?;
        if count == 0 {
            bytes.truncate(used);
            return Ok(bytes);
        }
        if bytes[before..] != zeroes[..count] {
            used = bytes.len();
        }
    }
}

/// What is to be said of a journal. `see` gets every commit up to the first that is broken, and where it starts.
fn judge(bytes: &[u8], mut see: impl FnMut(usize, &Commit)) -> Found {
    let (mut at, mut next, mut sequence) = (0, None, 0);
    while let Some(commit) = Commit::at(&bytes[at..]) {
        if commit.sequence < sequence {
            break; // the checksum does not cover it
        }
        see(at, &commit);
        at += commit.length;
        next = commit.number.map(|n| n + 1).or(next);
        sequence = commit.sequence + 1;
    }
    let rest = &bytes[at..];
    let Some(torn) = rest.iter().position(|byte| *byte != 0) else {
        return Found::Whole;
    };
    let mut later = (torn..rest.len()).filter(|at| rest[*at] == START);
    let promised = later.find_map(|at| {
        let commit = Commit::at(&rest[at..])?;
        let (number, Trace { durable, .. }) = commit.number.zip(commit.trace)?;
        // Without a commit before it the number of the broken one is not known, but the next one tells.
        (durable > next.unwrap_or(number.saturating_sub(1))).then_some(next.unwrap_or(number.saturating_sub(1)))
    });
    match promised {
        Some(broken) => Found::Broken(broken),
        None => Found::Cut(at as u64),
    }
}

const START: u8 = 1;
const ITEM: u8 = 2;
const FINISH: u8 = 3;

/// A whole commit in the database's journal (version 3 of its format, without compression): a start with the number of
/// items and a sequence number, the items, and a checksum over these.
struct Commit {
    length: usize,
    /// The database's number of it.
    sequence: u64,
    /// Our number of it.
    number: Option<u64>,
    trace: Option<Trace>,
    /// The payloads to which it points, and how many bytes they have.
    spots: Vec<(Spot, u64)>,
}

impl Commit {
    fn at(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.u8()? != START {
            return None;
        }
        let items = reader.u32()?;
        let sequence = u64::from_le_bytes(reader.array()?);
        let begin = reader.at;
        let (mut number, mut trace, mut spots) = (None, None, Vec::new());
        for _ in 0..items {
            if reader.u8()? != ITEM {
                return None;
            }
            let (_kind, compression) = (reader.u8()?, reader.u8()?);
            reader.take(8)?;
            let (key, value, stored) = (reader.u16()?, reader.u32()?, reader.u32()?);
            if compression != 0 || value != stored {
                return None;
            }
            let (key, value) = (reader.take(key.into())?, reader.take(value as usize)?);
            if key.first() == Some(&b'c')
                && let Some([n]) = crate::keys::parts(key)
                && !value.is_empty()
            {
                number = Some(n);
                trace = Trace::decode(value);
            }
            if key.first() == Some(&b'v')
                && let Some([_, last]) = crate::keys::parts(key)
                && let Some(chunk) = Chunk::decode(Seq(last), value)
            {
                spots.extend(chunk.spot().map(|spot| (spot, chunk.bytes())));
            }
        }
        let content = &bytes[begin..reader.at];
        if reader.u8()? != FINISH {
            return None;
        }
        let sum = reader.take(8)?;
        let whole = reader.take(END.len())? == END && sum == xxh3_64(content).to_le_bytes();
        whole.then_some(Commit {
            length: reader.at,
            sequence,
            number,
            trace,
            spots,
        })
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{Data, Item, State};
    use crate::coding::numbers;
    use crate::db::{Db, MEMTABLE};
    use crate::keys;
    use crate::tail::Tail;
    use rethread_store::Retain;

    /// A journal as the database writes it, and where each commit in it ends.
    fn journal(commits: &[(u64, u64)]) -> (tempfile::TempDir, Vec<u8>, Vec<usize>) {
        let folder = tempfile::tempdir().unwrap();
        let segments = folder.path().join("segments");
        fs::create_dir(&segments).unwrap();
        let db = Db::open(folder.path(), &segments, MEMTABLE).unwrap();
        for (n, durable) in commits {
            let mut changes = db.batch();
            changes.put(b"some", &[b'x'; 5000]);
            changes.put(&keys::commit(*n), &numbers([0, 0, 0, *durable, 0, 0]));
            changes.remove(b"other");
            db.commit(changes, &Tail::default(), *n + 1, false).unwrap();
        }
        drop(db);
        let path = newest(folder.path()).unwrap().unwrap();
        let bytes = fs::read(path).unwrap();
        let (mut at, mut ends) = (0, Vec::new());
        while let Some(commit) = Commit::at(&bytes[at..]) {
            at += commit.length;
            ends.push(at);
        }
        (folder, bytes, ends)
    }

    #[test]
    fn what_the_database_writes_is_understood() {
        let (folder, bytes, ends) = journal(&[(0, 0), (1, 1), (2, 2)]);
        assert_eq!(ends.len(), 3);
        assert_eq!(judge(&bytes, |_, _| {}), Found::Whole);
        assert_eq!(
            inspect(folder.path(), &folder.path().join("segments")).unwrap(),
            Found::Whole
        );
        assert_eq!(judge(&bytes[..ends[2]], |_, _| {}), Found::Whole);
        assert_eq!(judge(&[], |_, _| {}), Found::Whole);
        assert_eq!(judge(&[0; 100], |_, _| {}), Found::Whole);
    }

    #[test]
    fn a_torn_end_is_cut_off() {
        let (folder, bytes, ends) = journal(&[(0, 0), (1, 1), (2, 1), (3, 1)]);
        let mut torn = bytes.clone();
        torn[ends[0] + 1000..ends[0] + 2000].fill(0); // of the second commit a page is missing, the later two are there
        assert_eq!(judge(&torn, |_, _| {}), Found::Cut(ends[0] as u64));
        assert_eq!(judge(&torn[..ends[1] - 3], |_, _| {}), Found::Cut(ends[0] as u64));
        let path = newest(folder.path()).unwrap().unwrap();
        fs::write(&path, &torn).unwrap();
        inspect(folder.path(), &folder.path().join("segments")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), ends[0] as u64);
        assert_eq!(
            inspect(folder.path(), &folder.path().join("segments")).unwrap(),
            Found::Whole
        );
        assert!(Db::open(folder.path(), &folder.path().join("segments"), MEMTABLE).is_ok());
    }

    #[test]
    fn what_was_on_the_disk_is_not_cut_off() {
        let (folder, bytes, ends) = journal(&[(0, 0), (1, 1), (2, 1), (3, 2)]);
        let mut broken = bytes.clone();
        broken[ends[0] + 1000] ^= 1;
        assert_eq!(judge(&broken, |_, _| {}), Found::Broken(1));
        let path = newest(folder.path()).unwrap().unwrap();
        fs::write(&path, &broken).unwrap();
        assert_eq!(
            inspect(folder.path(), &folder.path().join("segments")).unwrap(),
            Found::Broken(1)
        );
        assert_eq!(fs::read(&path).unwrap(), broken, "it is not touched");
        broken = bytes;
        broken[100] ^= 1; // the very first
        assert_eq!(judge(&broken, |_, _| {}), Found::Broken(0));
        broken[100] ^= 1;
        broken[12] ^= 1; // its sequence number, which the checksum does not cover: the next does not follow
        assert_eq!(judge(&broken, |_, _| {}), Found::Broken(1));
    }

    /// Four commits that each point to payloads, and where each ends in the journal and in the segment.
    fn with_payloads(durable: u64) -> (tempfile::TempDir, Vec<usize>, Vec<u64>) {
        let folder = tempfile::tempdir().unwrap();
        let segments = folder.path().join("segments");
        fs::create_dir(&segments).unwrap();
        let db = Db::open(folder.path(), &segments, MEMTABLE).unwrap();
        let mut starts = vec![0];
        for n in 0..4u64 {
            let bytes = vec![n as u8; 5000];
            let (segment, offset) = (9, starts[n as usize]);
            let chunk = Chunk {
                first: Seq(n),
                items: vec![Item {
                    len: 5000,
                    state: State::Held(Retain::None),
                }],
                data: Data::There(Spot {
                    segment,
                    offset,
                    sum: xxh3_64(&bytes),
                }),
            };
            let mut tail = Tail::of(segment);
            tail.copy(&bytes);
            let mut changes = db.batch();
            changes.put(&keys::chunk(1, Seq(n)), &chunk.encode());
            changes.put(&keys::commit(n), &numbers([0, 0, 0, durable.min(n), segment, offset]));
            db.commit(changes, &tail, n + 1, false).unwrap();
            starts.push(offset + 5000);
        }
        drop(db);
        let bytes = fs::read(newest(folder.path()).unwrap().unwrap()).unwrap();
        let mut ends = Vec::new();
        judge(&bytes, |start, commit| ends.push(start + commit.length));
        (folder, ends, starts)
    }

    #[test]
    fn a_commit_without_its_payloads_never_was() {
        let inspect = |folder: &tempfile::TempDir| inspect(folder.path(), &folder.path().join("segments")).unwrap();
        let garble = |folder: &tempfile::TempDir, at: u64| {
            let path = folder.path().join("segments/9.seg");
            let mut bytes = fs::read(&path).unwrap();
            bytes[at as usize + 4000] ^= 1;
            fs::write(path, bytes).unwrap();
        };
        let (folder, ends, starts) = with_payloads(1);
        assert_eq!(inspect(&folder), Found::Whole);
        garble(&folder, starts[2]);
        assert_eq!(inspect(&folder), Found::Cut(ends[1] as u64));
        assert_eq!(inspect(&folder), Found::Whole);
        // One that was on the disk is not cut: who reads it is told.
        garble(&folder, starts[0]);
        assert_eq!(inspect(&folder), Found::Whole);
        // One that is not there at all.
        fs::remove_file(folder.path().join("segments/9.seg")).unwrap();
        assert_eq!(inspect(&folder), Found::Cut(ends[0] as u64));
        // A segment that ends too early.
        let (folder, ends, starts) = with_payloads(1);
        cut(&folder.path().join("segments/9.seg"), starts[4] - 1).unwrap();
        assert_eq!(inspect(&folder), Found::Cut(ends[2] as u64));
    }

    #[test]
    fn what_comes_after_it_in_other_journals_goes_too() {
        let (folder, ends, starts) = with_payloads(1);
        let (first, second) = (folder.path().join("0.jnl"), folder.path().join("1.jnl"));
        let bytes = fs::read(&first).unwrap();
        fs::write(&first, &bytes[..ends[2]]).unwrap();
        fs::write(&second, &bytes[ends[2]..]).unwrap();
        let segments = folder.path().join("segments");
        assert_eq!(inspect(folder.path(), &segments).unwrap(), Found::Whole);
        cut(&segments.join("9.seg"), starts[1] + 7).unwrap();
        assert_eq!(inspect(folder.path(), &segments).unwrap(), Found::Cut(ends[0] as u64));
        assert!(!second.exists());
        assert_eq!(fs::metadata(&first).unwrap().len(), ends[0] as u64);
        assert!(Db::open(folder.path(), &segments, MEMTABLE).is_ok());
    }
}
