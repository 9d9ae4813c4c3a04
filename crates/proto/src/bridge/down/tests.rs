use super::*;
use crate::bridge::up;
use crate::mrtr::InputMethod;

const ALL: [Version; 4] = [
    Version::V2024_11_05,
    Version::V2025_03_26,
    Version::V2025_06_18,
    Version::V2025_11_25,
];

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn meta(capabilities: &str, version: Version) -> SessionMeta {
    let params = format!(
        r#"{{"protocolVersion":"x","capabilities":{capabilities},"clientInfo":{{"name":"c", "version":"1"}}}}"#
    );
    SessionMeta::of_initialize(params.as_bytes(), version)
}

/// 4.2, `initialize`.
#[test]
fn line_4_2_initialize_is_answered_from_discover() {
    let fallback = json!({ "name": "gateway", "version": "0" });
    let read = |discovered: &str| -> Value {
        let result = initialize_result(discovered.as_bytes(), Version::V2025_06_18, &fallback);
        serde_json::from_slice(&result).unwrap()
    };
    let discovered = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"x":{}}},"instructions":"hi","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2"}}}"#;
    assert_eq!(
        read(discovered),
        json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "tools": {}, "logging": {} },
            "serverInfo": { "name": "s", "version": "2" },
            "instructions": "hi",
        })
    );
    assert_eq!(
        read(r#"{"serverInfo":{"name":"t","version":"1"}}"#)["serverInfo"]["name"],
        "t"
    );
    assert_eq!(read("{}")["serverInfo"], fallback);
    assert_eq!(
        (ttl_ms(br#"{"ttlMs":500}"#), ttl_ms(b"{}"), ttl_ms(br#"{"ttlMs":-1}"#)),
        (500, 0, 0)
    );
}

/// 4.2, D `tasks` param: the capability is not offered, and `task` is removed from requests.
#[test]
fn line_4_2_tasks_are_neither_offered_nor_passed_on() {
    let discovered = br#"{"capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
    for version in ALL {
        let result: Value = serde_json::from_slice(&initialize_result(discovered, version, &json!({}))).unwrap();
        assert_eq!(
            result["capabilities"],
            json!({ "tools": {}, "logging": {} }),
            "{version}"
        );
        let meta = meta(r#"{"tasks":{"list":{}}}"#, version);
        let params = meta.request_params(&bytes(r#"{"name":"t","arguments":{"task":1},"task":{"ttl":1}}"#), None);
        let params: Value = serde_json::from_slice(&params).unwrap();
        assert_eq!(
            (params.get("task"), &params["arguments"]),
            (None, &json!({ "task": 1 }))
        );
        assert_eq!(params["_meta"][CLIENT_CAPABILITIES], json!({}), "{version}");
    }
}

/// 4.2, requests: members are injected, and all others stay to the byte.
#[test]
fn line_4_2_requests_get_the_facts_of_their_session() {
    let own = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c", "version":"1"},"io.modelcontextprotocol/clientCapabilities":{}"#;
    let meta = meta("{}", Version::V2025_11_25);
    for (params, expected) in [
        ("", format!(r#"{{"_meta":{{{own}}}}}"#)),
        ("{}", format!(r#"{{"_meta":{{{own}}}}}"#)),
        (
            r#"{"name":"t","arguments":{"b": 1.50}}"#,
            format!(r#"{{"name":"t","arguments":{{"b": 1.50}},"_meta":{{{own}}}}}"#),
        ),
        (
            r#"{"_meta":{"progressToken":1,"io.modelcontextprotocol/logLevel":"debug"},"name":"t","task":{"ttl":1}}"#,
            format!(r#"{{"_meta":{{"progressToken":1,{own}}},"name":"t"}}"#),
        ),
        (r#"{"_meta":null,"a":1}"#, format!(r#"{{"a":1,"_meta":{{{own}}}}}"#)),
        (
            r#"{"requestState":"x","inputResponses":{}}"#,
            format!(r#"{{"_meta":{{{own}}}}}"#),
        ),
    ] {
        assert_eq!(meta.request_params(&bytes(params), None), expected, "{params}");
    }
    let with_level = meta.request_params(&bytes("{}"), Some(LogLevel::Info));
    let expected = format!(r#"{{"_meta":{{{own},"io.modelcontextprotocol/logLevel":"info"}}}}"#);
    assert_eq!(with_level, expected);
}

/// 4.2, requests: capabilities of the client's revision.
#[test]
fn line_4_2_capabilities_depend_on_the_revision() {
    let declared = r#"{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}},"tasks":{},"experimental":{}}"#;
    let expected = [
        r#"{"roots":{},"sampling":{}}"#,
        r#"{"roots":{},"sampling":{}}"#,
        r#"{"elicitation":{},"roots":{},"sampling":{}}"#,
        r#"{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{"tools":{}}}"#,
    ];
    for (version, expected) in ALL.into_iter().zip(expected) {
        assert_eq!(capabilities(declared, version).to_string(), expected, "{version}");
    }
    assert_eq!(
        capabilities(r#"{"sampling":true,"roots":false}"#, Version::V2025_11_25),
        json!({ "sampling": {} })
    );
}

/// 4.2, results: modern members go, in every revision.
#[test]
fn line_4_2_results_lose_modern_members() {
    let json = r#"{"resultType":"complete","ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{},"x":1},"content":[{"type":"text","text":"a" }]}"#;
    for version in ALL {
        let (translated, lost) = result("tools/call", &bytes(json), version);
        assert_eq!(
            translated, r#"{"_meta":{"x":1},"content":[{"type":"text","text":"a" }]}"#,
            "{version}"
        );
        assert!(!lost);
    }
    let only = r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{}},"tools":[]}"#;
    assert_eq!(
        result("tools/list", &bytes(only), Version::V2025_11_25).0,
        r#"{"tools":[]}"#
    );
}

/// 4.2, results: structured content that is not an object.
#[test]
fn line_4_2_structured_content_that_is_no_object_becomes_text() {
    for (json, expected) in [
        (
            r#"{"structuredContent":{"a":1},"content":[]}"#,
            r#"{"structuredContent":{"a":1},"content":[]}"#,
        ),
        (
            r#"{"structuredContent":[1,2],"content":[]}"#,
            r#"{"content":[{"type":"text","text":"[1,2]"}]}"#,
        ),
        (
            r#"{"structuredContent":[1,2],"content":[{"type":"text","text":"[1, 2]"}]}"#,
            r#"{"content":[{"type":"text","text":"[1, 2]"}]}"#,
        ),
        (
            r#"{"content":[{"type":"text","text":"hi"}],"structuredContent":"x"}"#,
            r#"{"content":[{"type":"text","text":"hi"},{"type":"text","text":"\"x\""}]}"#,
        ),
        (
            r#"{"structuredContent":7}"#,
            r#"{"content":[{"type":"text","text":"7"}]}"#,
        ),
    ] {
        assert_eq!(
            result("tools/call", &bytes(json), Version::V2025_11_25).0,
            expected,
            "{json}"
        );
    }
    let listed =
        r#"{"tools":[{"name":"a","outputSchema":{"type":"array"}},{"name":"b","outputSchema":{"type":"object"}}]}"#;
    assert_eq!(
        result("tools/list", &bytes(listed), Version::V2025_11_25).0,
        r#"{"tools":[{"name":"a"},{"name":"b","outputSchema":{"type":"object"}}]}"#
    );
}

/// 4.2, results: content that a revision does not have.
#[test]
fn line_4_2_unknown_content_becomes_text() {
    let json = r#"{"content":[{"type":"resource_link","name":"n","uri":"a:b"},{"type":"audio","data":"AA","mimeType":"audio/wav"},{"type":"text","text":"x"}]}"#;
    let kinds = |version| {
        let (translated, lost) = result("tools/call", &bytes(json), version);
        let value: Value = serde_json::from_slice(&translated).unwrap();
        let blocks = value["content"].as_array().unwrap().clone();
        let kinds: Vec<_> = blocks
            .iter()
            .map(|block| block["type"].as_str().unwrap().to_owned())
            .collect();
        (kinds.join(" "), lost, blocks[0]["text"].clone())
    };
    assert_eq!(kinds(ALL[0]), ("text text text".to_owned(), true, json!("n: a:b")));
    assert_eq!(kinds(ALL[1]), ("text audio text".to_owned(), true, json!("n: a:b")));
    for version in [ALL[2], ALL[3]] {
        assert_eq!(
            kinds(version),
            ("resource_link audio text".to_owned(), false, Value::Null)
        );
    }
    let prompt = r#"{"messages":[{"role":"user","content":{"type":"resource_link","name":"n","uri":"a:b"}}]}"#;
    assert_eq!(
        result("prompts/get", &bytes(prompt), ALL[0]).0,
        r#"{"messages":[{"role":"user","content":{"type":"text","text":"n: a:b"}}]}"#
    );
}

/// 4.2, `InputRequiredResult`: questions and the exact state.
#[test]
fn line_4_2_input_requests_are_read_with_their_exact_state() {
    let json = bytes(
        r#"{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message" : 1.0}},"b":{"method":"roots/list"}},"requestState":"x\u0041"}"#,
    );
    let required = input_required(&json).unwrap().unwrap();
    assert_eq!(required.state.as_deref(), Some(&br#""x\u0041""#[..]));
    assert_eq!(
        required.requests,
        [
            ("a".to_owned(), InputMethod::Elicit, bytes(r#"{"message" : 1.0}"#)),
            ("b".to_owned(), InputMethod::Roots, Bytes::new()),
        ]
    );
    for complete in [
        r#"{"resultType":"complete","content":[{"text":"input_required"}]}"#,
        r#"{"content":[]}"#,
        r#"{"structuredContent":{"resultType":"input_required"}}"#,
    ] {
        assert_eq!(input_required(&bytes(complete)), None, "{complete}");
    }
    for malformed in [
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","inputRequests":{"a":{"method":"tools/list"}}}"#,
        r#"{"resultType":"input_required","inputRequests":[]}"#,
    ] {
        assert!(input_required(&bytes(malformed)).unwrap().is_err(), "{malformed}");
    }
    let state_only = input_required(&bytes(r#"{"resultType":"input_required","requestState":"s"}"#));
    assert!(state_only.unwrap().unwrap().requests.is_empty());
}

/// 4.2: a retry has the original params, the answers of its own round and the exact state.
#[test]
fn line_4_2_retry_has_the_original_params_and_one_round_of_answers() {
    let original = bytes(r#"{"name":"t","arguments":{"b": 1.50},"_meta":{"k":1}}"#);
    let responses = [
        ("q\"1".to_owned(), bytes(r#"{"action": "accept"}"#)),
        ("b".to_owned(), bytes("{}")),
    ];
    assert_eq!(
        retry_params(&original, &responses, Some(&bytes(r#""x\u0041Z""#))),
        r#"{"name":"t","arguments":{"b": 1.50},"_meta":{"k":1},"inputResponses":{"q\"1":{"action": "accept"},"b":{}},"requestState":"x\u0041Z"}"#
    );
    assert_eq!(
        retry_params(&original, &[], Some(&bytes("\"s\""))),
        r#"{"name":"t","arguments":{"b": 1.50},"_meta":{"k":1},"requestState":"s"}"#
    );
    assert_eq!(
        retry_params(&original, &responses[1..], None),
        r#"{"name":"t","arguments":{"b": 1.50},"_meta":{"k":1},"inputResponses":{"b":{}}}"#
    );
}

/// 4.2, results: questions in the form of the client's revision.
#[test]
fn line_4_2_questions_have_the_form_of_the_revision() {
    let ask = |method, params: &str, version| {
        let asked = question_params(method, &bytes(params), version, "e7");
        asked.map(|params| String::from_utf8(params.to_vec()).unwrap()).ok()
    };
    let form = r#"{"mode":"form","message":"m"}"#;
    let expected = [None, None, Some(r#"{"message":"m"}"#), Some(form)];
    for (version, expected) in ALL.into_iter().zip(expected) {
        assert_eq!(
            ask(InputMethod::Elicit, form, version).as_deref(),
            expected,
            "{version}"
        );
    }
    let url = r#"{"mode":"url","url":"https://a"}"#;
    let expected = [
        None,
        None,
        None,
        Some(r#"{"mode":"url","url":"https://a","elicitationId":"e7"}"#),
    ];
    for (version, expected) in ALL.into_iter().zip(expected) {
        assert_eq!(ask(InputMethod::Elicit, url, version).as_deref(), expected, "{version}");
    }
    let many = r#"{"messages":[{"role":"user","content":[{"text":"a"},{"text":"b"}]},{"role":"user","content":{"text":"c"}}]}"#;
    for version in &ALL[..3] {
        let asked: Value = serde_json::from_str(&ask(InputMethod::Sample, many, *version).unwrap()).unwrap();
        let texts: Vec<_> = asked["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| &m["content"]["text"])
            .collect();
        assert_eq!(texts, ["a", "b", "c"], "{version}");
    }
    assert_eq!(ask(InputMethod::Sample, many, ALL[3]).unwrap(), many);
    assert_eq!(ask(InputMethod::Roots, "", ALL[0]).unwrap(), "");
}

/// 4.2: a client that answers with an error.
#[test]
fn line_4_2_errors_of_the_client_cancel_a_form_and_fail_other_calls() {
    let refused = || Err(RpcError::new(-1, "no"));
    assert_eq!(
        answer(InputMethod::Elicit, refused()),
        RoundAnswer::Response(bytes(r#"{"action":"cancel"}"#))
    );
    for method in [InputMethod::Sample, InputMethod::Roots] {
        assert_eq!(answer(method, refused()), RoundAnswer::Fails(RpcError::new(-1, "no")));
    }
    assert_eq!(
        answer(InputMethod::Roots, Ok(bytes("{ }"))),
        RoundAnswer::Response(bytes("{ }"))
    );
}

/// 4.2, `-32021`, and resource-not-found, which stays.
#[test]
fn line_4_2_error_codes_are_mapped() {
    let missing = RpcError::new(-32021, "x").with_data(json!({ "requiredCapabilities": { "sampling": {} } }));
    let mapped = error(missing);
    assert_eq!(mapped.code, -32603);
    assert!(mapped.message.contains("sampling"), "{}", mapped.message);
    assert_eq!(mapped.data.unwrap()["upstream"]["code"], -32021);
    for (from, to) in [
        (-32022, -32603),
        (-32020, -32603),
        (-32602, -32602),
        (-32002, -32002),
        (7, 7),
    ] {
        assert_eq!(error(RpcError::new(from, "x")).code, to, "{from}");
    }
}

/// 4.2, subscriptions and list changes.
#[test]
fn line_4_2_one_subscription_has_the_union_of_lists_and_uris() {
    let capabilities = json!({ "tools": { "listChanged": true }, "prompts": {}, "resources": { "listChanged": true } });
    let mut filter = offered_lists(&capabilities);
    assert_eq!((filter.tools, filter.prompts, filter.resources), (true, false, true));
    filter.uris = vec!["a:b".into()];
    let params: Value = serde_json::from_slice(&listen_params(&meta("{}", ALL[3]), &filter)).unwrap();
    assert_eq!(
        params["notifications"],
        json!({ "toolsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["a:b"] })
    );
    assert_eq!(
        all_changes(&filter),
        [Change::Tools, Change::Resources, Change::Updated("a:b".into())]
    );
    let acknowledged = br#"{"notifications":{"resourceSubscriptions":["a:b"]}}"#;
    assert_eq!(acknowledged_uris(acknowledged), ["a:b"]);
    assert!(acknowledged_uris(b"{}").is_empty());
    let params = bytes(r#"{"uri":"a:b","_meta":{"io.modelcontextprotocol/subscriptionId":4}}"#);
    assert_eq!(notification_params(&params), r#"{"uri":"a:b"}"#);
}

/// A legacy result translated up and then down is the same value.
#[test]
fn round_trip_of_results_changes_nothing() {
    for (method, json) in [
        (
            "tools/call",
            r#"{"content":[{"type":"text","text":"a"}],"isError":true}"#,
        ),
        (
            "tools/call",
            r#"{"_meta":{"x":1},"content":[],"structuredContent":{"n":12345678901234567890}}"#,
        ),
        (
            "tools/list",
            r#"{"tools":[{"name":"a","inputSchema":{"type":"object"}}],"nextCursor":"1"}"#,
        ),
        ("resources/read", r#"{"contents":[{"uri":"a:b","text":"\u00e9"}]}"#),
        (
            "prompts/get",
            r#"{"messages":[{"role":"user","content":{"type":"audio","data":""}}]}"#,
        ),
        ("completion/complete", r#"{"completion":{"values":["a"]}}"#),
    ] {
        let raised = up::result(method, &bytes(json));
        let mut decorated = raised.to_vec();
        decorated.truncate(raised.len() - 1);
        decorated.extend_from_slice(br#","resultType":"complete","ttlMs":0,"cacheScope":"private"}"#);
        assert_eq!(
            result(method, &decorated.into(), Version::V2025_11_25).0,
            json,
            "{method}"
        );
    }
}

/// Params translated down and then up are the same bytes.
#[test]
fn round_trip_of_params_changes_nothing() {
    let meta = meta(r#"{"roots":{}}"#, Version::V2025_11_25);
    for params in [
        r#"{"name":"t","arguments":{"z":1e400,"a":[ 1 ]}}"#,
        r#"{"_meta":{"progressToken":"x","traceparent":"00"},"uri":"a:b"}"#,
    ] {
        let lowered = meta.request_params(&bytes(params), Some(LogLevel::Debug));
        assert_eq!(up::request_params(&lowered), params);
        let facts = up::ClientFacts::read(&lowered);
        assert_eq!(
            (facts.capabilities, facts.log_level),
            (bytes(r#"{"roots":{}}"#), Some(LogLevel::Debug))
        );
    }
}
