//! What a stateless request says of its client.

use rmcp::model::{ClientCapabilities, Implementation, InitializeRequestParams, ProtocolVersion, RequestMetaObject};
use serde_json::Value;

const INFO: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A client as it introduced itself on a line.
#[derive(Default)]
pub(crate) struct Introduced {
    info: Option<Value>,
    capabilities: Option<Value>,
}

impl Introduced {
    /// Takes note of the client of a request. `None` if it is known as the one before.
    pub(crate) fn client(&mut self, meta: &RequestMetaObject) -> Option<InitializeRequestParams> {
        let (info, capabilities) = (meta.get(INFO), meta.get(CAPABILITIES));
        if self.info.as_ref() == info && self.capabilities.as_ref() == capabilities {
            return None;
        }
        (self.info, self.capabilities) = (info.cloned(), capabilities.cloned());
        let mut client = nobody();
        client.capabilities = meta.client_capabilities().unwrap_or_default();
        client.client_info = meta.client_info().unwrap_or_else(unknown);
        Some(client)
    }
}

/// A client that has not said who it is.
///
/// The revision is a lie: rmcp lets nobody ask a client of 2026-07-28, and a question is what becomes a wish for input here.
/// The truth stands in the context's `protocol_version()` and `meta`.
pub(crate) fn nobody() -> InitializeRequestParams {
    InitializeRequestParams::new(ClientCapabilities::default(), unknown())
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

fn unknown() -> Implementation {
    Implementation::new("unknown", "")
}
