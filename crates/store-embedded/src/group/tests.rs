use super::*;
use crate::record::Part;
use rethread_store::Ordinal;

const STORE: u64 = 0x1234_5678_9abc_def0;

/// A group with a small and a large payload, after a segment header.
fn group() -> (Vec<u8>, Vec<Location>) {
    let mut group = GroupBuffer::new(STORE);
    let header = SegmentHeader {
        store: STORE,
        number: 7,
        first_commit: 41,
        previous_end: 99,
    };
    let start = Location { segment: 7, offset: 0 };
    group.begin(start, Some(&header));
    assert!(group.is_empty());
    let bodies = [Bytes::from_static(b"small"), Bytes::from(vec![b'L'; 5000])];
    let locations = bodies.iter().map(|body| {
        let record = Record::Update {
            session: 3,
            at: rethread_proto::clock::Wall::from_millis(5),
            epoch: 1,
            body: Part::of(body),
        };
        group.push(&record, std::iter::once(body))
    });
    let locations = locations.collect();
    let bury = Record::Bury {
        session: 3,
        ordinal: Ordinal(5),
    };
    group.push(&bury, [].iter());
    group.finish(41, 40);
    let bytes: Vec<u8> = group.slices().iter().flat_map(|slice| slice.to_vec()).collect();
    assert_eq!(bytes.len() as u64, group.len());
    (bytes, locations)
}

#[test]
fn group_round_trips() {
    let (bytes, locations) = group();
    let header = SegmentHeader::decode(&bytes).unwrap();
    assert_eq!(header.store, STORE);
    assert_eq!((header.number, header.first_commit, header.previous_end), (7, 41, 99));
    let group = &bytes[SEGMENT_HEADER_BYTES..];
    let header = GroupHeader::decode(group, STORE).unwrap();
    assert_eq!(
        (header.len as usize, header.commit, header.durable),
        (group.len(), 41, 40)
    );
    assert_eq!(GroupHeader::decode(group, STORE + 1), None, "another store");
    let records = parse_records(group, STORE).unwrap();
    assert_eq!(records.len(), 3);
    assert!(records.iter().all(|framed| framed.damaged().is_empty()));
    for (framed, location) in records.iter().zip(&locations) {
        assert_eq!(framed.body_offset + SEGMENT_HEADER_BYTES, location.offset as usize);
        assert_eq!(&bytes[location.offset as usize..][..framed.body.len()], framed.body);
    }
}

/// Every flipped bit and every truncation makes the group invalid.
#[test]
fn damage_is_detected() {
    let (bytes, _) = group();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let intact = SegmentHeader::decode(&damaged).is_some()
            && GroupHeader::decode(&damaged[SEGMENT_HEADER_BYTES..], STORE).is_some()
            && parse_records(&damaged[SEGMENT_HEADER_BYTES..], STORE)
                .is_some_and(|records| records.iter().all(|framed| framed.damaged().is_empty()));
        assert!(!intact, "byte {at}");
    }
    for cut in (SEGMENT_HEADER_BYTES + GROUP_HEADER_BYTES + 1)..bytes.len() {
        let records = parse_records(&bytes[SEGMENT_HEADER_BYTES..cut], STORE);
        let whole = records.is_some_and(|records| records.len() == 3);
        assert!(!whole, "cut at {cut}");
    }
}

#[test]
fn claims_are_found_after_damage_and_cannot_be_forged() {
    let (bytes, _) = group();
    let behind = [&b"garbage rgrp"[..], &bytes[SEGMENT_HEADER_BYTES..], b"rgrp"].concat();
    let claims = GroupHeader::find_claims(&behind, STORE);
    assert_eq!((claims.commit, claims.durable), (41, 40));
    let nothing = Claims::default();
    assert_eq!(
        GroupHeader::find_claims(&behind, STORE ^ 1),
        nothing,
        "a group of another store claims nothing"
    );
    assert_eq!(GroupHeader::find_claims(b"", STORE), nothing);
}
