//! Ends the gateway with its parent, if the parent asks for it. The launcher of the npm package does: a launcher that is
//! killed forwards no signal.

use std::env;

/// The process id of the parent to end with. Children do not inherit variables with this prefix.
const PARENT_PID: &str = "RETHREAD_PARENT_PID";

/// Asks the kernel for SIGTERM when the parent ends, even by SIGKILL. Returns `false` if it has ended already.
/// Does nothing without such a parent, and on systems other than Linux.
pub(crate) fn follow() -> bool {
    let parent = env::var(PARENT_PID).ok().and_then(|pid| pid.parse().ok());
    parent.is_none_or(follow_process)
}

#[cfg(target_os = "linux")]
fn follow_process(parent: i32) -> bool {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        tracing::warn!(%error, "gateway may outlive its parent");
    }
    // The parent may have ended before the request. Then the gateway has another one.
    getppid().is_some_and(|current| current.as_raw_nonzero().get() == parent)
}

#[cfg(not(target_os = "linux"))]
fn follow_process(_parent: i32) -> bool {
    true
}
