//! The tasks that a handler takes over from the transport.

/// The options of a [`Handler`](crate::Handler) that passes requests on or adapts another library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// The handler passes requests on to another server.
    pub relays: bool,
    /// The handler gets the messages that the transport could handle alone.
    pub receives_all: bool,
    /// The handler gets the head of the HTTP request.
    pub wants_request_head: bool,
}

impl HandlerOptions {
    /// The transport does everything that it can.
    pub fn new() -> Self {
        HandlerOptions::default()
    }

    /// The handler passes requests on to another server: it answers every request but `ping`, and gets every notification but
    /// cancellations. On 2026-07-28 it serves `subscriptions/listen`, and `requestState` and `inputResponses` stay in the
    /// params. A state that the transport has sealed, because this handler asked through its [`Context`](crate::Context), is
    /// the transport's: that retry resumes the parked call and is not passed on. A relay behind a relay cannot ask in this
    /// way, because the outer one takes the seal for its own.
    #[must_use]
    pub fn relays(mut self) -> Self {
        self.relays = true;
        self
    }

    /// The handler also gets the messages that the transport could handle alone: `notifications/initialized` and
    /// `notifications/cancelled`, `logging/setLevel`, and `server/discover` (2026-07-28), which it then answers. The transport
    /// still keeps its state: the level that was agreed to holds for [`Context::log`](crate::Context::log).
    #[must_use]
    pub fn receives_all(mut self) -> Self {
        self.receives_all = true;
        self
    }

    /// The handler gets the whole head of the HTTP request with every call and notification: see
    /// [`Call::take_parts`](crate::Call::take_parts). The request's extensions are in there, and not in
    /// [`Context::extensions`](crate::Context::extensions).
    #[must_use]
    pub fn wants_request_head(mut self) -> Self {
        self.wants_request_head = true;
        self
    }
}
