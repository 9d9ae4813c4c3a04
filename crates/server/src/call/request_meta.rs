//! What a stateless request says of itself and of its client.

use rethread_proto::ClientCapabilities;
use rethread_proto::LogLevel;
use rethread_proto::Principal;
use rethread_proto::gate::mirror::Stateless;
use rethread_proto::jsonrpc::{ProgressToken, RequestId};
use rethread_proto::refusal::Reason;

/// What a request brings that a call needs to know.
pub(crate) struct Asker {
    pub(crate) principal: Principal,
    log_level: Option<LogLevel>,
    client: ClientCapabilities,
    progress_token: Option<ProgressToken>,
    /// It brings input that was asked for.
    pub(crate) is_retry: bool,
}

impl Asker {
    /// Fails if the request does not say what it must, or says it wrongly (VER-05).
    pub(crate) fn read(principal: Principal, parts: &Stateless) -> Result<Self, Reason> {
        Ok(Asker {
            principal,
            client: ClientCapabilities::of_request(parts.capabilities()?),
            log_level: parts.log_level()?.and_then(LogLevel::parse),
            progress_token: parts.progress_token.clone(),
            is_retry: parts.is_retry(),
        })
    }

    /// What a call knows of the request `id`.
    pub(crate) fn into_meta(self, id: RequestId) -> RequestMeta {
        RequestMeta {
            id,
            progress_token: self.progress_token,
            log_level: self.log_level,
            client: self.client,
        }
    }
}

/// What a call knows of the request that waits for its answer. A retry replaces it.
#[derive(Clone)]
pub(crate) struct RequestMeta {
    pub(crate) id: RequestId,
    pub(crate) progress_token: Option<ProgressToken>,
    pub(crate) log_level: Option<LogLevel>,
    pub(crate) client: ClientCapabilities,
}
