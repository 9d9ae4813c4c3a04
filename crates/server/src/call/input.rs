//! The questions of a stateless call, and what the call keeps for its retry while it is parked.
//!
//! Progress is kept as members without a token, and log messages are chosen by level: both depend on the request that comes.

use super::request_meta::RequestMeta;
use crate::call::reply::Reply;
use bytes::Bytes;
use rethread_proto::LogLevel;
use rethread_proto::jsonrpc::{Progress, Report, RpcError};
use rethread_proto::mrtr::InputResponses;
use rethread_proto::sse::EncodeMessage;
use serde::Deserialize;
use std::borrow::Cow;
use tokio::sync::oneshot;

/// Messages that a parked call keeps. Beyond: messages are dropped and counted.
const MAX_KEPT_MESSAGES: usize = 64;
/// Bytes of messages that a parked call keeps, and bytes of its progress. Beyond: the same.
const MAX_KEPT_BYTES: usize = 256 << 10;

/// The input side of a stateless call.
pub(crate) struct Input {
    questions: Vec<OpenQuestion>,
    asked: u32,
    /// How often the call was parked.
    pub(crate) rounds: u32,
    /// Whether the handler counts as a running call.
    pub(crate) holds_permit: bool,
    parked: Option<Box<Parked>>,
}

/// A question without an answer.
pub(crate) struct OpenQuestion {
    question: Question,
    waiter: oneshot::Sender<Bytes>,
}

/// A question to the client.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) key: String,
    pub(crate) method: &'static str,
    pub(crate) params: Bytes,
}

#[derive(Default)]
struct Parked {
    id: u128,
    messages: Vec<Bytes>,
    bytes: usize,
    progress: Option<Box<[u8]>>,
    /// The size of the largest report, which the table of parked calls has counted.
    progress_bytes: usize,
    reply: Option<Result<Reply, RpcError>>,
    dropped: usize,
}

/// The kept messages and reply, selected for the retry.
#[derive(Default)]
pub(crate) struct KeptForRetry {
    pub(crate) messages: Vec<Bytes>,
    /// It is not encoded: it gets the id of the retry.
    pub(crate) reply: Option<Result<Reply, RpcError>>,
    /// How many messages exceeded the bounds.
    pub(crate) dropped: usize,
}

/// The remains of a cancelled call. Dropping them wakes the handlers that wait for an answer.
pub(crate) struct Abandoned {
    pub(crate) parked_as: Option<u128>,
    _questions: Vec<OpenQuestion>,
    _kept: Option<Box<Parked>>,
}

impl Input {
    pub(crate) fn new() -> Self {
        Input {
            questions: Vec::new(),
            asked: 0,
            rounds: 0,
            holds_permit: true,
            parked: None,
        }
    }

    /// How many questions a handler waits for. Abandoned questions are removed.
    pub(crate) fn open_questions(&mut self) -> usize {
        self.questions.retain(|open| !open.waiter.is_closed());
        self.questions.len()
    }

    /// Opens a question. The answer is sent to the returned receiver.
    pub(crate) fn ask(&mut self, method: &'static str, params: Bytes) -> oneshot::Receiver<Bytes> {
        self.asked += 1;
        let (waiter, answer) = oneshot::channel();
        let key = format!("q{}", self.asked);
        let question = Question { key, method, params };
        self.questions.push(OpenQuestion { question, waiter });
        answer
    }

    /// The call is parked under the name `id`. Returns its open questions.
    pub(crate) fn park(&mut self, id: u128) -> Vec<Question> {
        self.rounds += 1;
        self.parked = Some(Box::new(Parked {
            id,
            ..Parked::default()
        }));
        self.questions.iter().map(|open| open.question.clone()).collect()
    }

    /// The name under which the call is parked.
    pub(crate) fn parked_as(&self) -> Option<u128> {
        self.parked.as_ref().map(|parked| parked.id)
    }

    /// Keeps a message for the retry. Returns how many bytes that takes.
    pub(crate) fn keep_message(&mut self, message: Bytes) -> usize {
        let Some(parked) = &mut self.parked else { return 0 };
        let bytes = message.len();
        if parked.messages.len() >= MAX_KEPT_MESSAGES || parked.bytes + bytes > MAX_KEPT_BYTES {
            parked.dropped += 1;
            return 0;
        }
        parked.bytes += bytes;
        parked.messages.push(message);
        bytes
    }

    /// Keeps the latest progress. Returns how many bytes more that takes than what was counted before: the largest report
    /// counts.
    pub(crate) fn keep_progress(&mut self, report: Report<'_>) -> usize {
        let Some(parked) = &mut self.parked else { return 0 };
        if report.size() > MAX_KEPT_BYTES {
            parked.dropped += 1;
            return 0;
        }
        let mut members = Vec::with_capacity(report.size());
        report.write(&mut members);
        let more = members.len().saturating_sub(parked.progress_bytes);
        parked.progress_bytes += more;
        parked.progress = Some(members.into());
        more
    }

