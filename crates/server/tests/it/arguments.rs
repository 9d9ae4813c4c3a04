//! Validation of tool arguments against the input schema of a catalog.

use crate::support::{LEGACY_REVISIONS, V2025_06_18, V2025_11_25, result_text};
use rethread::catalog::{Tool, ToolResult};
use rethread::{Catalog, McpService, RpcError};
use rethread_testkit::client::Client;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct City {
    #[allow(dead_code, reason = "its type counts")]
    city: String,
}

/// A client of two tools that accept any valid call, one with arguments and one without.
fn client() -> Client {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "description": "Where to look", "minLength": 2 },
            "days": { "type": "integer", "minimum": 1, "maximum": 7 },
            "unit": { "enum": ["C", "F"] },
            "places": { "type": "array", "items": { "$ref": "#/$defs/place" } },
            "when": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
        },
        "required": ["city"],
        "additionalProperties": false,
        "$defs": { "place": { "type": "object", "properties": { "x": { "type": "number" } }, "required": ["x"] } },
    });
    let reached = || Ok::<_, RpcError>(ToolResult::structured(json!({ "reached": true })));
    let catalog = Catalog::new("weather", "1")
        .tool(
            Tool::new("plain").input(schema.clone()),
            move |_: Value, _| async move { reached() },
        )
        .tool_with_inputs(Tool::new("asking").input(schema), move |_: Value, _, _| async move {
            Ok(reached()?)
        });
    let any_object = json!({ "type": "object" });
    let catalog = catalog
        .tool(
            Tool::new("other_type").input(any_object.clone()),
            move |_: City, _| async move { reached() },
        )
        .tool_with_inputs(
            Tool::new("other_type_asking").input(any_object),
            move |_: City, _, _| async move { Ok(reached()?) },
        );
    Client::new(McpService::builder(catalog).build())
}

async fn call(client: &Client, version: &str, tool: &str, arguments: Value) -> Value {
    let reply = if version == "2026-07-28" {
        let params = json!({ "name": tool, "arguments": arguments });
        client.stateless(1, "tools/call", params, json!({})).await
    } else {
        client.open(version).await.tool(1, tool, arguments).await
    };
    assert_eq!(reply.status, 200, "{version}");
    reply.json().await
}

/// VER-10: since 2025-11-25 invalid arguments give a tool result for the model; before, a protocol error. An unknown tool
/// is always a protocol error (HTTP-13).
#[tokio::test]
async fn ver_10_invalid_arguments_are_a_tool_result_since_2025_11_25() {
    let client = client();
    let expected = "Invalid arguments:\n- `city`: missing; expected: string, Where to look";
    for tool in ["plain", "asking"] {
        for version in [V2025_11_25, "2026-07-28"] {
            let answer = call(&client, version, tool, json!({})).await;
            assert_eq!(answer["result"]["isError"], true, "{version} {tool}: {answer}");
            assert_eq!(result_text(&answer), expected, "{version} {tool}");
        }
        for version in LEGACY_REVISIONS.into_iter().filter(|version| *version <= V2025_06_18) {
            let answer = call(&client, version, tool, json!({})).await;
            assert_eq!(answer["error"]["code"], -32602, "{version} {tool}: {answer}");
            assert_eq!(answer["error"]["message"], expected, "{version} {tool}");
        }
        for version in [V2025_06_18, V2025_11_25, "2026-07-28"] {
            let answer = call(
                &client,
                version,
                tool,
                json!({ "city": "Ulm", "days": 7, "when": null }),
            )
            .await;
            assert_eq!(
                answer["result"]["structuredContent"]["reached"], true,
                "{version} {tool}: {answer}"
            );
        }
    }
    for version in [V2025_06_18, V2025_11_25, "2026-07-28"] {
        let unknown = call(&client, version, "nobody", json!({})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{version}: {unknown}");
        let malformed = call(&client, version, "plain", json!([1])).await;
        assert_eq!(malformed["error"]["code"], -32602, "{version}: {malformed}");
    }
}

/// VER-10: the arguments match the schema but not the Rust type.
#[tokio::test]
async fn ver_10_arguments_of_another_type_are_a_tool_result_since_2025_11_25() {
    let client = client();
    for tool in ["other_type", "other_type_asking"] {
        let expected = "Invalid arguments:\n- missing field `city`";
        for version in [V2025_11_25, "2026-07-28"] {
            let answer = call(&client, version, tool, json!({ "town": "Ulm" })).await;
            assert_eq!(answer["result"]["isError"], true, "{version} {tool}: {answer}");
            assert_eq!(result_text(&answer), expected, "{version} {tool}");
        }
        let answer = call(&client, V2025_06_18, tool, json!({ "town": "Ulm" })).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["error"]["message"], expected);
    }
}

/// VER-10.
#[tokio::test]
async fn ver_10_error_names_argument_fault_and_expectation() {
    let client = client();
    for (arguments, expected) in [
        (json!({ "city": 3 }), "- `city`: expected string, found 3"),
        (
            json!({ "city": "Ulm", "days": 0 }),
            "- `days`: 0 is less than the minimum 1",
        ),
        (
            json!({ "city": "Ulm", "unit": "K" }),
            r#"- `unit`: "K" is not one of "C", "F""#,
        ),
        (
            json!({ "city": "Ulm", "places": [{}] }),
            "- `places/0/x`: missing; expected: number",
        ),
        (
            json!({ "city": "Ulm", "towns": 1 }),
            "- `towns`: unknown name; known: city, days",
        ),
        (
            json!({ "city": "Ulm", "when": "soon" }),
            r#"- `when`: no alternative fits: expected integer, found "soon"; or expected null, found "soon""#,
        ),
    ] {
        let answer = call(&client, V2025_11_25, "plain", arguments).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(result_text(&answer).contains(expected), "{}", result_text(&answer));
    }
    let several = call(&client, V2025_11_25, "plain", json!({ "days": 9, "unit": 1 })).await;
    assert_eq!(result_text(&several).lines().count(), 4, "{}", result_text(&several));
}

/// VER-10: many problems and large values do not make the message long.
#[tokio::test]
async fn ver_10_message_is_bounded() {
    let client = client();
    let many: Vec<_> = (0..500).map(|n| json!({ "y": n })).collect();
    let answer = call(&client, V2025_11_25, "plain", json!({ "city": "Ulm", "places": many })).await;
    let text = result_text(&answer);
    assert_eq!(text.lines().count(), 10, "a title, eight problems, and a note: {text}");
    assert!(text.ends_with("- and more"), "{text}");
    let large = "é".repeat(100_000);
    let answer = call(
        &client,
        V2025_11_25,
        "plain",
        json!({ "city": [large], "unit": large, large: 1 }),
    )
    .await;
    let text = result_text(&answer);
    assert!(text.len() <= 2048, "{} bytes", text.len());
    assert!(text.contains("`city`: expected string, found an array"), "{text}");
}
