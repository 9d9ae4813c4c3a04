//! The tasks that a handler takes over from the transport.

/// The options of a [`Handler`](crate::Handler) that passes requests on or adapts another library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// The handler passes requests on to another server.
    pub relays: bool,
    /// The handler gets the messages that the transport could handle alone.
    pub receives_all: bool,
    /// The handler answers `server/discover`.
    pub answers_discover: bool,
    /// The handler gets the head of the HTTP request.
    pub wants_request_head: bool,
    /// The handler keeps state of a session in its process, from `Handler::open` to `Handler::on_session_closed`.
    pub holds_session_state: bool,
}

impl Default for HandlerOptions {
    fn default() -> Self {
        HandlerOptions {
            relays: false,
            receives_all: false,
            answers_discover: false,
            wants_request_head: false,
            holds_session_state: true,
        }
    }
}

impl HandlerOptions {
    /// The options of a server: the transport handles every message that it can.
    pub fn new() -> Self {
        HandlerOptions::default()
    }

    /// The handler passes requests on to another server. It answers every request except `ping`, and gets every notification
    /// except cancellations. On 2026-07-28 it serves `subscriptions/listen`, and `requestState` and `inputResponses` stay in
    /// the params.
    ///
    /// If this handler asks through its [`Context`](crate::Context), the transport seals the state. The retry with that state
    /// resumes the parked call and is not passed on. A relay behind a relay cannot ask in this way, because the outer relay
    /// would open the seal as its own.
    #[must_use]
    pub fn relays(mut self) -> Self {
        self.relays = true;
        self
    }

    /// The handler keeps no state of a session in this process. Every node of a cluster may then run the calls of any
    /// session. Otherwise a session has an owner, and the other nodes forward its calls to that node.
    #[must_use]
    pub fn without_session_state(mut self) -> Self {
        self.holds_session_state = false;
        self
    }

    /// The handler also gets the messages that the transport could handle alone: `notifications/initialized`,
    /// `notifications/cancelled`, `logging/setLevel`, and `server/discover` (2026-07-28), which it then answers. The
    /// transport still updates its own state. The accepted log level applies to [`Context::log`](crate::Context::log).
    #[must_use]
    pub fn receives_all(mut self) -> Self {
        self.receives_all = true;
        self
    }

    /// The handler answers `server/discover` (2026-07-28): its answer depends on the client that asks.
    #[must_use]
    pub fn answers_discover(mut self) -> Self {
        self.answers_discover = true;
        self
    }

    /// The handler gets the whole head of the HTTP request with every call and notification: see
    /// [`Call::take_parts`](crate::Call::take_parts). It contains the request's extensions, which
    /// [`Context::extensions`](crate::Context::extensions) then lacks.
    #[must_use]
    pub fn wants_request_head(mut self) -> Self {
        self.wants_request_head = true;
        self
    }
}
