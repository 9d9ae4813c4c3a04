//! A legacy client in front of a modern server (requirements 4.2).

mod content;
mod input;

pub use content::result;
pub use input::{InputRequired, RoundAnswer, answer, input_required, question_params, retry_params};

use super::members::{Member, filter_meta, member, rewrite, rewrite_or_keep, write_text};
use super::{CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, MODERN_META, PROTOCOL_VERSION, SERVER_INFO};
use crate::jsonrpc::{RpcError, code};
use crate::subscription::{Change, Filter};
use crate::{LogLevel, Version};
use bytes::Bytes;
use serde_json::{Value, json};

/// Rounds of questions of one call (MRTR-08).
pub const MAX_ROUNDS: usize = 16;

/// The `_meta` members that every request of a session gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMeta {
    /// The members as JSON, without braces.
    members: Bytes,
}

impl SessionMeta {
    /// From the params of the client's `initialize`.
    pub fn of_initialize(params: &[u8], version: Version) -> Self {
        let mut members = Vec::with_capacity(256);
        write_text(&mut members, PROTOCOL_VERSION);
        members.push(b':');
        write_text(&mut members, Version::V2026_07_28.as_str());
        if let Some(info) = member(params, "clientInfo").filter(|info| info.starts_with('{')) {
            members.push(b',');
            write_text(&mut members, CLIENT_INFO);
            members.push(b':');
            members.extend_from_slice(info.as_bytes());
        }
        members.push(b',');
        write_text(&mut members, CLIENT_CAPABILITIES);
        members.push(b':');
        let declared = member(params, "capabilities").unwrap_or("{}");
        members.extend_from_slice(capabilities(declared, version).to_string().as_bytes());
        SessionMeta {
            members: members.into(),
        }
    }

    /// The params of a request of this session: the members, and the log level if there is one.
    pub fn request_params(&self, params: &Bytes, level: Option<LogLevel>) -> Bytes {
        let mut added = self.members.to_vec();
        if let Some(level) = level {
            added.push(b',');
            write_text(&mut added, LOG_LEVEL);
            added.push(b':');
            write_text(&mut added, level.as_str());
        }
        let params = match params.is_empty() {
            true => Bytes::from_static(b"{}"),
            false => params.clone(),
        };
        let mut has_meta = false;
        let rewritten = rewrite_or_keep(&params, b"", |name, raw| match name {
            // Members of other revisions. The client's own `task` cannot be honoured.
            "task" | "inputResponses" | "requestState" => Member::Remove,
            "_meta" => {
                let kept = rewrite(raw.as_bytes(), &added, |key, _| match key.starts_with(MODERN_META) {
                    true => Member::Remove,
                    false => Member::Keep,
                });
                has_meta = kept.is_some();
                kept.map_or(Member::Remove, Member::Replace)
            }
            _ => Member::Keep,
        });
        if has_meta {
            return rewritten;
        }
        let meta = [b"\"_meta\":{", &added[..], b"}"].concat();
        rewrite_or_keep(&rewritten, &meta, |_, _| Member::Keep)
    }
}

/// Client capabilities for a modern server: without those that the client's revision or the modern era does not have.
fn capabilities(declared: &str, version: Version) -> Value {
    let declared: Value = serde_json::from_str(declared).unwrap_or_default();
    let has = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
    let mut mapped = json!({});
    if has(&declared["roots"]) {
        mapped["roots"] = json!({});
    }
    if has(&declared["sampling"]) {
        let is_whole = version.has_elicitation_modes() && declared["sampling"].is_object();
        mapped["sampling"] = if is_whole {
            declared["sampling"].clone()
        } else {
            json!({})
        };
        if let Some(sampling) = mapped["sampling"].as_object_mut() {
            sampling.remove("context"); // the modern era has no context of other servers
        }
    }
    if has(&declared["elicitation"]) && version.has_elicitation() {
        let is_whole = version.has_elicitation_modes() && declared["elicitation"].is_object();
        mapped["elicitation"] = if is_whole {
            declared["elicitation"].clone()
        } else {
            json!({})
        };
    }
    mapped
}

