//! Log lines and metrics of children (GW-26).

use super::label::ChildLabel;
use super::sanitize::sanitize_line;
use crate::metrics::{self, ChildExit, HibernationCause};
use crate::upstream::StopCause;
use std::process::ExitStatus;
use std::time::Duration;

/// A start got no place: every child is needed.
pub(super) fn start_refused(server: &str) {
    metrics::child_refused(server);
    tracing::warn!(server, "no room for another child: all of them are needed");
}

/// A process was spawned.
pub(super) fn spawned(label: &ChildLabel) {
    metrics::child_started(label.server());
}

/// A child has answered its first request, `took` after its start or its claim. `replayed`: it continues a session.
pub(super) fn started(label: &ChildLabel, replayed: bool, took: Duration, children_running: usize) {
    metrics::child_ready(label.server(), took);
    tracing::info!(
        server = label.server(),
        session = label.session(),
        pid = label.pid(),
        kind = label.kind().as_str(),
        replayed,
        duration = took.as_secs_f64(),
        children_running,
        "child started"
    );
}

/// A child was stopped while its session lives on.
pub(super) fn hibernated(label: &ChildLabel, cause: StopCause, children_running: usize) {
    let counted = match cause {
        StopCause::Idle => HibernationCause::Idle,
        StopCause::MaxChildren => HibernationCause::MaxChildren,
    };
    metrics::child_hibernated(label.server(), counted);
    tracing::info!(
        server = label.server(),
        session = label.session(),
        pid = label.pid(),
        cause = cause.as_str(),
        age = label.age().as_secs_f64(),
        children_running,
        "child hibernated"
    );
}

/// A child exited because the gateway asked it to.
pub(super) fn stopped(label: &ChildLabel, status: Option<ExitStatus>, is_killed: bool) {
    count_exit(label, if is_killed { ChildExit::Killed } else { ChildExit::Asked });
    let status = status.map(|status| status.to_string());
    let (session, pid) = (label.session(), label.pid());
    tracing::info!(server = label.server(), session, pid, status, "child exited");
}

/// A child exited by itself, or broke the protocol. `calls` failed with it.
pub(super) fn exited(label: &ChildLabel, calls: usize, reason: &str, is_killed: bool) {
    count_exit(
        label,
        if is_killed {
            ChildExit::Killed
        } else {
            ChildExit::Crashed
        },
    );
    let (session, pid) = (label.session(), label.pid());
    tracing::warn!(
        server = label.server(),
        session,
        pid,
        calls,
        status = reason,
        "child exited"
    );
}

fn count_exit(label: &ChildLabel, how: ChildExit) {
    metrics::child_exited(label.server(), how);
}

/// A log message of a child that no client gets, because it names no call.
pub(super) fn log_message(label: &ChildLabel, params: &[u8]) {
    let text = sanitize_line(params);
    let (session, pid) = (label.session(), label.pid());
    tracing::info!(target: "rethread::child", server = label.server(), session, pid, %text, "child log message");
}

/// A line that a child wrote to stderr.
pub(super) fn stderr_line(label: &ChildLabel, text: &str) {
    label.keep_line(text);
    let (session, pid) = (label.session(), label.pid());
    tracing::info!(target: "rethread::child", server = label.server(), session, pid, %text, "child stderr");
}
