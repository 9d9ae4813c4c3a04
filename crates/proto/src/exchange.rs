//! The response to one request, for both eras: which form it takes, and when it ends (D5, D7, D8).
//!
//! ```text
//!          reply                           emit, close, or silence for too long
//!  Held ----------> Done (JSON)    Held ----------------------------------------> Streaming --last reply--> Done
//!   |  |                                                                              |
//!   |  +--- park (the questions are the JSON body) ---> WaitingForInput <--- park ----+
//!   |                                                        |
//!   |                                                        +-- retry --> Held or Streaming
//!   +-- client gone --> Unreachable or Done
//! ```
//!
//! [`Response`] decides and holds no bytes. The calls of a batch share one. The differences between kinds of responses
//! are data: [`ResponseRules`].

#[cfg(test)]
mod model;
mod upgrade_delay;

pub use upgrade_delay::SseUpgradeDelay;

use crate::version::Version;

/// How the response to a request of one kind behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResponseRules {
    /// The client can fetch the response after a lost connection (CAN-02). Otherwise a lost connection cancels the call
    /// (CAN-03).
    pub survives_disconnect: bool,
    /// A question ends the response, and the answer comes with a retry (MRTR-01). Otherwise it goes out on the stream.
    pub parks_questions: bool,
    /// The response is a stream from the start.
    pub starts_streaming: bool,
    /// The stream ends with the last reply.
    pub ends_with_last_reply: bool,
}

impl ResponseRules {
    /// The rules for a single request of `version`.
    pub const fn request(version: Version) -> Self {
        ResponseRules {
            survives_disconnect: !version.disconnect_cancels(),
            parks_questions: !version.has_sessions(),
            starts_streaming: false,
            ends_with_last_reply: true,
        }
    }

    /// The rules for a batch: a stream from the start (HTTP-09, T-21).
    pub const fn batch(version: Version) -> Self {
        ResponseRules {
            starts_streaming: true,
            ..Self::request(version)
        }
    }

    /// The rules for a request in a session that has one stream for everything (LEG-02): the stream outlives the call.
    pub const fn connection_bound() -> Self {
        ResponseRules {
            survives_disconnect: false,
            parks_questions: false,
            starts_streaming: true,
            ends_with_last_reply: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Streaming,
    WaitingForInput { replied: bool },
    Unreachable,
    Done,
}

/// The response to one request or batch.
#[derive(Debug)]
pub struct Response {
    rules: ResponseRules,
    state: State,
    open_replies: usize,
}

/// The decision on a message of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    /// Open the stream, then deliver the message.
    Open,
    /// Deliver the message.
    Deliver,
    /// Keep the message for the retry.
    Keep,
    /// No client can ever read it: drop it.
    Discard,
    /// The response has ended: the message is late (PRG-01).
    TooLate,
}

/// The decision on the reply of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is the JSON body of the response. No store is touched.
    Json,
    /// Deliver it on the stream.
    Deliver {
        /// Whether the stream ends with it.
        seals: bool,
    },
    /// Keep it for the retry, not encoded: it gets the id of the retry.
    Keep,
    /// No client can ever read it: drop it.
    Discard,
}

/// The state in which a retry finds the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Open a stream: there are kept messages to deliver.
    pub opens: bool,
    /// A reply was kept: apply [`Response::reply`] again.
    pub replied: bool,
}

/// The consequence of a lost client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientGone {
    /// Nothing: the client may resume, or the response has ended.
    Continue,
    /// The calls continue, but their questions fail, because no client can answer them.
    FailQuestions,
    /// Cancel the calls (CAN-03).
    Cancel,
}

/// The consequence of a cancelled call, which gets no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// End the response, which has no form yet.
    Empty,
    /// End the stream without a message.
    Seal,
    /// Remove the call from the table of parked calls.
    Unpark,
    /// Nothing: other calls use the stream, or the response has ended.
    Nothing,
}

impl Response {
    /// The response to `requests` requests.
    pub fn new(rules: ResponseRules, requests: usize) -> Self {
        Response {
            rules,
            state: if rules.starts_streaming {
                State::Streaming
            } else {
                State::Held
            },
            open_replies: requests,
        }
    }

    /// The rules that it follows.
    pub fn rules(&self) -> &ResponseRules {
        &self.rules
    }

