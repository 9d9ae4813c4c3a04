//! A simulated disk for tests on one thread. It records which files and names were synced. A power cut keeps these and
//! a random subset of the other pages and names. Tests can make syncs fail.
//!
//! A failed sync behaves as on Linux: the pages are lost and marked clean, and the next sync of the same file succeeds
//! without writing them.

use crate::index::Index;
use crate::rng::Rng;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const PAGE: usize = 512;

thread_local! {
    static DISK: RefCell<Option<Disk>> = const { RefCell::new(None) };
}

/// Panic payload that ends a simulated process at a power cut.
pub(crate) struct PowerCut;

#[derive(Default)]
pub(crate) struct Disk {
    /// The synced content of files, by inode.
    files: HashMap<u64, Vec<u8>>,
    /// The synced names of directories, by inode.
    folders: HashMap<u64, Names>,
    /// Keeps files open, so that inode numbers are not reused.
    open: HashMap<u64, File>,
    /// Files that lost pages in a failed sync.
    lost: HashSet<u64>,
    /// Syncs until the power is cut.
    pub(crate) cut_after: Option<u32>,
    /// Syncs until one fails.
    pub(crate) fail_after: Option<u32>,
    /// The index after each commit, whether its group reached the disk or not.
    pub(crate) commits: BTreeMap<u64, Index>,
}

type Names = BTreeMap<String, Entry>;

#[derive(Clone, Copy, PartialEq)]
struct Entry {
    inode: u64,
    is_folder: bool,
}

/// Replaces the sync of a file on a thread with a simulated disk.
pub(crate) fn sync_file(file: &File) -> Option<io::Result<()>> {
    with(|disk| {
        disk.count_sync()?;
        let inode = file.metadata()?.ino();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        disk.open.entry(inode).or_insert(File::open(&path)?); // `try_clone` would share the file lock
        if disk.fail_after == Some(0) {
            disk.fail_after = None;
            disk.lost.insert(inode);
            return Err(io::Error::other("simulated failure of a sync"));
        }
        if !disk.lost.contains(&inode) {
            disk.files.insert(inode, fs::read(path)?);
        }
        Ok(())
    })
}

/// Replaces the sync of a directory on a thread with a simulated disk.
pub(crate) fn sync_folder(path: &Path) -> Option<io::Result<()>> {
    with(|disk| {
        disk.count_sync()?;
        let names = disk.live_names(path)?;
        disk.folders.insert(fs::metadata(path)?.ino(), names);
        Ok(())
    })
}

/// Records the index after a commit.
pub(crate) fn remember(commit: u64, index: &Index) {
    with(|disk| disk.commits.insert(commit, index.clone()));
}

/// Uses the disk of this thread. `None` if it has none.
pub(crate) fn with<T>(work: impl FnOnce(&mut Disk) -> T) -> Option<T> {
    DISK.with_borrow_mut(|disk| disk.as_mut().map(work))
}

/// Installs a disk on which everything below `root` is synced.
pub(crate) fn install(root: &Path, commits: BTreeMap<u64, Index>) {
    let mut disk = Disk {
        commits,
        ..Disk::default()
    };
    disk.add_synced(root).expect("the files can be read");
    DISK.set(Some(disk));
}

/// Removes the disk and writes the state of `root` after a power cut to `after`.
pub(crate) fn cut(root: &Path, after: &Path, rng: &mut Rng) -> BTreeMap<u64, Index> {
    let disk = DISK.take().expect("there is a disk");
    let remains = disk.write_remains(root, after, rng);
    remains.expect("the files can be copied");
    disk.commits
}

/// Whether a file in a directory lost pages in a failed sync. The next process cannot detect that.
pub(crate) fn has_lost_pages(folder: &Path) -> bool {
    let lost = with(|disk| {
        let names = disk.live_names(folder).unwrap_or_default();
        names.values().any(|entry| disk.lost.contains(&entry.inode))
    });
    lost.unwrap_or(false)
}

impl Disk {
    fn count_sync(&mut self) -> io::Result<()> {
        if let Some(cut_after) = &mut self.cut_after {
            if *cut_after == 0 {
                std::panic::resume_unwind(Box::new(PowerCut));
            }
            *cut_after -= 1;
        }
        self.fail_after = self.fail_after.map(|left| left.saturating_sub(1));
        Ok(())
    }

    fn live_names(&mut self, path: &Path) -> io::Result<Names> {
        let mut names = Names::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let data = entry.metadata()?;
            let (inode, is_folder) = (data.ino(), data.is_dir());
            if !is_folder {
                self.open.entry(inode).or_insert(File::open(entry.path())?);
            }
            let name = entry.file_name().into_string().expect("names are UTF-8");
            names.insert(name, Entry { inode, is_folder });
        }
        Ok(names)
    }

    fn add_synced(&mut self, path: &Path) -> io::Result<()> {
        let names = self.live_names(path)?;
        for (name, entry) in &names {
            let path = path.join(name);
            match entry.is_folder {
                true => self.add_synced(&path)?,
                false => drop(self.files.insert(entry.inode, fs::read(path)?)),
            }
        }
        self.folders.insert(fs::metadata(path)?.ino(), names);
        Ok(())
    }

    fn write_remains(&self, from: &Path, to: &Path, rng: &mut Rng) -> io::Result<()> {
        fs::create_dir(to)?;
        let inode = fs::metadata(from)?.ino();
        let synced = self.folders.get(&inode).cloned().unwrap_or_default();
        let live = Disk::default().live_names(from)?;
        let mut survives = HashMap::new();
        for name in synced
            .keys()
            .chain(live.keys().filter(|name| !synced.contains_key(*name)))
        {
            let (old, new) = (synced.get(name), live.get(name));
            let inode = new.or(old).map_or(0, |entry| entry.inode);
            // One decision per inode: a rename changes two names, and a file system does not lose the file between
            // them.
            let is_new = old != new && *survives.entry(inode).or_insert_with(|| rng.chance(50));
            let Some(entry) = (if is_new { new } else { old }) else {
                continue;
            };
            let to = to.join(name);
            if entry.is_folder {
                self.write_remains(&from.join(name), &to, rng)?;
            } else {
                let live = match new.filter(|new| new.inode == entry.inode) {
                    Some(_) => fs::read(from.join(name))?,
                    None => self.files.get(&entry.inode).cloned().unwrap_or_default(),
                };
                fs::write(to, self.remains(entry.inode, &live, rng))?;
            }
        }
        Ok(())
    }

    /// The content of a file after the cut: its synced pages and a random subset of the others.
    fn remains(&self, inode: u64, live: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut content = self.files.get(&inode).cloned().unwrap_or_default();
        let (old, new) = (content.len(), live.len());
        let share = *rng.pick(&[0, 10, 50, 90, 100]);
        let mut end = if new < old && rng.chance(50) { new } else { old };
        content.resize(old.max(new), 0);
        for (n, (page, fresh)) in content.chunks_mut(PAGE).zip(live.chunks(PAGE)).enumerate() {
            let page = &mut page[..fresh.len()];
            if page != fresh && rng.chance(share) {
                page.copy_from_slice(fresh);
                end = end.max(n * PAGE + fresh.len());
            }
        }
        if rng.chance(50) {
            end = end.max(new); // the new length can survive although its pages do not
        }
        content.truncate(end);
        content
    }
}
