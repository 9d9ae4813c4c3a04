//! The questions in a result, and the answers in the retry (MRTR-02, MRTR-06).

use crate::jsonrpc::{Fields, Params, RpcError};
use bytes::Bytes;

/// The kinds of questions in the middle of a call (MRTR-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputMethod {
    /// A question to the user.
    Elicit,
    /// A question to the model.
    Sample,
    /// The roots of the client.
    Roots,
}

impl InputMethod {
    /// The method with this name on the wire. `None` for any other method.
    pub fn from_name(method: &str) -> Option<Self> {
        match method {
            "elicitation/create" => Some(InputMethod::Elicit),
            "sampling/createMessage" => Some(InputMethod::Sample),
            "roots/list" => Some(InputMethod::Roots),
            _ => None,
        }
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            InputMethod::Elicit => "elicitation/create",
            InputMethod::Sample => "sampling/createMessage",
            InputMethod::Roots => "roots/list",
        }
    }
}

/// Why a question is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadInputRequest {
    /// Not elicitation, sampling or roots (MRTR-02).
    #[error("`{0}` cannot be asked for in the middle of a call")]
    Method(Box<str>),
    /// The params are not a JSON object, or are missing although the method needs them.
    #[error("the params of `{0}` must be an object")]
    Params(&'static str),
    /// The key is in use.
    #[error("the key `{0}` is used twice")]
    Key(Box<str>),
}

/// One question to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputRequest {
    /// The method.
    pub method: InputMethod,
    /// The raw params. `None` for a bare `roots/list`.
    pub params: Option<Bytes>,
}

/// The questions of a result, in their order, with the keys of their answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputRequests(Vec<(Box<str>, InputRequest)>);

impl InputRequests {
    /// No questions.
    pub fn new() -> Self {
        InputRequests::default()
    }

    /// Adds a question of `method` with raw `params`, which may be empty, under `key`.
    ///
    /// Removes members that belong to a request of the legacy era: `elicitationId`, `task` and `_meta.progressToken` have no
    /// meaning without a request in flight (MRTR-02, requirements 4.1.1).
    pub fn ask(&mut self, key: &str, method: &str, params: &Bytes) -> Result<(), BadInputRequest> {
        let method = InputMethod::from_name(method).ok_or_else(|| BadInputRequest::Method(method.into()))?;
        if self.get(key).is_some() {
            return Err(BadInputRequest::Key(key.into()));
        }
        let params = match (params.is_empty(), method) {
            (true, InputMethod::Roots) => None,
            _ => Some(clean(method, params).ok_or(BadInputRequest::Params(method.as_str()))?),
        };
        self.0.push((key.into(), InputRequest { method, params }));
        Ok(())
    }

    /// The question under `key`.
    pub fn get(&self, key: &str) -> Option<&InputRequest> {
        let found = self.0.iter().find(|(known, _)| **known == *key);
        found.map(|(_, request)| request)
    }

    /// All questions, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &InputRequest)> {
        self.0.iter().map(|(key, request)| (&**key, request))
    }

    /// Keeps the questions that `keep` accepts: those without an answer are asked again (MRTR-06).
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &InputRequest) -> bool) {
        self.0.retain(|(key, request)| keep(key, request));
    }

    /// The number of questions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no questions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The result object with `requests` and `request_state` (MRTR-02). One of the two must be present. A result without both
