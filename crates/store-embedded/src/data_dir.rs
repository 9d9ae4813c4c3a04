//! The data directory: its owner, its format and its lock.

use crate::OpenError;
use crate::group::FORMAT;
use crate::private::{self, sync_dir};
use parking_lot::Mutex;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Marks the directory as a store and names its format. Locked while the store is open.
const MARKER: &str = "rethread.json";
/// The directory of segments and checkpoints.
const LOG: &str = "log";
/// Written to test whether the disk has free space.
const PROBE: &str = "probe.tmp";
/// Free bytes that the disk must have before the store recovers from an outage.
const PROBE_BYTES: usize = 4 << 20;
/// Bytes of the marker without its newline, padded with spaces.
const MARKER_BYTES: usize = 95;
/// The file system creates it at the root of a disk.
const LOST_AND_FOUND: &str = "lost+found";

/// A directory that this process has locked.
#[derive(Debug)]
pub(crate) struct DataDir {
    dir: PathBuf,
    log: PathBuf,
    marker_path: PathBuf,
    marker: Mutex<File>,
    identity: Option<FileIdentity>,
    /// The random number of the store.
    store: u64,
    made: AtomicBool,
    /// The first segment that may have lost writes, because a sync failed.
    distrusted: AtomicU32,
    /// When a commit last looked at the path.
    looked: Mutex<Option<Instant>>,
}

/// No segment has lost writes.
const TRUSTED: u32 = u32::MAX;

/// The content of the marker in every format.
#[derive(serde::Deserialize)]
struct MarkerFormat {
    format: u32,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Marker {
    format: u32,
    store: u64,
    /// Whether the log was created. A missing log is damage then, not a new store.
    made: bool,
    /// A checksum of the other fields. A damaged store number would make the whole log look foreign.
    crc: u32,
}

impl Marker {
    fn new(store: u64, made: bool) -> Self {
        let format = FORMAT;
        let crc = crc32c::crc32c(format!("{format} {store} {made}").as_bytes());
        Marker {
            format,
            store,
            made,
            crc,
        }
    }

    /// Parses a marker of this format.
    fn parse(text: &str) -> Option<Self> {
        let read: Marker = serde_json::from_str(text).ok()?;
        (read.crc == Marker::new(read.store, read.made).crc).then_some(read)
    }
}

impl DataDir {
    /// Locks a directory, which must be empty or belong to a store. Creates a missing directory if `create` is set.
    pub(crate) fn lock(dir: &Path, create: bool) -> Result<Self, OpenError> {
        if create {
            warn_of_readers(dir);
            make(dir).map_err(io(dir, "it cannot be made"))?;
        }
        let names = Names::list(dir)?;
        let marker_path = dir.join(MARKER);
        let marker = private::file_options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&marker_path)
            .map_err(io(dir, "its marker cannot be opened"))?;
        let (mut marker, found) = lock_and_read(dir, marker, &names)?;
        let read = match found {
            Some(read) => read,
            None => {
                let mut random = [0; 8];
                getrandom::fill(&mut random).map_err(|error| OpenError::Io {
                    dir: dir.to_owned(),
                    what: "the system has no random numbers",
                    source: std::io::Error::other(error.to_string()),
                })?;
                let new = Marker::new(u64::from_le_bytes(random), false);
                write_marker(&mut marker, &new)
                    .and_then(|()| sync_dir(dir))
                    .map_err(io(dir, "its marker cannot be written"))?;
                new
            }
        };
        Ok(DataDir {
            dir: dir.to_owned(),
            log: dir.join(LOG),
            marker_path,
            identity: file_identity(marker.metadata()),
            marker: Mutex::new(marker),
            store: read.store,
            made: AtomicBool::new(read.made),
            distrusted: AtomicU32::new(TRUSTED),
            looked: Mutex::default(),
        })
    }

