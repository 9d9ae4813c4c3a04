//! Single transitions of [`StreamCore`] and [`Reader`] with several nodes, one rule each.

use super::tests::params;
use super::transitions::{Core, OTHER, READER, acknowledge, append, emit, frames, live, take};
use super::*;
use crate::Version;
use crate::cluster::{Incarnation, ReaderToken};
use crate::sse::Draft;

fn token(connection: u64) -> ReaderToken {
    ReaderToken {
        node: Incarnation::new(2, 0xb),
        connection,
    }
}

pub(super) fn store(core: &mut Core, text: &str) -> Effects<ConnectionId> {
    let _ = emit(core, text);
    append(core);
    acknowledge(core, AppendOutcome::Stored)
}

fn small_window(events: usize, bytes: usize) -> StreamParams {
    let mut limited = params(false);
    limited.limits = Arc::new(StreamLimits {
        retained_events: events,
        retained_bytes: bytes,
        ..StreamLimits::default()
    });
    limited
}

/// RES-06 across nodes: a reader on another node displaces the connection of this one.
#[test]
fn res_06_remote_reader_displaces_the_local_one() {
    let mut core = live();
    assert_eq!(take(&mut core, READER), TakeOutcome::Nothing);
    let effects = core.attach_remote(token(1), Seq::PRIMING);
    assert_eq!((effects.wake, effects.displaced), (Some(READER), None));
    assert_eq!(take(&mut core, READER), TakeOutcome::End);
    assert!(!core.has_reader() && !core.detach(READER).0);
    let _ = store(&mut core, "{}");
    assert_eq!(take(&mut core, READER), TakeOutcome::End, "no frame is buffered for it");
    assert!(!core.is_waiting(&params(true), READER));
}

/// RES-06 across nodes: a connection of this node displaces the remote reader, also if a late report names it.
#[test]
fn res_06_local_reader_displaces_the_remote_one_for_good() {
    let mut core = live();
    let _ = core.attach_remote(token(1), Seq::PRIMING);
    let effects = core.attach(OTHER, Seq::PRIMING, true);
    assert_eq!(
        effects.displaced.as_deref(),
        Some(&token(1)),
        "the store must be notified"
    );
    let _ = core.remote_reader(Some((token(1), Seq(4))));
    assert!(core.has_reader(), "the report was late");
    let _ = core.remote_reader(None);
    assert!(core.has_reader(), "no remote reader does not mean no reader");
    let _ = core.remote_reader(Some((token(2), Seq::PRIMING)));
    assert!(!core.has_reader(), "another remote reader is newer");
}

/// SSE-14 across nodes: the writer waits for a remote reader that is a retained window behind.
#[test]
fn sse_14_emitter_waits_for_the_remote_reader() {
    let limited = small_window(4, 1 << 20);
    let mut core = live();
    let _ = core.attach_remote(token(1), Seq::PRIMING);
    for _ in 0..4 {
        let _ = store(&mut core, "{}");
    }
    assert_eq!(core.room(&limited), Room::WaitForReader);
    assert!(
        !core.remote_reader(Some((token(1), Seq::PRIMING))).room,
        "the reader has not moved"
    );
    assert!(core.remote_reader(Some((token(1), Seq(2)))).room);
    assert_eq!(core.room(&limited), Room::Free);
    assert!(!core.reader_stalled(&limited).reader_stalled);
    let _ = store(&mut core, "{}");
    let stalled = core.reader_stalled(&limited);
    assert!(stalled.reader_stalled && stalled.displaced.as_deref() == Some(&token(1)));
    assert_eq!(core.room(&limited), Room::Free);
    let _ = core.remote_reader(Some((token(1), Seq(3))));
    assert_eq!(
        core.room(&limited),
        Room::Free,
        "a stalled reader is not waited for again"
    );
}

/// SSE-14 across nodes: bytes count too, however many appends there were.
#[test]
fn sse_14_emitter_waits_for_the_bytes_of_the_remote_reader() {
    let limited = small_window(4096, 3000);
    let mut core = live();
    let _ = core.attach_remote(token(1), Seq::PRIMING);
    let mut appended = 0;
    while core.room(&limited) == Room::Free {
        let _ = store(&mut core, "\"0123456\"");
        appended += 1;
        assert!(appended < 1_000, "the writer did not wait");
    }
    assert_eq!(appended, 3000_u64.div_ceil(9), "each message has 9 bytes");
    let _ = core.remote_reader(Some((token(1), Seq(appended / 2))));
    assert_eq!(core.room(&limited), Room::Free);
    let mut more = 0;
    while core.room(&limited) == Room::Free {
        let _ = store(&mut core, "\"0123456\"");
        more += 1;
        assert!(more < 1_000, "the writer did not wait again");
    }
    assert!(
        (100..=appended / 2 + 1).contains(&more),
        "{more}: positions are rounded down"
    );
    let _ = core.remote_reader(Some((token(1), Seq(appended + more))));
    assert_eq!(core.room(&limited), Room::Free);
    let _ = core.remote_reader(None);
    let _ = store(&mut core, &"9".repeat(3000));
    assert_eq!(core.room(&limited), Room::Free, "the reader has left");
}

