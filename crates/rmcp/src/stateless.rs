//! What a stateless request says of its client.

use rethread::Call;
use rmcp::model::{ClientCapabilities, Implementation, InitializeRequestParams, ProtocolVersion};
use serde::Deserialize;

/// The client of a stateless request, as rmcp knows clients that said `initialize`.
///
/// The revision is a lie: rmcp lets nobody ask a client of 2026-07-28, and a question is what becomes a wish for input here.
/// The truth stands in the context's `protocol_version()` and `meta`.
pub(crate) fn client(call: &Call) -> InitializeRequestParams {
    #[derive(Default, Deserialize)]
    struct Params {
        #[serde(default, rename = "_meta")]
        meta: Meta,
    }
    #[derive(Default, Deserialize)]
    struct Meta {
        #[serde(default, rename = "io.modelcontextprotocol/clientInfo")]
        info: Option<Implementation>,
        #[serde(default, rename = "io.modelcontextprotocol/clientCapabilities")]
        capabilities: ClientCapabilities,
    }
    let Params { meta } = call.params().unwrap_or_default();
    let info = meta.info.unwrap_or_else(|| Implementation::new("unknown", ""));
    InitializeRequestParams::new(meta.capabilities, info).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}
