//! Single transitions of [`StreamCore`], one rule each. Random schedules are in `tests/oracle`.

use super::tests::params;
use super::*;
use crate::sse::Draft;

pub(super) const READER: ConnectionId = ConnectionId(1);
pub(super) const OTHER: ConnectionId = ConnectionId(2);

pub(super) type Core = StreamCore<ConnectionId>;

pub(super) fn emit(core: &mut Core, text: &str) -> Effects<ConnectionId> {
    let emitted = core.emit(&params(false), Draft::copy_of(text.as_bytes()), Retain::None, false);
    emitted.expect("the stream is open").1
}

pub(super) fn append(core: &mut Core) -> Batch {
    core.next_append(&params(false)).expect("an append is due")
}

pub(super) fn acknowledge(core: &mut Core, outcome: AppendOutcome) -> Effects<ConnectionId> {
    core.appended(&params(false), outcome)
}

pub(super) fn take(core: &mut Core, connection: ConnectionId) -> TakeOutcome {
    core.take(connection, &connection).0
}

/// A stream with an attached reader that may read.
pub(super) fn live() -> Core {
    let mut core = Core::open(&params(false), 1000);
    let _ = core.attach(READER, Seq::PRIMING, false);
    core.flush();
    core
}

pub(super) fn frames(text: &str, last: u64) -> TakeOutcome {
    TakeOutcome::Frames(Bytes::from(text.to_owned()), Seq(last))
}

#[test]
fn sto_02_frame_is_sent_after_its_event_is_stored() {
    let mut core = live();
    let _ = emit(&mut core, "{}");
    append(&mut core);
    assert_eq!(take(&mut core, READER), TakeOutcome::Nothing);
    assert_eq!(acknowledge(&mut core, AppendOutcome::Stored).wake, Some(READER));
    assert_eq!(take(&mut core, READER), frames("id: 7-1\ndata: {}\n\n", 1));
}

/// RES-05: a page may contain events that the store has not acknowledged yet.
#[test]
fn res_05_event_of_a_page_is_not_sent_again() {
    let mut core = live();
    for _ in 0..3 {
        let _ = emit(&mut core, "{}");
    }
    append(&mut core);
    let _ = core.attach(OTHER, Seq::PRIMING, true);
    assert_eq!(take(&mut core, OTHER), TakeOutcome::Behind);
    assert!(core.caught_up(OTHER, Seq(3), 6).0, "nothing is acknowledged yet");
    let _ = acknowledge(&mut core, AppendOutcome::Stored);
    assert_eq!(take(&mut core, OTHER), TakeOutcome::Nothing);
}

/// RES-05: if a page contains a part of a run, the reader gets the rest from the store.
#[test]
fn res_05_rest_of_a_partly_read_run_comes_from_the_store() {
    let mut core = Core::open(&params(false), 1000);
    for _ in 0..3 {
        let _ = emit(&mut core, "{}"); // no reader can exist: they become one run
    }
    core.flush();
    append(&mut core);
    let _ = core.attach(OTHER, Seq::PRIMING, true);
    assert!(core.caught_up(OTHER, Seq(2), 4).0);
    assert_eq!(take(&mut core, OTHER), TakeOutcome::Nothing);
    assert_eq!(acknowledge(&mut core, AppendOutcome::Stored).wake, Some(OTHER));
    assert_eq!(take(&mut core, OTHER), TakeOutcome::Behind);
    assert!(
        core.caught_up(OTHER, Seq(3), 2).0,
        "the reader is live again at the last number"
    );
    assert_eq!(take(&mut core, OTHER), TakeOutcome::Nothing);
}

/// RES-06: one connection reads a stream.
#[test]
fn res_06_displaced_reader_is_woken_and_ends() {
    let mut core = live();
    assert_eq!(take(&mut core, READER), TakeOutcome::Nothing);
    assert_eq!(core.attach(OTHER, Seq::PRIMING, false).wake, Some(READER));
    assert_eq!(take(&mut core, READER), TakeOutcome::End);
    assert!(!core.detach(READER).0, "a displaced connection has no effect");
    assert!(core.has_reader());
}

/// STO-02: a reader that catches up would miss the messages without ids.
#[test]
fn sto_02_reader_that_catches_up_is_closed_in_an_outage() {
    let mut core = live();
    let _ = emit(&mut core, "{}");
    append(&mut core);
    let _ = core.attach(OTHER, Seq::PRIMING, true);
    let _ = acknowledge(&mut core, AppendOutcome::StoreFailed);
    assert_eq!(take(&mut core, OTHER), TakeOutcome::Close(Close { retry: 0 }));
}

