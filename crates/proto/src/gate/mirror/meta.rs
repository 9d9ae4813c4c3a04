//! What a stateless request says of itself and of its client.

use super::value::shorten;
use crate::jsonrpc::{Object, plain_text};
use crate::jsonrpc::{Params, ProgressToken};
use crate::refusal::Reason;
use crate::short::Short;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// What `logLevel` may say, from the least that matters to the most (LOG-02).
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

/// The parts of a stateless request's params that some rule needs, cut from the body in one pass.
#[derive(Clone, Debug)]
pub struct Stateless {
    /// `_meta.protocolVersion`. Nothing reads it again once the version is settled.
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
    /// The raw `clientInfo`, which nobody has to send (VER-05). The client's own word: good for logs, for no decision.
    pub client_info: Option<Bytes>,
    capabilities: Result<Capabilities, Reason>,
    log_level: Field,
}

/// A field that should be a string. Null counts as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// Not there.
    Absent,
    /// A string: its text.
    Text(Short),
    /// Something else.
    Other,
}

/// What the client can do, declared anew with each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The raw object.
    pub raw: Bytes,
    /// It can ask a model.
    pub sampling: bool,
    /// It can ask a model that uses tools.
    pub sampling_tools: bool,
    /// It can show a form. An empty `elicitation` says so too, since forms were there first.
    pub elicitation_form: bool,
    /// It can send the user to a page.
    pub elicitation_url: bool,
    /// It can list its roots.
    pub roots: bool,
    /// It speaks the Tasks extension. The `tasks` capability of 2025-11-25 is something else (T-40).
    pub tasks: bool,
}

/// The members of params that matter, as raw JSON. Null counts as absent.
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
    /// The usual params; `None` if these are not plainly such.
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

/// Every member of a capability that we ask for; no two capabilities share one.
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
    /// Reads the params of a request. What is missing or wrong in `_meta` shows when it is asked for, in the order of
    /// VER-05; here only params are refused that can be read in two ways or in none, such as two `name`s.
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

    /// What the client can do; every request says so (VER-05).
    pub fn capabilities(&self) -> Result<&Capabilities, Reason> {
        self.capabilities.as_ref().map_err(Clone::clone)
    }

    /// The least level of log messages that the client wants, one of [`LOG_LEVELS`]; `None` if it wants none (LOG-02).
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

    /// Whether it brings input that an earlier answer asked for (MRTR-04).
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
            // An escape may stand for half a character, and then it is no text.
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

/// The members of a capability; none if it is not declared as it should be, which is as good as not declared.
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
mod tests {
    use super::*;
    use crate::jsonrpc::code;
    use crate::refusal::Refusal;

    fn read(params: &str) -> Result<Stateless, Reason> {
        Stateless::read(&Params::from_raw(Bytes::copy_from_slice(params.as_bytes())))
    }

