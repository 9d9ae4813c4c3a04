use super::*;
use serde_json::Value;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn client(capabilities: &str) -> ClientCapabilities {
    let params = format!("{{\"capabilities\":{capabilities}}}");
    ClientCapabilities::of_initialize(params.as_bytes())
}

/// 4.1, request/response: modern members go, all others stay to the byte.
#[test]
fn line_4_1_request_params_lose_modern_members_only() {
    let meta = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"info""#;
    for (params, expected) in [
        (
            format!(r#"{{"name":"t","arguments":{{"b": 1.50,"a":12345678901234567890}},"_meta":{{{meta}}}}}"#),
            r#"{"name":"t","arguments":{"b": 1.50,"a":12345678901234567890}}"#,
        ),
        (
            format!(r#"{{"_meta":{{{meta},"traceparent":"00-1","progressToken":7}},"name":"t"}}"#),
            r#"{"_meta":{"traceparent":"00-1","progressToken":7},"name":"t"}"#,
        ),
        (
            format!(r#"{{"name":"t","inputResponses":{{"q1":{{}}}},"requestState":"s","_meta":{{{meta}}}}}"#),
            r#"{"name":"t"}"#,
        ),
        (
            r#"{"name":"t","task":{"ttl":1},"arguments":{"task":1}}"#.to_owned(),
            r#"{"name":"t","arguments":{"task":1}}"#,
        ),
        (
            r#"{"arguments":{"requestState":1}}"#.to_owned(),
            r#"{"arguments":{"requestState":1}}"#,
        ),
        (
            r#"{"_m\u0065ta":{"io.modelcontextprotocol\/logLevel":"info","x":1}}"#.to_owned(),
            r#"{"_meta":{"x":1}}"#,
        ),
        ("[1]".to_owned(), "[1]"),
    ] {
        assert_eq!(request_params(&bytes(&params)), expected, "{params}");
    }
}

#[test]
fn line_4_1_facts_of_the_client_are_read_from_each_request() {
    let params = bytes(
        r#"{"requestState":"x","_meta":{"io.modelcontextprotocol/clientInfo":{"name":"c","version":"2"},"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/logLevel":"debug"}}"#,
    );
    let facts = ClientFacts::read(&params);
    assert_eq!(facts.name_and_version(), ("c".to_owned(), "2".to_owned()));
    assert_eq!(facts.capabilities, r#"{"roots":{}}"#);
    assert_eq!((facts.log_level, facts.has_state), (Some(LogLevel::Debug), true));
    let none = ClientFacts::read(&bytes("{}"));
    assert_eq!((none.log_level, none.has_state, none.info), (None, false, None));
}

/// 4.1, per-request capabilities: roots without `listChanged`, extensions dropped, the rest as it is.
#[test]
fn line_4_1_capabilities_are_mapped_for_initialize() {
    let facts = |capabilities: &str, info: Option<&str>| ClientFacts {
        info: info.map(bytes),
        capabilities: bytes(capabilities),
        ..ClientFacts::default()
    };
    let fallback = json!({ "name": "rethread", "version": "0" });
    for (declared, expected) in [
        ("{}", json!({})),
        (r#"{"roots":{"listChanged":true}}"#, json!({ "roots": {} })),
        (
            r#"{"sampling":{"tools":{}},"extensions":{"x":{}}}"#,
            json!({ "sampling": { "tools": {} } }),
        ),
        (
            r#"{"elicitation":{"form":{},"url":{}},"experimental":{"y":1}}"#,
            json!({ "elicitation": { "form": {}, "url": {} } }),
        ),
        (
            r#"{"elicitation":true,"sampling":false,"roots":null}"#,
            json!({ "elicitation": {} }),
        ),
        ("", json!({})),
    ] {
        let params: Value = serde_json::from_slice(&initialize_params(&facts(declared, None), &fallback)).unwrap();
        assert_eq!(params["capabilities"], expected, "{declared}");
        assert_eq!(
            (&params["protocolVersion"], &params["clientInfo"]),
            (&json!("2025-11-25"), &fallback)
        );
    }
    let named = facts("{}", Some(r#"{"name":"c","version":"1","title":"C"}"#));
    let params: Value = serde_json::from_slice(&initialize_params(&named, &fallback)).unwrap();
    assert_eq!(
        params["clientInfo"],
        json!({ "name": "c", "version": "1", "title": "C" })
    );
    let unnamed = facts("{}", Some(r#"{"title":"C"}"#));
    let params: Value = serde_json::from_slice(&initialize_params(&unnamed, &fallback)).unwrap();
    assert_eq!(params["clientInfo"], fallback);
}

/// 4.1, `server/discover`.
#[test]
fn line_4_1_discover_is_built_from_the_result_of_initialize() {
    let initialized = br#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"tasks":{"list":{}},"logging":{}},"serverInfo":{"name":"s","version":"1"},"instructions":"say please"}"#;
    let versions = [Version::V2026_07_28, Version::V2025_11_25];
    let result: Value = serde_json::from_slice(&discover_result(initialized, versions.into_iter())).unwrap();
    assert_eq!(
        result,
        json!({
            "supportedVersions": ["2026-07-28", "2025-11-25"],
            "capabilities": { "tools": { "listChanged": true }, "logging": {} },
            "instructions": "say please",
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "s", "version": "1" } },
        })
    );
    let bare: Value = serde_json::from_slice(&discover_result(b"{}", versions.into_iter())).unwrap();
    assert_eq!(
        (&bare["capabilities"], bare.get("instructions"), bare.get("_meta")),
        (&json!({}), None, None)
    );
}

/// 4.1, cache hints and result type: those of the server do not count, and the transport adds its own.
#[test]
fn line_4_1_results_lose_members_that_mean_something_in_the_modern_era() {
    for (method, json, expected) in [
        ("tools/call", r#"{"content":[ 1.0 ]}"#, r#"{"content":[ 1.0 ]}"#),
        (
            "tools/call",
            r#"{"resultType":"input_required","content":[]}"#,
            r#"{"content":[]}"#,
        ),
        (
            "resources/read",
            r#"{"ttlMs":9,"cacheScope":"public","contents":[]}"#,
            r#"{"contents":[]}"#,
        ),
        (
            "tools/call",
            r#"{"content":[{"text":"ttlMs"}]}"#,
            r#"{"content":[{"text":"ttlMs"}]}"#,
        ),
        (
            "tools/call",
            r#"{"structuredContent":{"ttlMs":1}}"#,
            r#"{"structuredContent":{"ttlMs":1}}"#,
        ),
    ] {
        assert_eq!(result(method, &bytes(json)), expected, "{json}");
    }
}

/// 4.1, D tasks and `x-mcp-header` in child tools.
#[test]
fn line_4_1_listed_tools_lose_execution_and_invalid_header_annotations() {
    let listed = |tool: &str| {
        let json = result(
            "tools/list",
            &bytes(&format!(r#"{{"tools":[{tool}],"nextCursor":"2"}}"#)),
        );
        let list: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(list["nextCursor"], "2");
        list["tools"][0].to_string()
    };
    let plain = r#"{"inputSchema":{"type":"object"},"name":"a"}"#;
    assert_eq!(
        listed(r#"{"name":"a","execution":{"taskSupport":"required"},"inputSchema":{"type":"object"}}"#),
        plain
    );
    let valid =
        r#"{"inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"}},"type":"object"},"name":"a"}"#;
    assert_eq!(listed(valid), valid);
    let invalid = r#"{"name":"a","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"bad name"}}}}"#;
    assert!(!listed(invalid).contains("x-mcp-header"), "{}", listed(invalid));
    assert!(listed(invalid).contains(r#""r":{"type":"string"}"#));
}

/// 4.1, error codes.
#[test]
fn line_4_1_error_codes_are_mapped() {
    let all = client(r#"{"elicitation":{"form":{},"url":{}}}"#);
    for (method, code, expected) in [
        ("resources/read", -32002, -32602),
        ("resources/read", -32602, -32602),
        ("tools/call", -32002, -32002),
        ("tools/call", -32099, -32603),
        ("tools/call", -32020, -32603),
        ("tools/call", -32021, -32603),
        ("tools/call", -32022, -32603),
        ("tools/call", -32019, -32019),
        ("tools/call", -32100, -32100),
        ("tools/call", -32601, -32601),
        ("tools/call", -32000, -32000),
        ("tools/call", 7, 7),
        ("tools/list", -32042, -32603),
    ] {
        let ErrorReply::Error(reply) = error(method, RpcError::new(code, "why").with_data(json!(1)), all) else {
            panic!("{code} is an error");
        };
        assert_eq!((reply.code, &*reply.message), (expected, "why"), "{method} {code}");
        if expected == -32603 {
            assert_eq!(
                reply.data,
                Some(json!({ "upstream": { "code": code, "data": 1 } })),
                "{code}"
            );
        }
    }
}

/// requirements 4.1.2: `-32042` becomes input requests without ids.
#[test]
fn line_4_1_2_required_urls_become_input_requests() {
    let elicitations = json!([
        { "mode": "url", "elicitationId": "e1", "url": "https://a", "message": "sign in" },
        { "elicitationId": "e2", "url": "https://b", "message": "pay" },
    ]);
    let asked = || RpcError::new(-32042, "urls").with_data(json!({ "elicitations": elicitations }));
    let ErrorReply::OpenUrls(requests) = error("tools/call", asked(), client(r#"{"elicitation":{"url":{}}}"#)) else {
        panic!("input requests");
    };
    let params: Vec<Value> = requests
        .iter()
        .map(|(_, request)| serde_json::from_slice(request.params.as_deref().unwrap()).unwrap())
        .collect();
    assert_eq!(
        params,
        [
            json!({ "mode": "url", "url": "https://a", "message": "sign in" }),
            json!({ "mode": "url", "url": "https://b", "message": "pay" }),
        ]
    );
    let ErrorReply::Error(missing) = error("tools/call", asked(), client(r#"{"elicitation":{}}"#)) else {
        panic!("an error");
    };
    assert_eq!(missing.code, -32021);
    let malformed = RpcError::new(-32042, "x").with_data(json!({ "elicitations": [{}] }));
    let ErrorReply::Error(reply) = error("tools/call", malformed, client(r#"{"elicitation":{"url":{}}}"#)) else {
        panic!("an error");
    };
    assert_eq!(reply.code, -32603);
}

/// requirements 4.1.1 (2), GW-13.
#[test]
fn gw_13_call_may_ask_if_the_client_answers_and_the_method_allows_it() {
    let declares = client(r#"{"roots":{}}"#);
    for (method, client, expected) in [
        ("tools/call", declares, true),
        ("prompts/get", client(r#"{"sampling":{}}"#), true),
        ("resources/read", client(r#"{"elicitation":{"url":{}}}"#), true),
        ("tools/call", client(r#"{"elicitation":{}}"#), true),
        ("tools/list", declares, false),
        ("completion/complete", declares, false),
        ("tools/call", client("{}"), false),
    ] {
        assert_eq!(may_ask(method, client), expected, "{method} {client:?}");
    }
}

/// 4.1: capability not declared, and questions during other methods.
#[test]
fn line_4_1_questions_are_checked_before_the_client_is_asked() {
    let none = client("{}");
    let forms = client(r#"{"elicitation":{}}"#);
    let sampling = client(r#"{"sampling":{}}"#);
    for (method, question, params, client, expected) in [
        ("tools/call", "roots/list", "", client(r#"{"roots":{}}"#), None),
        ("tools/call", "elicitation/create", r#"{"message":"x"}"#, forms, None),
        (
            "tools/call",
            "elicitation/create",
            r#"{"mode":"url"}"#,
            forms,
            Some(-32602),
        ),
        ("tools/call", "elicitation/create", "{}", none, Some(-32601)),
        ("tools/call", "sampling/createMessage", "{}", none, Some(-32601)),
        (
            "tools/call",
            "sampling/createMessage",
            r#"{"tools":[]}"#,
            sampling,
            Some(-32602),
        ),
        ("tools/call", "roots/list", "{}", none, Some(-32601)),
        ("tools/call", "other/method", "{}", forms, Some(-32601)),
        ("tools/list", "elicitation/create", "{}", forms, Some(-32602)),
        (
            "completion/complete",
            "sampling/createMessage",
            "{}",
            sampling,
            Some(-32602),
        ),
        (
            "tools/list",
            "roots/list",
            "{}",
            client(r#"{"roots":{}}"#),
            Some(-32601),
        ),
    ] {
        let checked = check_question(method, question, params.as_bytes(), client);
        assert_eq!(
            checked.err().map(|error| error.code),
            expected,
            "{method} {question} {params}"
        );
    }
    let error = check_question("tools/call", "elicitation/create", b"{}", none).unwrap_err();
    assert_eq!(
        error.message,
        "the server asked for elicitation, which this client did not declare"
    );
}

/// 4.1: questions with no request in flight, T-32.
#[test]
fn line_4_1_questions_of_no_call_are_answered_from_the_settings() {
    let roots = ["file:///work".to_owned()];
    assert_eq!(
        answer_unsolicited("roots/list", &roots).unwrap(),
        r#"{"roots":[{"uri":"file:///work"}]}"#
    );
    for (question, expected) in [
        ("roots/list", -32601),
        ("sampling/createMessage", -32602),
        ("elicitation/create", -32602),
        ("other", -32601),
    ] {
        assert_eq!(
            answer_unsolicited(question, &[]).unwrap_err().code,
            expected,
            "{question}"
        );
    }
}

/// requirements 4.1.1 (6).
#[test]
fn line_4_1_1_expired_questions_are_answered() {
    assert_eq!(answer_expired(InputMethod::Elicit).unwrap(), r#"{"action":"cancel"}"#);
    assert_eq!(answer_expired(InputMethod::Sample).unwrap_err().code, -1);
    assert_eq!(answer_expired(InputMethod::Roots).unwrap_err().code, -32603);
}

/// 4.1, `subscriptions/listen`: which notifications are changes.
#[test]
fn line_4_1_changes_are_recognised() {
    for (method, params, expected) in [
        ("notifications/tools/list_changed", "", Some(Change::Tools)),
        ("notifications/prompts/list_changed", "{}", Some(Change::Prompts)),
        ("notifications/resources/list_changed", "{}", Some(Change::Resources)),
        (
            "notifications/resources/updated",
            r#"{"uri":"a:b"}"#,
            Some(Change::Updated("a:b".into())),
        ),
        ("notifications/resources/updated", "{}", None),
        ("notifications/elicitation/complete", "{}", None),
        ("notifications/tasks/status", "{}", None),
    ] {
        assert_eq!(change(method, params.as_bytes()), expected, "{method}");
    }
}

/// 4.1, `mcp/logLevel`: filtered for each request.
#[test]
fn line_4_1_log_messages_are_filtered_by_the_level_of_the_request() {
    for (wanted, params, expected) in [
        (None, r#"{"level":"error"}"#, false),
        (Some(LogLevel::Warning), r#"{"level":"info"}"#, false),
        (Some(LogLevel::Warning), r#"{"level":"warning"}"#, true),
        (Some(LogLevel::Debug), r#"{"level":"loud"}"#, true),
    ] {
        assert_eq!(wants_log(wanted, params.as_bytes()), expected, "{wanted:?} {params}");
    }
}
