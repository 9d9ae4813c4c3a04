//! The audit log: who did what, and how it ended. One JSON object per line.
//!
//! A thread of its own writes the file, so that a slow disk delays no call. Lines that do not fit into its queue are dropped and
//! counted.

use crate::byte_budget::ByteBudget;
use crate::metrics;
use crate::output;
use parking_lot::RwLock;
use rethread::{Principal, Tag};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

/// Lines that wait for the disk, and their bytes. Beyond either: dropped and counted.
const MAX_QUEUED_LINES: usize = 10_000;
const MAX_QUEUED_BYTES: usize = 32 << 20;
/// Bytes of the parameters in a line. Beyond: they are cut, and a string.
const MAX_PARAMS_BYTES: usize = 4096;
/// Bytes of a text that a client has chosen, such as the name of a tool.
const MAX_TEXT_BYTES: usize = 256;
/// How often the log says that lines are dropped.
const DROP_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How long the end of the program waits for the disk.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The audit log of this process.
pub(crate) struct AuditLog {
    queue: SyncSender<Command>,
    bytes: Arc<ByteBudget>,
    dropped: AtomicU64,
    /// Whether lines have the parameters of calls.
    pub(crate) has_params: bool,
    /// The provider of each issuer.
    providers: RwLock<BTreeMap<String, String>>,
}

enum Command {
    Line(String),
    Reopen,
    Close(SyncSender<()>),
}

/// One line. Fields without a value are left out.
#[derive(Debug, Default, Serialize)]
pub(crate) struct AuditEvent<'a> {
    pub(crate) event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) principal: Option<AuditPrincipal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<Tag>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<&'a str>,
    /// The action of an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<&'a str>,
    /// The object of the action: the tag of a session, or a pid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) params: Option<Box<RawValue>>,
}

/// A caller in the audit log. The subject is needed here: a tag would not tell an auditor who it was.
#[derive(Debug, Serialize)]
pub(crate) struct AuditPrincipal {
    provider: String,
    issuer: String,
    subject: String,
}

impl AuditLog {
    /// Opens the file, and starts the thread that writes it.
    pub(crate) fn open(path: &Path, has_params: bool) -> io::Result<Self> {
        Ok(Self::start(open_file(path)?, path.to_owned(), has_params))
    }

    fn start(file: File, path: PathBuf, has_params: bool) -> Self {
        let (queue, commands) = mpsc::sync_channel(MAX_QUEUED_LINES);
        let bytes = Arc::new(ByteBudget::new(MAX_QUEUED_BYTES));
        let named = std::thread::Builder::new().name("audit".to_owned());
        let budget = Arc::clone(&bytes);
        if let Err(error) = named.spawn(move || write_lines(&commands, file, &path, &budget)) {
            tracing::error!(%error, "audit log has no thread"); // every line counts as dropped
        }
        AuditLog {
            queue,
            bytes,
            dropped: AtomicU64::new(0),
            has_params,
            providers: RwLock::default(),
        }
    }

    /// Appends a line. Never waits.
    pub(crate) fn record(&self, event: &AuditEvent<'_>) {
        #[derive(Serialize)]
        struct Line<'a> {
            time: String,
            #[serde(flatten)]
            event: &'a AuditEvent<'a>,
        }
        let line = Line {
            time: output::timestamp(),
            event,
        };
        let Ok(line) = serde_json::to_string(&line) else { return };
        let bytes = line.len();
        if !self.bytes.try_reserve(bytes) {
            self.drop_line();
        } else if self.queue.try_send(Command::Line(line)).is_err() {
            self.bytes.release(bytes);
            self.drop_line();
        }
    }

    fn drop_line(&self) {
        metrics::audit_dropped();
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        if is_drop_logged() {
            tracing::error!(dropped, "audit log drops lines: the disk does not keep up");
        }
    }

    /// An operator has done something.
    pub(crate) fn operator(&self, action: &str, target: Option<&str>, peer: Option<IpAddr>, outcome: &'static str) {
        self.record(&AuditEvent {
            event: "operator",
            action: Some(action),
            target,
            peer,
            outcome: Some(outcome),
            ..AuditEvent::default()
        });
    }

    /// The configuration was read again.
    pub(crate) fn config_reloaded(&self, is_ok: bool) {
        self.record(&AuditEvent {
            event: "config.reloaded",
            outcome: Some(if is_ok { "ok" } else { "error" }),
            ..AuditEvent::default()
        });
    }

    /// Opens the file again: a program that rotates logs has renamed it.
    pub(crate) fn reopen(&self) {
        let _ = self.queue.try_send(Command::Reopen); // a full queue is written first, and the next SIGHUP tries again
    }

    /// Waits until all lines are written, for a bounded time.
    pub(crate) fn close(&self) {
        let (closed, wait) = mpsc::sync_channel(1);
        if self.queue.try_send(Command::Close(closed)).is_ok() {
            let _ = wait.recv_timeout(CLOSE_TIMEOUT);
        }
    }

    /// The names of the providers, by issuer.
    pub(crate) fn set_providers(&self, providers: BTreeMap<String, String>) {
        *self.providers.write() = providers;
    }

    /// A caller. `None` for the anonymous one.
    pub(crate) fn principal(&self, principal: &Principal) -> Option<AuditPrincipal> {
        if principal.is_anonymous() {
            return None;
        }
        let provider = self.providers.read().get(principal.issuer()).cloned();
        Some(AuditPrincipal {
            provider: provider.unwrap_or_default(),
            issuer: principal.issuer().to_owned(),
            subject: principal.subject().to_owned(),
        })
    }
}

