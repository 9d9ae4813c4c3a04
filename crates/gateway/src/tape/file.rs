//! The files of a tape: a bounded queue, a thread that writes, and a bounded number of bytes on the disk.

use crate::output;
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

/// Entries that wait for the disk. Beyond: dropped, and the next entry says how many.
const MAX_QUEUED_ENTRIES: usize = 4096;
/// The size of one file, and the number of files. The oldest one is deleted.
const MAX_FILE_BYTES: u64 = 64 << 20;
const MAX_FILES: usize = 4;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

enum Command {
    Entry(Value),
    Close(SyncSender<()>),
}

/// Writes entries to files in a directory.
pub(super) struct TapeFile {
    queue: SyncSender<Command>,
    dropped: Arc<AtomicU64>,
}

impl TapeFile {
    pub(super) fn create(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut files = Files::new(dir);
        let file = files.next()?;
        let (queue, commands) = mpsc::sync_channel(MAX_QUEUED_ENTRIES);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        let named = std::thread::Builder::new().name("tape".to_owned());
        named.spawn(move || write(&commands, files, file, &counter))?;
        Ok(TapeFile { queue, dropped })
    }

    /// Adds an entry. Never waits.
    pub(super) fn add(&self, mut entry: Value) {
        entry["time"] = output::timestamp().into();
        if self.queue.try_send(Command::Entry(entry)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, for a bounded time.
    pub(super) fn close(&self) {
        let (closed, wait) = mpsc::sync_channel(1);
        if self.queue.try_send(Command::Close(closed)).is_ok() {
            let _ = wait.recv_timeout(CLOSE_TIMEOUT);
        }
    }
}

struct Files {
    dir: PathBuf,
    count: usize,
    paths: VecDeque<PathBuf>,
}

impl Files {
    fn new(dir: &Path) -> Self {
        Files {
            dir: dir.to_owned(),
            count: 0,
            paths: VecDeque::new(),
        }
    }

    fn next(&mut self) -> io::Result<BufWriter<File>> {
        if self.paths.len() >= MAX_FILES
            && let Some(oldest) = self.paths.pop_front()
        {
            std::fs::remove_file(oldest)?;
        }
        self.count += 1;
        let name = format!("tape-{}-{}.jsonl", std::process::id(), self.count);
        let path = self.dir.join(name);
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        self.paths.push_back(path);
        Ok(BufWriter::new(file))
    }
}

/// The thread of a tape.
fn write(commands: &Receiver<Command>, mut files: Files, mut file: BufWriter<File>, dropped: &AtomicU64) {
    let mut written = 0;
    let mut has_failed = false;
    while let Ok(first) = commands.recv() {
        let mut next = Some(first);
        let mut closed = None;
        let mut outcome: io::Result<()> = Ok(());
        while let Some(command) = next {
            match command {
                Command::Entry(entry) => {
                    let lost = dropped.swap(0, Ordering::Relaxed);
                    let mut line = match lost {
                        0 => String::new(),
                        lost => format!("{{\"at\":\"dropped\",\"count\":{lost}}}\n"),
                    };
                    line.push_str(&entry.to_string());
                    line.push('\n');
                    written += line.len() as u64;
                    outcome = outcome.and(file.write_all(line.as_bytes()));
                }
                Command::Close(done) => closed = Some(done),
            }
            next = commands.try_recv().ok();
        }
        outcome = outcome.and(file.flush());
        if written >= MAX_FILE_BYTES {
            match files.next() {
                Ok(newer) => (file, written) = (newer, 0),
                Err(error) => outcome = Err(error),
            }
        }
        if let Err(error) = &outcome
            && !has_failed
        {
            tracing::error!(%error, "tape cannot be written");
        }
        has_failed = outcome.is_err();
        drop(closed);
    }
}
