//! The directory: whose it is, and who has it.

use crate::OpenError;
use crate::keys::FORMAT;
use crate::private;
use parking_lot::Mutex;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Says that the directory is ours, and in which format. Whoever has the store open has this file locked.
const MARKER: &str = "rethread.json";
/// The database has a directory of its own in ours, so that its files and ours never meet.
const DATABASE: &str = "db";
/// The payloads have one too.
const SEGMENTS: &str = "events";
/// Written to find out whether the disk has room.
const PROBE: &str = "probe.tmp";
/// Made by the file system where a disk is mounted.
const LOST_AND_FOUND: &str = "lost+found";

/// A directory that is ours as long as this lives.
pub(crate) struct Place {
    dir: PathBuf,
    marker: Mutex<File>,
    made: AtomicBool,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Marker {
    format: u32,
    /// Whether the database was made: if it is gone then, that is damage and no beginning.
    #[serde(default)]
    made: bool,
}

impl Place {
    /// Takes a directory, which must be empty or ours; makes it if there is none and `create` says so.
    pub(crate) fn take(dir: &Path, create: bool) -> Result<Self, OpenError> {
        if create {
            if let Some(mode) = private::loose_mode(dir) {
                tracing::warn!(
                    dir = %dir.display(),
                    mode = %format_args!("{mode:03o}"),
                    "other users may read the data directory, which holds session ids and payloads; try: chmod 700 {}",
                    dir.display()
                );
            }
            make(dir).map_err(io(dir, "it cannot be made"))?;
        }
        let names = Names::list(dir)?;
        let marker = private::file_options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(MARKER))
            .map_err(io(dir, "its marker cannot be opened"))?;
        let (mut marker, found) = lock_and_read(dir, marker, &names)?;
        if found.is_none() {
            mark(&mut marker, false)
                .and_then(|()| sync_dir(dir))
                .map_err(io(dir, "its marker cannot be written"))?;
        }
        Ok(Place {
            dir: dir.to_owned(),
            marker: Mutex::new(marker),
            made: AtomicBool::new(found.is_some_and(|marker| marker.made)),
        })
    }

    /// Whether [`Place::take`] would get the directory now. Makes and changes nothing.
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

    /// Whether there was a database here before.
    pub(crate) fn was_made(&self) -> bool {
        self.made.load(Ordering::SeqCst)
    }

    /// The database is there. The database syncs what is in its folders, but not every folder's own name.
    pub(crate) fn is_made(&self) -> std::io::Result<()> {
        let tables = self.database().join("keyspaces");
        for folder in fs::read_dir(&tables)? {
            sync_dir(&folder?.path())?;
        }
        for folder in [&tables, &self.database(), &self.segments(), &self.dir] {
            sync_dir(folder)?;
        }
        if !self.made.swap(true, Ordering::SeqCst) {
            mark(&mut self.marker.lock(), true)?;
        }
        Ok(())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.dir.join(DATABASE)
    }

    pub(crate) fn segments(&self) -> PathBuf {
        self.dir.join(SEGMENTS)
    }

    pub(crate) fn io(&self, what: &'static str, source: std::io::Error) -> OpenError {
        OpenError::Io {
            dir: self.dir.clone(),
            what,
            source,
        }
    }

    pub(crate) fn damaged(&self, what: impl Into<String>) -> OpenError {
        OpenError::Damaged {
            dir: self.dir.clone(),
            what: what.into(),
        }
    }

