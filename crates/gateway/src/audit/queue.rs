//! The lines that wait for the disk, and when the thread that writes them must wake up. Without IO and clock.

/// Lines and bytes that may wait, with those that are being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) lines: usize,
    pub(super) bytes: usize,
}

/// The line does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Lines in the order of their events, as the bytes of the file.
#[derive(Debug)]
pub(super) struct LineQueue {
    bounds: Bounds,
    bytes: Vec<u8>,
    lines: usize,
    /// The lines that the thread has taken and not yet written.
    taken: Taken,
    /// The thread waits for a first line. Otherwise it comes back by itself, and a line needs no wake-up.
    is_idle: bool,
    /// The file is opened again behind this many bytes.
    reopen_at: Option<usize>,
    flushes_wanted: u64,
    flushes_done: u64,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    lines: usize,
    bytes: usize,
}

/// The next step of the thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for a first line, however long it takes.
    Wait,
    /// Wait for more lines, for a bounded time.
    Gather,
    /// Write now.
    Write,
    /// End: everything is written, or cannot be.
    End,
}

/// Lines for one write.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: usize,
}

impl LineQueue {
    pub(super) fn new(bounds: Bounds) -> Self {
        LineQueue {
            bounds,
            bytes: Vec::new(),
            lines: 0,
            taken: Taken::default(),
            is_idle: false,
            reopen_at: None,
            flushes_wanted: 0,
            flushes_done: 0,
            is_closed: false,
        }
    }

    /// Adds a line without its end. `true` if the thread must be woken.
    pub(super) fn push(&mut self, line: &[u8]) -> Result<bool, Full> {
        let bytes = self.bytes.len() + self.taken.bytes + line.len() + 1;
        if self.lines + self.taken.lines >= self.bounds.lines || bytes > self.bounds.bytes {
            return Err(Full);
        }
        let was_half_full = self.is_half_full();
        self.bytes.extend_from_slice(line);
        self.bytes.push(b'\n');
        self.lines += 1;
        let is_first = std::mem::take(&mut self.is_idle);
        Ok(is_first || (!was_half_full && self.is_half_full()))
    }

    fn is_half_full(&self) -> bool {
        self.lines >= self.bounds.lines / 2 || self.bytes.len() >= self.bounds.bytes / 2
    }

    /// The file is opened again behind the lines that are here now.
    pub(super) fn reopen(&mut self) {
        self.reopen_at = Some(self.bytes.len());
    }

    /// Asks for a write of all lines that are here now. The ticket is for [`LineQueue::is_flushed`].
    pub(super) fn flush(&mut self) -> u64 {
        self.flushes_wanted += 1;
        self.flushes_wanted
    }

    pub(super) fn is_flushed(&self, ticket: u64) -> bool {
        self.flushes_done >= ticket
    }

    /// Nobody adds lines any more.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// The next step of the thread. `has_gathered`: it has waited for more lines. `has_failed`: its last write failed, so lines alone are no
    /// reason to hurry.
    pub(super) fn next(&mut self, has_gathered: bool, has_failed: bool) -> Next {
        let is_asked = self.flushes_wanted > self.flushes_done || self.reopen_at.is_some();
        let has_lines = self.lines > 0 || self.taken.lines > 0;
        if is_asked || (self.is_closed && has_lines && !has_failed) {
            Next::Write
        } else if self.is_closed {
            Next::End
        } else if has_gathered && !has_lines {
            self.is_idle = true;
            Next::Wait
        } else if has_gathered || (self.is_half_full() && !has_failed) {
            Next::Write
        } else {
            Next::Gather
        }
    }

    /// Moves the lines to the empty `batch`. `false` if the thread has a batch that is not written yet: it comes first.
    pub(super) fn take(&mut self, batch: &mut Batch) -> bool {
        if self.taken.lines > 0 {
            return false;
        }
        std::mem::swap(&mut self.bytes, &mut batch.bytes);
        batch.lines = std::mem::take(&mut self.lines);
        self.taken = Taken {
            lines: batch.lines,
            bytes: batch.bytes.len(),
        };
        true
    }

