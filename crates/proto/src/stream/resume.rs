//! The start of a GET with `Last-Event-ID`, by cause (RES-07, D4).

use super::log::StreamStatus;
use super::retention::has_gap_after;
use crate::event_id::{EventId, Seq, StreamKind};

/// The start of a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumePlan {
    /// A new push stream without a replay. `refresh` if the client has missed push messages: it then gets change
    /// notifications for every list and every resource it subscribed to.
    Fresh {
        /// Whether messages were missed.
        refresh: bool,
    },
    /// The stream of the id, from the cursor on.
    Resume {
        /// The last event the client has seen.
        after: Seq,
        /// Whether events after the cursor are no longer retained.
        gap: bool,
        /// Whether a refresh replaces missed push messages.
        refresh: bool,
    },
    /// A call stream that has not ended and whose last events the store has lost: the client has seen more. If its
    /// writer is alive, the stream resumes after this event. Otherwise it is treated as forgotten.
    Ahead {
        /// The last event the client has seen.
        after: Seq,
        /// Whether messages after the cursor are lost.
        gap: bool,
    },
    /// A call stream that is forgotten, or that has ended and whose last events the store has lost. The response is an
    /// error. After an empty response clients would reconnect for ever, and on a fresh stream they would wait for an
    /// answer that never comes (T-16).
    Forgotten,
    /// A call stream that has ended, and the client has seen all of it. The response is an error, because after an
    /// empty response clients would reconnect for ever.
    Ended,
}

/// Decides how a GET begins. `issued` is whether the stream of the id was ever issued in this session. `found` is its
/// status in the store. `unlogged` is whether messages were sent without ids because the store failed: these cannot be
/// replayed (STO-02).
pub fn plan(id: Option<EventId>, issued: bool, found: Option<&StreamStatus>, unlogged: bool) -> ResumePlan {
    let Some(id) = id.filter(|_| issued) else {
        return ResumePlan::Fresh { refresh: false };
    };
    let kind = id.ordinal.kind();
    // A client that is ahead of the store has seen events that the store has lost. Only the writer can continue from
    // there.
    let has_not_ended = found.is_some_and(|stream| !stream.sealed);
    let found = found.filter(|stream| stream.last.is_some_and(|last| id.seq <= last));
    match found {
        None if kind == StreamKind::Call && has_not_ended => ResumePlan::Ahead {
            after: id.seq,
            gap: unlogged,
        },
        None if kind == StreamKind::Call => ResumePlan::Forgotten,
        None => ResumePlan::Fresh { refresh: true },
        Some(stream) if stream.sealed && stream.last == Some(id.seq) => ResumePlan::Ended,
        Some(stream) => {
            let gap = unlogged || has_gap_after(id.seq, stream.purged);
            ResumePlan::Resume {
                after: id.seq,
                gap,
                refresh: gap && kind == StreamKind::Push,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::StreamInfo;
    use super::*;
    use crate::event_id::Ordinal;

    fn stream(last: u64, purged: Option<u64>) -> StreamStatus {
        StreamStatus {
            info: StreamInfo::new(StreamKind::Call, vec![1.into()], "n").into(),
            epoch: 1,
            last: Some(Seq(last)),
            purged: purged.map(Seq),
            first_kept: None,
            sealed: false,
            answers_lost: false,
            writer: None,
        }
    }

    fn id(ordinal: u64, seq: u64) -> Option<EventId> {
        Some(EventId {
            ordinal: Ordinal(ordinal),
            seq: Seq(seq),
        })
    }

    /// RES-07, RES-08, T-16: one row per cause.
    #[test]
    fn res_07_every_cause_has_its_plan() {
        let resume = |after, gap, refresh| ResumePlan::Resume {
            after: Seq(after),
            gap,
            refresh,
        };
        let fresh = |refresh| ResumePlan::Fresh { refresh };
        for (name, id, issued, found, expected) in [
            ("unparseable", None, false, None, fresh(false)),
            ("ordinal never issued", id(9, 1), false, None, fresh(false)),
            (
                "client ahead of a call stream",
                id(1, 4),
                true,
                Some(stream(3, None)),
                ResumePlan::Ahead {
                    after: Seq(4),
                    gap: false,
                },
            ),
            (
                "client ahead of a call stream that has ended",
                id(1, 4),
                true,
                Some(StreamStatus {
                    sealed: true,
                    ..stream(3, None)
                }),
                ResumePlan::Forgotten,
            ),
            (
                "client ahead of a push stream",
                id(2, 4),
                true,
                Some(stream(3, None)),
                fresh(true),
            ),
            (
                "known call stream",
                id(1, 2),
                true,
                Some(stream(3, None)),
                resume(2, false, false),
            ),
            (
                "at its tip",
                id(1, 3),
                true,
                Some(stream(3, None)),
                resume(3, false, false),
            ),
            (
                "call stream with a gap",
                id(1, 2),
                true,
                Some(stream(9, Some(5))),
                resume(2, true, false),
            ),
            (
                "purged, but seen before",
                id(1, 5),
                true,
                Some(stream(9, Some(5))),
                resume(5, false, false),
            ),
            (
                "push stream with a gap",
                id(2, 2),
                true,
                Some(stream(9, Some(5))),
                resume(2, true, true),
            ),
            (
                "known push stream",
                id(2, 2),
                true,
                Some(stream(9, None)),
                resume(2, false, false),
            ),
            (
                "ended, all seen",
                id(1, 3),
                true,
                Some(StreamStatus {
                    sealed: true,
                    ..stream(3, None)
                }),
                ResumePlan::Ended,
            ),
            ("push stream gone", id(2, 2), true, None, fresh(true)),
            ("call stream gone", id(1, 2), true, None, ResumePlan::Forgotten),
        ] {
            assert_eq!(plan(id, issued, found.as_ref(), false), expected, "{name}");
        }
    }

    /// STO-02, D4: a message that was sent without an id is a gap like any other.
    #[test]
    fn sto_02_messages_without_ids_are_a_gap() {
        for (ordinal, seq) in [(1, 2), (1, 3), (2, 2), (2, 3)] {
            let expected = ResumePlan::Resume {
                after: Seq(seq),
                gap: true,
                refresh: ordinal == 2,
            };
            assert_eq!(plan(id(ordinal, seq), true, Some(&stream(3, None)), true), expected);
        }
        let ahead = ResumePlan::Ahead {
            after: Seq(4),
            gap: true,
        };
        assert_eq!(plan(id(1, 4), true, Some(&stream(3, None)), true), ahead);
        let sealed = StreamStatus {
            sealed: true,
            ..stream(3, None)
        };
        assert_eq!(plan(id(1, 3), true, Some(&sealed), true), ResumePlan::Ended);
    }
}
