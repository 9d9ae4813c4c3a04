//! Every limit, its default, and the consequence of reaching it (D13).

use rethread_proto::auth::Rate;
use rethread_proto::stream::{Retention, StreamLimits};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How late a touch may reach the store. A session whose touch is later expires in the store.
const TOUCH_MARGIN: Duration = Duration::from_secs(3);

/// The limits of everything that can grow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes in a request body. Beyond: 413.
    pub body_bytes: usize,
    /// Bytes in all headers together. Beyond: 431.
    pub header_bytes: usize,
    /// Number of headers. Beyond: 431.
    pub headers: usize,
    /// Nesting depth of JSON. Beyond: 400.
    pub json_depth: usize,
    /// Messages in a batch (2025-03-26). Beyond: 400.
    pub batch: usize,
    /// Bytes of a request's `id`, and of its `progressToken`, as JSON text. Beyond: 400.
    pub id_bytes: usize,
    /// Bytes of the params of `initialize`, which the session keeps. Beyond: -32602.
    pub initialize_bytes: usize,
    /// Sessions in total. Beyond: `initialize` gets 503.
    pub sessions: usize,
    /// Sessions of one principal, except the anonymous one. Beyond: `initialize` gets 429.
    pub sessions_per_principal: usize,
    /// Running calls in total. Beyond: 503.
    pub calls: usize,
    /// Running calls of one principal, except the anonymous one. A call that waits for input does not count. Beyond: 429.
    pub calls_per_principal: usize,
    /// Messages of one principal, except the anonymous one. Beyond: 429.
    pub rate: Option<Rate>,
    /// Running calls in one session. Beyond: 429.
    pub calls_per_session: usize,
    /// Open connections that read streams. Beyond: a GET gets 503, a call is still served.
    pub connections: usize,
    /// GET streams open in one session. Beyond: the oldest is closed and can be resumed.
    pub push_streams_per_session: usize,
    /// GET streams of one session without a reader, kept for a resume. Beyond: the oldest is forgotten.
    pub abandoned_push_streams_per_session: usize,
    /// Open questions to the client in one session. Beyond: the question fails.
    pub questions_per_session: usize,
    /// Messages waiting for a GET in one session, in memory and in the store. Beyond: the oldest is dropped, and counted.
    pub waiting_messages_per_session: usize,
    /// Bytes waiting for a GET in one session. Beyond: the oldest is dropped, and counted.
    pub waiting_bytes_per_session: usize,
    /// Subscribed resources in one session. Beyond: `resources/subscribe` fails.
    pub subscriptions_per_session: usize,
    /// Bytes of all subscribed URIs of one session. Beyond: `resources/subscribe` fails.
    pub subscription_bytes_per_session: usize,
    /// Open `subscriptions/listen` streams in total. Beyond: 503.
    pub subscriptions: usize,
    /// Open `subscriptions/listen` streams of one principal, except the anonymous one. Beyond: 429.
    pub subscriptions_per_principal: usize,
    /// Resources in one `subscriptions/listen`. Beyond: -32602.
    pub uris_per_subscription: usize,
    /// Bytes of all URIs in one `subscriptions/listen`. Beyond: -32602.
    pub uri_bytes_per_subscription: usize,
    /// Calls that wait for input in total (2026-07-28). Beyond: the call fails.
    pub parks: usize,
    /// Calls of one principal that wait for input, except the anonymous one. Beyond: the call fails.
    pub parks_per_principal: usize,
    /// Bytes of all calls that wait for input: their arguments, the messages they emit meanwhile, their answers. Beyond: the
    /// call that asks fails. One call may always wait.
    pub parked_bytes: usize,
    /// Input rounds of one call (MRTR-08). Beyond: the call fails.
    pub input_rounds: u32,
    /// Events in the live buffer of one connection. Beyond: the connection reads them from the store later.
    pub window_events: usize,
    /// Bytes in the live buffer of one connection. Beyond: the connection reads them from the store later.
    pub window_bytes: usize,
    /// Lines that wait to be written to one stdio client. Beyond: handlers that emit wait.
    pub queued_lines: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes: 4 << 20,
            header_bytes: 32 << 10,
            headers: 100,
            json_depth: 64,
            batch: 100,
            id_bytes: 1 << 10,
            initialize_bytes: 64 << 10,
            sessions: 16_384,
            sessions_per_principal: 1_024,
            calls: 16_384,
            calls_per_principal: 256,
            rate: None,
            calls_per_session: 256,
            connections: 32_768,
            push_streams_per_session: 16,
            abandoned_push_streams_per_session: 16,
            questions_per_session: 64,
            waiting_messages_per_session: 1_024,
            waiting_bytes_per_session: 1 << 20,
            subscriptions_per_session: 1_024,
            subscription_bytes_per_session: 256 << 10,
            subscriptions: 32_768,
            subscriptions_per_principal: 256,
            uris_per_subscription: 256,
            uri_bytes_per_subscription: 64 << 10,
            parks: 4_096,
            parks_per_principal: 256,
            parked_bytes: 64 << 20,
            input_rounds: 16,
            window_events: 1_024,
            window_bytes: 1 << 20,
            queued_lines: 64,
        }
    }
}

