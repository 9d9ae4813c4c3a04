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
fn ver_05_all_needed_members_are_read_from_the_params() {
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
fn ver_05_optional_members_may_be_absent() {
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
fn ver_05_ambiguous_params_are_refused() {
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
    // Members that no rule needs may be repeated.
    assert!(read(r#"{"x":1,"x":2,"_meta":{"y":1,"y":2}}"#).is_ok());
}

#[test]
fn ver_05_fields_of_another_type_are_not_text() {
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