    /// Whether [`DataDir::lock`] would succeed now. Creates and changes nothing.
    pub(crate) fn inspect(dir: &Path) -> Result<(), OpenError> {
        let names = match fs::read_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            _ => Names::list(dir)?,
        };
        if !names.marked {
            return Ok(());
        }
        let marker = File::open(dir.join(MARKER)).map_err(io(dir, "its marker cannot be opened"))?;
        lock_and_read(dir, marker, &names).map(|_| ())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// The directory of segments and checkpoints.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    pub(crate) fn store(&self) -> u64 {
        self.store
    }

    /// Creates the directory of the log in a new store.
    pub(crate) fn make_log(&self) -> Result<(), OpenError> {
        if self.log.exists() {
            return Ok(());
        }
        if self.was_made() {
            return Err(self.damaged(format!("{LOG} is missing")));
        }
        private::create_dir_all(&self.log)
            .and_then(|()| sync_dir(&self.dir))
            .map_err(|error| self.io("the folder of the log cannot be made", error))
    }

    /// Whether the log was created before.
    pub(crate) fn was_made(&self) -> bool {
        self.made.load(Ordering::SeqCst)
    }

    /// Records that the log was created.
    pub(crate) fn set_made(&self) -> std::io::Result<()> {
        if !self.made.swap(true, Ordering::SeqCst) {
            write_marker(&mut self.marker.lock(), &Marker::new(self.store, true))?;
        }
        Ok(())
    }

    /// Records a failed sync of a segment. The system may have dropped its dirty pages and marked them clean.
    pub(crate) fn distrust(&self, segment: u32) {
        self.distrusted.fetch_min(segment, Ordering::SeqCst);
    }

    /// The first segment that may have lost writes. Recovery rewrites it and all later ones.
    pub(crate) fn distrusted(&self) -> Option<u32> {
        Some(self.distrusted.load(Ordering::SeqCst)).filter(|segment| *segment != TRUSTED)
    }

    /// Records that all segments were rewritten.
    pub(crate) fn trust(&self) {
        self.distrusted.store(TRUSTED, Ordering::SeqCst);
    }

    /// Whether the path still leads to the locked directory. Writes to deleted files would succeed.
    pub(crate) fn is_there(&self) -> bool {
        self.identity.is_some() && self.identity == file_identity(fs::metadata(&self.marker_path))
    }

    /// The same for a commit at `now`, which trusts a look that is younger than `trusted`.
    pub(crate) fn is_there_at(&self, now: Instant, trusted: Duration) -> bool {
        let mut looked = self.looked.lock();
        if looked.is_some_and(|looked| now.saturating_duration_since(looked) < trusted) {
            return true;
        }
        *looked = self.is_there().then_some(now);
        looked.is_some()
    }

    /// Tests whether the disk has `PROBE_BYTES` of free space.
    pub(crate) fn probe(&self) -> std::io::Result<()> {
        let path = self.dir.join(PROBE);
        let mut options = private::file_options();
        let file = options.write(true).create(true).truncate(true).open(&path);
        let written = file.and_then(|mut file| {
            file.write_all(&vec![0xa5; PROBE_BYTES])?;
            private::sync_file(&file)
        });
        let removed = fs::remove_file(&path);
        written.and(removed)
    }

    pub(crate) fn io(&self, what: &'static str, source: std::io::Error) -> OpenError {
        io(&self.dir, what)(source)
    }

    pub(crate) fn damaged(&self, what: impl Into<String>) -> OpenError {
        OpenError::Damaged {
            dir: self.dir.clone(),
            what: what.into(),
        }
    }
}

fn warn_of_readers(dir: &Path) {
    if let Some(mode) = private::loose_mode(dir) {
        tracing::warn!(
            dir = %dir.display(),
            mode = %format_args!("{mode:03o}"),
            "other users may read the data directory, which has session ids and payloads; try: chmod 700 {}",
            dir.display()
        );
    }
}

/// The names in a directory.
struct Names {
    /// Whether the marker is among them.
    marked: bool,
    /// A name that does not belong to an empty directory.
    stranger: Option<String>,
}

impl Names {
    /// Lists the names. A directory with content and without a marker is foreign.
    fn list(dir: &Path) -> Result<Self, OpenError> {
        let mut names = Names {
            marked: false,
            stranger: None,
        };
        for entry in fs::read_dir(dir).map_err(io(dir, "it cannot be listed"))? {
            let name = entry.map_err(io(dir, "it cannot be listed"))?.file_name();
            names.marked |= name == MARKER;
            if name != MARKER && name != PROBE && name != LOST_AND_FOUND {
                names.stranger = names.stranger.or(Some(name.to_string_lossy().into_owned()));
            }
        }
        match names.foreign(dir) {
            Some(foreign) if !names.marked => Err(foreign),
            _ => Ok(names),
        }
    }

