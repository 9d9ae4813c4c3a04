//! Simulates a power cut. The shim of `shim.c` records the syncs of a child process, and [`Disk::cut`] rebuilds the
//! directory that a machine would find afterwards.

use crate::support::{Folder, Rng, wait_for};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

const PAGE: usize = 4096;

/// A directory that a child process writes to, and the shim's record of it.
#[derive(Debug)]
pub(crate) struct Disk {
    home: Folder,
}

/// Which unsynced writes survive a power cut.
#[derive(Debug)]
pub(crate) enum Cut<'a> {
    /// None.
    OnlySynced,
    /// A random subset of the pages and directory entries, because a disk writes its cache in any order.
    RandomPages(&'a mut Rng),
}

impl Disk {
    pub(crate) fn new(name: &str) -> Self {
        let disk = Disk {
            home: Folder::new(name),
        };
        fs::create_dir(disk.root()).unwrap();
        disk
    }

    /// The parent directory, for files that a power cut must not touch.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The directory that the child writes to.
    pub(crate) fn root(&self) -> PathBuf {
        self.home().join("disk")
    }

    fn mirror(&self) -> PathBuf {
        self.home().join("mirror")
    }

    /// Preloads the shim into a child process before it starts. The current content of the disk counts as synced.
    pub(crate) fn attach_shim(&self, child: &mut Command) {
        let mirror = self.mirror();
        let _ = fs::remove_dir_all(&mirror);
        for kind in ["synced", "dirs", "live"] {
            fs::create_dir_all(mirror.join(kind)).unwrap();
        }
        child
            .env("LD_PRELOAD", shim())
            .env("SHIM_ROOT", self.root())
            .env("SHIM_MIRROR", mirror);
    }

    /// Waits until the shim has recorded the initial content. A kill before that leaves an incomplete record.
    pub(crate) fn wait_for_shim(&self) {
        let ready = self.mirror().join("ready");
        wait_for("the shim is ready", Duration::from_secs(30), || ready.exists());
    }

    /// Replaces the content of the disk by the state after a power cut. The child must have ended.
    pub(crate) fn cut(&self, cut: Cut<'_>) {
        let after = self.home().join("after");
        let mut rebuild = Rebuild {
            mirror: self.mirror(),
            folders: HashMap::new(),
            cut,
        };
        rebuild.find_folders(&self.root());
        let root = fs::metadata(self.root()).unwrap().ino();
        rebuild.folder(root, &after);
        fs::remove_dir_all(self.root()).unwrap();
        fs::remove_dir_all(self.mirror()).unwrap();
        fs::rename(after, self.root()).unwrap();
    }
}

/// Path of the shim library, which is compiled once per process.
pub(crate) fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let folder = Folder::new("shim");
        let (source, fresh) = (folder.path().join("shim.c"), folder.path().join("shim.so"));
        fs::write(&source, include_str!("shim.c")).unwrap();
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&fresh, &source])
            .args(["-ldl", "-lpthread"])
            .status()
            .expect("cc is installed");
        assert!(status.success(), "the shim does not compile");
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults-shim.so");
        fs::rename(fresh, &library).unwrap(); // atomic, because another run may have the old library loaded
        library
    })
}

struct Rebuild<'a> {
    mirror: PathBuf,
    /// Path of each directory by inode, to list its unsynced entries.
    folders: HashMap<u64, PathBuf>,
    cut: Cut<'a>,
}

type Entries = BTreeMap<String, Entry>;

#[derive(Clone, Copy, PartialEq)]
struct Entry {
    inode: u64,
    folder: bool,
}

