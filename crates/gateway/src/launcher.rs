//! Ends the gateway with the launcher of the npm package, which is its parent where Node cannot replace its own process.

use std::env;

/// The process id of the launcher. Children do not inherit variables with this prefix.
const LAUNCHER_PID: &str = "RETHREAD_LAUNCHER_PID";

/// Asks the kernel for SIGTERM when the launcher ends, even by SIGKILL. Returns `false` if it has ended already.
/// Without a launcher, and on systems without such a request, this does nothing.
pub(crate) fn follow() -> bool {
    let pid = env::var(LAUNCHER_PID).ok().and_then(|pid| pid.parse().ok());
    pid.is_none_or(follow_parent)
}

#[cfg(target_os = "linux")]
fn follow_parent(launcher: i32) -> bool {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        tracing::warn!(%error, "gateway may outlive its launcher");
    }
    // The launcher may have ended before the request. Then the gateway has another parent.
    getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == launcher)
}

#[cfg(not(target_os = "linux"))]
fn follow_parent(_launcher: i32) -> bool {
    true
}
