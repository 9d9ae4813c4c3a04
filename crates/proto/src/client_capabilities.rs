//! The declared capabilities of a client (S2C-05).

use crate::gate::mirror::Capabilities;
use crate::mrtr::{InputMethod, InputRequest};
use serde_json::Value;

/// The capabilities of a client, as far as the transport needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCapabilities {
    /// It answers `sampling/createMessage`.
    pub sampling: bool,
    /// Its sampling supports tools.
    pub sampling_tools: bool,
    /// It shows forms to its user.
    pub elicitation_form: bool,
    /// It opens URLs for its user.
    pub elicitation_url: bool,
    /// It answers `roots/list`.
    pub roots: bool,
}

impl ClientCapabilities {
    /// The capability that the client lacks to answer a question, if any (MRTR-03).
    pub fn lacks(&self, request: &InputRequest) -> Option<&'static str> {
        let raw = request.params.as_deref().unwrap_or_default();
        let params: Value = serde_json::from_slice(raw).unwrap_or_default();
        self.lacks_for(request.method, &params)
    }

    /// The capability that the client lacks to answer a question of `method` with `params`, if any.
    pub fn lacks_for(&self, method: InputMethod, params: &Value) -> Option<&'static str> {
        let with_tools = params.get("tools").is_some() || params.get("toolChoice").is_some();
        let by_url = params.get("mode").is_some_and(|mode| mode == "url");
        match method {
            InputMethod::Sample if !self.sampling => Some("sampling"),
            InputMethod::Sample if with_tools && !self.sampling_tools => Some("sampling with tools"),
            InputMethod::Elicit if by_url && !self.elicitation_url => Some("elicitation by URL"),
            InputMethod::Elicit if !by_url && !self.elicitation_form => Some("elicitation"),
            InputMethod::Roots if !self.roots => Some("roots"),
            _ => None,
        }
    }

    /// From the declaration in a request of 2026-07-28.
    pub fn of_request(declared: &Capabilities) -> Self {
        ClientCapabilities {
            sampling: declared.sampling,
            sampling_tools: declared.sampling_tools,
            elicitation_form: declared.elicitation_form,
            elicitation_url: declared.elicitation_url,
            roots: declared.roots,
        }
    }

    /// From the params of `initialize`.
    pub fn of_initialize(params: &[u8]) -> Self {
        let params: Value = serde_json::from_slice(params).unwrap_or_default();
        let capabilities = &params["capabilities"];
        let has = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
        let elicitation = &capabilities["elicitation"];
        ClientCapabilities {
            sampling: has(&capabilities["sampling"]),
            sampling_tools: has(&capabilities["sampling"]["tools"]),
            // An empty object declares forms: in revisions before modes, and in clients after them.
            elicitation_form: has(elicitation) && (has(&elicitation["form"]) || !has(&elicitation["url"])),
            elicitation_url: has(&elicitation["url"]),
            roots: has(&capabilities["roots"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// S2C-05: the capability matrix.
    #[test]
    fn s2c_05_capabilities_are_read_as_declared() {
        let read = |capabilities: Value| {
            ClientCapabilities::of_initialize(json!({ "capabilities": capabilities }).to_string().as_bytes())
        };
        assert_eq!(read(json!({})), ClientCapabilities::default());
        assert_eq!(ClientCapabilities::of_initialize(b""), ClientCapabilities::default());
        assert!(read(json!({ "elicitation": {} })).elicitation_form);
        let url = read(json!({ "elicitation": { "url": {} } }));
        assert!(url.elicitation_url && !url.elicitation_form);
        let both = read(json!({ "elicitation": { "url": {}, "form": {} } }));
        assert!(both.elicitation_url && both.elicitation_form);
        let sampling = read(json!({ "sampling": { "tools": {} }, "roots": { "listChanged": true } }));
        assert!(sampling.sampling && sampling.sampling_tools && sampling.roots);
        assert!(!read(json!({ "sampling": {} })).sampling_tools);
    }
}
