//! The task of one child: moves its lines in and out, and ends the process.

use super::bounded;
use super::process::{ChildPipes, ChildProcess};
use super::router::{MessageRouter, RouterEnd, StdoutReader};
use super::sanitize::sanitize_line;
use super::table::ChildTable;
use crate::metrics::{self, ChildExit};
use bytes::Bytes;
use rethread::Tag;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::ChildStdin;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

/// How long the pipes of a child that has exited are read. Descendants may hold them open for ever.
const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// How long to wait for the exit status after stdout ended. Beyond: the exit reason names no status.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_millis(100);
/// The buffer for the stdout of a child. Each session has one, so it is smaller than a full pipe (64 KiB).
const STDOUT_BUFFER_BYTES: usize = 16 << 10;
/// The longest stderr line. A longer line is split.
const MAX_STDERR_LINE_BYTES: u64 = 64 << 10;

/// Owns the process of a child.
pub(super) struct Supervisor {
    pub(super) process: ChildProcess,
    pub(super) pipes: ChildPipes,
    /// Lines for the child's stdin.
    pub(super) lines: bounded::Receiver<Bytes>,
    pub(super) router: MessageRouter,
    /// Becomes true when the process group has ended.
    pub(super) exited: watch::Sender<bool>,
    /// The session of the child, for the log.
    pub(super) session: Option<Tag>,
}

impl Supervisor {
    pub(super) async fn run(mut self) {
        let ChildPipes { stdin, stdout, stderr } = self.pipes;
        let (server, connection) = (Arc::clone(&self.router.server), self.router.connection.clone());
        let (session, pid) = (self.session.map(tracing::field::display), self.process.group);
        let table = Arc::clone(self.process.table());
        let log = ChildLog {
            server: Arc::clone(&server),
            session: self.session,
            pid,
            table: Arc::clone(&table),
        };
        let log_task = tokio::spawn(log.read(stderr));
        let (stdin_open, stdin_closed) = oneshot::channel();
        let write_task = tokio::spawn(write_stdin(self.lines, stdin, stdin_open));
        let mut stdout = BufReader::with_capacity(STDOUT_BUFFER_BYTES, stdout);
        let unusable = wait_until_unusable(&mut self.process, stdin_closed);
        let end = self.router.run(&mut stdout, unusable).await;
        write_task.abort(); // closes the child's stdin
        let _ = write_task.await;
        let status = timeout(EXIT_STATUS_TIMEOUT, self.process.wait()).await;
        let reason: Arc<str> = match (&end, status) {
            (RouterEnd::Released, _) => "it was stopped".into(),
            (RouterEnd::Failed(reason), _) => reason.as_str().into(),
            (RouterEnd::Eof, Ok(Ok(status))) => format!("it ended ({status})").into(),
            (RouterEnd::Eof, _) => "it closed its stdout".into(),
        };
        let connection = connection.upgrade();
        let calls = connection.map_or(0, |connection| connection.record_exit(Arc::clone(&reason)));
        // The child may write until it has exited (GW-08).
        let is_killed = tokio::select! {
            is_killed = self.process.terminate() => is_killed,
            () = discard_stdout(&mut stdout) => false,
        };
        let _ = timeout(PIPE_DRAIN_TIMEOUT, log_task).await;
        table.exited(pid, !matches!(end, RouterEnd::Released));
        let exit = match (&end, is_killed) {
            (_, true) => ChildExit::Killed,
            (RouterEnd::Released, _) => ChildExit::Asked,
            _ => ChildExit::Crashed,
        };
        match end {
            RouterEnd::Released => tracing::info!(server = &*server, session, pid, "child stopped"),
            _ => tracing::warn!(server = &*server, session, pid, calls, %reason, "child exited"),
        }
        metrics::child_exited(&server, exit);
        self.exited.send_replace(true);
    }
}

/// Resolves when the child has exited or closed its stdin, even if a descendant holds its stdout open.
async fn wait_until_unusable(process: &mut ChildProcess, stdin_closed: oneshot::Receiver<()>) -> RouterEnd {
    let end = tokio::select! {
        biased;
        _ = process.wait() => RouterEnd::Eof,
        _ = stdin_closed => RouterEnd::Failed("it closed its stdin".to_owned()),
    };
    tokio::time::sleep(PIPE_DRAIN_TIMEOUT).await;
    end
}

/// Writes lines until the child closes its stdin. Dropping `_stdin_open` reports that.
async fn write_stdin(mut lines: bounded::Receiver<Bytes>, mut stdin: ChildStdin, _stdin_open: oneshot::Sender<()>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// Logs the lines of a child's stderr, and shows the last ones to operators.
struct ChildLog {
    server: Arc<str>,
    session: Option<Tag>,
    pid: u32,
    table: Arc<ChildTable>,
}

impl ChildLog {
    async fn read(self, stderr: impl AsyncRead + Unpin) {
        let session = self.session.map(tracing::field::display);
        let mut stderr = BufReader::new(stderr);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = (&mut stderr).take(MAX_STDERR_LINE_BYTES);
            match limited.read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    let line = sanitize_line(&line);
                    self.table.wrote(self.pid, &line);
                    tracing::info!(target: "rethread::child", server = &*self.server, session, pid = self.pid, %line, "child stderr");
                }
            }
        }
    }
}

/// Reads the rest of stdout, so that a child that still writes meets no closed or full pipe.
///
/// Never returns: a descendant may hold the pipe open after the child has exited.
async fn discard_stdout(stdout: &mut StdoutReader) {
    while let Ok(read @ 1..) = stdout.fill_buf().await.map(<[u8]>::len) {
        stdout.consume(read);
    }
    std::future::pending::<()>().await;
}
