//! The policy for sessions that nobody uses.

use std::time::Duration;

/// The policy for sessions that nobody uses. Some hosts open a session for every call and never return.
///
/// At a limit of sessions in memory, the session that was longest without use ends, if that is longer than the time of the
/// policy. At a limit of the sessions of several nodes none ends: one node does not know the uses on the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnusedSessions {
    /// They stay in memory until they are idle for too long.
    #[default]
    Keep,
    /// A session without an open connection, a running call, an open question and a subscribed resource leaves the memory after
    /// this time. Only its record and its waiting messages stay, in the store. The next request restores it, as after a
    /// restart: the handler gets [`on_session_closed`](crate::Handler::on_session_closed) now, and
    /// [`open`](crate::Handler::open) then. [`Handler::may_unload`](crate::Handler::may_unload) can refuse. Custom broadcasts do
    /// not reach a session that is not in memory, unless the store is shared by several nodes. With
    /// [`Restore::Expire`](crate::Restore::Expire) sessions stay in memory.
    Unload(Duration),
    /// A session that sent no request after `initialize` and opened no stream ends after this time.
    End(Duration),
}

/// The decision about one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnusedDecision {
    /// It stays as it is.
    Keep,
    /// It leaves the memory.
    Unload,
    /// It ends.
    End,
}

/// The parts of an unused session that are lost or not served without its object in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryOnly {
    /// Questions that wait for the client's answer.
    pub(crate) questions: usize,
    /// Subscribed resources. Their changes are announced to sessions in memory.
    pub(crate) subscriptions: usize,
    /// Streams with an append in flight, or with messages that the store lacks.
    pub(crate) streams: usize,
    /// The store lacks a change of the record.
    pub(crate) is_record_behind: bool,
    /// The store lacks a change of the push queue.
    pub(crate) is_queue_behind: bool,
}

impl UnusedSessions {
    /// A session without use for longer than this may end to make room for another one.
    pub(crate) fn may_end_after(self) -> Option<Duration> {
        match self {
            UnusedSessions::Keep => None,
            UnusedSessions::Unload(after) | UnusedSessions::End(after) => Some(after),
        }
    }

    /// Whether sessions may leave the memory. Each request must then be admitted.
    pub(crate) fn unloads(self) -> bool {
        matches!(self, UnusedSessions::Unload(_))
    }

    /// The decision about a session that nobody has used for `unused_for`; `None` if it is in use. `was_used`: whether it sent a request after `initialize`, or opened a stream.
    pub(crate) fn decide(
        self,
        unused_for: Option<Duration>,
        was_used: bool,
        memory_only: impl FnOnce() -> MemoryOnly,
    ) -> UnusedDecision {
        let is_unused = |limit| unused_for.is_some_and(|unused| unused >= limit);
        match self {
            UnusedSessions::Unload(limit) if is_unused(limit) && memory_only() == MemoryOnly::default() => {
                UnusedDecision::Unload
            }
            UnusedSessions::End(limit) if is_unused(limit) && !was_used => UnusedDecision::End,
            _ => UnusedDecision::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(300);
    const NOTHING: MemoryOnly = MemoryOnly {
        questions: 0,
        subscriptions: 0,
        streams: 0,
        is_record_behind: false,
        is_queue_behind: false,
    };

    /// GW-23: a used session leaves the memory as an unused one does, but ends only if it was never used.
    #[test]
    fn gw_23_fate_of_an_unused_session() {
        let (unload, end) = (UnusedSessions::Unload(LIMIT), UnusedSessions::End(LIMIT));
        let before = LIMIT.saturating_sub(Duration::from_millis(1));
        for (policy, unused_for, was_used, decision) in [
            (UnusedSessions::Keep, Some(LIMIT * 10), false, UnusedDecision::Keep),
            (unload, None, false, UnusedDecision::Keep),
            (unload, Some(before), false, UnusedDecision::Keep),
            (unload, Some(LIMIT), false, UnusedDecision::Unload),
            (unload, Some(LIMIT), true, UnusedDecision::Unload),
            (end, None, false, UnusedDecision::Keep),
            (end, Some(before), false, UnusedDecision::Keep),
            (end, Some(LIMIT), false, UnusedDecision::End),
            (end, Some(LIMIT), true, UnusedDecision::Keep),
        ] {
            let found = policy.decide(unused_for, was_used, || NOTHING);
            assert_eq!(found, decision, "{policy:?} {unused_for:?} {was_used}");
        }
    }

    /// GW-23: each part that only the memory has keeps the session there.
    #[test]
    fn gw_23_session_with_a_part_that_only_the_memory_has_stays() {
        let with = |change: fn(&mut MemoryOnly)| {
            let mut parts = NOTHING;
            change(&mut parts);
            parts
        };
        for parts in [
            with(|parts| parts.questions = 1),
            with(|parts| parts.subscriptions = 1),
            with(|parts| parts.streams = 1),
            with(|parts| parts.is_record_behind = true),
            with(|parts| parts.is_queue_behind = true),
        ] {
            let decision = UnusedSessions::Unload(LIMIT).decide(Some(LIMIT * 2), true, || parts);
            assert_eq!(decision, UnusedDecision::Keep, "{parts:?}");
        }
    }
}