    /// A call emits a message.
    pub fn emit(&mut self) -> Emit {
        match self.state {
            State::Held => {
                self.state = State::Streaming;
                Emit::Open
            }
            State::Streaming => Emit::Deliver,
            State::WaitingForInput { replied: false } => Emit::Keep,
            State::Unreachable => Emit::Discard,
            State::WaitingForInput { replied: true } | State::Done => Emit::TooLate,
        }
    }

    /// The call was silent for too long, or needs its stream. True if the stream must be opened now.
    pub fn upgrade(&mut self) -> bool {
        let is_held = self.state == State::Held;
        if is_held {
            self.state = State::Streaming;
        }
        is_held
    }

    /// A call replies.
    pub fn reply(&mut self) -> Reply {
        match self.state {
            State::Held => {
                self.state = State::Done;
                Reply::Json
            }
            State::Streaming => Reply::Deliver {
                seals: self.ends_stream() && self.rules.ends_with_last_reply,
            },
            State::WaitingForInput { .. } => {
                self.state = State::WaitingForInput { replied: true };
                Reply::Keep
            }
            State::Unreachable => {
                self.state = State::Done;
                Reply::Discard
            }
            State::Done => Reply::Discard,
        }
    }

    /// The questions of a call end the response: they are its JSON body, or the last message of its stream (T-27). A
    /// retry continues it. False if questions do not park, or the response has ended.
    pub fn park(&mut self) -> bool {
        let parks = self.rules.parks_questions && matches!(self.state, State::Held | State::Streaming);
        if parks {
            self.state = State::WaitingForInput { replied: false };
        }
        parks
    }

    /// A retry arrived. `None` if the call does not wait for input (any more).
    pub fn retry(&mut self, has_kept_messages: bool) -> Option<Retry> {
        let State::WaitingForInput { replied } = self.state else {
            return None;
        };
        self.state = if has_kept_messages {
            State::Streaming
        } else {
            State::Held
        };
        Some(Retry {
            opens: has_kept_messages,
            replied,
        })
    }

    /// The connection that waits for the response, or reads it, is gone.
    pub fn client_gone(&mut self) -> ClientGone {
        match self.state {
            State::Held | State::Streaming if !self.rules.survives_disconnect => ClientGone::Cancel,
            State::Held => {
                self.state = State::Unreachable;
                ClientGone::FailQuestions
            }
            State::Unreachable => ClientGone::FailQuestions,
            State::Streaming | State::WaitingForInput { .. } | State::Done => ClientGone::Continue,
        }
    }

    /// A call is cancelled.
    pub fn cancel(&mut self) -> Cancelled {
        match self.state {
            State::Held => {
                self.state = State::Done;
                Cancelled::Empty
            }
            State::Streaming => {
                let seals = self.ends_stream() && self.rules.ends_with_last_reply;
                if seals { Cancelled::Seal } else { Cancelled::Nothing }
            }
            State::Done => Cancelled::Nothing,
            State::WaitingForInput { .. } => {
                self.state = State::Done;
                Cancelled::Unpark
            }
            State::Unreachable => {
                self.state = State::Done;
                Cancelled::Nothing
            }
        }
    }

    /// Counts a reply of a streaming response. True if it was the last one.
    fn ends_stream(&mut self) -> bool {
        self.open_replies = self.open_replies.saturating_sub(1);
        let is_last = self.open_replies == 0;
        if is_last {
            self.state = State::Done;
        }
        is_last
    }

    /// Whether no client can read the response any more.
    pub fn is_unreachable(&self) -> bool {
        self.state == State::Unreachable
    }

    /// Whether the call waits for a retry.
    pub fn is_waiting_for_input(&self) -> bool {
        matches!(self.state, State::WaitingForInput { .. })
    }

