//! The client information in the `_meta` of a stateless request.

use rmcp::model::{ClientCapabilities, Implementation, InitializeRequestParams, ProtocolVersion, RequestMetaObject};
use serde_json::Value;

const CLIENT_INFO_KEY: &str = "io.modelcontextprotocol/clientInfo";
const CLIENT_CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// The client of the previous request on a peer loop. Comparing raw values avoids parsing them again.
#[derive(Default)]
pub(crate) struct ClientIdentity {
    info: Option<Value>,
    capabilities: Option<Value>,
}

impl ClientIdentity {
    /// Stores the client of a request. Returns `None` if it equals the previous one.
    pub(crate) fn update(&mut self, meta: &RequestMetaObject) -> Option<InitializeRequestParams> {
        let (info, capabilities) = (meta.get(CLIENT_INFO_KEY), meta.get(CLIENT_CAPABILITIES_KEY));
        if self.info.as_ref() == info && self.capabilities.as_ref() == capabilities {
            return None;
        }
        (self.info, self.capabilities) = (info.cloned(), capabilities.cloned());
        let mut client = unknown_client();
        client.capabilities = meta.client_capabilities().unwrap_or_default();
        client.client_info = meta.client_info().unwrap_or_else(unknown_implementation);
        Some(client)
    }
}

/// The peer information of a client that has not identified itself.
///
/// The revision is deliberately wrong: rmcp refuses questions to a client of 2026-07-28, but here a question becomes an
/// input-required result. The context's `protocol_version()` and `meta` hold the true revision.
pub(crate) fn unknown_client() -> InitializeRequestParams {
    InitializeRequestParams::new(ClientCapabilities::default(), unknown_implementation())
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

fn unknown_implementation() -> Implementation {
    Implementation::new("unknown", "")
}