#[test]
fn sto_02_live_reader_gets_messages_without_ids_in_an_outage() {
    let mut core = live();
    let _ = emit(&mut core, "{}");
    append(&mut core);
    let _ = emit(&mut core, "[]");
    assert!(acknowledge(&mut core, AppendOutcome::StoreFailed).store_failed);
    let _ = emit(&mut core, "7");
    assert_eq!(
        take(&mut core, READER),
        frames("data: {}\n\ndata: []\n\ndata: 7\n\n", 3)
    );
    assert!(core.next_append(&params(false)).is_none());
    assert_eq!(core.last_unlogged(), Some(Seq(3)));
}

/// D2: a seal during an append is stored with the next append.
#[test]
fn d2_seal_during_an_append_makes_another_append() {
    let mut core = live();
    let _ = emit(&mut core, "{}");
    append(&mut core);
    assert_eq!(core.seal().ended, None);
    assert!(
        core.emit(&params(false), Draft::copy_of(b"{}"), Retain::None, false)
            .is_err()
    );
    assert_eq!(acknowledge(&mut core, AppendOutcome::Stored).ended, None);
    let seal = append(&mut core);
    assert!(seal.seals && seal.events.is_empty());
    assert_eq!(
        acknowledge(&mut core, AppendOutcome::Stored).ended,
        Some(CloseReason::Sealed)
    );
    assert!(matches!(take(&mut core, READER), TakeOutcome::Frames(..)));
    assert_eq!(take(&mut core, READER), TakeOutcome::End);
}

/// Every cause of a close wakes the reader.
#[test]
fn d2_close_wakes_a_waiting_reader() {
    type Close = fn(&mut Core) -> Effects<ConnectionId>;
    let deliver = |core: &mut Core, outcome| {
        let _ = emit(core, "{}");
        append(core);
        let _ = acknowledge(core, outcome);
        assert!(matches!(take(core, READER), TakeOutcome::Frames(..)));
    };
    let cases: [(&str, Option<AppendOutcome>, Close); 5] = [
        ("stopped", Some(AppendOutcome::Stored), Core::stop),
        ("sealed without a message", None, Core::seal),
        ("sealed by an append", Some(AppendOutcome::Stored), |core| {
            let _ = core.seal();
            append(core);
            acknowledge(core, AppendOutcome::Stored)
        }),
        ("fenced", Some(AppendOutcome::Stored), |core| {
            let _ = core.seal();
            append(core);
            acknowledge(core, AppendOutcome::Refused)
        }),
        ("sealed without a log", Some(AppendOutcome::StoreFailed), Core::seal),
    ];
    for (name, message, close) in cases {
        let mut core = live();
        if let Some(outcome) = message {
            deliver(&mut core, outcome);
        }
        assert_eq!(take(&mut core, READER), TakeOutcome::Nothing, "{name}");
        assert_eq!(close(&mut core).wake, Some(READER), "{name}");
        assert_eq!(take(&mut core, READER), TakeOutcome::End, "{name}");
    }
}

#[test]
fn d2_stream_without_messages_closes_without_an_append() {
    let mut core = live();
    assert_eq!(core.seal().ended, Some(CloseReason::Sealed));
    assert!(core.next_append(&params(false)).is_none());
}

/// D5: a full batch is appended before any reader can exist. After the flush every message is.
#[test]
fn d5_flush_during_an_append_ends_the_buffering() {
    let mut core = Core::open(&params(false), 1000);
    let _ = emit(&mut core, "{}");
    assert!(core.next_append(&params(false)).is_none(), "the message is buffered");
    let _ = emit(&mut core, &format!("\"{}\"", "x".repeat(300 << 10)));
    append(&mut core);
    core.flush();
    let _ = acknowledge(&mut core, AppendOutcome::Stored);
    let _ = emit(&mut core, "{}");
    assert_eq!(append(&mut core).events.len(), 1);
}

/// SSE-08: a client without an id could not resume to get the messages in flight.
#[test]
fn sse_08_close_waits_for_pending_events() {
    let mut core = live();
    let _ = emit(&mut core, "{}");
    append(&mut core);
    let _ = core.close_reader(Close { retry: 5 });
    assert_eq!(take(&mut core, READER), TakeOutcome::Nothing);
    let _ = acknowledge(&mut core, AppendOutcome::Stored);
    assert!(matches!(take(&mut core, READER), TakeOutcome::Frames(..)));
    assert_eq!(take(&mut core, READER), TakeOutcome::Close(Close { retry: 5 }));
}

