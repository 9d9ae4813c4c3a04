//! Recovery: rebuilds the index from the files. `docs/store-format.md` has the algorithm as numbered steps.
//!
//! Start with the newest valid checkpoint and replay the groups after it. The first invalid group ends the replay. If a
//! later group claims that the invalid one was durable, the log is damaged and the store does not open. Otherwise the
//! invalid group is the torn end of the log, and recovery truncates it.

use crate::OpenError;
use crate::checkpoint::{self, Checkpoint};
use crate::data_dir::DataDir;
use crate::group::{Claims, Framed, GroupHeader, Location, SEGMENT_HEADER_BYTES, parse_records};
use crate::index::{Inconsistent, Index};
use crate::private::{self, sync_dir};
use crate::record::Item;
use crate::segment::{self, SegmentFile};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::Arc;

/// The state of the log after recovery. Everything in it is durable.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) index: Index,
    /// The last group.
    pub(crate) commit: u64,
    /// The end of that group. At offset 0 the segment has no header yet.
    pub(crate) end: Location,
    pub(crate) files: BTreeMap<u32, Arc<SegmentFile>>,
    /// The checkpoint from which the replay started.
    pub(crate) checkpoint: LastCheckpoint,
}

/// Why the log cannot be recovered.
enum Fault {
    Io(io::Error),
    Damaged(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Io(error)
    }
}

/// Replays the log of a directory and makes it durable.
pub(crate) fn recover(dir: &DataDir) -> Result<Recovered, OpenError> {
    dir.make_log()?;
    replay(dir).map_err(|fault| match fault {
        Fault::Io(error) => dir.io("the log cannot be read", error),
        Fault::Damaged(what) => dir.damaged(what),
    })
}

fn replay(dir: &DataDir) -> Result<Recovered, Fault> {
    let numbers = segment::list(dir.log())?;
    let commits = checkpoint::list_commits(dir.log())?;
    if dir.was_made() && numbers.is_empty() {
        return Err(Fault::Damaged("the log has no segment".to_owned()));
    }
    let start = find_start(dir, &numbers, &commits)?;
    let checkpoint = LastCheckpoint {
        commit: start.commit,
        segment: if start.commit > 0 { start.end.segment } else { 0 },
        bytes: 0,
    };
    let mut replay = Replay::new(dir, numbers, start);
    // The log is synced before a checkpoint is renamed, so its name proves that the commit was durable.
    replay.durable = replay.durable.max(commits.last().copied().unwrap_or(0));
    replay.run()?;
    replay.cut()?;
    replay.open_older()?;
    replay.make_durable()?;
    replay.delete_unknown()?;
    dir.set_made()?;
    Ok(Recovered {
        index: replay.index,
        commit: replay.commit,
        end: replay.end,
        files: replay.files,
        checkpoint,
    })
}

/// The newest valid checkpoint, or the beginning of the log.
fn find_start(dir: &DataDir, numbers: &[u32], commits: &[u64]) -> Result<Checkpoint, Fault> {
    for commit in commits.iter().rev() {
        let bytes = fs::read(checkpoint::path(dir.log(), *commit))?;
        match checkpoint::decode(&bytes, dir.store()) {
            Some(start) if numbers.contains(&start.end.segment) => return Ok(start),
            Some(start) => return Err(Fault::Damaged(format!("segment {} is missing", start.end.segment))),
            None => tracing::error!(
                dir = %dir.path().display(),
                commit,
                "a checkpoint of the store is damaged; an older one is used, or the whole log"
            ),
        }
    }
    if numbers.first().is_some_and(|first| *first != 1) {
        let what = "no checkpoint can be read, and the beginning of the log is gone";
        return Err(Fault::Damaged(what.to_owned()));
    }
    Ok(Checkpoint {
        index: Index::default(),
        commit: 0,
        end: Location { segment: 1, offset: 0 },
    })
}

/// The newest checkpoint on the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastCheckpoint {
    /// Zero if there is none.
    pub(crate) commit: u64,
    /// The segment in which it ends. A replay begins there.
    pub(crate) segment: u32,
    pub(crate) bytes: u64,
}

struct Replay<'a> {
    dir: &'a DataDir,
    /// The segments in the directory.
    numbers: Vec<u32>,
    index: Index,
    commit: u64,
    end: Location,
    /// The first segment of the replay.
    first: u32,
    /// The highest commit that is known to have been durable.
    durable: u64,
    files: BTreeMap<u32, Arc<SegmentFile>>,
}

impl<'a> Replay<'a> {
    fn new(dir: &'a DataDir, numbers: Vec<u32>, start: Checkpoint) -> Self {
        Replay {
            dir,
            numbers,
            index: start.index,
            commit: start.commit,
            durable: start.commit,
            end: start.end,
            first: start.end.segment,
            files: BTreeMap::new(),
        }
    }

