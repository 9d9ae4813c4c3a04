//! The audit log: who did what, and how it ended. One JSON object per line.
//!
//! A thread of its own writes the file, so that a slow disk delays no call. Lines that do not fit into its queue are dropped and
//! counted.

mod line;
mod queue;
mod writer;

use crate::metrics;
use parking_lot::RwLock;
use queue::Bounds;
use rethread::{Principal, Tag};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use writer::Writer;

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
    writer: Writer,
    dropped: AtomicU64,
    /// Whether lines have the parameters of calls.
    pub(crate) has_params: bool,
    /// The provider of each issuer.
    providers: RwLock<BTreeMap<String, Arc<str>>>,
}

/// One line. Fields without a value are left out.
#[derive(Debug, Default)]
pub(crate) struct AuditEvent<'a> {
    pub(crate) event: &'static str,
    pub(crate) server: Option<&'a str>,
    pub(crate) principal: Option<AuditPrincipal<'a>>,
    pub(crate) session: Option<Tag>,
    pub(crate) peer: Option<IpAddr>,
    pub(crate) revision: Option<&'static str>,
    pub(crate) method: Option<&'a str>,
    pub(crate) tool: Option<&'a str>,
    /// The action of an operator.
    pub(crate) action: Option<&'a str>,
    /// The object of the action: the tag of a session, or a pid.
    pub(crate) target: Option<&'a str>,
    pub(crate) outcome: Option<&'static str>,
    pub(crate) reason: Option<&'a str>,
    pub(crate) duration: Option<Duration>,
    pub(crate) params: Option<Box<RawValue>>,
}

/// A caller in the audit log. The subject is needed here: a tag would not tell an auditor who it was.
#[derive(Debug)]
pub(crate) struct AuditPrincipal<'a> {
    provider: Arc<str>,
    issuer: &'a str,
    subject: &'a str,
}

impl AuditLog {
    /// Opens the file, and starts the thread that writes it.
    pub(crate) fn open(path: &Path, has_params: bool) -> io::Result<Self> {
        Ok(Self::start(writer::open_file(path)?, path.to_owned(), has_params))
    }

    fn start(file: File, path: PathBuf, has_params: bool) -> Self {
        let bounds = Bounds {
            lines: MAX_QUEUED_LINES,
            bytes: MAX_QUEUED_BYTES,
        };
        AuditLog {
            writer: Writer::start(file, path, bounds),
            dropped: AtomicU64::new(0),
            has_params,
            providers: RwLock::default(),
        }
    }

    /// Appends a line. Never waits.
    pub(crate) fn record(&self, event: &AuditEvent<'_>) {
        if line::with_line(event, |line| self.writer.push(line)).is_err() {
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
        self.writer.reopen();
    }

    /// Waits until all lines are written, for a bounded time.
    pub(crate) fn close(&self) {
        self.writer.flush(CLOSE_TIMEOUT);
    }

    /// The names of the providers, by issuer.
    pub(crate) fn set_providers(&self, providers: BTreeMap<String, Arc<str>>) {
        *self.providers.write() = providers;
    }

    /// A caller. `None` for the anonymous one.
    pub(crate) fn principal<'a>(&self, principal: &'a Principal) -> Option<AuditPrincipal<'a>> {
        if principal.is_anonymous() {
            return None;
        }
        let provider = self.providers.read().get(principal.issuer()).cloned();
        Some(AuditPrincipal {
            provider: provider.unwrap_or_default(),
            issuer: principal.issuer(),
            subject: principal.subject(),
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

    /// A datagram is one write. A write and a wake-up for each line would cost more than the calls.
    #[test]
    fn ops_14_lines_of_a_moment_are_one_write() {
        const LINES: usize = 1000;
        let dir = tempfile::tempdir().unwrap();
        let (writer, reader) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let log = AuditLog::start(file, dir.path().join("x"), false);
        for _ in 0..LINES {
            log.operator("drain", None, None, "ok");
        }
        log.close();
        reader.set_nonblocking(true).unwrap();
        let mut datagram = vec![0; 1 << 20];
        let (mut writes, mut lines) = (0, 0);
        while let Ok(bytes) = reader.recv(&mut datagram) {
            writes += 1;
            lines += datagram[..bytes].iter().filter(|byte| **byte == b'\n').count();
        }
        assert_eq!(lines, LINES);
        assert!(writes < LINES / 20, "{writes} writes");
    }

    /// Lines stay in the queue while nothing can be written, and are written once it works again.
    #[test]
    fn ops_14_lines_wait_while_writes_fail() {
        let dir = tempfile::tempdir().unwrap();
        let (path, read_only) = (dir.path().join("audit.jsonl"), dir.path().join("read-only"));
        std::fs::write(&read_only, "").unwrap();
        let log = AuditLog::start(File::open(&read_only).unwrap(), path.clone(), false);
        log.operator("drain", None, None, "ok");
        log.close();
        log.operator("reload", None, None, "ok");
        log.reopen();
        log.close();
        let actions: Vec<_> = lines(&path).into_iter().map(|line| line["action"].clone()).collect();
        assert_eq!(actions, ["drain", "reload"]);
        assert_eq!(log.dropped.load(Ordering::Relaxed), 0);
    }

    /// A line reaches the file by itself, soon.
    #[test]
    fn ops_14_single_line_is_written_within_a_moment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = AuditLog::open(&path, false).unwrap();
        for expected in 1..=2 {
            log.operator("drain", None, None, "ok");
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            while lines(&path).len() < expected {
                assert!(std::time::Instant::now() < deadline, "no line after {}", expected - 1);
                std::thread::sleep(writer::GATHER_TIME);
            }
            std::thread::sleep(3 * writer::GATHER_TIME); // the thread waits for a first line again
        }
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