    fn with_meta(meta: &str) -> Stateless {
        read(&format!(r#"{{"_meta":{{{meta}}}}}"#)).unwrap()
    }

    fn with_capabilities(json: &str) -> Stateless {
        with_meta(&format!(r#""io.modelcontextprotocol/clientCapabilities":{json}"#))
    }

    /// The text of a 400 with -32602.
    fn text<T>(outcome: Result<T, Reason>) -> String {
        let refusal = Refusal::new(outcome.err().expect("a refusal"));
        assert_eq!(refusal.status().as_u16(), 400);
        assert_eq!(refusal.error().code, code::INVALID_PARAMS);
        refusal.error().message.to_string()
    }

    #[test]
    fn ver_05_everything_a_rule_needs_is_cut_from_the_params() {
        let request = read(
            r#"{
                "other": {"name": "no"},
                "name": "n\u00e9",
                "uri": "file:///u",
                "taskId": "t",
                "arguments": {"name": "inner", "a": [1, 2]},
                "inputResponses": {"q": {}},
                "requestState": "v1.x",
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": {"name": "c"},
                    "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
                    "io.modelcontextprotocol/logLevel": "notice",
                    "progressToken": 9007199254740993,
                    "com.example/other": true
                }
            }"#,
        )
        .unwrap();
        assert_eq!(request.name.as_str(), Some("n\u{e9}"));
        assert_eq!(request.uri.as_str(), Some("file:///u"));
        assert_eq!(request.task_id.as_str(), Some("t"));
        assert_eq!(
            request.arguments.as_deref(),
            Some(&br#"{"name": "inner", "a": [1, 2]}"#[..])
        );
        assert_eq!(request.input_responses.as_deref(), Some(&br#"{"q": {}}"#[..]));
        assert_eq!(request.request_state.as_str(), Some("v1.x"));
        assert_eq!(request.progress_token.as_ref().unwrap().to_string(), "9007199254740993");
        assert_eq!(request.client_info.as_deref(), Some(&br#"{"name": "c"}"#[..]));
        assert_eq!(
            request.capabilities().unwrap().raw,
            Bytes::from_static(br#"{"roots": {}}"#)
        );
        assert_eq!(request.log_level(), Ok(Some("notice")));
    }

    #[test]
    fn ver_05_what_need_not_be_there_need_not_be_there() {
        // VER-05: `clientInfo` above all.
        let nulls = r#"{"name":null,"uri":null,"taskId":null,"arguments":null,"inputResponses":null,"requestState":null,
            "_meta":{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":null,
                     "io.modelcontextprotocol/logLevel":null,"progressToken":null}}"#;
        for request in [with_capabilities("{}"), read(nulls).unwrap()] {
            assert!(request.capabilities().is_ok());
            assert_eq!(request.log_level(), Ok(None));
            assert_eq!(request.name, Field::Absent);
            assert_eq!(request.uri, Field::Absent);
            assert_eq!(request.task_id, Field::Absent);
            assert_eq!(request.request_state, Field::Absent);
            assert_eq!(request.arguments, None);
            assert_eq!(request.input_responses, None);
            assert_eq!(request.progress_token, None);
            assert_eq!(request.client_info, None);
        }
    }

    #[test]
    fn ver_05_client_capabilities_are_present_and_an_object() {
        let lacks = "`_meta` lacks io.modelcontextprotocol/clientCapabilities";
        for params in ["", "{}", r#"{"_meta":{}}"#, r#"{"_meta":null}"#] {
            assert_eq!(text(read(params).unwrap().capabilities()), lacks, "{params}");
        }
        assert_eq!(text(with_capabilities("null").capabilities()), lacks);
        for json in ["[]", r#"[{},{}]"#, "7", "true", r#""{}""#] {
            assert_eq!(
                text(with_capabilities(json).capabilities()),
                "io.modelcontextprotocol/clientCapabilities in `_meta` must be an object",
                "{json}"
            );
        }
        assert!(text(with_capabilities(r#"{"roots":{},"roots":null}"#).capabilities()).contains("duplicate field"));
        // An unprefixed key is another key.
        assert_eq!(text(with_meta(r#""clientCapabilities":{}"#).capabilities()), lacks);
    }

    #[test]
    fn ver_05_params_that_can_be_read_in_two_ways_are_refused() {
        for params in [
            "[]",
            r#"["n","file:///u"]"#,
            r#"{"name":"a","name":"b"}"#,
            r#"{"name":"a","\u006eame":"b"}"#,
            r#"{"_meta":{},"_meta":{}}"#,
            r#"{"arguments":{},"arguments":{}}"#,
            r#"{"_meta":[1,{},{},"info"]}"#,
            r#"{"_meta":7}"#,
            r#"{"_meta":{"io.modelcontextprotocol/logLevel":"info","io.modelcontextprotocol/logLevel":"debug"}}"#,
        ] {
            assert!(text(read(params)).starts_with("`params` cannot be read: "), "{params}");
        }
        // What no rule needs may be written as it likes.
        assert!(read(r#"{"x":1,"x":2,"_meta":{"y":1,"y":2}}"#).is_ok());
    }

    #[test]
    fn ver_05_strings_are_strings() {
        let field = |json: &str| read(&format!(r#"{{"name":{json}}}"#)).unwrap().name;
        for (json, expected) in [
            (r#""7""#, Some("7")),
            (r#""""#, Some("")),
            (r#""\"""#, Some("\"")),
            (r#""\u4e16\ud83d\ude00""#, Some("\u{4e16}\u{1f600}")),
            ("7", None),
            ("true", None),
            ("{}", None),
            (r#"["a"]"#, None),
            (r#""\ud800""#, None),
        ] {
            assert_eq!(field(json).as_str(), expected, "{json}");
            assert_eq!(field(json) == Field::Other, expected.is_none(), "{json}");
        }
    }

    /// LOG-02.
    #[test]
    fn ver_05_the_log_level_is_one_of_eight() {
        let level = |json: &str| with_meta(&format!(r#""io.modelcontextprotocol/logLevel":{json}"#));
        for known in LOG_LEVELS {
            assert_eq!(level(&format!("{known:?}")).log_level(), Ok(Some(known)));
        }
        for (json, found) in [
            (r#""verbose""#, "is 'verbose'"),
            (r#""INFO""#, "is 'INFO'"),
            (r#"" info""#, "is ' info'"),
            (r#""""#, "is ''"),
            ("3", "is not a string"),
            (r#"["info"]"#, "is not a string"),
        ] {
            let said = text(level(json).log_level());
            assert_eq!(
                said,
                format!(
                    "io.modelcontextprotocol/logLevel {found}: it must be one of debug, info, notice, warning, error, \
                     critical, alert, emergency"
                )
            );
        }
    }

    /// VER-11, MRTR-03. One letter per capability: sampling, its tools, forms, URLs, roots, tasks.
    #[test]
    fn ver_11_capabilities_are_what_this_request_declares() {
        for (json, expected) in [
            ("{}", "......"),
            (" { } ", "......"),
            (r#"{"sampling":{}}"#, "s....."),
            (r#"{"sampling":{"tools":{}}}"#, "st...."),
            (r#"{"sampling":{"tools":null,"context":{}}}"#, "s....."),
            (r#"{"elicitation":{}}"#, "..f..."),
            (r#"{"elicitation":{ }}"#, "..f..."),
            (r#"{"elicitation":{"form":{}}}"#, "..f..."),
            (r#"{"elicitation":{"url":{}}}"#, "...u.."),
            (r#"{"elicitation":{"url":{},"form":{}}}"#, "..fu.."),
            (r#"{"elicitation":{"voice":{}}}"#, "......"),
            (r#"{"roots":{"listChanged":true}}"#, "....r."),
            (r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#, ".....x"),
            (r#"{"tasks":{}}"#, "......"), // T-40
            (r#"{"sampling":true,"elicitation":[],"roots":null}"#, "......"),
            (r#"{"tools":{},"form":{},"url":{}}"#, "......"),
            (r#"{"sampling":{"form":{},"url":{}}}"#, "s....."),
            (
                r#"{"x":1,"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{}}"#,
                "stfur.",
            ),
        ] {
            let request = with_capabilities(json);
            let c = request.capabilities().unwrap();
            let flags = [
                c.sampling,
                c.sampling_tools,
                c.elicitation_form,
                c.elicitation_url,
                c.roots,
                c.tasks,
            ];
            let found: String = flags
                .iter()
                .zip("stfurx".chars())
                .map(|(&yes, letter)| if yes { letter } else { '.' })
                .collect();
            assert_eq!(found, expected, "{json}");
            assert_eq!(c.raw, json.trim());
        }
    }
}