/// D4: a failed release is repeated, and the stream stays logged.
#[test]
fn d4_failed_release_is_part_of_the_next_append() {
    let mut core = live();
    let _ = emit(&mut core, "{}");
    append(&mut core);
    let _ = acknowledge(&mut core, AppendOutcome::Stored);
    core.release(Seq(1));
    assert_eq!(append(&mut core).released, [Seq(1)]);
    assert!(!acknowledge(&mut core, AppendOutcome::StoreFailed).store_failed);
    let _ = emit(&mut core, "{}");
    assert_eq!(append(&mut core).released, [Seq(1)]);
}

/// D9: a refused append closes the stream, and a late result changes nothing.
#[test]
fn d9_refused_append_closes_the_stream_and_late_result_is_ignored() {
    let mut fenced = live();
    let _ = emit(&mut fenced, "{}");
    append(&mut fenced);
    assert_eq!(
        acknowledge(&mut fenced, AppendOutcome::Refused).ended,
        Some(CloseReason::Fenced)
    );
    let mut stopped = live();
    let _ = emit(&mut stopped, "{}");
    append(&mut stopped);
    assert_eq!(stopped.stop().ended, Some(CloseReason::Stopped));
    let late = acknowledge(&mut stopped, AppendOutcome::Stored);
    assert!(late.ended.is_none() && late.stored == 0);
    assert!(stopped.is_closed());
    assert_eq!(take(&mut stopped, READER), TakeOutcome::End);
}

/// SSE-14: an emitter waits for a reader that is a retained window behind, and for the store.
#[test]
fn sse_14_emitter_waits_for_the_reader_or_for_the_store() {
    let mut limited = params(false);
    limited.limits = Arc::new(StreamLimits {
        retained_events: 4,
        ..StreamLimits::default()
    });
    let mut core = live();
    for _ in 0..4 {
        let _ = emit(&mut core, "{}");
        append(&mut core);
        let _ = acknowledge(&mut core, AppendOutcome::Stored);
    }
    assert_eq!(core.room(&limited), Room::WaitForReader);
    assert!(matches!(take(&mut core, READER), TakeOutcome::Frames(..)));
    assert_eq!(core.room(&limited), Room::Free);
    assert!(
        !core.reader_stalled(&limited).reader_stalled,
        "the reader has taken frames"
    );
    for _ in 0..2 {
        let _ = emit(&mut core, &format!("\"{}\"", "x".repeat(300 << 10)));
    }
    assert_eq!(core.room(&limited), Room::WaitForStore);
    assert!(
        !core.reader_stalled(&limited).reader_stalled,
        "a slow store does not detach the reader"
    );
}

/// RES-09: a stream may end between the plan of a resume and its first page. The client keeps its cursor.
#[test]
fn res_09_resume_of_a_stream_that_ends_meanwhile_confirms_the_cursor() {
    let start = ReaderStart {
        cursor: Seq(3),
        resumes: true,
        ..ReaderStart::default()
    };
    let mut reader = Reader::new(start, crate::Version::V2025_11_25, 1000);
    assert_eq!(reader.step(), Step::Read(Seq(3)));
    let page = Page {
        events: Vec::new(),
        status: StreamStatus {
            info: params(true).info,
            epoch: 1,
            last: Some(Seq(3)),
            purged: None,
            first_kept: None,
            sealed: true,
            answers_lost: false,
            writer: None,
        },
    };
    let input = reader.page(&params(true), Some(&page), |_, _| panic!("the stream has ended"));
    assert_eq!(input, Input::Send(Bytes::from_static(b"id: 7-3\ndata:\n\n")));
    assert_eq!(reader.step(), Step::End);
}

/// LEG-02: a connection-bound stream delivers messages beyond its limits. Its emitters wait.
#[test]
fn leg_02_connection_bound_stream_buffers_beyond_its_limits() {
    let mut core = Core::connection_bound();
    let _ = core.attach(READER, Seq::PRIMING, false);
    let large = "x".repeat(params(false).limits.live_bytes);
    for text in ["1", &large, "3"] {
        let _ = emit(&mut core, text);
    }
    assert_eq!(core.room(&params(false)), Room::WaitForReader);
    let mut wire = Vec::new();
    while let TakeOutcome::Frames(chunk, _) = take(&mut core, READER) {
        wire.extend_from_slice(&chunk);
    }
    let expected = ["1", &large, "3"].map(|text| format!("data: {text}\n\n")).concat();
    assert!(wire == expected.as_bytes(), "a message is missing or out of order");
    assert_eq!(core.room(&params(false)), Room::Free);
    assert_eq!(
        take(&mut core, READER),
        TakeOutcome::Nothing,
        "the connection stays open"
    );
}