/// would be an error of the server, since the client could do nothing with it.
pub fn input_required(requests: &InputRequests, request_state: Option<&str>) -> Result<Vec<u8>, RpcError> {
    if requests.is_empty() && request_state.is_none() {
        return Err(RpcError::internal("the server asked for input without saying for what"));
    }
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(br#"{"resultType":"input_required""#);
    if !requests.is_empty() {
        out.extend_from_slice(br#","inputRequests":{"#);
        for (n, (key, request)) in requests.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            write_text(&mut out, key);
            out.extend_from_slice(br#":{"method":"#);
            write_text(&mut out, request.method.as_str());
            if let Some(params) = &request.params {
                out.extend_from_slice(br#","params":"#);
                out.extend_from_slice(params);
            }
            out.push(b'}');
        }
        out.push(b'}');
    }
    if let Some(state) = request_state {
        out.extend_from_slice(br#","requestState":"#);
        write_text(&mut out, state);
    }
    out.push(b'}');
    Ok(out)
}

/// The answers in a retry, as raw JSON objects from its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputResponses(Vec<(Box<str>, Bytes)>);

impl InputResponses {
    /// Reads `params.inputResponses`: an object of objects, or absent (MRTR-06).
    pub fn read(params: &Params) -> Result<Self, RpcError> {
        let Some(raw) = field(params, "inputResponses") else {
            return Ok(InputResponses::default());
        };
        let Fields(fields) = Fields::read(raw)
            .ok_or_else(|| RpcError::invalid_params("`params.inputResponses` must be an object of objects"))?;
        let mut responses = InputResponses(Vec::with_capacity(fields.len()));
        let mut seen = std::collections::HashSet::with_capacity(fields.len());
        for (key, value) in fields {
            if !value.get().starts_with('{') {
                let message = format!("`params.inputResponses[{key:?}]` must be an object");
                return Err(RpcError::invalid_params(message));
            }
            let raw = params.raw().slice_ref(value.get().as_bytes());
            let key: Box<str> = key.into();
            if !seen.insert(key.clone()) {
                let message = format!("`params.inputResponses[{key:?}]` is there twice");
                return Err(RpcError::invalid_params(message));
            }
            responses.0.push((key, raw));
        }
        Ok(responses)
    }

    /// The raw answer under `key`.
    pub fn get(&self, key: &str) -> Option<&Bytes> {
        let found = self.0.iter().find(|(known, _)| **known == *key);
        found.map(|(_, raw)| raw)
    }

    /// All answers, in their order. The caller ignores unknown keys (MRTR-06).
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(key, raw)| (&**key, raw))
    }

    /// The number of answers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no answers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads `params.requestState`: a string, or absent.
pub fn request_state(params: &Params) -> Result<Option<String>, RpcError> {
    let Some(raw) = field(params, "requestState") else {
        return Ok(None);
    };
    let text = serde_json::from_str(raw);
    text.map(Some)
        .map_err(|_| RpcError::invalid_params("`params.requestState` must be a string"))
}

/// The raw value of a field of `params`. Most calls are not retries, and a search for the letters is much cheaper than a
/// second parse. Also finds a key with escapes.
fn field<'a>(params: &'a Params, name: &str) -> Option<&'a str> {
    let may_have = |letters: &[u8]| memchr::memmem::find(params.raw(), letters).is_some();
    if !may_have(name.as_bytes()) && !may_have(b"\\u") {
        return None;
    }
    let text = std::str::from_utf8(params.raw()).ok()?;
    Some(Fields::read(text)?.find(name)?.get())
}

fn clean(method: InputMethod, params: &Bytes) -> Option<Bytes> {
    let fields = Fields::read(std::str::from_utf8(params).ok()?)?;
    let meta = fields.find("_meta").and_then(|meta| Fields::read(meta.get()));
    let token = meta.as_ref().is_some_and(|meta| meta.find("progressToken").is_some());
    let unwanted = |name: &str| name == "task" || name == "elicitationId" && method == InputMethod::Elicit;
    if !token && !fields.0.iter().any(|(name, _)| unwanted(name)) {
        return Some(params.clone());
    }
    let mut out = Vec::with_capacity(params.len());
    write_fields(&mut out, &fields, |out, name, raw| {
        if unwanted(name) {
            return false;
        }
        if name != "_meta" {
            out.extend_from_slice(raw.as_bytes());
            return true;
        }
        match Fields::read(raw) {
            Some(meta) => write_fields(out, &meta, |out, name, raw| {
                out.extend_from_slice(raw.as_bytes());
                name != "progressToken"
            }),
            None => out.extend_from_slice(raw.as_bytes()),
        }
        true
    });
    Some(out.into())
}

/// Writes an object. `value` writes each value, and returns false to omit the field.
fn write_fields(out: &mut Vec<u8>, fields: &Fields<'_>, value: impl Fn(&mut Vec<u8>, &str, &str) -> bool) {
    out.push(b'{');
    let mut first = true;
    for (name, raw) in &fields.0 {
        let before = out.len();
        if !first {
            out.push(b',');
        }
        write_text(out, name);
        out.push(b':');
        if value(out, name, raw.get()) {
            first = false;
        } else {
            out.truncate(before);
        }
    }
    out.push(b'}');
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a JSON value can be written to memory");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn params(json: &str) -> Params {
        Params::from_raw(Bytes::copy_from_slice(json.as_bytes()))
    }

    fn ask(method: &str, json: &str) -> Result<InputRequests, BadInputRequest> {
        let mut requests = InputRequests::new();
        requests.ask("q1", method, &Bytes::copy_from_slice(json.as_bytes()))?;
        Ok(requests)
    }

    #[test]
    fn mrtr_02_result_equals_the_wire_example() {
        let form = r#"{"mode":"form","message":"Seat?","requestedSchema":{"type":"object"}}"#;
        let mut requests = ask("elicitation/create", form).unwrap();
        let written = |requests: &InputRequests, state| String::from_utf8(input_required(requests, state).unwrap());
        assert_eq!(
            written(&requests, Some("v1.Zm9v")).unwrap(),
            [
                r#"{"resultType":"input_required","inputRequests":{"q1":{"method":"elicitation/create","params":"#,
                form,
                r#"}},"requestState":"v1.Zm9v"}"#,
            ]
            .concat()
        );
        requests.ask("\"a", "roots/list", &Bytes::new()).unwrap();
        requests.retain(|key, _| key != "q1");
        assert_eq!(
            written(&requests, None).unwrap(),
            r#"{"resultType":"input_required","inputRequests":{"\"a":{"method":"roots/list"}}}"#
        );
        assert_eq!(
            written(&InputRequests::new(), Some("s")).unwrap(),
            r#"{"resultType":"input_required","requestState":"s"}"#
        );
    }

    #[test]
    fn mrtr_02_result_without_questions_and_state_is_an_error() {
        let error = input_required(&InputRequests::new(), None).unwrap_err();
        assert_eq!(error.code, -32603);
    }

    #[test]
    fn mrtr_02_only_three_methods_can_be_asked() {
        for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
            assert_eq!(InputMethod::from_name(method).unwrap().as_str(), method);
            assert!(ask(method, "{}").is_ok(), "{method}");
        }
        for method in ["", "ping", "tools/call", "elicitation/Create", "tasks/get"] {
            assert_eq!(ask(method, "{}"), Err(BadInputRequest::Method(method.into())));
        }
    }

    #[test]
    fn mrtr_02_params_are_objects_and_keys_are_unique() {
        for bad in ["", "[]", "null", "1", "{", "{}{}", "\"x\""] {
            let error = Err(BadInputRequest::Params("sampling/createMessage"));
            assert_eq!(ask("sampling/createMessage", bad), error, "{bad}");
        }
        assert_eq!(ask("roots/list", "[]"), Err(BadInputRequest::Params("roots/list")));
        assert_eq!(ask("roots/list", "").unwrap().get("q1").unwrap().params, None);
        let mut requests = ask("roots/list", "").unwrap();
        let twice = requests.ask("q1", "roots/list", &Bytes::new());
        assert_eq!(twice, Err(BadInputRequest::Key("q1".into())));
        assert_eq!(requests.len(), 1);
    }

    #[test]
    fn mrtr_02_members_of_the_legacy_era_are_removed() {
        let cleaned = |method, json| {
            let requests = ask(method, json).unwrap();
            let params = requests.get("q1").unwrap().params.clone().unwrap();
            String::from_utf8(params.to_vec()).unwrap()
        };
        for (method, before, after) in [
            (
                "elicitation/create",
                r#"{"mode":"url","elicitationId":"e1","url":"https://x"}"#,
                r#"{"mode":"url","url":"https://x"}"#,
            ),
            (
                "elicitation/create",
                r#"{"elicitation\u0049d":"e1", "task":{"ttl":1}}"#,
                "{}",
            ),
            (
                "sampling/createMessage",
                r#"{"_meta":{"progressToken":1},"messages":[ ],"task":{}}"#,
                r#"{"_meta":{},"messages":[ ]}"#,
            ),
            (
                "sampling/createMessage",
                r#"{"maxTokens":12345678901234567890123,"_meta":{"a":1.50,"progressToken":"x","b":2}}"#,
                r#"{"maxTokens":12345678901234567890123,"_meta":{"a":1.50,"b":2}}"#,
            ),
            (
                "sampling/createMessage",
                r#"{"elicitationId":1}"#,
                r#"{"elicitationId":1}"#,
            ),
            (
                "sampling/createMessage",
                r#"{ "metadata":{"task":1,"progressToken":1},"_meta":7 }"#,
                r#"{ "metadata":{"task":1,"progressToken":1},"_meta":7 }"#,
            ),
            (
                "roots/list",
                r#"{"_meta":{"progressToken":1,"t":"p"}}"#,
                r#"{"_meta":{"t":"p"}}"#,
            ),
        ] {
            assert_eq!(cleaned(method, before), after);
        }
    }

    #[test]
    fn mrtr_06_responses_are_an_object_of_objects() {
        let read = |json: &str| InputResponses::read(&params(json));
        for absent in ["", "{}", r#"{"arguments":{"inputResponses":1}}"#, "[1]"] {
            assert!(read(absent).unwrap().is_empty(), "{absent}");
        }
        let whole = r#"{"inputResponses":{"q1":{"action":"accept","content":{"n":1.0}},"x\n":{ }}}"#;
        let responses = read(whole).unwrap();
        let all: Vec<_> = responses.iter().map(|(key, raw)| (key, &raw[..])).collect();
        let accepted: &[u8] = br#"{"action":"accept","content":{"n":1.0}}"#;
        assert_eq!(all, [("q1", accepted), ("x\n", b"{ }")]);
        assert_eq!(responses.get("q1").unwrap(), accepted);
        assert_eq!((responses.get("q2"), responses.len()), (None, 2));
        assert_eq!(read(r#"{"input\u0052esponses":{"a":{}}}"#).unwrap().len(), 1);
        for bad in [
            r#"{"inputResponses":null}"#,
            r#"{"inputResponses":[]}"#,
            r#"{"inputResponses":"q1"}"#,
            r#"{"inputResponses":{"q1":null}}"#,
            r#"{"inputResponses":{"q1":[]}}"#,
            r#"{"inputResponses":{"q1":{},"q2":1}}"#,
            r#"{"inputResponses":{"q1":{},"q\u0031":{}}}"#,
        ] {
            assert_eq!(read(bad).expect_err(bad).code, -32602, "{bad}");
        }
    }

    #[test]
    fn mrtr_04_the_request_state_is_a_string() {
        let read = |json: &str| request_state(&params(json));
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(r#"{"requestState":"v1.\u0061"}"#), Ok(Some("v1.a".into())));
        assert_eq!(read(r#"{"request\u0053tate":""}"#), Ok(Some(String::new())));
        for bad in ["null", "1", "{}", "[\"v1.a\"]"] {
            let error = read(&format!(r#"{{"requestState":{bad}}}"#)).expect_err(bad);
            assert_eq!(error.code, -32602, "{bad}");
        }
    }

    proptest! {
        /// MRTR-02: for any input, the output is JSON of the right shape, without forbidden members.
        #[test]
        fn mrtr_02_results_have_the_right_shape(
            keys in proptest::collection::hash_set("\\PC{0,4}", 1..4),
            (task, id, token) in any::<(bool, bool, bool)>(),
            state in proptest::option::of("\\PC{0,8}"),
        ) {
            let mut params = serde_json::json!({"message": "m", "_meta": {"a": 1}});
            if task { params["task"] = 1.into(); }
            if id { params["elicitationId"] = "e".into(); }
            if token { params["_meta"]["progressToken"] = 1.into(); }
            let mut requests = InputRequests::new();
            for key in &keys {
                requests.ask(key, "elicitation/create", &params.to_string().into()).unwrap();
            }
            let result = input_required(&requests, state.as_deref()).unwrap();
            let value: Value = serde_json::from_slice(&result).unwrap();
            prop_assert_eq!(&value["resultType"], "input_required");
            prop_assert_eq!(value.get("requestState").and_then(Value::as_str), state.as_deref());
            for key in &keys {
                let expected = serde_json::json!(
                    {"method": "elicitation/create", "params": {"message": "m", "_meta": {"a": 1}}}
                );
                prop_assert_eq!(&value["inputRequests"][key], &expected);
            }
        }

        #[test]
        fn mrtr_06_any_text_is_read_without_a_panic(text in "\\PC{0,60}") {
            for json in [text.clone(), format!(r#"{{"inputResponses":{text},"requestState":{text}}}"#)] {
                let _ = (InputResponses::read(&params(&json)), request_state(&params(&json)));
                let _ = ask("roots/list", &json);
            }
        }
    }
}