    /// Keeps the reply. Returns how many bytes that takes.
    pub(crate) fn keep_reply(&mut self, reply: Result<Reply, RpcError>) -> usize {
        let Some(parked) = &mut self.parked else { return 0 };
        let bytes = reply.as_ref().map_or(0, Reply::size);
        parked.reply = Some(reply);
        bytes
    }

    /// Bytes of messages that wait for the retry.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.parked.as_ref().map_or(0, |parked| parked.bytes)
    }

    /// The retry `request` has come. Returns what it gets: the log messages that it wants, then progress, then the reply.
    pub(crate) fn take_kept(&mut self, request: &RequestMeta) -> KeptForRetry {
        let Some(parked) = self.parked.take() else {
            return KeptForRetry::default();
        };
        let mut messages = parked.messages;
        messages.retain(|message| is_wanted(message, request.client.log_level));
        if let (Some(token), Some(members)) = (&request.progress_token, &parked.progress) {
            let report = Report::Members(members);
            messages.push(Progress { token, report }.draft().into_payload());
        }
        KeptForRetry {
            messages,
            reply: parked.reply,
            dropped: parked.dropped,
        }
    }

    /// The retry has brought answers. Returns them with those who wait; other questions are asked again (MRTR-06).
    pub(crate) fn answer(&mut self, responses: &InputResponses) -> Vec<(oneshot::Sender<Bytes>, Bytes)> {
        let mut answered = Vec::new();
        for open in std::mem::take(&mut self.questions) {
            match responses.get(&open.question.key) {
                Some(response) => answered.push((open.waiter, response.clone())),
                None => self.questions.push(open),
            }
        }
        answered
    }

    /// The call is cancelled.
    pub(crate) fn abandon(&mut self) -> Abandoned {
        Abandoned {
            parked_as: self.parked_as(),
            _questions: std::mem::take(&mut self.questions),
            _kept: self.parked.take(),
        }
    }
}

/// Whether a request with this log level wants a message: any but log messages below it (LOG-02).
fn is_wanted(message: &[u8], level: Option<LogLevel>) -> bool {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
        params: Option<Params>,
    }
    #[derive(Deserialize)]
    struct Params {
        level: Option<serde_json::Value>,
    }
    match serde_json::from_slice::<Message<'_>>(message) {
        Ok(Message { method, params }) if method == "notifications/message" => {
            let own = params.and_then(|params| LogLevel::parse(params.level?.as_str()?));
            level.is_some_and(|least| own.is_none_or(|own| own >= least))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::request_meta::ClientMeta;
    use rethread_proto::ProgressToken;
    use rethread_proto::stream::Framing;

    /// LOG-02: a request without a level gets no log messages, and other messages go through.
    #[test]
    fn log_02_level_of_the_request_chooses_among_kept_messages() {
        let log = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
        let strange = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"loud"}}"#;
        let other = br#"{"jsonrpc":"2.0","method":"notifications/anything","params":{"level":7}}"#;
        for (message, level, wanted) in [
            (&log[..], None, false),
            (log, Some(LogLevel::Error), false),
            (log, Some(LogLevel::Info), true),
            (strange, Some(LogLevel::Debug), true),
            (strange, None, false),
            (other, None, true),
        ] {
            assert_eq!(is_wanted(message, level), wanted, "{level:?}");
        }
    }

    /// D13: a report that is too large is dropped and counted; the one before it stays.
    #[test]
    fn d13_kept_progress_is_bounded() {
        let mut input = Input::new();
        input.park(1);
        let small = br#""progress":1"#;
        assert_eq!(input.keep_progress(Report::Members(small)), small.len());
        assert_eq!(input.keep_progress(Report::Members(&vec![b'x'; MAX_KEPT_BYTES + 1])), 0);
        let token = ProgressToken::from_json("7");
        let kept = input.take_kept(&RequestMeta::new(
            1.into(),
            token,
            Framing::Numbered,
            ClientMeta::default(),
        ));
        assert!(kept.messages[0].ends_with(br#""params":{"progressToken":7,"progress":1}}"#));
        assert_eq!((kept.messages.len(), kept.dropped), (1, 1));
    }

    /// D13: messages are bounded in number and in bytes.
    #[test]
    fn d13_kept_messages_are_bounded() {
        let mut input = Input::new();
        input.park(1);
        let kept = (0..100).filter(|_| input.keep_message(Bytes::from_static(b"{}")) > 0);
        assert_eq!(kept.count(), MAX_KEPT_MESSAGES);
        let mut input = Input::new();
        input.park(1);
        let large = Bytes::from(vec![b'x'; MAX_KEPT_BYTES / 2]);
        let kept = (0..5).filter(|_| input.keep_message(large.clone()) > 0);
        assert_eq!((kept.count(), input.kept_bytes()), (2, MAX_KEPT_BYTES));
    }
}
