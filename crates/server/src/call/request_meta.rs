//! The facts of the request that waits for the reply of a call.

use rethread_proto::ClientCapabilities;
use rethread_proto::LogLevel;
use rethread_proto::gate::mirror::Stateless;
use rethread_proto::jsonrpc::{ProgressToken, Report, Request, RequestId};
use rethread_proto::refusal::Reason;
use rethread_proto::stream::Framing;

/// A request, as its call sees it. A retry replaces it.
#[derive(Clone)]
pub(crate) struct RequestMeta {
    pub(crate) id: RequestId,
    pub(crate) progress_token: Option<ProgressToken>,
    /// The last progress that was reported.
    pub(crate) last_progress: Option<f64>,
    /// The framing of a direct stream on the transport that brought the request.
    pub(crate) framing: Framing,
    /// The facts of the client, for a request without a session.
    pub(crate) client: ClientMeta,
}

/// The facts of the client in a stateless request.
#[derive(Clone, Copy, Default)]
pub(crate) struct ClientMeta {
    pub(crate) log_level: Option<LogLevel>,
    pub(crate) capabilities: ClientCapabilities,
}

impl ClientMeta {
    /// Fails if a required member is missing or malformed (VER-05).
    pub(crate) fn read(parts: &Stateless) -> Result<Self, Reason> {
        Ok(ClientMeta {
            capabilities: ClientCapabilities::of_request(parts.capabilities()?),
            log_level: parts.log_level()?.and_then(LogLevel::parse),
        })
    }
}

impl RequestMeta {
    /// A request in a session, which knows its client.
    pub(crate) fn in_session(request: &Request) -> Self {
        Self::new(
            request.id.clone(),
            request.params.progress_token(),
            Framing::Numbered,
            ClientMeta::default(),
        )
    }

    pub(crate) fn new(
        id: RequestId,
        progress_token: Option<ProgressToken>,
        framing: Framing,
        client: ClientMeta,
    ) -> Self {
        RequestMeta {
            id,
            progress_token,
            last_progress: None,
            framing,
            client,
        }
    }

    /// Whether progress rises with this report (PRG-01). Then the next one must be higher. A report that is passed on from
    /// another server is not checked.
    pub(crate) fn rises(&mut self, report: Report<'_>) -> bool {
        if let Report::Value { progress, .. } = report {
            if !progress.is_finite() || self.last_progress.is_some_and(|last| progress <= last) {
                return false;
            }
            self.last_progress = Some(progress);
        }
        true
    }
}
