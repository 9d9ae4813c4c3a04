//! The files of a tape: a bounded queue, a thread that writes, and a bounded number of bytes on the disk.

use crate::byte_budget::ByteBudget;
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

/// Entries that wait for the disk, and their bytes. Beyond either: dropped, and the next entry says how many.
const MAX_QUEUED_ENTRIES: usize = 4096;
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// The size of one file, and the number of files in the directory, those of earlier processes included. The oldest one is deleted.
const MAX_FILE_BYTES: u64 = 64 << 20;
const MAX_FILES: usize = 4;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

enum Command {
    /// A line. The queue has text and no `Value`, which can have many times the size of its text.
    Line(String),
    Close(SyncSender<()>),
}

/// Writes entries to files in a directory.
pub(super) struct TapeFile {
    queue: SyncSender<Command>,
    state: Arc<QueueState>,
}

/// The part of the queue that both ends change.
struct QueueState {
    bytes: ByteBudget,
    dropped: AtomicU64,
}

impl TapeFile {
    pub(super) fn create(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut files = Files::new(dir)?;
        let file = files.next()?;
        let (tape, commands) = Self::queue();
        let state = Arc::clone(&tape.state);
        let named = std::thread::Builder::new().name("tape".to_owned());
        named.spawn(move || write(&commands, files, file, &state))?;
        Ok(tape)
    }

    fn queue() -> (Self, Receiver<Command>) {
        let (queue, commands) = mpsc::sync_channel(MAX_QUEUED_ENTRIES);
        let state = Arc::new(QueueState {
            bytes: ByteBudget::new(MAX_QUEUED_BYTES),
            dropped: AtomicU64::new(0),
        });
        (TapeFile { queue, state }, commands)
    }

    /// Adds an entry. Never waits.
    pub(super) fn add(&self, mut entry: Value) {
        entry["time"] = output::timestamp().into();
        let line = entry.to_string();
        let (bytes, state) = (line.len(), &self.state);
        if !state.bytes.try_reserve(bytes) {
            state.dropped.fetch_add(1, Ordering::Relaxed);
        } else if self.queue.try_send(Command::Line(line)).is_err() {
            state.bytes.release(bytes);
            state.dropped.fetch_add(1, Ordering::Relaxed);
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
    /// The tapes of earlier processes count: each restart would add to the bytes on the disk otherwise.
    fn new(dir: &Path) -> io::Result<Self> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_tape = name
                .to_str()
                .is_some_and(|name| name.starts_with("tape-") && name.ends_with(".jsonl"));
            if is_tape && entry.file_type()?.is_file() {
                found.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        found.sort();
        Ok(Files {
            dir: dir.to_owned(),
            count: 0,
            paths: found.into_iter().map(|(_, path)| path).collect(),
        })
    }

    fn next(&mut self) -> io::Result<BufWriter<File>> {
        while self.paths.len() >= MAX_FILES
            && let Some(oldest) = self.paths.pop_front()
        {
            match std::fs::remove_file(oldest) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        loop {
            self.count += 1;
            let name = format!("tape-{}-{}.jsonl", std::process::id(), self.count);
            let path = self.dir.join(name);
            // A process in a container has the pid of its predecessor, whose tape shows why it crashed: a new file, never an old one.
            match File::options().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    self.paths.push_back(path);
                    return Ok(BufWriter::new(file));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The thread of a tape.
fn write(commands: &Receiver<Command>, mut files: Files, mut file: BufWriter<File>, state: &QueueState) {
    let mut written = 0;
    let mut has_failed = false;
    while let Ok(first) = commands.recv() {
        let mut next = Some(first);
        let mut closed = None;
        let mut outcome: io::Result<()> = Ok(());
        while let Some(command) = next {
            match command {
                Command::Line(mut line) => {
                    state.bytes.release(line.len());
                    line.push('\n');
                    let lost = state.dropped.swap(0, Ordering::Relaxed);
                    if lost > 0 {
                        line.insert_str(0, &format!("{{\"at\":\"dropped\",\"count\":{lost}}}\n"));
                    }
                    written += line.len() as u64;
                    outcome = outcome.and(file.write_all(line.as_bytes()));
                }
                Command::Close(done) => closed = Some(done),
            }
            // Under load the queue may never be empty: a full file ends the batch too.
            next = match written < MAX_FILE_BYTES {
                true => commands.try_recv().ok(),
                false => None,
            };
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The queue of a disk that does not keep up, and the number of entries that fit into it.
    fn fill(entry: &Value, times: usize) -> (TapeFile, Receiver<Command>, usize) {
        let (tape, commands) = TapeFile::queue();
        for _ in 0..times {
            tape.add(entry.clone());
        }
        let dropped = tape.state.dropped.load(Ordering::Relaxed);
        (tape, commands, times - usize::try_from(dropped).unwrap())
    }

    /// 256 KiB, the longest message on a tape.
    fn large_entry() -> Value {
        json!({ "message": "x".repeat(256 << 10) })
    }

    #[test]
    fn ops_15_tape_queue_is_bounded_in_entries_and_in_bytes() {
        let (_tape, _commands, small) = fill(&json!({ "at": "event" }), MAX_QUEUED_ENTRIES + 9);
        assert_eq!(small, MAX_QUEUED_ENTRIES);
        let (tape, commands, large) = fill(&large_entry(), 80);
        assert!((60..64).contains(&large), "{large} entries of a quarter of a MiB");
        drop(commands);
        let room = MAX_QUEUED_BYTES - large * large_entry().to_string().len() - 64 * large;
        for _ in 0..room / 64 {
            tape.add(json!({ "at": "event" })); // nobody takes it
        }
        assert!(
            tape.state.bytes.try_reserve(room / 2),
            "a refused entry leaves its room"
        );
    }

    /// A process in a container has the pid 1 after each restart.
    #[test]
    fn ops_15_tape_keeps_the_files_of_earlier_processes_within_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let names = || {
            let entries = std::fs::read_dir(dir.path()).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.collect::<std::collections::BTreeSet<_>>()
        };
        std::fs::write(dir.path().join("notes.txt"), "not a tape").unwrap();
        let own = |count: usize| format!("tape-{}-{count}.jsonl", std::process::id());
        let crashed = dir.path().join(own(1));
        std::fs::write(&crashed, "why it crashed\n").unwrap();
        for restart in 0..3 {
            let mut files = Files::new(dir.path()).unwrap();
            files.next().unwrap();
            assert_eq!(
                std::fs::read_to_string(&crashed).unwrap(),
                "why it crashed\n",
                "restart {restart}"
            );
        }
        assert_eq!(names().len(), 1 + MAX_FILES);
        let mut files = Files::new(dir.path()).unwrap();
        files.next().unwrap();
        assert_eq!(names().len(), 1 + MAX_FILES, "{:?}", names());
        assert!(names().contains("notes.txt"));
    }

    #[test]
    fn ops_15_tape_counts_dropped_entries_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (tape, commands, kept) = fill(&large_entry(), 80);
        let mut files = Files::new(dir.path()).unwrap();
        let file = files.next().unwrap();
        let state = Arc::clone(&tape.state);
        let thread = std::thread::spawn(move || write(&commands, files, file, &state));
        tape.close();
        tape.add(json!({ "at": "event" }));
        drop(tape);
        thread.join().unwrap();
        let path = dir.path().join(format!("tape-{}-1.jsonl", std::process::id()));
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({ "at": "dropped", "count": 80 - kept }));
        assert_eq!(lines.len(), 1 + kept + 1, "room is free again once a line is written");
        assert_eq!(lines[lines.len() - 1]["at"], "event");
    }
}
