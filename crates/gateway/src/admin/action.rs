//! The actions of an operator: end a session, kill a child, drain, reload (OPS-11).

use crate::child::guardian::signal_group;
use crate::gateway::Gateway;
use rethread::Tag;
use rustix::process::Signal;
use std::net::IpAddr;

/// An action of the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    EndSession(Tag),
    KillChild(u32),
    Drain,
    Reload,
}

/// The result of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionOutcome {
    /// It is done.
    Done,
    /// It has begun, and takes its time.
    Begun,
    /// There is no such session or child.
    NotFound,
    /// Actions are off.
    Refused,
}

impl ActionOutcome {
    fn as_str(self) -> &'static str {
        match self {
            ActionOutcome::Done | ActionOutcome::Begun => "ok",
            ActionOutcome::NotFound => "not_found",
            ActionOutcome::Refused => "refused",
        }
    }
}

impl Action {
    /// The action of a path below `/api/v1`. `None`: there is no such path. Paths match exactly.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        match path.strip_prefix("/api/v1/")? {
            "drain" => Some(Action::Drain),
            "reload" => Some(Action::Reload),
            rest => {
                let (kind, rest) = rest.split_once('/')?;
                let (id, verb) = rest.split_once('/')?;
                match (kind, verb) {
                    ("sessions", "end") => Tag::parse(id).map(Action::EndSession),
                    ("children", "kill") => id.parse().ok().map(Action::KillChild),
                    _ => None,
                }
            }
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Action::EndSession(_) => "session.end",
            Action::KillChild(_) => "child.kill",
            Action::Drain => "drain",
            Action::Reload => "reload",
        }
    }

    fn target(self) -> Option<String> {
        match self {
            Action::EndSession(tag) => Some(tag.to_string()),
            Action::KillChild(pid) => Some(pid.to_string()),
            Action::Drain | Action::Reload => None,
        }
    }

    pub(super) async fn perform(self, gateway: &Gateway, peer: Option<IpAddr>) -> ActionOutcome {
        let outcome = match self {
            Action::EndSession(tag) => end_session(gateway, tag).await,
            Action::KillChild(pid) => kill_child(gateway, pid),
            Action::Drain => {
                gateway.operator.drain.notify_one();
                ActionOutcome::Begun
            }
            Action::Reload => {
                gateway.operator.reload.notify_one();
                ActionOutcome::Begun
            }
        };
        self.record(gateway, peer, outcome);
        outcome
    }

    /// The same while actions are off: nothing happens, and the attempt is recorded.
    pub(super) fn refuse(self, gateway: &Gateway, peer: Option<IpAddr>) {
        self.record(gateway, peer, ActionOutcome::Refused);
    }

    fn record(self, gateway: &Gateway, peer: Option<IpAddr>, outcome: ActionOutcome) {
        let (action, target) = (self.as_str(), self.target());
        tracing::info!(action, target, outcome = outcome.as_str(), "operator action");
        if let Some(audit) = &gateway.audit {
            audit.operator(action, target.as_deref(), peer, outcome.as_str());
        }
    }
}

async fn end_session(gateway: &Gateway, tag: Tag) -> ActionOutcome {
    for mount in gateway.mounts() {
        if mount.mcp.end_session(tag).await {
            return ActionOutcome::Done;
        }
    }
    ActionOutcome::NotFound
}

/// Only a process that the gateway itself has started can be killed.
fn kill_child(gateway: &Gateway, pid: u32) -> ActionOutcome {
    let is_own = gateway.guardian.table.get(pid).is_some();
    if is_own && signal_group(pid, Signal::KILL) {
        ActionOutcome::Done
    } else {
        ActionOutcome::NotFound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_11_paths_of_actions_match_exactly() {
        let tag = Tag::parse("00ff00ff00ff00ff").unwrap();
        for (path, action) in [
            ("/api/v1/sessions/00ff00ff00ff00ff/end", Some(Action::EndSession(tag))),
            ("/api/v1/children/12/kill", Some(Action::KillChild(12))),
            ("/api/v1/drain", Some(Action::Drain)),
            ("/api/v1/reload", Some(Action::Reload)),
            ("/api/v1/sessions/00ff/end", None),
            ("/api/v1/sessions/00ff00ff00ff00ff", None),
            ("/api/v1/sessions/00ff00ff00ff00ff/end/", None),
            ("/api/v1/children/-1/kill", None),
            ("/api/v1/children/0x1/kill", None),
            ("/api/v1/children/4294967296/kill", None),
            ("/api/v1/drain/", None),
            ("/api/v1//drain", None),
            ("/api/v2/drain", None),
            ("/drain", None),
        ] {
            assert_eq!(Action::of_path(path), action, "{path}");
        }
    }
}
