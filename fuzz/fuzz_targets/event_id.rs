//! RES-02: the parser of event ids never panics, and an id has one spelling.
#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use rethread_proto::event_id::{EventId, EventIdFormat, IdScope, Ordinal, Plain, Qualified, Seq};
use rethread_proto::jsonrpc::RequestId;
use rethread_proto::principal::SessionId;

#[derive(arbitrary::Arbitrary, Debug)]
struct Input<'a> {
    session: [u8; 18],
    ordinal: u64,
    seq: u64,
    node: &'a str,
    calls: Vec<&'a str>,
    text: &'a str,
}

fuzz_target!(|input: Input<'_>| {
    let session = SessionId::from_random(input.session);
    let calls: Vec<RequestId> = input.calls.iter().copied().map(RequestId::from).collect();
    let scope = |ordinal| IdScope {
        session: &session,
        ordinal,
        node: input.node,
        calls: &calls,
    };

    if let Some(id) = Plain.parse(&session, input.text) {
        assert_eq!(Plain.prefix(&scope(id.ordinal)).id(id.seq), input.text);
    }
    let _ = Qualified.parse(&session, input.text);

    let id = EventId {
        ordinal: Ordinal(input.ordinal.max(1)),
        seq: Seq(input.seq),
    };
    for format in [&Plain as &dyn EventIdFormat, &Qualified] {
        let text = format.prefix(&scope(id.ordinal)).id(id.seq);
        assert_eq!(format.parse(&session, &text), Some(id), "{text}");
        let clean = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        assert!(clean && text.len() <= 128, "{text}");
    }
});