    fn foreign(&self, dir: &Path) -> Option<OpenError> {
        let found = self.stranger.clone()?;
        let dir = dir.to_owned();
        Some(OpenError::Foreign { dir, found })
    }
}

/// Locks the marker and reads it. `None` if the directory is new.
fn lock_and_read(dir: &Path, mut marker: File, names: &Names) -> Result<(File, Option<Marker>), OpenError> {
    marker.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::InUse { dir: dir.to_owned() },
        TryLockError::Error(source) => io(dir, "it cannot be locked")(source),
    })?;
    let mut text = String::new();
    marker
        .read_to_string(&mut text)
        .map_err(io(dir, "its marker cannot be read"))?;
    if text.trim_end_matches('\0').is_empty() {
        // The marker is new, or its creation was interrupted. In both cases the directory is otherwise empty.
        return match names.foreign(dir) {
            Some(foreign) => Err(foreign),
            None => Ok((marker, None)),
        };
    }
    let dir = dir.to_owned();
    match serde_json::from_str::<MarkerFormat>(&text) {
        Ok(MarkerFormat { format: found }) if found < FORMAT => Err(OpenError::Older {
            dir,
            found,
            known: FORMAT,
        }),
        Ok(MarkerFormat { format: found }) if found > FORMAT => Err(OpenError::Newer {
            dir,
            found,
            known: FORMAT,
        }),
        _ => match Marker::parse(&text) {
            Some(read) => Ok((marker, Some(read))),
            None => {
                let what = format!("{MARKER} is garbled");
                Err(OpenError::Damaged { dir, what })
            }
        },
    }
}

fn io(dir: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> OpenError {
    let dir = dir.to_owned();
    move |source| OpenError::Io { dir, what, source }
}

fn write_marker(file: &mut File, marker: &Marker) -> std::io::Result<()> {
    let text = serde_json::to_string(marker).expect("a marker is plain JSON");
    file.rewind()?;
    // One write of a fixed length: a kill leaves the old marker or the new one.
    file.write_all(format!("{text:<MARKER_BYTES$}\n").as_bytes())?;
    private::sync_file(file)
}

/// Creates a directory and makes its name durable.
fn make(dir: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    private::create_dir_all(dir)?;
    for parent in missing.iter().filter_map(|dir| dir.parent()) {
        let is_relative = parent.as_os_str().is_empty();
        sync_dir(if is_relative { Path::new(".") } else { parent })?;
    }
    Ok(())
}

/// The device and inode of a file, which distinguish it from a later file at the same path.
type FileIdentity = (u64, u64);

#[cfg(unix)]
fn file_identity(data: std::io::Result<fs::Metadata>) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt as _;
    data.ok().map(|data| (data.dev(), data.ino()))
}

#[cfg(not(unix))]
fn file_identity(data: std::io::Result<fs::Metadata>) -> Option<FileIdentity> {
    data.ok().map(|_| (0, 0)) // Windows does not delete an open file
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The marker is written in place, so a shorter one would leave the end of a longer one.
    #[test]
    fn marker_has_a_fixed_length() {
        let folder = tempfile::tempdir().unwrap();
        let dir = DataDir::lock(folder.path(), true).unwrap();
        let text = || fs::read_to_string(folder.path().join(MARKER)).unwrap();
        let new = text();
        assert!(new.contains("false"));
        dir.set_made().unwrap();
        assert!(text().contains("true") && text().len() == new.len());
        let longest = Marker {
            format: u32::MAX,
            store: u64::MAX,
            made: false,
            crc: u32::MAX,
        };
        assert!(serde_json::to_string(&longest).unwrap().len() <= MARKER_BYTES);
    }

    /// Most commits look at a clock instead of the disk.
    #[test]
    fn commit_trusts_a_look_at_the_path_for_a_bounded_time() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("data"), folder.path().join("away"));
        let dir = DataDir::lock(&path, true).unwrap();
        let (now, trusted) = (Instant::now(), Duration::from_millis(5));
        assert!(dir.is_there_at(now, trusted));
        fs::rename(&path, &away).unwrap();
        assert!(!dir.is_there());
        assert!(dir.is_there_at(now + trusted / 2, trusted));
        assert!(!dir.is_there_at(now + trusted, trusted));
        assert!(!dir.is_there_at(now + trusted, trusted), "a failed look is not trusted");
        fs::rename(&away, &path).unwrap();
        assert!(dir.is_there_at(now + trusted, trusted));
    }
}
