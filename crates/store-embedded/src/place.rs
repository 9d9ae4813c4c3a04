//! The directory: whose it is, and who has it.

use crate::OpenError;
use crate::keys::FORMAT;
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
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
        let io = |what| {
            move |source| OpenError::Io {
                dir: dir.to_owned(),
                what,
                source,
            }
        };
        if create {
            make(dir).map_err(io("it cannot be made"))?;
        }
        let (mut marked, mut stranger) = (false, None);
        for entry in fs::read_dir(dir).map_err(io("it cannot be listed"))? {
            let name = entry.map_err(io("it cannot be listed"))?.file_name();
            marked |= name == MARKER;
            if name != MARKER && name != PROBE && name != LOST_AND_FOUND {
                stranger = stranger.or(Some(name.to_string_lossy().into_owned()));
            }
        }
        let foreign = |found: &String| OpenError::Foreign {
            dir: dir.to_owned(),
            found: found.clone(),
        };
        if let Some(found) = &stranger
            && !marked
        {
            return Err(foreign(found));
        }
        let mut marker = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(MARKER))
            .map_err(io("its marker cannot be opened"))?;
        marker.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::InUse { dir: dir.to_owned() },
            TryLockError::Error(source) => io("it cannot be locked")(source),
        })?;
        let mut text = String::new();
        marker
            .read_to_string(&mut text)
            .map_err(io("its marker cannot be read"))?;
        let made = if text.trim_end_matches('\0').is_empty() {
            // New, or the process that made it did not come far: then there is nothing else.
            if let Some(found) = &stranger {
                return Err(foreign(found));
            }
            mark(&mut marker, false)
                .and_then(|()| sync_dir(dir))
                .map_err(io("its marker cannot be written"))?;
            false
        } else {
            let Ok(Marker { format, made }) = serde_json::from_str(&text) else {
                let what = format!("{MARKER} is garbled");
                let dir = dir.to_owned();
                return Err(OpenError::Damaged { dir, what });
            };
            if format < FORMAT {
                return Err(OpenError::Older {
                    dir: dir.to_owned(),
                    found: format,
                    known: FORMAT,
                });
            }
            if format > FORMAT {
                return Err(OpenError::Newer {
                    dir: dir.to_owned(),
                    found: format,
                    known: FORMAT,
                });
            }
            made
        };
        Ok(Place {
            dir: dir.to_owned(),
            marker: Mutex::new(marker),
            made: AtomicBool::new(made),
        })
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
            fs::create_dir(&segments).map_err(|error| self.io("the folder of events cannot be made", error))?;
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
        let written = fs::write(&path, vec![0xa5; 4 << 20]).and_then(|()| File::open(&path)?.sync_all());
        let removed = fs::remove_file(&path);
        written.and(removed)
    }
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
    fs::create_dir_all(dir)?;
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
