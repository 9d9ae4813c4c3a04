use super::*;
use proptest::prelude::*;
use rethread_proto::StreamKind;
use rethread_proto::jsonrpc::RequestId;
use rethread_store::{Principal, SessionId};

fn part() -> impl Strategy<Value = Part> {
    (any::<u32>(), any::<u32>()).prop_map(|(len, crc)| Part { len, crc })
}

fn key() -> impl Strategy<Value = SessionKey> {
    ("[a-z:/]{0,8}", "\\PC{0,8}", "[!-~]{1,128}").prop_map(|(issuer, subject, session)| SessionKey {
        principal: Principal::new(issuer, subject),
        session: SessionId::parse(&session).expect("visible ASCII"),
    })
}

fn info() -> impl Strategy<Value = Arc<StreamInfo>> {
    (any::<bool>(), prop::collection::vec(any::<i64>(), 0..3), "\\PC{0,8}").prop_map(|(push, calls, node)| {
        let kind = if push { StreamKind::Push } else { StreamKind::Call };
        StreamInfo::new(kind, calls.into_iter().map(RequestId::from).collect(), node).into()
    })
}

fn retain() -> impl Strategy<Value = Retain> {
    prop_oneof![Just(Retain::None), Just(Retain::Question), Just(Retain::Answer)]
}

fn append() -> impl Strategy<Value = Record> {
    let ids = (any::<u64>(), any::<u64>(), any::<u64>());
    let options = (
        prop::option::of(info()),
        prop::option::of(any::<u64>().prop_map(Wall::from_millis)),
        prop::option::of(any::<u64>().prop_map(QueuePosition)),
    );
    let lists = (
        prop::collection::vec(
            (retain(), part()).prop_map(|(retain, part)| NewEvent { retain, part }),
            0..5,
        ),
        prop::collection::vec(any::<u64>().prop_map(Seq), 0..3),
        prop::collection::vec(any::<u64>().prop_map(Ordinal), 0..3),
    );
    let first = (0..u64::MAX / 2).prop_map(Seq);
    (ids, first, options, lists).prop_map(
        |(ids, first, (info, sealed_at, taken), (events, released, forgotten))| {
            let append = Append {
                session: ids.0,
                ordinal: Ordinal(ids.1),
                epoch: ids.2,
                first,
                events,
                info,
                sealed_at,
                taken,
                released,
                forgotten,
            };
            Record::Append { append }
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    (any::<u64>(), part(), any::<prop::sample::Index>()).prop_map(|(position, body, collapse)| Message {
        position: QueuePosition(position),
        collapse: collapse.index(body.len as usize / 2 + 1) as u32,
        body,
    })
}

fn item() -> impl Strategy<Value = Item> {
    (any::<u64>(), any::<u64>(), any::<u64>()).prop_flat_map(|(session, ordinal, number)| {
        prop_oneof![
            Just(Item::Record(session)),
            Just(Item::Event(session, Ordinal(ordinal), Seq(number))),
            Just(Item::Message(session, QueuePosition(number))),
        ]
    })
}

/// Any record.
fn record() -> impl Strategy<Value = Record> {
    let (session, ordinal) = (any::<u64>, || any::<u64>().prop_map(Ordinal));
    let wall = || any::<u64>().prop_map(Wall::from_millis);
    let position = || any::<u64>().prop_map(QueuePosition);
    let ranges = prop::collection::vec((any::<u64>().prop_map(Seq), any::<u64>()), 0..4);
    prop_oneof![
        (session(), key(), wall(), any::<u64>(), part()).prop_map(|(session, key, at, epoch, body)| Record::Create {
            session,
            key,
            at,
            epoch,
            body
        }),
        (session(), wall(), any::<u64>(), part()).prop_map(|(session, at, epoch, body)| Record::Update {
            session,
            at,
            epoch,
            body
        }),
        (session(), wall()).prop_map(|(session, at)| Record::Touch { session, at }),
        session().prop_map(|session| Record::End { session }),
        append(),
        (session(), ordinal(), ranges).prop_map(|(session, ordinal, ranges)| Record::Evict {
            session,
            ordinal,
            ranges
        }),
        (session(), ordinal()).prop_map(|(session, ordinal)| Record::Bury { session, ordinal }),
        (session(), ordinal()).prop_map(|(session, ordinal)| Record::ForgetStream { session, ordinal }),
        session().prop_map(|session| Record::ForgetSession { session }),
        (session(), position(), prop::collection::vec(message(), 0..4)).prop_map(|(session, floor, messages)| {
            Record::Queue {
                session,
                floor,
                messages,
            }
        }),
        prop::collection::vec((item(), part()), 0..5).prop_map(|parts| Record::Move { parts }),
    ]
}

proptest! {
    #[test]
    fn records_round_trip(record in record()) {
        let mut header = Vec::new();
        record.encode(&mut header);
        prop_assert_eq!(Record::parse(&header), Some(record));
    }

    /// A damaged header is invalid or decodes as another record. Decoding neither panics nor exhausts the memory.
    #[test]
    fn damaged_header_does_not_panic(record in record(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut header = Vec::new();
        record.encode(&mut header);
        let index = at.index(header.len());
        header[index] = byte;
        let _ = Record::parse(&header);
        let _ = Record::parse(&header[..cut.index(header.len())]);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
        let _ = Record::parse(&bytes);
    }
}
