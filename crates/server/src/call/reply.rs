//! Replies of a handler.

use bytes::Bytes;
use memchr::memmem::Finder;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::mrtr::InputRequests;
use serde::Serialize;
use std::sync::LazyLock;

/// The reply to a call: the `result` of the JSON-RPC response, or a request for input.
#[derive(Clone, Debug)]
pub struct Reply(pub(crate) ReplyKind);

/// The input that a handler needs before it can reply.
#[derive(Clone, Debug)]
pub(crate) struct InputRequired {
    pub(crate) requests: InputRequests,
    pub(crate) state: Option<Vec<u8>>,
    pub(crate) meta: Option<Bytes>,
}

#[derive(Clone, Debug)]
pub(crate) enum ReplyKind {
    Result(Bytes),
    InputRequired(InputRequired),
}

impl Reply {
    /// The approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        match &self.0 {
            ReplyKind::Result(json) => json.len(),
            ReplyKind::InputRequired(required) => required.state.as_ref().map_or(0, Vec::len),
        }
    }

    /// Whether this is the result of a tool with `isError: true`.
    pub fn is_tool_error(&self) -> bool {
        matches!(&self.0, ReplyKind::Result(json) if is_tool_error(json))
    }

    /// The names in a result of `tools/list`. Empty for any other reply.
    pub fn tool_names(&self) -> Vec<String> {
        listed_names(self.as_json())
    }

    /// The names in a result of `prompts/list`. Empty for any other result.
    pub fn prompt_names(&self) -> Vec<String> {
        listed_names(self.as_json())
    }

    /// The result as JSON. Empty for a request for input.
    pub fn as_json(&self) -> &[u8] {
        match &self.0 {
            ReplyKind::Result(json) => json,
            ReplyKind::InputRequired(_) => &[],
        }
    }

    /// A result from a value that serializes to a JSON object.
    ///
    /// # Panics
    /// If `result` cannot be written as JSON, for example a map whose keys are not strings. The call then ends with
    /// `-32603`.
    pub fn json(result: impl Serialize) -> Self {
        let json = serde_json::to_vec(&result).expect("a reply must be serializable as JSON");
        Reply(ReplyKind::Result(json.into()))
    }

    /// A result that is JSON already. It is sent unchanged.
    pub fn raw(json: impl Into<Bytes>) -> Self {
        Reply(ReplyKind::Result(json.into()))
    }

    /// The empty result `{}`.
    pub fn empty() -> Self {
        Reply(ReplyKind::Result(Bytes::from_static(b"{}")))
    }

    /// Asks the client for input and ends the call (2026-07-28): the client calls again with its answers in
    /// [`Call::inputs`](crate::Call::inputs). `state` comes back with them. Nothing is stored on the server.
    ///
    /// Most handlers are simpler with [`Context::elicit`](crate::Context::elicit) and the other questions, which work on every revision and
    /// return the answer to the code that asked. This form survives restarts, because no handler waits.
    pub fn input_required(requests: InputRequests, state: Option<Vec<u8>>) -> Self {
        Reply(ReplyKind::InputRequired(InputRequired {
            requests,
            state,
            meta: None,
        }))
    }

    /// Adds `_meta` to a request for input; a result contains its own. A value that is not a JSON object is left out.
    #[must_use]
    pub fn with_meta(mut self, meta: impl Serialize) -> Self {
        if let ReplyKind::InputRequired(required) = &mut self.0 {
            let json = serde_json::to_vec(&meta).unwrap_or_default();
            required.meta = json.starts_with(b"{").then(|| json.into());
        }
        self
    }

    /// The result. A request for input is an error here.
    pub(crate) fn into_result(self) -> Result<Bytes, RpcError> {
        match self.0 {
            ReplyKind::Result(json) => Ok(json),
            ReplyKind::InputRequired(..) => Err(RpcError::internal(
                "this tool asks for input in a way that needs protocol version 2026-07-28",
            )),
        }
    }
}

/// Whether the result of a tool has `isError: true`.
fn is_tool_error(result: &[u8]) -> bool {
    const KEY: &[u8] = b"\"isError\"";
    static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(KEY)); // a new one for each call is slow
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ToolResult {
        #[serde(default)]
        is_error: bool,
    }
    // Most results have no such member, or `false`. A text cannot contain the key, because its quotes are escaped there.
    let may_be = FINDER.find_iter(result).any(|at| {
        let rest = result[at + KEY.len()..].trim_ascii_start();
        let value = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_some_and(|value| value.starts_with(b"true"))
    });
    may_be && serde_json::from_slice::<ToolResult>(result).is_ok_and(|result| result.is_error)
}

/// The names in a result of `tools/list`. One entry that is not a tool makes the whole list invalid.
/// The names in a list of tools or of prompts.
fn listed_names(result: &[u8]) -> Vec<String> {
    #[derive(Default, serde::Deserialize)]
    struct List {
        #[serde(default, alias = "prompts")]
        tools: Vec<Listed>,
    }
    #[derive(serde::Deserialize)]
    struct Listed {
        name: String,
    }
    let list: List = serde_json::from_slice(result).unwrap_or_default();
    list.tools.into_iter().map(|listed| listed.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_06_tools_are_those_of_a_list() {
        for (result, names) in [
            (
                r#"{"tools":[{"name":"a\u0062","title":"x"},{"name":"c"}]}"#,
                &["ab", "c"][..],
            ),
            (r#"{"tools":[{"name":"a"},{"name":7}]}"#, &[]),
            (r#"{"content":[{"name":"a"}]}"#, &[]),
            ("", &[]),
        ] {
            assert_eq!(listed_names(result.as_bytes()), names, "{result}");
        }
    }

    #[test]
    fn ops_05_tool_error_is_a_member_of_the_result() {
        for (result, is_error) in [
            (r#"{"content":[],"isError":true}"#, true),
            ("{\"content\":[],\"isError\" : true}", true),
            (r#"{"content":[],"isError":false}"#, false),
            (r#"{"content":[{"type":"text","text":"\"isError\":true"}]}"#, false),
            (r#"{"structuredContent":{"isError":true}}"#, false),
            (r#"{"structuredContent":{"isError":true},"isError":true}"#, true),
            ("{}", false),
        ] {
            assert_eq!(is_tool_error(result.as_bytes()), is_error, "{result}");
        }
    }
}