    /// Replays segment by segment, from the start to the last group that continues the log.
    fn run(&mut self) -> Result<(), Fault> {
        let mut number = self.first;
        while self.numbers.contains(&number) {
            let file = Arc::new(SegmentFile::open(self.dir.log(), number)?);
            let len = file.len()?;
            if !self.enter(number, &file, len)? {
                return Ok(());
            }
            self.files.insert(number, Arc::clone(&file));
            self.segment(&file, len)?;
            self.index.segments.set_len(number, self.end.offset.into());
            // A reused file has older groups behind its end. Only the header of the next segment distinguishes this end
            // from a torn group: it has the number of the next commit and this length.
            number += 1;
        }
        Ok(())
    }

    /// Checks the header of a segment. False if the segment does not continue the log.
    fn enter(&mut self, number: u32, file: &SegmentFile, len: u64) -> Result<bool, Fault> {
        let header = file.header()?;
        if header.is_some_and(|header| header.store != self.dir.store()) {
            return Err(Fault::Damaged(format!("segment {number} belongs to another store")));
        }
        let header = header.filter(|header| header.number == number);
        if number == self.end.segment && self.end.offset > 0 {
            // The checkpoint ends in this segment.
            if header.is_none() || len < self.end.offset.into() {
                let what = format!("segment {number} is shorter than its checkpoint, or has no header");
                return Err(Fault::Damaged(what));
            }
            return Ok(true);
        }
        let Some(header) = header else {
            return Ok(false);
        };
        let previous_end = if number == self.end.segment { 0 } else { self.end.offset };
        if header.first_commit != self.commit + 1 || header.previous_end != u64::from(previous_end) {
            return Ok(false);
        }
        self.end = Location {
            segment: number,
            offset: SEGMENT_HEADER_BYTES as u32,
        };
        Ok(true)
    }

    /// Replays the groups of a segment, up to the first that does not continue the log.
    fn segment(&mut self, file: &SegmentFile, len: u64) -> Result<(), Fault> {
        let mut group = Vec::new();
        while u64::from(self.end.offset) < len {
            let header = file.read_group(self.end, len, self.dir.store(), &mut group)?;
            let Some(header) = header.filter(|header| header.commit == self.commit + 1) else {
                return Ok(());
            };
            self.durable = self.durable.max(header.durable);
            if !self.replay_group(&group, header)? {
                return Ok(());
            }
            self.commit = header.commit;
            self.end = self.end.plus(header.len as usize);
        }
        Ok(())
    }

    /// Applies the records of a group. False if the group is torn.
    fn replay_group(&mut self, group: &[u8], header: GroupHeader) -> Result<bool, Fault> {
        let Some(records) = parse_records(group, self.dir.store()) else {
            return Ok(false);
        };
        let damaged: Vec<Item> = records.iter().flat_map(Framed::damaged).collect();
        if !damaged.is_empty() && self.durable_behind(header)? < header.commit {
            return Ok(false);
        }
        self.index.segments.commit = header.commit;
        for framed in records {
            let at = self.end.plus(framed.body_offset);
            self.index.apply(framed.record, at).map_err(|Inconsistent(what)| {
                let Location { segment, offset } = self.end;
                Fault::Damaged(format!("segment {segment}, byte {offset}: {what}"))
            })?;
        }
        self.mark_damaged(&damaged, self.end.segment);
        Ok(true)
    }

    /// Marks and reports damaged events of a segment.
    fn mark_damaged(&mut self, damaged: &[Item], segment: u32) {
        for item in damaged {
            self.index.mark_damaged(*item);
            let Item::Event(session, ordinal, _) = item else {
                continue;
            };
            let session = self.index.sessions.get(session);
            tracing::error!(
                dir = %self.dir.path().display(),
                segment,
                session = session.map_or("", |session| session.key.session.short()),
                stream = ordinal.0,
                "a stream of the store is damaged and will be refused"
            );
        }
    }

    /// The highest commit that a group from `header` on claims to be durable.
    fn durable_behind(&mut self, header: GroupHeader) -> Result<u64, Fault> {
        if self.durable < header.commit {
            self.durable = self.durable.max(self.claims()?.durable);
        }
        Ok(self.durable)
    }

    /// The highest commits of the groups after the end of the replay.
    fn claims(&self) -> Result<Claims, Fault> {
        let mut highest = Claims::default();
        for number in self.numbers.iter().filter(|number| **number >= self.end.segment) {
            let from = if *number == self.end.segment {
                self.end.offset
            } else {
                0
            };
            let path = segment::path(self.dir.log(), *number);
            let bytes = read_from(&path, from.into())?;
            highest = highest.max(GroupHeader::find_claims(&bytes, self.dir.store()));
        }
        Ok(highest)
    }