    /// Whether every call has ended.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Response {
        Response::new(ResponseRules::request(Version::V2025_11_25), 1)
    }

    fn stateless() -> Response {
        Response::new(ResponseRules::request(Version::V2026_07_28), 1)
    }

    #[test]
    fn http_07_response_without_emissions_is_json() {
        for mut response in [session(), stateless()] {
            assert_eq!(response.reply(), Reply::Json);
            assert_eq!(response.emit(), Emit::TooLate);
        }
    }

    #[test]
    fn http_07_first_emission_opens_the_stream_and_the_reply_ends_it() {
        for mut response in [session(), stateless()] {
            assert_eq!(response.emit(), Emit::Open);
            assert_eq!(response.emit(), Emit::Deliver);
            assert_eq!(response.reply(), Reply::Deliver { seals: true });
            assert_eq!(response.emit(), Emit::TooLate, "SSE-10: nothing follows the response");
        }
    }

    #[test]
    fn d5_silence_upgrades_once() {
        let mut response = session();
        assert!(response.upgrade());
        assert!(!response.upgrade());
        assert_eq!(response.emit(), Emit::Deliver);
    }

    #[test]
    fn can_02_lost_client_without_an_id_makes_the_response_unreachable() {
        let mut response = session();
        assert_eq!(response.client_gone(), ClientGone::FailQuestions);
        assert!(response.is_unreachable());
        assert_eq!(response.emit(), Emit::Discard);
        assert!(!response.upgrade());
        assert_eq!(response.reply(), Reply::Discard);
        let mut streaming = session();
        streaming.emit();
        assert_eq!(
            streaming.client_gone(),
            ClientGone::Continue,
            "the client has an id to come back with"
        );
        assert_eq!(streaming.emit(), Emit::Deliver);
    }

    #[test]
    fn can_03_lost_client_cancels_a_stateless_call_unless_it_is_parked() {
        let mut held = stateless();
        assert_eq!(held.client_gone(), ClientGone::Cancel);
        assert_eq!(held.cancel(), Cancelled::Empty);
        let mut streaming = stateless();
        streaming.emit();
        assert_eq!(streaming.client_gone(), ClientGone::Cancel);
        assert_eq!(streaming.cancel(), Cancelled::Seal);
        let mut parked = stateless();
        parked.park();
        assert_eq!(parked.client_gone(), ClientGone::Continue);
        assert_eq!(parked.cancel(), Cancelled::Unpark);
        assert_eq!(parked.retry(false), None);
    }

    #[test]
    fn http_09_batch_ends_with_its_last_reply() {
        let mut response = Response::new(ResponseRules::batch(Version::V2025_03_26), 3);
        assert_eq!(response.reply(), Reply::Deliver { seals: false });
        assert_eq!(response.emit(), Emit::Deliver);
        assert_eq!(response.cancel(), Cancelled::Nothing, "CAN-01: no reply, and counted");
        assert_eq!(response.reply(), Reply::Deliver { seals: true });
    }

    #[test]
    fn leg_02_reply_does_not_end_the_stream_of_the_session() {
        let mut response = Response::new(ResponseRules::connection_bound(), 1);
        assert_eq!(response.emit(), Emit::Deliver);
        assert_eq!(response.reply(), Reply::Deliver { seals: false });
        assert_eq!(response.emit(), Emit::TooLate);
        let mut cancelled = Response::new(ResponseRules::connection_bound(), 1);
        assert_eq!(cancelled.cancel(), Cancelled::Nothing);
        assert!(!cancelled.park());
    }

    #[test]
    fn mrtr_01_questions_end_the_response_in_any_form() {
        assert!(stateless().park());
        let mut streaming = stateless();
        streaming.emit();
        assert!(streaming.park() && !streaming.park());
        assert!(!session().park(), "sessions ask on the stream");
    }

    #[test]
    fn mrtr_04_messages_and_the_reply_of_a_parked_call_wait_for_the_retry() {
        let mut response = stateless();
        response.park();
        assert_eq!(response.emit(), Emit::Keep);
        assert_eq!(response.reply(), Reply::Keep);
        assert_eq!(response.emit(), Emit::TooLate, "the call has replied");
        let retry = Retry {
            opens: true,
            replied: true,
        };
        assert_eq!(response.retry(true), Some(retry));
        assert_eq!(response.reply(), Reply::Deliver { seals: true });
        assert_eq!(response.retry(true), None, "MRTR-05: a retry is used once");
    }

    #[test]
    fn mrtr_04_retry_without_kept_messages_is_held() {
        let mut response = stateless();
        response.emit();
        response.park();
        let retry = Retry {
            opens: false,
            replied: false,
        };
        assert_eq!(response.retry(false), Some(retry));
        assert!(response.park(), "MRTR-06: it asks again");
    }
}