/// The result of `initialize` from the result of `server/discover`. `fallback` names a server that does not name itself.
pub fn initialize_result(discovered: &[u8], version: Version, fallback: &Value) -> Bytes {
    let discovered: Value = serde_json::from_slice(discovered).unwrap_or_default();
    let mut capabilities = discovered["capabilities"].clone();
    if let Value::Object(members) = &mut capabilities {
        members.remove("extensions");
        members.remove("tasks"); // the tasks of 2025-11-25 cannot be carried
        // Every modern server may log, and declares nothing for it.
        members.entry("logging").or_insert_with(|| json!({}));
    } else {
        capabilities = json!({ "logging": {} });
    }
    let named = [&discovered["_meta"][SERVER_INFO], &discovered["serverInfo"]];
    let info = named.into_iter().find(|info| info.is_object()).unwrap_or(fallback);
    let mut result = json!({
        "protocolVersion": version.as_str(),
        "capabilities": capabilities,
        "serverInfo": info,
    });
    if discovered["instructions"].is_string() {
        result["instructions"] = discovered["instructions"].clone();
    }
    result.to_string().into()
}

/// The time for which a result of `server/discover` is valid, in milliseconds.
pub fn ttl_ms(discovered: &[u8]) -> u64 {
    let ttl = member(discovered, "ttlMs").and_then(|raw| serde_json::from_str::<f64>(raw).ok());
    ttl.map_or(0, |ttl| ttl.max(0.0) as u64)
}

/// An error for a legacy client. The codes of the modern era would mean nothing to it.
pub fn error(error: RpcError) -> RpcError {
    let data = json!({ "upstream": { "code": error.code, "data": error.data } });
    match error.code {
        code::MISSING_CAPABILITY => {
            let required = error.data.as_ref().map(|data| &data["requiredCapabilities"]);
            let names = required.and_then(Value::as_object).map(|required| {
                let names: Vec<_> = required.keys().map(String::as_str).collect();
                names.join(", ")
            });
            let names = names
                .filter(|names| !names.is_empty())
                .unwrap_or_else(|| error.message.to_string());
            RpcError::internal(format!("the client lacks a capability that the server needs: {names}")).with_data(data)
        }
        code::UNSUPPORTED_VERSION | code::HEADER_MISMATCH => RpcError::internal(error.message).with_data(data),
        _ => error,
    }
}

/// The params of `subscriptions/listen`.
pub fn listen_params(meta: &SessionMeta, filter: &Filter) -> Bytes {
    let params = json!({ "notifications": filter }).to_string();
    meta.request_params(&params.into(), None)
}

/// The lists whose changes a server reports, from its capabilities.
pub fn offered_lists(capabilities: &Value) -> Filter {
    let reports = |name: &str| capabilities[name]["listChanged"] == true;
    Filter {
        tools: reports("tools"),
        prompts: reports("prompts"),
        resources: reports("resources"),
        uris: Vec::new(),
    }
}

/// The acknowledged URIs of a subscription.
pub fn acknowledged_uris(params: &[u8]) -> Vec<String> {
    let params: Value = serde_json::from_slice(params).unwrap_or_default();
    let uris = params["notifications"]["resourceSubscriptions"].as_array();
    let texts = uris.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// The changes of a filter, each once: after a gap any of them may have happened.
pub fn all_changes(filter: &Filter) -> Vec<Change> {
    let lists = [
        (filter.tools, Change::Tools),
        (filter.prompts, Change::Prompts),
        (filter.resources, Change::Resources),
    ];
    let lists = lists
        .into_iter()
        .filter(|(is_wanted, _)| *is_wanted)
        .map(|(_, change)| change);
    lists
        .chain(filter.uris.iter().map(|uri| Change::Updated(uri.as_ref().into())))
        .collect()
}

/// The params of a notification for a legacy client, without modern keys.
pub fn notification_params(params: &Bytes) -> Bytes {
    rewrite_or_keep(params, b"", |name, raw| match name {
        "_meta" => filter_meta(raw, |key| key.starts_with(MODERN_META)),
        _ => Member::Keep,
    })
}

#[cfg(test)]
mod tests;
