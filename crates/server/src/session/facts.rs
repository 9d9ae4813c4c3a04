//! The facts of a session for the log, the metrics and an observer.

use super::Session;
use crate::node::observe::SessionFacts;
use crate::node::session_end::SessionEnd;
use crate::node::telemetry::{SessionLife, shortened};
use http::Extensions;
use rethread_proto::clock::Mono;
use serde::Deserialize;
use std::time::Duration;

impl Session {
    fn facts<'a>(&'a self, is_restored: bool, extensions: Option<&'a Extensions>) -> SessionFacts<'a> {
        SessionFacts {
            tag: self.tag(),
            principal: &self.key.principal,
            version: self.version(),
            is_restored,
            extensions,
        }
    }

    /// The session is open: its `initialize` is answered, or it was restored.
    pub(crate) fn opened(&self, extensions: &Extensions, is_restored: bool) {
        let facts = self.facts(is_restored, Some(extensions));
        let client = ClientInfo::of_initialize(self.initialize_params());
        self.node.metrics.session_opened(&facts, client.shown());
        if let Some(observer) = &self.node.observer {
            observer.session_opened(&facts);
        }
    }

    /// The session has left the table of this process.
    pub(crate) fn ended(&self, end: SessionEnd) {
        let age = self.age();
        let version = self.version();
        self.node.metrics.session_closed(&SessionLife { version, end, age });
        if self.negotiated.get().is_none() {
            return; // no observer was notified of its opening
        }
        let facts = self.facts(false, None);
        let client = ClientInfo::of_initialize(self.initialize_params());
        self.node.metrics.session_ended(&facts, client.shown(), end, age);
        if let Some(observer) = &self.node.observer {
            observer.session_ended(&facts, end, age);
        }
    }

    /// The session has left the memory, and the store keeps it.
    pub(crate) fn unloaded(&self) {
        self.node.metrics.session_unloaded(self.tag());
    }

    /// The session is in memory again.
    pub(crate) fn reloaded(&self) {
        self.node.metrics.session_reloaded(self.tag());
    }

    pub(super) fn began(&self) -> Mono {
        self.began
    }

    fn age(&self) -> Duration {
        self.node.clock.now().since(self.began)
    }
}

/// The `clientInfo` of the client. It may contain anything.
#[derive(Default, Deserialize)]
pub(super) struct ClientInfo {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
}

impl ClientInfo {
    /// Name and version for the log.
    pub(super) fn shown(&self) -> (&str, &str) {
        (shortened(&self.name), shortened(&self.version))
    }

    pub(super) fn of_initialize(params: &[u8]) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Initialize {
            client_info: ClientInfo,
        }
        serde_json::from_slice::<Initialize>(params).map_or_else(|_| ClientInfo::default(), |params| params.client_info)
    }
}