impl Rebuild<'_> {
    fn find_folders(&mut self, path: &Path) {
        self.folders.insert(fs::metadata(path).unwrap().ino(), path.into());
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                self.find_folders(&entry.path());
            }
        }
    }

    fn folder(&mut self, inode: u64, to: &Path) {
        fs::create_dir(to).unwrap();
        for (name, entry) in self.entries(inode) {
            if entry.folder {
                self.folder(entry.inode, &to.join(name));
            } else {
                self.file(entry.inode, &to.join(name));
            }
        }
    }

    fn entries(&mut self, inode: u64) -> Entries {
        let synced = self.synced_entries(inode);
        let live = self.live_entries(inode);
        let Cut::RandomPages(rng) = &mut self.cut else {
            return synced;
        };
        // One decision per inode: a rename changes two entries, and no file system loses the file between them.
        let mut coins = HashMap::new();
        let mut kept = Entries::new();
        let names = synced
            .keys()
            .chain(live.keys().filter(|name| !synced.contains_key(*name)));
        for name in names {
            let (old, new) = (synced.get(name), live.get(name));
            let inode = new.or(old).expect("every name comes from one of the two maps").inode;
            let survives = old != new && *coins.entry(inode).or_insert_with(|| rng.chance(50));
            if let Some(entry) = if survives { new } else { old } {
                kept.insert(name.clone(), *entry);
            }
        }
        kept
    }

    fn synced_entries(&self, inode: u64) -> Entries {
        let list = fs::read_to_string(self.mirror.join("dirs").join(inode.to_string())).unwrap_or_default();
        let entry = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let inode = words.next()?.parse().ok()?;
            let folder = words.next()? == "d";
            Some((words.next()?.to_owned(), Entry { inode, folder }))
        };
        list.lines()
            .map(|line| entry(line).expect("the shim writes three fields per line"))
            .collect()
    }

    fn live_entries(&self, inode: u64) -> Entries {
        let Some(path) = self.folders.get(&inode) else {
            return Entries::new();
        };
        let entry = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().expect("names are UTF-8 here");
            let folder = entry.file_type().unwrap().is_dir();
            (
                name,
                Entry {
                    inode: entry.ino(),
                    folder,
                },
            )
        };
        fs::read_dir(path).unwrap().map(|found| entry(found.unwrap())).collect()
    }

    fn file(&mut self, inode: u64, to: &Path) {
        let of = |kind: &str| File::open(self.mirror.join(kind).join(inode.to_string())).ok();
        let (synced, live) = (of("synced"), of("live"));
        let to = File::create_new(to).unwrap();
        let length = |file: &Option<File>| file.as_ref().map_or(0, |file| file.metadata().unwrap().len());
        let (old, new) = (length(&synced), length(&live));
        let Cut::RandomPages(rng) = &mut self.cut else {
            if let Some(synced) = &synced {
                copy_sparse(synced, &to);
            }
            return;
        };
        // The share of unsynced pages that survive, in percent.
        let share = *rng.pick(&[0, 10, 50, 90, 100]);
        let mut end = if new < old && rng.chance(50) { new } else { old };
        let (mut ours, mut theirs) = (vec![0; 256 * PAGE], vec![0; 256 * PAGE]);
        for chunk in (0..old.max(new)).step_by(ours.len()) {
            fill(&synced, &mut ours, chunk);
            fill(&live, &mut theirs, chunk);
            if ours == theirs {
                write_sparse(&to, &ours, chunk);
                continue;
            }
            for (n, (page, fresh)) in ours.chunks_mut(PAGE).zip(theirs.chunks(PAGE)).enumerate() {
                if page != fresh && rng.chance(share) {
                    page.copy_from_slice(fresh);
                    end = end.max(new.min(chunk + (n as u64 + 1) * PAGE as u64));
                }
            }
            write_sparse(&to, &ours, chunk);
        }
        // The new size can survive although its pages do not.
        if rng.chance(50) {
            end = end.max(new);
        }
        to.set_len(end).unwrap();
    }
}

/// Reads bytes at an offset, with zeroes after the end of the file.
fn fill(file: &Option<File>, buffer: &mut [u8], mut at: u64) {
    let mut rest = buffer;
    while let Some(file) = file {
        let got = file.read_at(rest, at).unwrap();
        if got == 0 {
            break;
        }
        at += got as u64;
        rest = &mut rest[got..];
    }
    rest.fill(0);
}

fn write_sparse(to: &File, bytes: &[u8], at: u64) {
    for (n, page) in bytes.chunks(PAGE).enumerate() {
        if page.iter().any(|byte| *byte != 0) {
            to.write_all_at(page, at + (n * PAGE) as u64).unwrap();
        }
    }
}

/// Copies a file and keeps its holes.
pub(crate) fn copy_sparse(from: &File, to: &File) {
    let length = from.metadata().unwrap().len();
    let mut buffer = vec![0; 256 * PAGE];
    for at in (0..length).step_by(buffer.len()) {
        let got = from.read_at(&mut buffer, at).unwrap();
        write_sparse(to, &buffer[..got], at);
    }
    to.set_len(length).unwrap();
}

/// Copies a directory recursively. Fails if a file disappears meanwhile.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            copy_sparse(&File::open(entry.path())?, &File::create_new(target)?);
        }
    }
    Ok(())
}
