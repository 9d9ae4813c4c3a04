//! A modern client in front of a legacy server (requirements 4.1).

pub mod tasks;

use super::members::{Member, filter_meta, member, mentions, rewrite, rewrite_items, rewrite_or_keep};
use super::{CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, SERVER_INFO, SUBSCRIPTION_ID};
use crate::gate::mirror::HeaderParams;
use crate::jsonrpc::{RpcError, code};
use crate::mrtr::{InputMethod, InputRequests, allows_input_required};
use crate::subscription::Change;
use crate::{ClientCapabilities, LogLevel, Version};
use bytes::Bytes;
use serde_json::{Value, json};

/// The revision that a legacy server is asked for.
pub const ASKED_VERSION: Version = Version::V2025_11_25;

/// Keys of `_meta` that a legacy server must not see.
const REQUEST_META: [&str; 5] = [
    PROTOCOL_VERSION,
    CLIENT_INFO,
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
    SUBSCRIPTION_ID,
];

/// The facts of the client in the params of a modern request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientFacts {
    /// The raw `clientInfo`.
    pub info: Option<Bytes>,
    /// The raw capabilities.
    pub capabilities: Bytes,
    /// The level of log messages that the request wants.
    pub log_level: Option<LogLevel>,
    /// Whether the request carries state of an earlier one.
    pub has_state: bool,
}

impl ClientFacts {
    /// Reads the params of a request.
    pub fn read(params: &Bytes) -> Self {
        let meta = member(params, "_meta").unwrap_or("{}").as_bytes();
        let raw = |name: &str| member(meta, name).map(|raw| params.slice_ref(raw.as_bytes()));
        let level = member(meta, LOG_LEVEL).and_then(|raw| serde_json::from_str::<&str>(raw).ok());
        ClientFacts {
            info: raw(CLIENT_INFO),
            capabilities: raw(CLIENT_CAPABILITIES).unwrap_or_default(),
            log_level: level.and_then(LogLevel::parse),
            has_state: member(params, "requestState").is_some_and(|state| state != "null"),
        }
    }

    /// The name and the version of the client, for the key of a lease.
    pub fn name_and_version(&self) -> (String, String) {
        let info: Value = serde_json::from_slice(self.info.as_deref().unwrap_or_default()).unwrap_or_default();
        let text = |name: &str| info[name].as_str().unwrap_or_default().to_owned();
        (text("name"), text("version"))
    }
}

/// The params of a request for a legacy server. The gateway has used the removed members itself.
pub fn request_params(params: &Bytes) -> Bytes {
    rewrite_or_keep(params, b"", |name, raw| match name {
        // The client cannot use a task of 2025-11-25.
        "inputResponses" | "requestState" | "task" => Member::Remove,
        "_meta" => filter_meta(raw, |key| REQUEST_META.contains(&key)),
        _ => Member::Keep,
    })
}

/// The params of `initialize` for a child that serves this client. `fallback` is the client info of one that names none.
pub fn initialize_params(client: &ClientFacts, fallback: &Value) -> Bytes {
    let raw_info = client.info.as_deref().unwrap_or_default();
    let info: Value = serde_json::from_slice(raw_info).unwrap_or_default();
    let is_named = info["name"].is_string() && info["version"].is_string();
    let params = json!({
        "protocolVersion": ASKED_VERSION.as_str(),
        "capabilities": capabilities(&client.capabilities),
        "clientInfo": if is_named { &info } else { fallback },
    });
    params.to_string().into()
}

/// Client capabilities for a legacy server. Roots cannot be reported as changed, and extensions do not exist.
fn capabilities(declared: &[u8]) -> Value {
    let declared: Value = serde_json::from_slice(declared).unwrap_or_default();
    let has = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
    let object = |value: &Value| if value.is_object() { value.clone() } else { json!({}) };
    let mut mapped = json!({});
    for name in ["sampling", "elicitation"] {
        if has(&declared[name]) {
            mapped[name] = object(&declared[name]);
        }
    }
    if has(&declared["roots"]) {
        mapped["roots"] = json!({});
    }
    mapped
}

