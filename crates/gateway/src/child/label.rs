//! The facts about a child for the log and the router: its server, its process and its user.

use super::kind::ChildKind;
use super::router::OverflowPolicy;
use super::table::ChildTable;
use parking_lot::Mutex;
use rethread::Tag;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::field::DisplayValue;

/// Describes a child. A spare gets its user later than its process.
#[derive(Debug)]
pub(crate) struct ChildLabel {
    server: Arc<str>,
    pid: u32,
    spawned: Instant,
    user: Mutex<ChildUser>,
    /// The children that operators see.
    table: Arc<ChildTable>,
}

#[derive(Clone, Debug)]
struct ChildUser {
    kind: ChildKind,
    overflow: OverflowPolicy,
    /// The tag of its session.
    session: Option<Tag>,
}

impl ChildLabel {
    pub(super) fn new(
        server: Arc<str>,
        pid: u32,
        (kind, overflow): (ChildKind, OverflowPolicy),
        table: Arc<ChildTable>,
    ) -> Arc<Self> {
        let user = ChildUser {
            kind,
            overflow,
            session: None,
        };
        Arc::new(ChildLabel {
            server,
            pid,
            spawned: Instant::now(),
            user: Mutex::new(user),
            table,
        })
    }

    /// A user claims the spare.
    pub(super) fn claim(&self, kind: ChildKind, overflow: OverflowPolicy) {
        let mut user = self.user.lock();
        user.kind = kind;
        user.overflow = overflow;
    }

    /// The child serves this session. `tag` stands for the id, which is a secret.
    pub(crate) fn set_session(&self, tag: Tag) {
        self.user.lock().session = Some(tag);
        self.table.set_session(self.pid, tag);
    }

    /// A line of stderr, for operators.
    pub(super) fn keep_line(&self, line: &str) {
        self.table.wrote(self.pid, line);
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// How long the process has existed.
    pub(crate) fn age(&self) -> Duration {
        self.spawned.elapsed()
    }

    pub(crate) fn kind(&self) -> ChildKind {
        self.user.lock().kind
    }

    /// The tag of its session, for the log.
    pub(crate) fn session(&self) -> Option<DisplayValue<Tag>> {
        self.user.lock().session.map(tracing::field::display)
    }

    pub(super) fn overflow(&self) -> OverflowPolicy {
        self.user.lock().overflow
    }
}
