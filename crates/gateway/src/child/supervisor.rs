//! The task of one child: moves its lines in and out, and ends the process.

use super::connection::Life;
use super::label::ChildLabel;
use super::process::{ChildPipes, ChildProcess};
use super::router::{MessageRouter, RouterEnd};
use super::sanitize::sanitize_line;
use super::telemetry;
use crate::task;
use crate::upstream::bounded;
use bytes::Bytes;
use std::pin::pin;
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
    pub(super) life: watch::Sender<Life>,
}

impl Supervisor {
    pub(super) async fn run(self) {
        let ChildPipes { stdin, stdout, stderr } = self.pipes;
        let (router, mut process) = (self.router, self.process);
        let log_task = task::spawn(log_stderr(stderr, Arc::clone(&router.label)));
        let (stdin_open, stdin_closed) = oneshot::channel();
        let (finish, finishing) = oneshot::channel();
        let mut write_task = task::spawn(write_stdin(self.lines, stdin, finishing, stdin_open));
        let mut stdout = BufReader::with_capacity(STDOUT_BUFFER_BYTES, stdout);
        let unusable = wait_until_unusable(&mut process, stdin_closed);
        let end = router.run(&mut stdout, unusable).await;
        let reason: Arc<str> = match &end {
            RouterEnd::Stopped => "it was stopped".into(),
            RouterEnd::Failed(reason) => reason.as_str().into(),
            RouterEnd::Eof => match timeout(EXIT_STATUS_TIMEOUT, process.wait()).await {
                Ok(Ok(status)) => format!("it ended ({status})").into(),
                _ => "it closed its stdout".into(),
            },
        };
        let connection = router.connection.upgrade();
        let calls = connection.map_or(0, |connection| connection.record_exit(Arc::clone(&reason)));
        self.life.send_replace(Life::Ended);
        // The order of GW-24: what is queued is written, stdin is closed, and the pipes are read until the child has exited.
        let _ = finish.send(());
        let (status, is_killed) = {
            let mut draining = pin!(router.drain(&mut stdout));
            tokio::select! {
                status = process.terminate() => {
                    let _ = timeout(PIPE_DRAIN_TIMEOUT, draining).await;
                    status
                }
                () = &mut draining => process.terminate().await,
            }
        };
        write_task.abort(); // it may wait for a child that does not read
        let _ = (&mut write_task).await;
        let _ = timeout(PIPE_DRAIN_TIMEOUT, log_task).await;
        let is_crash = !matches!(end, RouterEnd::Stopped);
        process.table().exited(router.label.pid(), is_crash);
        drop(process); // the place is free
        match end {
            RouterEnd::Stopped => telemetry::stopped(&router.label, status, is_killed),
            _ => telemetry::exited(&router.label, calls, &reason, is_killed),
        }
        self.life.send_replace(Life::Exited);
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

/// Writes lines until the child closes its stdin, or until `finishing` resolves and the queue is empty. Dropping `_stdin_open`
/// reports the end.
async fn write_stdin(
    mut lines: bounded::Receiver<Bytes>,
    mut stdin: ChildStdin,
    mut finishing: oneshot::Receiver<()>,
    _stdin_open: oneshot::Sender<()>,
) {
    loop {
        let line = tokio::select! {
            biased;
            line = lines.recv() => line,
            _ = &mut finishing => None,
        };
        let Some(line) = line else { return };
        if stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

async fn log_stderr(stderr: impl AsyncRead + Unpin, label: Arc<ChildLabel>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut stderr).take(MAX_STDERR_LINE_BYTES);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                telemetry::stderr_line(&label, &sanitize_line(&line));
            }
        }
    }
}
