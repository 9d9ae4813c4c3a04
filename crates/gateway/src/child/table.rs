//! The children that run, for operators: the only pids that an operator can kill.

use parking_lot::Mutex;
use rethread::{Tag, Wall};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The last lines of a child's stderr that are kept.
const MAX_LINES: usize = 20;
/// The characters of one such line.
const MAX_LINE_CHARS: usize = 400;

/// The children of all servers. It has as many entries as there are processes, which `max_children` bounds.
#[derive(Debug, Default)]
pub(crate) struct ChildTable(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    children: BTreeMap<u32, ChildFacts>,
    /// One entry for each server of the configuration.
    servers: BTreeMap<Arc<str>, ChildCounts>,
}

/// A process that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChildFacts {
    pub(crate) pid: u32,
    pub(crate) server: Arc<str>,
    /// The session that it serves. `None`: it serves stateless requests, or nobody yet.
    pub(crate) session: Option<Tag>,
    pub(crate) since: Wall,
    /// Its last lines on stderr, sanitised.
    pub(crate) stderr: VecDeque<String>,
}

/// The children of one server since the gateway started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct ChildCounts {
    pub(crate) starts: u64,
    pub(crate) crashes: u64,
}

impl ChildTable {
    pub(super) fn started(&self, pid: u32, server: &str) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut state = self.0.lock();
        let server: Arc<str> = server.into();
        state.servers.entry(Arc::clone(&server)).or_default().starts += 1;
        let facts = ChildFacts {
            pid,
            server,
            session: None,
            since: Wall::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
            stderr: VecDeque::new(),
        };
        state.children.insert(pid, facts);
    }

    /// The child serves this session from now on.
    pub(super) fn set_session(&self, pid: u32, session: Tag) {
        if let Some(facts) = self.0.lock().children.get_mut(&pid) {
            facts.session = Some(session);
        }
    }

    /// A line of stderr, sanitised.
    pub(super) fn wrote(&self, pid: u32, line: &str) {
        let mut state = self.0.lock();
        let Some(facts) = state.children.get_mut(&pid) else {
            return;
        };
        if facts.stderr.len() == MAX_LINES {
            facts.stderr.pop_front();
        }
        facts.stderr.push_back(line.chars().take(MAX_LINE_CHARS).collect());
    }

    pub(super) fn exited(&self, pid: u32, is_crash: bool) {
        let mut state = self.0.lock();
        let Some(facts) = state.children.remove(&pid) else {
            return;
        };
        if is_crash {
            state.servers.entry(facts.server).or_default().crashes += 1;
        }
    }

    /// The child with this pid, if it is one of the gateway's own.
    pub(crate) fn get(&self, pid: u32) -> Option<ChildFacts> {
        self.0.lock().children.get(&pid).cloned()
    }

    /// All children, without their lines.
    pub(crate) fn all(&self) -> Vec<ChildFacts> {
        let state = self.0.lock();
        let without_lines = |facts: &ChildFacts| ChildFacts {
            stderr: VecDeque::new(),
            server: Arc::clone(&facts.server),
            ..*facts
        };
        state.children.values().map(without_lines).collect()
    }

    pub(crate) fn counts(&self, server: &str) -> ChildCounts {
        self.0.lock().servers.get(server).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_11_table_has_the_children_that_run_and_their_last_lines() {
        let table = ChildTable::default();
        table.started(7, "files");
        table.started(8, "files");
        for line in 0..30 {
            table.wrote(7, &format!("line {line}{}", "x".repeat(1000)));
        }
        let facts = table.get(7).unwrap();
        assert_eq!(facts.stderr.len(), MAX_LINES);
        assert!(facts.stderr[0].starts_with("line 10"), "{}", facts.stderr[0]);
        assert!(facts.stderr.iter().all(|line| line.chars().count() == MAX_LINE_CHARS));
        table.exited(7, true);
        table.exited(7, true);
        table.wrote(7, "late");
        assert_eq!((table.get(7), table.get(1)), (None, None));
        assert_eq!(table.all().len(), 1);
        assert_eq!(table.counts("files"), ChildCounts { starts: 2, crashes: 1 });
    }
}
