//! A client: its cursor, and what it has received.

use rethread_proto::Seq;
use rethread_proto::cluster::ReaderToken;
use rethread_proto::sse::Decoder;
use rethread_proto::stream::{ConnectionId, Page, Reader};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A client that resumes the stream over and over.
#[derive(Default)]
pub(crate) struct Client {
    /// The number in the last id that it got.
    pub(crate) cursor: Option<Seq>,
    pub(crate) connection: Option<Connection>,
    /// Messages that it got without an id.
    pub(crate) without_ids: HashSet<u64>,
    /// The numbers that those have.
    seen_numbers: HashSet<u64>,
    /// It has got the end of the stream.
    pub(crate) is_done: bool,
}

/// One response body.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// Set if it is on another node than the writer.
    pub(crate) token: Option<ReaderToken>,
    pub(crate) reader: Reader,
    pub(crate) decoder: Decoder,
    /// A page that was read and has not arrived yet. `Some(None)` if the read failed.
    pub(crate) page: Option<Option<Page>>,
    /// It waits for a wake-up.
    pub(crate) waits: bool,
    /// The response announced a gap. The first page tells its end.
    pub(crate) gap_announced: bool,
    /// Numbers up to this one may be missing.
    pub(crate) known_gap: Option<Seq>,
}

impl Client {
    /// Takes a chunk off the wire and checks it against what the store has ever stored. `numbers` has the numbers of messages
    /// without ids, if they are not used again.
    pub(crate) fn receive(&mut self, chunk: &[u8], stored: &BTreeMap<u64, Vec<u8>>, numbers: &HashMap<u64, u64>) {
        let connection = self.connection.as_mut().expect("a chunk comes on a connection");
        let mut blocks = Vec::new();
        let fed = connection.decoder.feed(chunk, |block| blocks.push(block));
        fed.expect("our own blocks are short");
        for block in blocks {
            let Some(id) = &block.id else {
                if let Some(message) = block.data.as_deref().and_then(message_number) {
                    self.without_ids.insert(message);
                    self.seen_numbers.extend(numbers.get(&message));
                }
                continue;
            };
            let seq: u64 = id
                .strip_prefix("7-")
                .expect("an id of this stream")
                .parse()
                .expect("a number");
            let data = block.data.as_deref().unwrap_or_default();
            if data.is_empty() {
                // A priming event, or the cursor confirmed.
                let before = self.cursor.unwrap_or_default();
                assert!(Seq(seq) >= before, "a cursor goes back to {seq}");
                assert!(
                    Seq(seq) == before || Some(Seq(seq)) <= connection.known_gap,
                    "a cursor jumps from {before:?} to {seq}"
                );
                self.cursor = Some(Seq(seq));
                continue;
            }
            if data.contains("answer_expired") {
                self.cursor = Some(Seq(seq));
                continue;
            }
            let payload = stored.get(&seq);
            assert_eq!(
                payload.map(|payload| &payload[..]),
                Some(data.as_bytes()),
                "event {seq} was sent and is not stored like that"
            );
            let before = self.cursor.unwrap_or(Seq::PRIMING);
            assert!(
                Seq(seq) > before,
                "event {seq} came after {before:?}: twice, or out of order"
            );
            let is_known = |missing| Some(Seq(missing)) <= connection.known_gap || self.seen_numbers.contains(&missing);
            assert!(
                (before.0 + 1..seq).all(is_known),
                "event {seq} came after {before:?}: an unannounced gap"
            );
            self.cursor = Some(Seq(seq));
        }
    }
}

/// The number of a message, which is its payload.
pub(crate) fn message_number(data: &str) -> Option<u64> {
    let rest = data.strip_prefix("{\"m\":")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
