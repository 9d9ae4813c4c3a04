//! The `_meta` of a stateless request: version, client and capabilities.

use super::value::shorten;
use crate::inline_str::InlineStr;
use crate::jsonrpc::{Object, plain_text};
use crate::jsonrpc::{Params, ProgressToken};
use crate::refusal::Reason;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// The values of `logLevel`, from the least severe to the most severe (LOG-02).
pub const LOG_LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// The parts of a stateless request's params that some rule needs, found in one pass.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stateless {
    /// `_meta.protocolVersion`. Not read again after the version is settled.
    pub version: Field,
    /// `params.name`.
    pub name: Field,
    /// `params.uri`.
    pub uri: Field,
    /// `params.taskId`.
    pub task_id: Field,
    /// The raw `params.arguments`, unless absent or null.
    pub arguments: Option<Bytes>,
    /// The raw `params.inputResponses`, unless absent or null (MRTR-04).
    pub input_responses: Option<Bytes>,
    /// `params.requestState` (MRTR-04).
    pub request_state: Field,
    /// `_meta.progressToken`, if it is a string or an integer (PRG-01).
    pub progress_token: Option<ProgressToken>,
    /// The raw `clientInfo`, which is optional (VER-05). Unverified: for logs, not for decisions.
    pub client_info: Option<Bytes>,
    capabilities: Result<Capabilities, Reason>,
    log_level: Field,
}

/// A field that should be a string. Null counts as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// No such field.
    Absent,
    /// A string: its text.
    Text(InlineStr),
    /// Another type.
    Other,
}

/// The capabilities of the client, declared in each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The raw object.
    pub raw: Bytes,
    /// It supports sampling.
    pub sampling: bool,
    /// It supports sampling with tools.
    pub sampling_tools: bool,
    /// It can show a form. An empty `elicitation` declares this too, since forms came first.
    pub elicitation_form: bool,
    /// It can open a URL for the user.
    pub elicitation_url: bool,
    /// It can list its roots.
    pub roots: bool,
    /// It supports the Tasks extension. The `tasks` capability of 2025-11-25 is a different one (T-40).
    pub tasks: bool,
}

/// The members of params that some rule needs, as raw JSON. Null counts as absent.
#[derive(Default)]
struct WireParams<'a> {
    name: Option<&'a str>,
    uri: Option<&'a str>,
    task_id: Option<&'a str>,
    arguments: Option<&'a str>,
    input_responses: Option<&'a str>,
    request_state: Option<&'a str>,
    meta: WireMeta<'a>,
}

#[derive(Default)]
struct WireMeta<'a> {
    version: Option<&'a str>,
    progress_token: Option<&'a str>,
    client_info: Option<&'a str>,
    capabilities: Option<&'a str>,
    log_level: Option<&'a str>,
}

impl<'a> WireParams<'a> {
    /// The fast path for usual params. `None` if these need the slow path.
    fn usual(params: &Params, text: &'a str) -> Option<Self> {
        let (in_params, in_meta) = params.members()?.of(text);
        let [name, uri, task_id, arguments, input_responses, request_state] = in_params;
        let [version, progress_token, client_info, capabilities, log_level] = in_meta;
        Some(WireParams {
            name,
            uri,
            task_id,
            arguments,
            input_responses,
            request_state,
            meta: WireMeta {
                version,
                progress_token,
                client_info,
                capabilities,
                log_level,
            },
        })
    }

    /// Any params.
    fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow)]
            name: Option<&'a RawValue>,
            #[serde(borrow)]
            uri: Option<&'a RawValue>,
            #[serde(borrow, rename = "taskId")]
            task_id: Option<&'a RawValue>,
            #[serde(borrow)]
            arguments: Option<&'a RawValue>,
            #[serde(borrow, rename = "inputResponses")]
            input_responses: Option<&'a RawValue>,
            #[serde(borrow, rename = "requestState")]
            request_state: Option<&'a RawValue>,
            #[serde(borrow, rename = "_meta")]
            meta: Option<Object<Meta<'a>>>,
        }
        #[derive(Default, Deserialize)]
        struct Meta<'a> {
            #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
            version: Option<&'a RawValue>,
            #[serde(borrow, rename = "progressToken")]
            progress_token: Option<&'a RawValue>,
            #[serde(borrow, rename = "io.modelcontextprotocol/clientInfo")]
            client_info: Option<&'a RawValue>,
            #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
            capabilities: Option<&'a RawValue>,
            #[serde(borrow, rename = "io.modelcontextprotocol/logLevel")]
            log_level: Option<&'a RawValue>,
        }
        let Object(members) = serde_json::from_str::<Object<Members<'a>>>(text)?;
        let meta = members.meta.map(|Object(meta)| meta).unwrap_or_default();
        let raw = |value: Option<&'a RawValue>| value.map(RawValue::get);
        Ok(WireParams {
            name: raw(members.name),
            uri: raw(members.uri),
            task_id: raw(members.task_id),
            arguments: raw(members.arguments),
            input_responses: raw(members.input_responses),
            request_state: raw(members.request_state),
            meta: WireMeta {
                version: raw(meta.version),
                progress_token: raw(meta.progress_token),
                client_info: raw(meta.client_info),
                capabilities: raw(meta.capabilities),
                log_level: raw(meta.log_level),
            },
        })
    }
}

