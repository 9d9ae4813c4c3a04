//! A client: its cursor and its received messages.

use rethread_proto::Seq;
use rethread_proto::cluster::ReaderToken;
use rethread_proto::sse::Decoder;
use rethread_proto::stream::{ConnectionId, Page, Reader};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A client that resumes the stream repeatedly.
#[derive(Default)]
pub(crate) struct Client {
    /// The number in the last received id.
    pub(crate) cursor: Option<Seq>,
    pub(crate) connection: Option<Connection>,
    /// Messages received without an id.
    pub(crate) without_ids: HashSet<u64>,
    /// The numbers of messages without an id.
    seen_numbers: HashSet<u64>,
    /// The client has received the end of the stream.
    pub(crate) is_done: bool,
}

/// One response body.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// Set if the connection is on another node than the writer.
    pub(crate) token: Option<ReaderToken>,
    pub(crate) reader: Reader,
    pub(crate) decoder: Decoder,
    /// A page that was read and has not arrived yet. `Some(None)` if the read failed.
    pub(crate) page: Option<Option<Page>>,
    /// The connection waits for a wake-up.
    pub(crate) waits: bool,
    /// The response announced a gap. The first page has its end.
    pub(crate) gap_announced: bool,
    /// Numbers up to this one may be missing.
    pub(crate) known_gap: Option<Seq>,
}

impl Client {
    /// Receives a chunk and compares it with everything that was ever stored. `numbers` has the numbers of messages
    /// without ids, if these numbers are not reused.
    pub(crate) fn receive(&mut self, chunk: &[u8], stored: &BTreeMap<u64, Vec<u8>>, numbers: &HashMap<u64, u64>) {
        let connection = self.connection.as_mut().expect("the client is connected");
        let mut blocks = Vec::new();
        let fed = connection.decoder.feed(chunk, |block| blocks.push(block));
        fed.expect("no block exceeds the decoder's limit");
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
                assert!(Seq(seq) >= before, "the cursor moved back to {seq}");
                assert!(
                    Seq(seq) == before || Some(Seq(seq)) <= connection.known_gap,
                    "the cursor jumped from {before:?} to {seq}"
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
                "event {seq} was sent but not stored with this payload"
            );
            let before = self.cursor.unwrap_or(Seq::PRIMING);
            assert!(
                Seq(seq) > before,
                "event {seq} arrived after {before:?}: repeated or out of order"
            );
            let is_known = |missing| Some(Seq(missing)) <= connection.known_gap || self.seen_numbers.contains(&missing);
            assert!(
                (before.0 + 1..seq).all(is_known),
                "event {seq} arrived after {before:?}: an unannounced gap"
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
