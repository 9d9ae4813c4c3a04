//! The declared capabilities and the lists of a catalog.

use super::function::object;
use super::*;
use serde::Deserialize;

async fn nothing(_: NoArgs, _: Context) -> Result<String, RpcError> {
    Ok(String::new())
}

#[test]
fn capabilities_are_derived_from_the_entries() {
    let empty = Catalog::new("a", "1");
    assert_eq!(empty.info().capabilities, json!({ "logging": {} }));
    let full = empty
        .tool(Tool::new("t"), nothing)
        .resource(Resource::new("test://r", "r"), |uri, _| async {
            Ok(ResourceContents::text(uri, ""))
        })
        .prompt(Prompt::new("p"), |_, _| async { Ok(PromptMessage::user("hello")) })
        .complete(Reference::prompt("p"), "x", |_, _| async { Ok(vec![]) });
    let expected = json!({
        "tools": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": true },
        "prompts": { "listChanged": true },
        "logging": {},
        "completions": {},
    });
    assert_eq!(full.info().capabilities, expected);
}

#[test]
fn handle_declares_every_list() {
    let catalog = Catalog::new("a", "1");
    let _handle = catalog.handle();
    let declared = catalog.info();
    for list in ["tools", "resources", "prompts"] {
        assert!(declared.declares(&format!("{list}.listChanged")), "{list}");
    }
}

#[test]
#[should_panic(expected = "the tool `t` is in the catalog already")]
fn a_name_can_be_taken_once() {
    let _ = Catalog::new("a", "1")
        .tool(Tool::new("t"), nothing)
        .tool(Tool::new("t"), nothing);
}

#[tokio::test]
async fn hdr_05_annotations_are_read_when_a_tool_is_added() {
    let schema = json!({
        "type": "object",
        "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
    });
    let catalog = Catalog::new("a", "1")
        .tool(Tool::new("plain"), nothing)
        .tool(Tool::new("mirrored").input(schema.clone()), nothing)
        .tool_with_inputs(Tool::new("asking").input(schema.clone()), |_: NoArgs, _, _| async {
            Ok("done")
        });
    let expected = HeaderParams::of_schema(&schema).unwrap();
    for tool in ["mirrored", "asking"] {
        assert_eq!(
            catalog
                .header_params(tool, &Params::default(), &Principal::anonymous())
                .await
                .as_deref(),
            Some(&expected),
            "{tool}"
        );
    }
    for tool in ["plain", "unknown"] {
        assert_eq!(
            catalog
                .header_params(tool, &Params::default(), &Principal::anonymous())
                .await,
            None,
            "{tool}"
        );
    }
}

#[test]
#[should_panic(expected = "the input schema of the tool `t` cannot be used: `x-mcp-header` at `/properties/a` needs")]
fn hdr_05_a_wrong_annotation_is_refused() {
    let schema = json!({
        "type": "object",
        "properties": { "a": { "type": "number", "x-mcp-header": "A" } },
    });
    let _ = Catalog::new("a", "1").tool(Tool::new("t").input(schema), nothing);
}

#[test]
fn arrays_are_not_accepted_as_params() {
    #[derive(Debug, Deserialize)]
    struct One {
        _a: u8,
    }
    let message = |json: &str| object::<One>(json.as_bytes(), "params").unwrap_err().message;
    assert_eq!(message("[1]"), "params must be an object");
    assert!(message("{}").starts_with("invalid params: missing field `_a`"));
}

#[test]
#[should_panic(
    expected = "the input schema of the tool `t` cannot be used: `/properties/a/type` must be one of null, "
)]
fn invalid_input_schema_is_refused_when_the_tool_is_added() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "strng" } } });
    let _ = Catalog::new("a", "1").tool(Tool::new("t").input(schema), nothing);
}

#[test]
#[should_panic(
    expected = "cannot be used: `/properties/a/$ref` refers to `http://127.0.0.1:9/schema.json`, which is not"
)]
fn referenced_schemas_are_not_fetched() {
    let schema = json!({ "type": "object", "properties": { "a": { "$ref": "http://127.0.0.1:9/schema.json" } } });
    let _ = Catalog::new("a", "1").tool(Tool::new("t").input(schema), nothing);
}
