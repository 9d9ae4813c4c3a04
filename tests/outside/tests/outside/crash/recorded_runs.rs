//! Calls of `record_run`. The nodes record each run in one file before they do anything else, so a run survives the kill of its
//! node. No call may be in the file twice (RST-03).

use super::raw::{RECONNECT_INTERVAL, Session};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Concurrent callers of one session.
const CALLERS: u64 = 3;

/// The runs that the nodes have recorded, and the calls that have a result.
pub(super) struct RecordedRuns {
    file: PathBuf,
    answered: Mutex<HashSet<String>>,
}

impl RecordedRuns {
    /// The file for the option `--runs` of the nodes.
    pub(super) fn new(folder: &Path) -> Arc<Self> {
        Arc::new(RecordedRuns {
            file: folder.join("runs"),
            answered: Mutex::default(),
        })
    }

    pub(super) fn file(&self) -> String {
        self.file.display().to_string()
    }

    /// Starts the callers of a session.
    pub(super) fn start(self: &Arc<Self>, session: &Arc<Session>, work: &mut JoinSet<()>) {
        for caller in 0..CALLERS {
            let (runs, session) = (Arc::clone(self), Arc::clone(session));
            work.spawn(async move { runs.call_until_end(&session, caller).await });
        }
    }

    async fn call_until_end(&self, session: &Session, caller: u64) {
        let mut random = session.random(500 + caller);
        while !session.server.kills_are_over() {
            let id = session.new_id();
            let key = format!("{:016x}-{}-{id}", random.next(), session.number);
            let arguments = format!(r#"{{"key":"{key}","ms":{}}}"#, random.below(120));
            let answer = session.json(id, "record_run", &arguments).await;
            if answer.is_some_and(|answer| answer.contains("\"result\":")) {
                let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
                answered.insert(key);
            } else {
                sleep(RECONNECT_INTERVAL).await; // its node was killed
            }
        }
    }

    /// Asserts that no call ran twice, and that each call with a result ran. Returns the summary.
    pub(super) fn check(&self) -> String {
        let mut runs: HashMap<&str, usize> = HashMap::new();
        let recorded = std::fs::read_to_string(&self.file).expect("the nodes have recorded runs");
        for key in recorded.lines() {
            *runs.entry(key).or_default() += 1;
        }
        let twice: Vec<_> = runs.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "calls that ran more than once: {twice:?}");
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let missing: Vec<_> = answered.iter().filter(|key| !runs.contains_key(key.as_str())).collect();
        assert!(missing.is_empty(), "calls with a result that did not run: {missing:?}");
        assert!(!answered.is_empty(), "at least one call has a result");
        format!(
            "{} recorded runs, none twice, {} with a result",
            runs.len(),
            answered.len()
        )
    }
}