/// The result of `server/discover` from a result of `initialize`. `versions` are those of the transport, newest first.
pub fn discover_result(initialize_result: &[u8], versions: impl Iterator<Item = Version>) -> Bytes {
    let initialized: Value = serde_json::from_slice(initialize_result).unwrap_or_default();
    let versions: Vec<_> = versions.map(Version::as_str).collect();
    let mut capabilities = initialized["capabilities"].clone();
    if let Value::Object(members) = &mut capabilities {
        members.remove("tasks");
    } else {
        capabilities = json!({});
    }
    let mut result = json!({ "supportedVersions": versions, "capabilities": capabilities });
    if initialized["instructions"].is_string() {
        result["instructions"] = initialized["instructions"].clone();
    }
    if initialized["serverInfo"].is_object() {
        result["_meta"] = json!({ SERVER_INFO: initialized["serverInfo"] });
    }
    result.to_string().into()
}

/// A result for a modern client. The transport adds `resultType`, the caching hints and the server's name.
pub fn result(method: &str, json: &Bytes) -> Bytes {
    let lists_tools = method == "tools/list" && mentions(json, &["execution", "x-mcp-header"]);
    if !lists_tools && !mentions(json, &["resultType", "ttlMs", "cacheScope"]) {
        return json.clone();
    }
    rewrite_or_keep(json, b"", |name, raw| match name {
        "resultType" | "ttlMs" | "cacheScope" => Member::Remove,
        "tools" if lists_tools => rewrite_items(raw, listed_tool),
        _ => Member::Keep,
    })
}

/// A listed tool without `execution`, which belongs to the tasks of 2025-11-25. Invalid header annotations are removed:
/// conforming clients would ignore the tool.
fn listed_tool(tool: &str) -> Option<Vec<u8>> {
    rewrite(tool.as_bytes(), b"", |name, raw| match name {
        "execution" => Member::Remove,
        "inputSchema" if mentions(raw.as_bytes(), &["x-mcp-header"]) => {
            let Ok(mut schema) = serde_json::from_str::<Value>(raw) else {
                return Member::Keep;
            };
            if HeaderParams::of_schema(&schema).is_ok() {
                return Member::Keep;
            }
            remove_annotations(&mut schema);
            Member::Replace(schema.to_string().into())
        }
        _ => Member::Keep,
    })
}

fn remove_annotations(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.remove("x-mcp-header");
            members.values_mut().for_each(remove_annotations);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_annotations),
        _ => {}
    }
}

/// The reply to a request that a legacy server answered with an error.
#[derive(Clone, Debug, PartialEq)]
pub enum ErrorReply {
    /// An error.
    Error(RpcError),
    /// The user must open these URLs first (requirements 4.1.2). The call is sent again after that.
    OpenUrls(InputRequests),
}

/// The reply for a client with the capabilities `client`.
pub fn error(method: &str, error: RpcError, client: ClientCapabilities) -> ErrorReply {
    match error.code {
        code::RESOURCE_NOT_FOUND if method == "resources/read" => ErrorReply::Error(RpcError {
            code: code::INVALID_PARAMS,
            ..error
        }),
        code::URL_ELICITATION_REQUIRED if allows_input_required(method) => match urls(&error) {
            None => ErrorReply::Error(upstream(error)),
            Some(_) if !client.elicitation_url => {
                let message = "the server asked the user to open a URL, which this client did not declare";
                let missing = json!({ "requiredCapabilities": { "elicitation": { "url": {} } } });
                ErrorReply::Error(RpcError::new(code::MISSING_CAPABILITY, message).with_data(missing))
            }
            Some(requests) => ErrorReply::OpenUrls(requests),
        },
        -32099..=-32020 => ErrorReply::Error(upstream(error)),
        _ => ErrorReply::Error(error),
    }
}

/// An error with a code that means something else in the era of the client.
fn upstream(error: RpcError) -> RpcError {
    let said = json!({ "code": error.code, "data": error.data });
    RpcError::internal(error.message).with_data(json!({ "upstream": said }))
}

