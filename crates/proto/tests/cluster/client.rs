//! Clients. Each has one call at a time and resumes it on any node until it ends. The first client also has a GET.

use rethread_proto::Ordinal;
use rethread_proto::sse::Decoder;
use std::collections::BTreeSet;

const MAX_BLOCK_BYTES: usize = 1 << 20;

/// A request of a client, unique in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ConnectionNumber(pub(crate) u64);

/// A message from a node to a client.
#[derive(Debug)]
pub(crate) enum ToClient {
    /// The JSON answer of a call.
    Json,
    /// An error on the id of a call.
    Error,
    /// A status for a request that was not served.
    Refused,
    /// The session does not exist.
    NotFound,
    /// The id cannot be resumed.
    Gone,
    /// Bytes of a stream.
    Chunk(Vec<u8>),
    /// The connection ends.
    End,
}

/// The reason of a request.
#[derive(Debug)]
pub(crate) enum Purpose {
    Call(u64),
    Push,
    Answer(Box<str>),
    /// A request whose response is only a status.
    Other,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) number: ConnectionNumber,
    pub(crate) node: usize,
    pub(crate) purpose: Purpose,
    decoder: Decoder,
    /// The last event that the client has seen.
    pub(crate) cursor: Option<(Ordinal, u64)>,
}

/// A client and the state of its call and its GET.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) requests: Vec<Request>,
    /// A call whose connection broke, and the position in its stream.
    pub(crate) broken_call: Option<(u64, Ordinal, u64)>,
    /// The position in the stream of the GET.
    pub(crate) push_cursor: Option<(Ordinal, u64)>,
    /// Questions to answer.
    pub(crate) questions: Vec<Box<str>>,
    /// Received push messages.
    pub(crate) got: BTreeSet<u64>,
    /// Streams with at least one received id.
    pub(crate) known_streams: BTreeSet<Ordinal>,
    pub(crate) finished_calls: u64,
}

impl Client {
    pub(crate) fn begin(
        &mut self,
        number: ConnectionNumber,
        node: usize,
        purpose: Purpose,
        cursor: Option<(Ordinal, u64)>,
    ) {
        self.requests.push(Request {
            number,
            node,
            purpose,
            decoder: Decoder::new(MAX_BLOCK_BYTES),
            cursor,
        });
    }

    pub(crate) fn has_call(&self) -> bool {
        self.broken_call.is_some()
            || self
                .requests
                .iter()
                .any(|request| matches!(request.purpose, Purpose::Call(_)))
    }

    pub(crate) fn has_get(&self) -> bool {
        self.requests
            .iter()
            .any(|request| matches!(request.purpose, Purpose::Push))
    }

    /// Handles a message from a node. Ignored if the client has closed the connection.
    pub(crate) fn receive(&mut self, number: ConnectionNumber, sent: ToClient) {
        let Some(at) = self.requests.iter().position(|request| request.number == number) else {
            return;
        };
        if let ToClient::Chunk(chunk) = sent {
            return self.read(at, &chunk);
        }
        let request = self.requests.swap_remove(at);
        match (request.purpose, sent) {
            // Without an id the client cannot resume, and does not repeat the call.
            (Purpose::Call(call), ToClient::End | ToClient::Refused) => {
                let broken = request.cursor.map(|(ordinal, seq)| (call, ordinal, seq));
                self.broken_call = broken;
                self.finished_calls += u64::from(broken.is_none());
            }
            (Purpose::Call(_), _) => self.finished_calls += 1,
            (Purpose::Push, ToClient::NotFound | ToClient::Gone) => self.push_cursor = None,
            (Purpose::Push, _) => self.push_cursor = request.cursor.or(self.push_cursor),
            (Purpose::Answer(id), ToClient::Refused | ToClient::End) => self.questions.push(id),
            (Purpose::Answer(_) | Purpose::Other, _) => {}
        }
    }

    fn read(&mut self, at: usize, chunk: &[u8]) {
        let mut blocks = Vec::new();
        let request = &mut self.requests[at];
        let fed = request.decoder.feed(chunk, |block| blocks.push(block));
        fed.expect("no block exceeds the decoder's limit");
        let mut is_answered = false;
        for block in blocks {
            let data = block.data.as_deref().unwrap_or_default();
            if let Some(id) = &block.id {
                let (ordinal, seq) = id.split_once('-').expect("an event id");
                let position: (u64, u64) = (ordinal.parse().expect("a number"), seq.parse().expect("a number"));
                if let Some((Ordinal(ordinal), before)) = request.cursor {
                    let again = data.is_empty() && position.1 == before;
                    assert!(
                        ordinal != position.0 || position.1 > before || again,
                        "event {id} arrived after {before}: repeated or out of order"
                    );
                }
                request.cursor = Some((Ordinal(position.0), position.1));
                self.known_streams.insert(Ordinal(position.0));
            }
            if let Some(question) = data.strip_prefix("{\"q\":\"").and_then(|rest| rest.split('"').next()) {
                self.questions.push(question.into());
            }
            if let Some(message) = number_in(data, "{\"m\":") {
                self.got.insert(message);
            }
            is_answered |= data.starts_with("{\"a\":") || data.starts_with("{\"e\":");
        }
        if is_answered && matches!(self.requests[at].purpose, Purpose::Call(_)) {
            self.requests.swap_remove(at);
            self.finished_calls += 1;
        }
    }
}

/// The number after a prefix.
pub(crate) fn number_in(data: &str, prefix: &str) -> Option<u64> {
    let rest = data.strip_prefix(prefix)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