impl Limits {
    /// The same limits after a change.
    ///
    /// ```
    /// # use rethread::Limits;
    /// let limits = Limits::default().with(|limits| limits.sessions = 64);
    /// ```
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The bounds of one stream with a store of this retention.
    pub(crate) fn stream(&self, retention: Retention) -> StreamLimits {
        let mut limits = StreamLimits::default();
        limits.live_events = self.window_events;
        limits.live_bytes = self.window_bytes;
        limits.retained_events = retention.events;
        limits.retained_bytes = retention.bytes;
        limits
    }
}

impl Timing {
    /// The same times after a change.
    ///
    /// ```
    /// # use rethread::Timing;
    /// # use std::time::Duration;
    /// let timing = Timing::default().with(|timing| timing.session_idle = Duration::from_secs(60));
    /// ```
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// How often the store records that a session is in use (D9).
    pub(crate) fn touch_every(&self) -> Duration {
        self.session_idle / 10
    }

    /// After this time without a touch the store may forget a session: its idle time, and the delay of a touch.
    pub(crate) fn forgotten_after(&self) -> Duration {
        self.session_idle + self.touch_every() + TOUCH_MARGIN
    }
}

/// The timeouts and intervals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Timing {
    /// A silent stream gets a comment after this time (SSE-04).
    pub keep_alive: Duration,
    /// An unused session expires after this time (SES-09). Open streams and running calls are use.
    pub session_idle: Duration,
    /// Time for a request body to arrive. Beyond: 400.
    pub body: Duration,
    /// A writer waits this long for a reader that is a whole retained window behind. Beyond: the reader is disconnected. A
    /// GET that takes no messages for this long loses its turn to another one.
    pub stall: Duration,
    /// The same wait of a call for its own reader while other calls of its session run. All of them may depend on one source,
    /// such as the pipe of a child process, which is not read meanwhile. At most [`stall`](Self::stall).
    pub shared_stall: Duration,
    /// A question to the client fails after this time (S2C-06).
    pub question: Duration,
    /// Questions of one stateless call that are asked within this time go to the client together. A call that asks in several
    /// tasks waits this long after its first question.
    pub collect_questions: Duration,
    /// A cancelled handler is dropped after this time.
    pub cancel_grace: Duration,
    /// The reconnection delay that clients get in `retry:` (SSE-07).
    pub retry: Duration,
    /// A shutdown spreads reconnections over this time, so that clients do not return all at once.
    pub retry_spread: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            keep_alive: Duration::from_secs(15),
            session_idle: Duration::from_secs(30 * 60),
            body: Duration::from_secs(30),
            stall: Duration::from_secs(10),
            shared_stall: Duration::from_millis(250),
            question: Duration::from_secs(600),
            collect_questions: Duration::from_millis(5),
            cancel_grace: Duration::from_secs(5),
            retry: Duration::from_secs(1),
            retry_spread: Duration::from_secs(2),
        }
    }
}