#[derive(Deserialize)]
struct WireCapabilities<'a> {
    #[serde(borrow)]
    sampling: Option<&'a RawValue>,
    #[serde(borrow)]
    elicitation: Option<&'a RawValue>,
    #[serde(borrow)]
    roots: Option<&'a RawValue>,
    #[serde(borrow)]
    extensions: Option<&'a RawValue>,
}

/// Every member of a capability that is read. No two capabilities share one.
#[derive(Default, Deserialize)]
struct WireMembers<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    form: Option<&'a RawValue>,
    #[serde(borrow)]
    url: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/tasks")]
    tasks: Option<&'a RawValue>,
}

impl Stateless {
    /// Reads the params of a request. Missing or invalid parts of `_meta` are reported when they are read, in the order of
    /// VER-05. Here only ambiguous or unreadable params are refused, such as those with two `name`s.
    pub fn read(params: &Params) -> Result<Self, Reason> {
        let unreadable =
            |error: &dyn std::fmt::Display| Reason::MissingMeta(format!("`params` cannot be read: {error}").into());
        let text = std::str::from_utf8(params.as_json()).map_err(|error| unreadable(&error))?;
        let wire = match WireParams::usual(params, text) {
            Some(wire) => wire,
            None => WireParams::read(text).map_err(|error| unreadable(&error))?,
        };
        let (body, meta) = (params.raw(), wire.meta);
        let slice = |raw: &str| body.slice_ref(raw.as_bytes());
        Ok(Stateless {
            version: Field::read(meta.version),
            name: Field::read(wire.name),
            uri: Field::read(wire.uri),
            task_id: Field::read(wire.task_id),
            arguments: wire.arguments.map(slice),
            input_responses: wire.input_responses.map(slice),
            request_state: Field::read(wire.request_state),
            progress_token: meta.progress_token.and_then(ProgressToken::from_json),
            client_info: meta.client_info.map(slice),
            capabilities: Capabilities::read(body, meta.capabilities),
            log_level: Field::read(meta.log_level),
        })
    }

    /// The capabilities of the client, which every request must declare (VER-05).
    pub fn capabilities(&self) -> Result<&Capabilities, Reason> {
        self.capabilities.as_ref().map_err(Clone::clone)
    }

    /// The minimum level of log messages for the client, one of [`LOG_LEVELS`]. `None` if it requested none (LOG-02).
    pub fn log_level(&self) -> Result<Option<&'static str>, Reason> {
        if self.log_level == Field::Absent {
            return Ok(None);
        }
        let text = self.log_level.as_str();
        let known = LOG_LEVELS.into_iter().find(|level| Some(*level) == text);
        known.map(Some).ok_or_else(|| {
            let levels = LOG_LEVELS.join(", ");
            let found = text.map_or("is not a string".into(), |text| format!("is '{}'", shorten(text)));
            Reason::MissingMeta(format!("{LOG_LEVEL} {found}: it must be one of {levels}").into())
        })
    }

    /// Whether the request has the input that an earlier result asked for (MRTR-04).
    pub fn is_retry(&self) -> bool {
        self.input_responses.is_some() || self.request_state != Field::Absent
    }

    pub(super) fn declares_tasks(&self) -> bool {
        self.capabilities.as_ref().is_ok_and(|declared| declared.tasks)
    }
}

impl Field {
    /// The text, if the field is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Field::Text(text) => Some(text.as_str()),
            Field::Absent | Field::Other => None,
        }
    }

    fn read(raw: Option<&str>) -> Self {
        let Some(json) = raw else { return Field::Absent };
        match plain_text(json) {
            Some(text) => Field::Text(text.into()),
            // An escape may be half of a surrogate pair, which is not text.
            None => serde_json::from_str(json).map_or(Field::Other, |text: String| Field::Text(text.as_str().into())),
        }
    }
}

impl Capabilities {
    fn read(body: &Bytes, raw: Option<&str>) -> Result<Self, Reason> {
        let refuse = |what: String| Reason::MissingMeta(what.into());
        let raw = raw.ok_or_else(|| refuse(format!("`_meta` lacks {CLIENT_CAPABILITIES}")))?;
        if raw == "{}" {
            let raw = body.slice_ref(raw.as_bytes());
            return Ok(Capabilities {
                raw,
                ..Capabilities::default()
            });
        }
        if !raw.starts_with('{') {
            return Err(refuse(format!("{CLIENT_CAPABILITIES} in `_meta` must be an object")));
        }
        let WireCapabilities {
            sampling,
            elicitation,
            roots,
            extensions,
        } = serde_json::from_str(raw)
            .map_err(|error| refuse(format!("{CLIENT_CAPABILITIES} in `_meta` cannot be read: {error}")))?;
        let declared = |raw: Option<&RawValue>| raw.is_some_and(is_object);
        let [in_sampling, in_elicitation, in_extensions] = [sampling, elicitation, extensions].map(members);
        Ok(Capabilities {
            raw: body.slice_ref(raw.as_bytes()),
            sampling: declared(sampling),
            sampling_tools: declared(in_sampling.tools),
            elicitation_form: elicitation.is_some_and(is_empty) || declared(in_elicitation.form),
            elicitation_url: declared(in_elicitation.url),
            roots: declared(roots),
            tasks: declared(in_extensions.tasks),
        })
    }
}

/// The members of a capability. None if its declaration is invalid, which counts as not declared.
fn members(capability: Option<&RawValue>) -> WireMembers<'_> {
    capability
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .map(|Object(members)| members)
        .unwrap_or_default()
}

fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

fn is_empty(raw: &RawValue) -> bool {
    let inner = raw.get().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    inner.is_some_and(|inner| inner.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests;