fn urls(error: &RpcError) -> Option<InputRequests> {
    let elicitations = error.data.as_ref()?["elicitations"].as_array()?;
    let mut requests = InputRequests::new();
    for (n, elicitation) in elicitations.iter().enumerate() {
        elicitation["url"].as_str()?;
        let mut params = elicitation.clone();
        params["mode"] = json!("url");
        let key = format!("url{}", n + 1);
        requests
            .ask(&key, InputMethod::Elicit.as_str(), &params.to_string().into())
            .ok()?;
    }
    (!requests.is_empty()).then_some(requests)
}

/// Whether a call may ask its client: then it holds its child alone (GW-13).
pub fn may_ask(method: &str, client: ClientCapabilities) -> bool {
    let answers = client.sampling || client.elicitation_form || client.elicitation_url || client.roots;
    answers && allows_input_required(method)
}

/// Checks a question of the server during a call of `method`. The error is the answer for the server.
pub fn check_question(
    method: &str,
    question: &str,
    params: &[u8],
    client: ClientCapabilities,
) -> Result<InputMethod, RpcError> {
    let asked = InputMethod::from_name(question).ok_or_else(|| RpcError::method_not_found(question))?;
    if !allows_input_required(method) {
        return Err(refused_question(
            asked,
            "a question is not possible during this request",
        ));
    }
    let params: Value = serde_json::from_slice(params).unwrap_or_default();
    let Some(lacks) = client.lacks_for(asked, &params) else {
        return Ok(asked);
    };
    let message = format!("the server asked for {lacks}, which this client did not declare");
    let knows_method = match asked {
        InputMethod::Elicit => client.elicitation_form || client.elicitation_url,
        InputMethod::Sample => client.sampling,
        InputMethod::Roots => client.roots,
    };
    let code = match knows_method {
        true => code::INVALID_PARAMS,
        false => code::METHOD_NOT_FOUND,
    };
    Err(RpcError::new(code, message))
}

/// The answer to a question that belongs to no call. `roots` are those of the settings.
pub fn answer_unsolicited(question: &str, roots: &[String]) -> Result<Bytes, RpcError> {
    let asked = InputMethod::from_name(question).ok_or_else(|| RpcError::method_not_found(question))?;
    if asked == InputMethod::Roots && !roots.is_empty() {
        let listed: Vec<_> = roots.iter().map(|uri| json!({ "uri": uri })).collect();
        return Ok(json!({ "roots": listed }).to_string().into());
    }
    Err(refused_question(asked, "no request of a client is in progress"))
}

fn refused_question(asked: InputMethod, why: &'static str) -> RpcError {
    let code = match asked {
        InputMethod::Roots => code::METHOD_NOT_FOUND,
        InputMethod::Sample | InputMethod::Elicit => code::INVALID_PARAMS,
    };
    RpcError::new(code, why)
}

/// The answer to a question whose client does not come back (requirements 4.1.1 (6)).
pub fn answer_expired(asked: InputMethod) -> Result<Bytes, RpcError> {
    const REFUSED_BY_USER: i64 = -1;
    match asked {
        InputMethod::Elicit => Ok(Bytes::from_static(b"{\"action\":\"cancel\"}")),
        InputMethod::Sample => Err(RpcError::new(REFUSED_BY_USER, "the client did not answer")),
        InputMethod::Roots => Err(RpcError::internal("the client did not answer")),
    }
}

/// The change that a notification of a legacy server reports.
pub fn change(method: &str, params: &[u8]) -> Option<Change> {
    Some(match method {
        "notifications/tools/list_changed" => Change::Tools,
        "notifications/prompts/list_changed" => Change::Prompts,
        "notifications/resources/list_changed" => Change::Resources,
        "notifications/resources/updated" => {
            Change::Updated(serde_json::from_str::<String>(member(params, "uri")?).ok()?.into())
        }
        _ => return None,
    })
}

/// Whether a request with the level `wanted` gets the log message with `params`.
pub fn wants_log(wanted: Option<LogLevel>, params: &[u8]) -> bool {
    let own = member(params, "level").and_then(|raw| serde_json::from_str::<String>(raw).ok());
    let own = own.as_deref().and_then(LogLevel::parse);
    wanted.is_some_and(|least| own.is_none_or(|own| own >= least))
}

#[cfg(test)]
mod tests;
