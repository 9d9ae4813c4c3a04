//! Transitions around a gap in the store: outages, lost writes, and resumes after them, one rule each.

use super::node_transitions::{page, sent, store};
use super::tests::params;
use super::transitions::{Core, OTHER, READER, acknowledge, append, emit, frames, live, take};
use super::*;
use crate::Version;

fn outage(core: &mut Core, text: &str) {
    let _ = emit(core, text);
    append(core);
    assert!(acknowledge(core, AppendOutcome::StoreFailed).store_failed);
}

/// D4: after an outage numbers continue after a gap, and a reader that has everything stays.
#[test]
fn d4_stream_continues_after_a_gap_when_the_store_recovers() {
    let mut core = live();
    let _ = store(&mut core, "1");
    outage(&mut core, "2");
    let _ = emit(&mut core, "3");
    let _ = core.store_recovered_with_gap(&params(false)).unwrap();
    let batch = append(&mut core);
    assert_eq!(
        (batch.gap, batch.info, batch.events.len()),
        (Some(Seq(3)), Some(params(false).info), 0)
    );
    assert!(
        core.has_unlogged_after(Some(Seq(1))),
        "the store does not know the gap yet"
    );
    assert!(!core.has_unlogged_after(Some(Seq(3))), "the store announces the gap");
    let _ = acknowledge(&mut core, AppendOutcome::Stored);
    assert!(!core.has_unlogged_after(Some(Seq(3))) && core.last_unlogged().is_none());
    let _ = emit(&mut core, "4");
    let batch = append(&mut core);
    assert_eq!((batch.gap, batch.info, batch.events[0].seq), (None, None, Seq(4)));
    let _ = acknowledge(&mut core, AppendOutcome::Stored);
    let all = "id: 7-1\ndata: 1\n\ndata: 2\n\ndata: 3\n\nid: 7-4\ndata: 4\n\n";
    assert_eq!(take(&mut core, READER), frames(all, 4));
}

/// D4: a store that fails again gets the gap with the next append.
#[test]
fn d4_gap_is_sent_until_the_store_has_it() {
    let mut core = live();
    outage(&mut core, "1");
    let _ = core.store_recovered_with_gap(&params(false)).unwrap();
    append(&mut core);
    assert!(
        !acknowledge(&mut core, AppendOutcome::StoreFailed).store_failed,
        "no message is lost"
    );
    assert!(core.has_unlogged_after(None) && core.next_append(&params(false)).is_none());
    outage(&mut core, "2");
    assert!(core.store_recovered_with_gap(&params(false)).is_some());
    assert_eq!(append(&mut core).gap, Some(Seq(2)));
    assert_eq!(core.seal().ended, None, "the seal must be stored first");
    let _ = acknowledge(&mut core, AppendOutcome::Stored);
    assert!(append(&mut core).seals);
}

/// RES-05: a reader that attached in an outage is live before its first page, which may contain events of the buffer.
#[test]
fn res_05_page_and_live_buffer_do_not_repeat_an_event() {
    let recovered = || {
        let mut core = live();
        let _ = store(&mut core, "1");
        outage(&mut core, "2");
        let _ = core.attach(OTHER, Seq(1), true);
        let _ = core.store_recovered_with_gap(&params(false)).unwrap();
        append(&mut core);
        let _ = acknowledge(&mut core, AppendOutcome::Stored);
        core
    };
    let mut core = recovered();
    for text in ["3", "4"] {
        let _ = store(&mut core, text);
    }
    assert!(
        !core.caught_up(OTHER, Seq(3), 1).0,
        "the page contained the first of both"
    );
    assert_eq!(take(&mut core, OTHER), frames("id: 7-4\ndata: 4\n\n", 4));

    let mut core = recovered();
    let _ = emit(&mut core, "3");
    append(&mut core);
    for text in ["4", "5"] {
        let _ = emit(&mut core, text); // they become one run
    }
    for _ in 0..2 {
        let _ = acknowledge(&mut core, AppendOutcome::Stored);
        let _ = core.next_append(&params(false));
    }
    assert!(
        !core.caught_up(OTHER, Seq(4), 2).0,
        "the page contained a part of the second run"
    );
    assert_eq!(take(&mut core, OTHER), TakeOutcome::Behind);
}

#[test]
fn d4_streams_that_may_have_lost_an_answer_do_not_continue() {
    let mut batch = params(false);
    Arc::make_mut(&mut batch.info).calls.push(8.into());
    let mut push = params(false);
    push.info = StreamInfo::new(StreamKind::Push, Vec::new(), "n").into();
    for other in [batch, push] {
        let mut core = live();
        outage(&mut core, "1");
        assert!(core.store_recovered_with_gap(&other).is_none());
    }
    assert!(
        live().store_recovered_with_gap(&params(false)).is_none(),
        "the store has not failed"
    );
}

