use super::*;
use crate::record::{NewEvent, Part};
use rethread_proto::StreamKind;
use rethread_store::{Retain, SessionId, StreamInfo};

/// A session at its limit forgets a stream with every call. The entry of the stream must not stay for long.
#[test]
fn forgotten_stream_leaves_no_outdated_entry() {
    let (at, body) = (Location { segment: 1, offset: 64 }, Part { len: 2, crc: 0 });
    let (session, epoch, touched) = (1, 1, Wall::from_millis(5));
    let key = SessionKey {
        principal: rethread_store::Principal::anonymous(),
        session: SessionId::parse("s").unwrap(),
    };
    let mut index = Index::default();
    let create = Record::Create {
        session,
        key,
        at: touched,
        epoch,
        body,
    };
    index.apply(create, at).unwrap();
    for ordinal in (1..100).map(Ordinal) {
        let oldest = ordinal.0.checked_sub(10).filter(|oldest| *oldest > 0).map(Ordinal);
        let event = NewEvent {
            retain: Retain::None,
            part: body,
        };
        let append = Append {
            session,
            ordinal,
            epoch,
            first: Seq(0),
            events: vec![event; 2],
            info: Some(StreamInfo::new(StreamKind::Call, vec![7.into()], "test").into()),
            sealed_at: Some(touched),
            taken: None,
            released: Vec::new(),
            forgotten: oldest.into_iter().collect(),
        };
        index.apply(Record::Append { append }, at).unwrap();
        assert_eq!(index.ended[0].len() as u64, index.totals.streams);
    }
}

/// The copy is not in the file before the commit of the move, so a read must wait for it.
#[test]
fn move_is_a_change_of_the_stream_and_the_session() {
    let (at, body) = (Location { segment: 1, offset: 64 }, Part { len: 2, crc: 0 });
    let key = SessionKey {
        principal: rethread_store::Principal::anonymous(),
        session: SessionId::parse("s").unwrap(),
    };
    let record = Blob { at, part: body };
    let mut session = Session::new(key, record, 1, Wall::from_millis(5));
    let info = StreamInfo::new(StreamKind::Call, vec![7.into()], "test");
    let mut stream = Stream::new(info.into(), 1);
    let event = NewEvent {
        retain: Retain::None,
        part: body,
    };
    stream.append(Seq(0), &[event], at, &mut Segments::default());
    session.streams.push_back((Ordinal(1), Box::new(stream)));
    let mut index = Index::default();
    index.restore_session(1, session);
    for (commit, item) in [(5, Item::Event(1, Ordinal(1), Seq(0))), (6, Item::Record(1))] {
        let moved = Location {
            segment: 2,
            offset: commit as u32,
        };
        index.segments.commit = commit;
        let parts = vec![(item, body)];
        index.apply(Record::Move { parts }, moved).unwrap();
        assert_eq!(index.locate(item), Some(moved));
    }
    let stream = index.stream(1, Ordinal(1)).unwrap();
    assert_eq!((stream.changed, index.sessions[&1].changed), (5, 6));
    assert_eq!(index.segments.get(1).live, 0);
}