/// Whether a dropped line is logged: once per interval.
fn is_drop_logged() -> bool {
    use std::sync::Mutex;
    use std::time::Instant;
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let Ok(mut last) = LAST.lock() else { return false };
    let is_due = last.is_none_or(|last| last.elapsed() >= DROP_LOG_INTERVAL);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

/// The parameters of a call for a line: complete, or the beginning of their text.
pub(crate) fn params_for_line(json: &[u8]) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(json).ok().filter(|text| !text.is_empty())?;
    let whole = || RawValue::from_string(text.to_owned()).ok();
    if text.len() <= MAX_PARAMS_BYTES {
        // Outside of strings JSON may have line breaks, and a line must be one line.
        return whole()
            .filter(|raw| !raw.get().contains(['\n', '\r']))
            .or_else(|| compact(text));
    }
    serde_json::value::to_raw_value(cut(text, MAX_PARAMS_BYTES)).ok()
}

fn compact(text: &str) -> Option<Box<RawValue>> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    serde_json::value::to_raw_value(&value).ok()
}

/// A text of a client, bounded.
pub(crate) fn bounded(text: &str) -> &str {
    cut(text, MAX_TEXT_BYTES)
}

fn cut(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn open_file(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

/// The thread of the audit log.
fn write_lines(commands: &Receiver<Command>, file: File, path: &Path, bytes: &ByteBudget) {
    let mut file = BufWriter::new(file);
    let mut has_failed = false;
    while let Ok(first) = commands.recv() {
        // All lines that wait are one write.
        let mut next = Some(first);
        let mut closed = None;
        let mut written: io::Result<()> = Ok(());
        while let Some(command) = next {
            match command {
                Command::Line(line) => {
                    bytes.release(line.len());
                    if let Err(error) = writeln!(file, "{line}") {
                        metrics::audit_dropped();
                        written = Err(error);
                    }
                }
                Command::Reopen => {
                    let _ = file.flush();
                    match open_file(path) {
                        Ok(reopened) => file = BufWriter::new(reopened),
                        Err(error) => tracing::error!(%error, "audit log not opened again; the earlier file is used"),
                    }
                }
                Command::Close(done) => closed = Some(done),
            }
            next = commands.try_recv().ok();
        }
        let written = written.and(file.flush());
        if let Err(error) = &written
            && !has_failed
        {
            tracing::error!(%error, "audit log cannot be written");
        }
        has_failed = written.is_err();
        drop(closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::os::unix::fs::PermissionsExt as _;

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn ops_14_lines_are_written_to_a_private_file_that_can_be_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = AuditLog::open(&path, false).unwrap();
        log.operator("drain", None, None, "ok");
        log.close();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let rotated = dir.path().join("audit.jsonl.1");
        std::fs::rename(&path, &rotated).unwrap();
        log.reopen();
        log.operator("end", Some("abc"), None, "ok");
        log.close();
        let (first, second) = (lines(&rotated), lines(&path));
        assert_eq!((first.len(), second.len()), (1, 1));
        assert_eq!(
            (&first[0]["event"], &first[0]["action"]),
            (&"operator".into(), &"drain".into())
        );
        assert_eq!(second[0]["target"], "abc");
        assert!(first[0]["time"].as_str().unwrap().ends_with('Z'), "{}", first[0]);
        assert!(first[0].get("params").is_none());
    }

    /// A pipe that nobody reads is a disk that does not keep up.
    #[test]
    fn ops_14_full_queue_drops_lines_and_never_waits() {
        let dir = tempfile::tempdir().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let log = AuditLog::start(
            File::from(std::os::fd::OwnedFd::from(writer)),
            dir.path().join("x"),
            false,
        );
        let started = std::time::Instant::now();
        for _ in 0..MAX_QUEUED_LINES * 3 {
            log.operator("drain", None, None, "ok");
        }
        assert!(log.dropped.load(Ordering::Relaxed) > 0, "nothing was dropped");
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        drop(reader);
    }

    /// Long lines fill the bytes of the queue before its number of lines.
    #[test]
    fn ops_14_queue_is_bounded_in_bytes() {
        const TARGET_BYTES: usize = 64 << 10;
        let dir = tempfile::tempdir().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let log = AuditLog::start(file, dir.path().join("x"), false);
        let target = "x".repeat(TARGET_BYTES);
        let fit = MAX_QUEUED_BYTES / TARGET_BYTES;
        for _ in 0..fit + 8 {
            log.operator("end", Some(&target), None, "ok");
        }
        // The thread has taken one line at most, which fills the pipe.
        let dropped = usize::try_from(log.dropped.load(Ordering::Relaxed)).unwrap();
        assert!(dropped >= 7, "{dropped} of {} lines were dropped", fit + 8);
        assert!(dropped < fit, "hardly anything was queued");
        drop(reader);
    }

    #[test]
    fn ops_14_params_are_one_line_and_cut() {
        let text = |json: &str| params_for_line(json.as_bytes()).map(|raw| raw.get().to_owned());
        assert_eq!(text(r#"{"a":1}"#).unwrap(), r#"{"a":1}"#);
        assert_eq!(text("{\"a\":\n1}").unwrap(), r#"{"a":1}"#);
        assert_eq!(text(""), None);
        let long = text(&format!("{{\"a\":\"{}\"}}", "ä".repeat(5000))).unwrap();
        assert!(
            long.starts_with('"') && long.len() < MAX_PARAMS_BYTES + 200,
            "{}",
            long.len()
        );
    }
}
