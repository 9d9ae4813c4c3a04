//! One POST and its answer: when silence becomes a stream, and when an answer is a plain JSON object (design D5).
//!
//! ```text
//!            reply                        emit, close, or silence too long
//!   Held ----------------> Done (JSON)    Held ------------------------------> Streaming --last reply--> Done
//!     |
//!     +-- client leaves --> Unreachable: the handler goes on, nothing is stored, nobody can ever ask for it
//! ```

use crate::version::Version;
use std::time::Duration;

/// When a silent call becomes a stream (design D5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SseUpgradeDelay {
    /// For a version whose streams are primed, with a store: the sooner a call has an id, the sooner it is safe.
    pub resumable: Duration,
    /// For everything else: only to keep proxies from giving up on a silent connection (HTTP-08, T-37).
    pub fallback: Duration,
}

impl Default for SseUpgradeDelay {
    fn default() -> Self {
        SseUpgradeDelay {
            resumable: Duration::from_millis(100),
            fallback: Duration::from_secs(10),
        }
    }
}

impl SseUpgradeDelay {
    /// The delay of resumable calls, and the delay of all other calls.
    pub const fn new(resumable: Duration, fallback: Duration) -> Self {
        SseUpgradeDelay { resumable, fallback }
    }

    /// How long a call on `version` may be silent before its answer becomes a stream.
    pub fn delay(&self, version: Version, resumable: bool) -> Duration {
        if resumable && version.sends_priming_event() {
            self.resumable
        } else {
            self.fallback
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Streaming,
    Unreachable,
    Done,
}

/// The answer to one POST.
#[derive(Debug)]
pub struct Exchange {
    state: State,
    unanswered: usize,
}

/// What to do with a message that a call emits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    /// Open the stream, then append the message.
    Start,
    /// Append the message.
    Append,
    /// Nobody can ever read it: drop it.
    Discard,
    /// The exchange is over: the emitter is late (PRG-01).
    TooLate,
}

/// What to do with the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Answer with this one JSON object; no store is touched.
    Json,
    /// Append it to the stream; `seals` if it was the last one.
    Append {
        /// Whether the stream ends with it.
        seals: bool,
    },
    /// Nobody can ever read it: drop it.
    Discard,
}

impl Exchange {
    /// The exchange of a single request: the form of its answer is open.
    pub fn single() -> Self {
        Exchange {
            state: State::Held,
            unanswered: 1,
        }
    }

    /// The exchange of a batch: a stream from the start (HTTP-09, T-21).
    pub fn batch(requests: usize) -> Self {
        Exchange {
            state: State::Streaming,
            unanswered: requests,
        }
    }

    /// A call speaks.
    pub fn emit(&mut self) -> Emit {
        match self.state {
            State::Held => {
                self.state = State::Streaming;
                Emit::Start
            }
            State::Streaming => Emit::Append,
            State::Unreachable => Emit::Discard,
            State::Done => Emit::TooLate,
        }
    }

    /// The call has been silent too long, or asks for its stream. True if the stream must be opened now.
    pub fn upgrade(&mut self) -> bool {
        let held = self.state == State::Held;
        if held {
            self.state = State::Streaming;
        }
        held
    }

    /// A call ends, with an answer or (cancelled) without one.
    pub fn end(&mut self) -> End {
        self.unanswered = self.unanswered.saturating_sub(1);
        match self.state {
            State::Held => {
                self.state = State::Done;
                End::Json
            }
            State::Streaming => {
                let seals = self.unanswered == 0;
                if seals {
                    self.state = State::Done;
                }
                End::Append { seals }
            }
            State::Unreachable | State::Done => End::Discard,
        }
    }

    /// The client hung up. True if no cursor can ever reach this exchange: its questions must fail now.
    pub fn client_left(&mut self) -> bool {
        if self.state == State::Held {
            self.state = State::Unreachable;
        }
        self.state == State::Unreachable
    }

    /// Whether the form of the answer is still open.
    pub fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// Whether the client is gone and can never come back for this.
    pub fn is_unreachable(&self) -> bool {
        self.state == State::Unreachable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_07_an_answer_without_emissions_is_json() {
        let mut exchange = Exchange::single();
        assert_eq!(exchange.end(), End::Json);
        assert_eq!(exchange.emit(), Emit::TooLate);
    }

    #[test]
    fn http_07_the_first_emission_starts_the_stream_and_the_answer_ends_it() {
        let mut exchange = Exchange::single();
        assert_eq!(exchange.emit(), Emit::Start);
        assert_eq!(exchange.emit(), Emit::Append);
        assert_eq!(exchange.end(), End::Append { seals: true });
        assert_eq!(exchange.emit(), Emit::TooLate, "SSE-10: nothing follows the response");
    }

    #[test]
    fn d5_silence_upgrades_once() {
        let mut exchange = Exchange::single();
        assert!(exchange.upgrade());
        assert!(!exchange.upgrade());
        assert_eq!(exchange.emit(), Emit::Append);
    }

    #[test]
    fn d5_a_client_that_leaves_before_any_id_makes_the_call_unreachable() {
        let mut exchange = Exchange::single();
        assert!(exchange.client_left());
        assert_eq!(exchange.emit(), Emit::Discard);
        assert!(!exchange.upgrade());
        assert_eq!(exchange.end(), End::Discard);
        let mut streaming = Exchange::single();
        streaming.emit();
        assert!(
            !streaming.client_left(),
            "CAN-02: an id is out, the client may come back"
        );
        assert_eq!(streaming.emit(), Emit::Append);
    }

    #[test]
    fn http_09_a_batch_ends_with_its_last_answer() {
        let mut exchange = Exchange::batch(3);
        assert_eq!(exchange.end(), End::Append { seals: false });
        assert_eq!(exchange.emit(), Emit::Append);
        assert_eq!(exchange.end(), End::Append { seals: false });
        assert_eq!(exchange.end(), End::Append { seals: true });
    }

    #[test]
    fn d5_upgrade_delays() {
        let after = SseUpgradeDelay::default();
        for version in Version::ALL {
            let soon = version == Version::V2025_11_25;
            assert_eq!(after.delay(version, true).as_millis(), if soon { 100 } else { 10_000 });
            assert_eq!(after.delay(version, false).as_secs(), 10, "no store, nothing to gain");
        }
    }
}