    /// Truncates the log after the last valid group. Fails if a later group was durable.
    fn cut(&mut self) -> Result<(), Fault> {
        let Location { segment, offset } = self.end;
        let behind = |number: &&u32| **number > segment;
        let later: Vec<u32> = self.numbers.iter().filter(behind).copied().collect();
        let missing = (segment + 1..).zip(&later).find(|(expected, found)| expected != *found);
        if let Some((missing, _)) = missing {
            return Err(Fault::Damaged(format!("segment {missing} is missing")));
        }
        let claims = self.claims()?;
        let durable = self.durable.max(claims.durable);
        if durable > self.commit {
            let what = format!(
                "segment {segment} from byte {offset} on: commits {} to {durable} were durable and cannot be read",
                self.commit + 1
            );
            return Err(Fault::Damaged(what));
        }
        let dir = self.dir.log();
        // Delete from the end, one segment at a time, so that a crash here leaves no gap.
        for number in later.iter().rev() {
            fs::remove_file(segment::path(dir, *number))?;
            sync_dir(dir)?;
        }
        if !self.numbers.contains(&segment) {
            let file = SegmentFile::create(dir, segment)?;
            self.files.insert(segment, Arc::new(file));
        }
        let file = match self.files.get(&segment) {
            Some(file) => Arc::clone(file),
            None => Arc::new(SegmentFile::open(dir, segment)?),
        };
        let len = file.len()?;
        if claims.commit > self.commit {
            tracing::warn!(
                dir = %self.dir.path().display(),
                segment,
                offset,
                last = claims.commit,
                "the end of the log was torn and is cut off"
            );
        }
        if len > offset.into() {
            file.truncate(offset.into())?;
        }
        self.files.insert(segment, file);
        self.index.segments.set_len(segment, offset.into());
        sync_dir(dir)?;
        self.numbers.retain(|number| *number <= segment);
        Ok(())
    }

    /// Opens the live segments before the start of the replay and deletes the others. Marks the events of an unusable
    /// segment as damaged.
    fn open_older(&mut self) -> Result<(), Fault> {
        let listed: Vec<_> = self.index.segments.iter().collect();
        for (number, used) in listed {
            if self.files.contains_key(&number) {
                continue;
            }
            match open_segment(self.dir, number, used.len) {
                Ok(file) => drop(self.files.insert(number, Arc::new(file))),
                Err(_) if used.live == 0 => self.index.segments.remove(number),
                Err(error) => {
                    tracing::error!(
                        dir = %self.dir.path().display(),
                        segment = number,
                        reason = %error,
                        "a segment of the store is damaged"
                    );
                    self.index.segments.set_damaged(number);
                    self.mark_damaged(&self.index.events_in(number), number);
                }
            }
        }
        Ok(())
    }

    /// Syncs the replayed segments. Rewrites segments that may have lost writes.
    fn make_durable(&mut self) -> Result<(), Fault> {
        let dir = self.dir.log();
        for (number, file) in self.files.range_mut(self.first..) {
            let is_distrusted = self.dir.distrusted().is_some_and(|from| *number >= from);
            if is_distrusted || file.sync().is_err() {
                self.dir.distrust(*number); // in case this sync fails
                rewrite(dir, *number)?;
                *file = Arc::new(SegmentFile::open(dir, *number)?);
            }
        }
        sync_dir(dir)?;
        self.dir.trust();
        Ok(())
    }

    /// Deletes segments that nothing refers to. The replayed log is durable, so no later replay refers to them.
    fn delete_unknown(&self) -> Result<(), Fault> {
        let unknown = self.numbers.iter().filter(|number| !self.files.contains_key(number));
        for number in unknown.filter(|number| self.index.segments.get(**number).live == 0) {
            fs::remove_file(segment::path(self.dir.log(), *number))?;
            sync_dir(self.dir.log())?;
        }
        Ok(())
    }
}

/// The bytes of a file from an offset to its end.
fn read_from(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    file.seek(io::SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a segment that must have `len` bytes.
fn open_segment(dir: &DataDir, number: u32, len: u64) -> io::Result<SegmentFile> {
    let file = SegmentFile::open(dir.log(), number)?;
    if file
        .header()?
        .is_none_or(|header| header.number != number || header.store != dir.store())
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "its header is of another segment",
        ));
    }
    if file.len()? < len {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is too short"));
    }
    Ok(file)
}

/// Copies a segment from the page cache to new blocks of the disk. After a failed sync the system marks the old pages
/// clean, so another sync would not write them.
fn rewrite(dir: &Path, number: u32) -> io::Result<()> {
    let path = segment::path(dir, number);
    private::write_file(&path, &dir.join("segment.tmp"), |to| {
        io::copy(&mut fs::File::open(&path)?, to).map(drop)
    })
}