/// D2: an adopted stream is written in its own epoch.
#[test]
fn d2_adopted_stream_has_its_own_epoch() {
    let status = StreamStatus {
        last: Some(Seq(4)),
        ..StreamStatus::new(params(false).info, 3)
    };
    let mut taken_over = params(false);
    taken_over.epoch = 9;
    let mut core = Core::adopt(&status);
    let _ = emit(&mut core, "{}");
    let batch = core.next_append(&taken_over).unwrap();
    assert_eq!((batch.epoch, batch.events[0].seq, batch.info), (9, Seq(5), None));
}

fn bound(core: &mut Core, messages: &[&'static str]) -> Effects<ConnectionId> {
    let messages = messages.iter().map(|text| Bytes::from_static(text.as_bytes()));
    core.bound(&params(false), BindOutcome::Messages(messages.collect()))
}

/// D6: bound messages are framed as the store numbered them, and a live reader gets them.
#[test]
fn d6_bound_messages_reach_the_live_reader() {
    let mut core = live();
    assert_eq!(take(&mut core, READER), TakeOutcome::Nothing);
    let start = core.begin_bind(&params(false)).unwrap();
    assert_eq!((start.first, start.info), (Seq(1), Some(params(false).info)));
    assert!(core.begin_bind(&params(false)).is_none(), "one bind is in flight");
    assert!(core.next_append(&params(false)).is_none() && core.has_pending_append());
    let effects = bound(&mut core, &["1", "2"]);
    assert_eq!((effects.wake, effects.stored), (Some(READER), 2));
    assert_eq!(
        take(&mut core, READER),
        frames("id: 7-1\ndata: 1\n\nid: 7-2\ndata: 2\n\n", 2)
    );
    let again = core.begin_bind(&params(false)).unwrap();
    assert_eq!((again.first, again.info), (Seq(3), None), "the store knows the stream");
    assert_eq!(take(&mut core, READER), TakeOutcome::Nothing);
    assert_eq!(
        bound(&mut core, &[]).wake,
        None,
        "the reader would only request another bind"
    );
    assert!(!core.has_pending_append());
}

/// D6: messages that are emitted during a bind follow the bound ones.
#[test]
fn d6_message_emitted_during_a_bind_comes_after_the_bound_ones() {
    let mut core = live();
    let _ = core.begin_bind(&params(false)).unwrap();
    let question = Draft::copy_of(b"\"q\"");
    let _ = core.emit(&params(false), question, Retain::Question, false).unwrap();
    let _ = core.seal();
    let _ = bound(&mut core, &["1", "2"]);
    let batch = append(&mut core);
    assert_eq!(
        batch.events,
        [Event::new(Seq(3), Bytes::from("\"q\"")).with_retain(Retain::Question)]
    );
    assert!(batch.seals && batch.info.is_none());
    assert_eq!(
        acknowledge(&mut core, AppendOutcome::Stored).ended,
        Some(CloseReason::Sealed)
    );
    assert_eq!(
        take(&mut core, READER),
        frames("id: 7-1\ndata: 1\n\nid: 7-2\ndata: 2\n\nid: 7-3\ndata: \"q\"\n\n", 3)
    );
}

/// D6: a bind waits for queued messages, and never starts on a closing or unlogged stream.
#[test]
fn d6_bind_starts_only_on_an_idle_stream() {
    let mut queued = live();
    let _ = emit(&mut queued, "{}");
    assert!(queued.begin_bind(&params(false)).is_none());
    append(&mut queued);
    assert!(queued.begin_bind(&params(false)).is_none());
    let _ = acknowledge(&mut queued, AppendOutcome::Stored);
    let _ = queued.seal();
    assert!(queued.begin_bind(&params(false)).is_none());
    assert!(Core::open(&params(true), 5).begin_bind(&params(true)).is_none());
    assert!(Core::connection_bound().begin_bind(&params(false)).is_none());
}

/// STO-02: after a failed bind the next number is unknown. The messages of the bind are in the queue or in the stream.
#[test]
fn sto_02_failed_bind_stops_the_numbering_until_recovery() {
    for stored_before in [false, true] {
        let mut core = live();
        if stored_before {
            let _ = store(&mut core, "{}");
            let _ = take(&mut core, READER);
        }
        let first = core.begin_bind(&params(false)).unwrap().first;
        assert!(core.bound(&params(false), BindOutcome::StoreFailed).store_failed);
        assert!(core.begin_bind(&params(false)).is_none() && core.may_be_in_store());
        let stored = Seq(first.0 + 2);
        assert!(
            !core.has_unlogged_after(Some(stored)),
            "a resume reads the bound messages"
        );
        let recovered = core.store_recovered(core.last_unlogged(), Some(stored)).unwrap();
        assert!(recovered.wake.is_none() && !core.has_reader());
        assert_eq!(core.begin_bind(&params(false)).unwrap().first, stored.next());
    }
}

#[test]
fn sto_02_message_emitted_during_a_failed_bind_is_a_gap() {
    let mut core = live();
    let first = core.begin_bind(&params(false)).unwrap().first;
    let _ = emit(&mut core, "{}");
    let _ = core.bound(&params(false), BindOutcome::StoreFailed);
    assert_eq!(take(&mut core, READER), frames("data: {}\n\n", 1));
    for stored in [None, Some(first), Some(first.next())] {
        assert!(core.has_unlogged_after(stored), "{stored:?}");
    }
}

#[test]
fn d9_refused_bind_closes_the_stream_and_late_bind_is_ignored() {
    let mut fenced = live();
    let _ = fenced.begin_bind(&params(false));
    let effects = fenced.bound(&params(false), BindOutcome::Refused);
    assert_eq!(effects.ended, Some(CloseReason::Fenced));
    let mut stopped = live();
    let _ = stopped.begin_bind(&params(false));
    let _ = stopped.stop();
    let late = bound(&mut stopped, &["1"]);
    assert!(late.stored == 0 && stopped.is_closed());
}

pub(super) fn page(events: &[(u64, &'static str)], last: u64, sealed: bool) -> Page {
    let event = |(seq, text): &(u64, &'static str)| Event::new(Seq(*seq), Bytes::from_static(text.as_bytes()));
    let status = StreamStatus {
        last: Some(Seq(last)),
        sealed,
        ..StreamStatus::new(params(true).info, 1)
    };
    Page::new(events.iter().map(event).collect(), status)
}

pub(super) fn sent(input: Input) -> String {
    match input {
        Input::Send(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A remote reader reads to the end, reports its position with an empty read, waits, and ends with the stream.
#[test]
fn res_05_remote_reader_reads_waits_and_ends() {
    let params = params(true);
    let mut reader = Reader::remote(&params, ReaderStart::default(), Version::V2025_11_25, 9);
    let first = Bytes::from("id: 7-0\ndata:\n\nretry: 9\n\n");
    assert_eq!(reader.step(), Step::Send(first));
    assert_eq!(reader.step(), Step::Read(Seq::PRIMING));
    let events = page(&[(1, "a"), (2, "b")], 2, false);
    let input = reader.remote_page(&params, RemoteRead::Page(&events));
    assert_eq!(sent(input), "id: 7-1\ndata: a\n\nid: 7-2\ndata: b\n\n");
    assert_eq!(reader.step(), Step::Read(Seq(2)), "the writer learns the position");
    let nothing = page(&[], 2, false);
    assert_eq!(reader.remote_page(&params, RemoteRead::Page(&nothing)), Input::Wait);
    assert_eq!(reader.step(), Step::Wait);
    reader.woken();
    assert_eq!(reader.step(), Step::Read(Seq(2)));
    assert_eq!(reader.remote_page(&params, RemoteRead::StoreFailed), Input::Wait);
    assert_eq!(reader.step(), Step::Wait, "the reader stays open in an outage");
    reader.woken();
    let end = page(&[(3, "c")], 3, true);
    let input = reader.remote_page(&params, RemoteRead::Page(&end));
    assert_eq!(sent(input), "id: 7-3\ndata: c\n\n");
    assert_eq!(reader.step(), Step::End);
}

#[test]
fn res_06_displaced_remote_reader_ends() {
    let start = ReaderStart {
        cursor: Seq(2),
        resumes: true,
        ..ReaderStart::default()
    };
    let mut reader = Reader::remote(&params(true), start, Version::V2025_11_25, 9);
    assert_eq!(reader.step(), Step::Read(Seq(2)));
    assert_eq!(reader.remote_page(&params(true), RemoteRead::Ended), Input::Continue);
    assert_eq!(reader.step(), Step::End);
    reader.woken();
    assert_eq!(reader.step(), Step::End, "a late wake-up changes nothing");
}

/// RES-09: a remote resume without new events confirms the cursor, once.
#[test]
fn res_09_remote_resume_confirms_the_cursor() {
    let start = ReaderStart {
        cursor: Seq(2),
        resumes: true,
        ..ReaderStart::default()
    };
    let mut reader = Reader::remote(&params(true), start, Version::V2025_11_25, 9);
    let nothing = page(&[], 2, false);
    let input = reader.remote_page(&params(true), RemoteRead::Page(&nothing));
    assert_eq!(sent(input), "id: 7-2\ndata:\n\n");
    assert_eq!(reader.step(), Step::Send(Bytes::from("retry: 9\n\n")));
    assert_eq!(reader.step(), Step::Wait);
    reader.woken();
    assert_eq!(
        reader.remote_page(&params(true), RemoteRead::Page(&nothing)),
        Input::Wait
    );
}

/// SSE-11: the stream of a request without a session has no ids on the wire.
#[test]
fn sse_11_stateless_remote_reader_sends_no_ids() {
    let params = params(true);
    let mut reader = Reader::remote_without_ids(Version::V2026_07_28);
    assert_eq!(reader.step(), Step::Read(Seq::PRIMING));
    let end = page(&[(1, "a"), (2, "b")], 2, true);
    let input = reader.remote_page(&params, RemoteRead::Page(&end));
    assert_eq!(sent(input), "data: a\n\ndata: b\n\n");
    assert_eq!(reader.step(), Step::End);
}