    /// Whether the file must be opened again, and behind how many bytes of a batch that was just taken.
    pub(super) fn take_reopen(&mut self) -> Option<usize> {
        self.reopen_at.take()
    }

    /// The flushes that a write of the lines that were just taken fulfils.
    pub(super) fn flushes_wanted(&self) -> u64 {
        self.flushes_wanted
    }

    /// The batch has left the queue.
    pub(super) fn written(&mut self) {
        self.taken = Taken::default();
    }

    /// The lines from before these flushes are written, or cannot be.
    pub(super) fn tried(&mut self, flushes: u64) {
        self.flushes_done = flushes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { lines: 8, bytes: 100 };

    fn taken(queue: &mut LineQueue) -> Batch {
        let mut batch = Batch::default();
        queue.take(&mut batch);
        batch
    }

    #[test]
    fn ops_14_steady_lines_do_not_wake_the_thread() {
        let mut queue = LineQueue::new(BOUNDS);
        assert_eq!(queue.next(true, false), Next::Wait);
        assert_eq!(queue.push(b"1"), Ok(true), "the thread waits for a first line");
        assert_eq!(queue.push(b"2"), Ok(false), "the thread knows already");
        assert_eq!(queue.next(false, false), Next::Gather);
        assert_eq!(queue.push(b"3"), Ok(false));
        assert_eq!(queue.next(true, false), Next::Write);
        let batch = taken(&mut queue);
        assert_eq!((&batch.bytes[..], batch.lines), (&b"1\n2\n3\n"[..], 3));
        queue.written();
        assert_eq!(queue.push(b"4"), Ok(false), "the thread comes back by itself");
        assert_eq!(queue.next(false, false), Next::Gather);
        assert_eq!(queue.next(true, false), Next::Write);
        taken(&mut queue);
        queue.written();
        assert_eq!(queue.next(true, false), Next::Wait, "nothing came for a while");
    }

    #[test]
    fn ops_14_half_full_queue_is_written_at_once() {
        let mut queue = LineQueue::new(BOUNDS);
        let wakes: Vec<_> = (0..5).map(|_| queue.push(b"x").unwrap()).collect();
        assert_eq!(wakes, [false, false, false, true, false]);
        assert_eq!(queue.next(false, false), Next::Write);
        assert_eq!(
            queue.next(false, true),
            Next::Gather,
            "a full disk is not asked in a loop"
        );
        let mut queue = LineQueue::new(BOUNDS);
        assert_eq!(queue.push(&[b'x'; 60]), Ok(true), "half of the bytes");
    }

    #[test]
    fn ops_14_lines_that_are_being_written_count() {
        let mut queue = LineQueue::new(BOUNDS);
        for _ in 0..8 {
            queue.push(b"x").unwrap();
        }
        assert_eq!(queue.push(b"x"), Err(Full));
        let batch = taken(&mut queue);
        assert_eq!((batch.lines, queue.push(b"x")), (8, Err(Full)));
        queue.written();
        assert_eq!(queue.push(&[b'x'; 99]), Ok(true));
        assert_eq!(queue.push(b""), Err(Full), "the bytes are used");
    }

    #[test]
    fn ops_14_requests_of_the_program_come_first() {
        let mut queue = LineQueue::new(BOUNDS);
        queue.push(b"before").unwrap();
        queue.reopen();
        queue.push(b"behind").unwrap();
        let ticket = queue.flush();
        assert_eq!(queue.next(false, true), Next::Write);
        let (flushes, batch, reopen) = (queue.flushes_wanted(), taken(&mut queue), queue.take_reopen());
        assert_eq!(&batch.bytes[reopen.unwrap()..], b"behind\n");
        assert!(!queue.is_flushed(ticket));
        queue.written();
        queue.tried(flushes);
        assert!(queue.is_flushed(ticket));
        queue.push(b"last").unwrap();
        queue.close();
        assert_eq!(queue.next(false, false), Next::Write);
        assert_eq!(queue.next(false, true), Next::End, "a disk that fails ends the wait");
        taken(&mut queue);
        queue.written();
        assert_eq!(queue.next(false, false), Next::End);
    }
}
