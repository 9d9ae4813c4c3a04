//! The thread that writes the audit log.
//!
//! It gathers lines for a short time and writes them at once, so that a call need not wake it.

use super::queue::{Batch, Bounds, Full, LineQueue, Next};
use crate::metrics;
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a line waits for others. A killed process loses the lines of this time.
pub(super) const GATHER_TIME: Duration = Duration::from_millis(50);
/// How soon a write is repeated that has failed. Its lines stay in the queue.
const RETRY_TIME: Duration = Duration::from_secs(1);
/// The largest buffer that is kept for the next lines.
const MAX_KEPT_BYTES: usize = 256 << 10;

/// The queue of the audit log and its thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<LineQueue>,
    /// The thread waits here.
    work: Condvar,
    /// Callers that want everything written wait here.
    flushed: Condvar,
}

impl Writer {
    pub(super) fn start(file: File, path: PathBuf, bounds: Bounds) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::new(LineQueue::new(bounds)),
            work: Condvar::new(),
            flushed: Condvar::new(),
        });
        let thread = WriterThread {
            shared: Arc::clone(&shared),
            file,
            path,
            batch: Batch::default(),
            written: 0,
            has_failed: false,
        };
        let named = std::thread::Builder::new().name("audit".to_owned());
        if let Err(error) = named.spawn(move || thread.run()) {
            tracing::error!(%error, "audit log has no thread"); // the queue fills, and every further line counts as dropped
        }
        Writer { shared }
    }

    /// Adds a line. Never waits for the disk.
    pub(super) fn push(&self, line: &[u8]) -> Result<(), Full> {
        let must_wake = self.shared.queue.lock().push(line)?;
        if must_wake {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    pub(super) fn reopen(&self) {
        self.shared.queue.lock().reopen();
        self.shared.work.notify_one();
    }

    /// Waits until all lines are written, or until a write has failed, for at most `time`.
    pub(super) fn flush(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut queue = self.shared.queue.lock();
        let ticket = queue.flush();
        self.shared.work.notify_one();
        while !queue.is_flushed(ticket) && !self.shared.flushed.wait_until(&mut queue, deadline).timed_out() {}
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue.lock().close();
        self.shared.work.notify_one();
    }
}

struct WriterThread {
    shared: Arc<Shared>,
    file: File,
    path: PathBuf,
    batch: Batch,
    /// Bytes of the batch that are in the file.
    written: usize,
    has_failed: bool,
}

impl WriterThread {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.queue.lock();
        let mut has_gathered = true;
        loop {
            match queue.next(has_gathered, self.has_failed) {
                Next::Wait => {
                    shared.work.wait(&mut queue);
                    has_gathered = false;
                }
                Next::Gather => {
                    let time = if self.has_failed { RETRY_TIME } else { GATHER_TIME };
                    let deadline = Instant::now() + time;
                    has_gathered = loop {
                        let is_over = shared.work.wait_until(&mut queue, deadline).timed_out();
                        if is_over || queue.next(false, self.has_failed) != Next::Gather {
                            break is_over;
                        }
                    };
                }
                Next::Write => {
                    let is_everything = queue.take(&mut self.batch);
                    let (reopen_at, flushes) = (queue.take_reopen(), queue.flushes_wanted());
                    drop(queue);
                    let is_written = self.write(reopen_at);
                    queue = shared.queue.lock();
                    if is_written {
                        queue.written();
                    }
                    if is_everything || !is_written {
                        queue.tried(flushes);
                        shared.flushed.notify_all();
                    }
                    has_gathered = false;
                }
                Next::End => return,
            }
        }
    }

    /// Writes the batch. `reopen_at`: what is behind that many bytes belongs to the file that the path names now.
    fn write(&mut self, reopen_at: Option<usize>) -> bool {
        if let Some(at) = reopen_at {
            let _ = self.write_until(at.min(self.batch.bytes.len()));
            match open_file(&self.path) {
                Ok(file) => {
                    self.file = file;
                    self.skip_torn_line();
                }
                Err(error) => tracing::error!(%error, "audit log not opened again; the earlier file is used"),
            }
        }
        let result = self.write_until(self.batch.bytes.len());
        if let Err(error) = &result
            && !self.has_failed
        {
            tracing::error!(%error, "audit log cannot be written");
        }
        self.has_failed = result.is_err();
        if result.is_ok() {
            self.written = 0;
            self.batch.bytes.clear();
            self.batch.bytes.shrink_to(MAX_KEPT_BYTES);
        }
        result.is_ok()
    }

    /// Writes up to `end`. After an error the next write continues where this one has stopped.
    fn write_until(&mut self, end: usize) -> io::Result<()> {
        while self.written < end {
            match self.file.write(&self.batch.bytes[self.written..end]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A line whose beginning is in the earlier file must not end in the new one.
    fn skip_torn_line(&mut self) {
        let (before, rest) = self.batch.bytes.split_at(self.written);
        if before.last().is_none_or(|last| *last == b'\n') {
            return;
        }
        metrics::audit_dropped();
        let end = rest.iter().position(|byte| *byte == b'\n');
        self.written += end.map_or(rest.len(), |end| end + 1);
    }
}

pub(super) fn open_file(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}