fn log_with(last: u64) -> Log {
    let mut log = Log::new(params(true).info, 1);
    let events = (0..=last).map(|n| Event::new(Seq(n), Bytes::from(n.to_string())));
    log.append(Batch::new(1, events.collect())).unwrap();
    log
}

fn one(seq: u64) -> Batch {
    Batch::new(1, vec![Event::new(Seq(seq), Bytes::from_static(b"x"))])
}

/// D2, D4: a store that lacks events accepts a batch after a gap, and readers learn of the gap.
#[test]
fn d4_log_counts_the_numbers_of_a_gap_as_evicted() {
    let mut log = log_with(2);
    assert!(
        log.append(one(5).with_gap(Seq(5))).is_err(),
        "the numbers do not follow the gap"
    );
    assert!(
        log.append(one(5).with_gap(Seq(4)).with_epoch(0)).is_err(),
        "an older writer"
    );
    for _ in 0..2 {
        log.append(one(5).with_gap(Seq(4))).unwrap();
    }
    let page = log.read_after(Seq(2), 9, 99);
    assert_eq!((page.events[0].seq, page.status.last), (Seq(5), Some(Seq(5))));
    assert!(page.has_gap_after(Seq(3)) && !page.has_gap_after(Seq(4)));
    log.append(one(6).with_gap(Seq(5))).unwrap();
    assert_eq!(log.status().purged, Some(Seq(4)), "no event was missing");
    log.append(Batch::new(1, Vec::new()).with_gap(Seq(9)).sealing())
        .unwrap();
    assert_eq!((log.status().last, log.status().purged), (Some(Seq(9)), Some(Seq(9))));
    let mut lost = Log::new(params(true).info, 1);
    lost.append(one(5).with_gap(Seq(4))).unwrap();
    assert!(lost.read_after(Seq(0), 9, 99).has_gap_after(Seq(0)));
}

/// A store that lost its last writes refuses the next batch and accepts the same batch with a gap.
#[test]
fn d2_batch_after_a_loss_is_accepted_only_from_its_writer() {
    let info = params(true).info;
    let mut log = log_with(2);
    let refused = log.append(one(5)).unwrap_err();
    log.append(one(5).after_loss(refused, &info).unwrap()).unwrap();
    let fenced = log.append(one(9).with_epoch(0)).unwrap_err();
    assert!(
        one(9).with_epoch(0).after_loss(fenced, &info).is_none(),
        "another writer"
    );
    let ahead = log.append(one(4)).unwrap_err();
    assert!(one(4).after_loss(ahead, &info).is_none(), "the store has more");
    assert!(one(7).after_loss(Refused::Sealed, &info).is_none());
    assert_eq!(one(7).after_loss(Refused::Unknown, &info).unwrap().gap, Some(Seq(6)));
}

/// RES-08: a resume with an announced gap continues after it, also without later events and in small pages.
#[test]
fn res_08_reader_continues_after_an_announced_gap() {
    let start = || ReaderStart {
        cursor: Seq(1),
        resumes: true,
        gap_announced: true,
        ..ReaderStart::default()
    };
    let holed = |events: &[(u64, &'static str)], purged, last| {
        let mut page = page(events, last, false);
        page.status.purged = Some(Seq(purged));
        page
    };
    let params = params(true);
    let mut reader = Reader::new(start(), Version::V2025_11_25, 9);
    let input = reader.page(&params, Some(&holed(&[], 6, 6)), |cursor, _| cursor == Seq(6));
    assert_eq!((input, reader.step()), (Input::Continue, Step::Take));
    let confirmed = sent(reader.taken(&params, TakeOutcome::Nothing));
    assert_eq!(confirmed, "id: 7-6\ndata:\n\n");

    let mut reader = Reader::new(start(), Version::V2025_11_25, 9);
    let input = reader.page(&params, Some(&holed(&[(2, "a")], 6, 8)), |_, _| false);
    assert_eq!(sent(input), "id: 7-2\ndata: a\n\n");
    let input = reader.page(&params, Some(&holed(&[(7, "b")], 6, 8)), |_, _| false);
    assert_eq!(sent(input), "id: 7-7\ndata: b\n\n", "the same gap");
    let input = reader.page(&params, Some(&holed(&[(9, "c")], 8, 9)), |_, _| false);
    assert_eq!(input, Input::Overtaken, "another gap");
}