    /// Looks at the names in the database's directory. The database panics at some that it does not know, and cannot go
    /// on where it was interrupted while it was made.
    pub(crate) fn prepare(&self) -> Result<(), OpenError> {
        let (path, segments) = (self.database(), self.segments());
        if !segments.exists() {
            if self.was_made() {
                return Err(self.damaged(format!("{SEGMENTS} is missing")));
            }
            private::create_dir_all(&segments)
                .map_err(|error| self.io("the folder of events cannot be made", error))?;
        }
        if !path.exists() {
            return match self.was_made() {
                true => Err(self.damaged(format!("{DATABASE} is missing"))),
                false => Ok(()),
            };
        }
        let names = |path: &Path| -> Result<Vec<String>, OpenError> {
            let list = |error| self.io("the database's directory cannot be listed", error);
            fs::read_dir(path)
                .map_err(list)?
                .map(|entry| Ok(entry.map_err(list)?.file_name().to_string_lossy().into_owned()))
                .collect()
        };
        let files = names(&path)?;
        let tables = match path.join("keyspaces") {
            keyspaces if keyspaces.exists() => names(&keyspaces)?,
            _ => Vec::new(),
        };
        let numbered = |name: &str| name.parse::<u64>().is_ok();
        let journal = |name: &&String| name.to_ascii_lowercase().ends_with(".jnl");
        let strange = files
            .iter()
            .filter(journal)
            .find(|name| !name.strip_suffix(".jnl").is_some_and(numbered));
        if let Some(name) = strange.or(tables.iter().find(|name| !numbered(name))) {
            return Err(self.damaged(format!("{DATABASE} holds {name}, which no store has written")));
        }
        if files.iter().any(|name| name == "version") {
            // The database takes tables without it for unfinished, and deletes them before anybody can look.
            let headless = |name: &&String| !path.join("keyspaces").join(name).join("current").exists();
            if let Some(name) = tables.iter().find(headless).filter(|_| self.was_made()) {
                return Err(self.damaged(format!("{DATABASE}/keyspaces/{name}/current is missing")));
            }
            // Without any the database begins to count from the start, and finds nothing again of what it writes then.
            return match files.iter().any(|name| journal(&name)) {
                true => Ok(()),
                false => Err(self.damaged(format!("{DATABASE} holds no journal"))),
            };
        }
        if !tables.is_empty() || self.was_made() {
            return Err(self.damaged(format!("{DATABASE}/version is missing")));
        }
        // It was never finished, so nothing was ever stored in it.
        fs::remove_dir_all(&path).map_err(|error| self.io("an unfinished database cannot be removed", error))
    }

    /// Whether the directory is still the one that was opened: files that were deleted can be written for a long time.
    pub(crate) fn is_there(&self) -> bool {
        same_file(&self.dir.join(MARKER), &self.marker.lock())
    }

    /// Whether there is room for more than a few bytes.
    pub(crate) fn probe(&self) -> std::io::Result<()> {
        let path = self.dir.join(PROBE);
        let file = private::file_options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path);
        let written = file.and_then(|mut file| {
            file.write_all(&vec![0xa5; 4 << 20])?;
            file.sync_all()
        });
        let removed = fs::remove_file(&path);
        written.and(removed)
    }
}

/// What is in a directory.
struct Names {
    /// Our marker is.
    marked: bool,
    /// A name that is neither the marker nor of no interest.
    stranger: Option<String>,
}

impl Names {
    /// Lists the names. A directory with something in it and no marker is not ours.
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

/// Locks the marker and reads it: nothing if the directory is new.
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
        // New, or the process that made it did not come far: then there is nothing else.
        return match names.foreign(dir) {
            Some(foreign) => Err(foreign),
            None => Ok((marker, None)),
        };
    }
    let dir = dir.to_owned();
    match serde_json::from_str::<Marker>(&text) {
        Ok(Marker { format: found, .. }) if found < FORMAT => Err(OpenError::Older {
            dir,
            found,
            known: FORMAT,
        }),
        Ok(Marker { format: found, .. }) if found > FORMAT => Err(OpenError::Newer {
            dir,
            found,
            known: FORMAT,
        }),
        Ok(read) => Ok((marker, Some(read))),
        Err(_) => {
            let what = format!("{MARKER} is garbled");
            Err(OpenError::Damaged { dir, what })
        }
    }
}

fn io(dir: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> OpenError {
    let dir = dir.to_owned();
    move |source| OpenError::Io { dir, what, source }
}

fn mark(marker: &mut File, made: bool) -> std::io::Result<()> {
    let text = serde_json::to_vec(&Marker { format: FORMAT, made }).expect("this is plain JSON");
    marker.rewind()?;
    marker.write_all(&text)?;
    marker.set_len(text.len() as u64)?;
    marker.sync_all()
}

/// Makes a directory, and its name lasts.
fn make(dir: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    private::create_dir_all(dir)?;
    for parent in missing.iter().filter_map(|dir| dir.parent()) {
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        sync_dir(parent)?;
    }
    Ok(())
}

#[cfg(unix)]
fn same_file(path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    match (fs::metadata(path), file.metadata()) {
        (Ok(there), Ok(ours)) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn same_file(path: &Path, _: &File) -> bool {
    path.exists() // an open file cannot be deleted there
}

pub(crate) fn sync_dir(dir: &Path) -> std::io::Result<()> {
    if cfg!(unix) {
        File::open(dir)?.sync_all()
    } else {
        Ok(())
    }
}
