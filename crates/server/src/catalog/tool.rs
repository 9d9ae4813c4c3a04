//! Descriptions of tools.

use super::tool_input::{InputSchema, JsonInput, TypedInput};
use super::{EntryError, Icon};
use rethread_proto::Version;
use serde::Serialize;
use serde_json::{Map, Value};

/// The description of a tool for clients.
///
/// The schema of the arguments comes from the argument type of the tool's function. [`input`](Tool::input) replaces it by one
/// that is written by hand, for types without a `JsonSchema`.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Tool<I = TypedInput> {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input: I,
    output_schema: Option<Value>,
    annotations: Option<Value>,
    icons: Vec<Icon>,
    meta: Option<Map<String, Value>>,
}

impl Tool {
    /// A tool whose arguments describe themselves: their doc comments become descriptions.
    pub fn new(name: impl Into<String>) -> Self {
        Tool {
            name: name.into(),
            title: None,
            description: None,
            input: TypedInput,
            output_schema: None,
            annotations: None,
            icons: Vec::new(),
            meta: None,
        }
    }
}

impl<I> Tool<I> {
    /// The title for people. Since 2025-06-18; earlier clients do not get it.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// The description of the tool, for a model. Without it, the doc comment of the argument type is sent.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// The JSON Schema of the arguments, written by hand. It is sent unchanged, and its `type` must be `object`.
    pub fn input(self, schema: Value) -> Tool<JsonInput> {
        Tool {
            name: self.name,
            title: self.title,
            description: self.description,
            input: JsonInput(schema),
            output_schema: self.output_schema,
            annotations: self.annotations,
            icons: self.icons,
            meta: self.meta,
        }
    }

    /// The JSON Schema of the structured content, written by hand. It is sent unchanged. Without it, a function that returns
    /// [`Json`](super::Json) has the schema of its type.
    ///
    /// Clients before 2025-06-18 do not get it. Clients before 2026-07-28 get it if its `type` is `object`.
    pub fn output(mut self, schema: Value) -> Self {
        self.output_schema = Some(schema);
        self
    }

    /// Hints about the tool: [`ToolAnnotations`](super::ToolAnnotations), or JSON with the same members. Since 2025-03-26;
    /// earlier clients do not get them.
    ///
    /// # Panics
    /// If `annotations` cannot be written as JSON.
    pub fn annotations(mut self, annotations: impl Serialize) -> Self {
        let json = serde_json::to_value(annotations).expect("annotations must be serializable as JSON");
        self.annotations = Some(json);
        self
    }

    /// Adds an icon. Since 2025-11-25; earlier clients do not get it.
    pub fn icon(mut self, icon: Icon) -> Self {
        self.icons.push(icon);
        self
    }

    /// Adds a member of `_meta`. Since 2025-06-18; earlier clients do not get it.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    /// Completes the description from the types of the function.
    pub(super) fn resolve<A>(self, output: impl FnOnce() -> Option<Value>) -> Result<ResolvedTool, EntryError>
    where
        I: InputSchema<A>,
    {
        let name = &self.name;
        if !is_tool_name(name) {
            let why = format!("`{name}` is no tool name: 1 to 64 of A-Z a-z 0-9 _ . / - are allowed");
            return Err(EntryError::Invalid(why));
        }
        let (input_schema, description) = self.input.derive();
        if input_schema["type"] != "object" {
            let why = format!("the input schema of the tool `{name}` must have the type `object`");
            return Err(EntryError::Invalid(why));
        }
        Ok(ResolvedTool {
            name: self.name,
            title: self.title,
            description: self.description.or(description),
            input_schema,
            output_schema: self.output_schema.or_else(output),
            annotations: self.annotations,
            icons: self.icons,
            meta: self.meta,
        })
    }
}

fn is_tool_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_./-".contains(&b);
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

/// A tool with its schemas.
pub(super) struct ResolvedTool {
    pub(super) name: String,
    title: Option<String>,
    description: Option<String>,
    pub(super) input_schema: Value,
    output_schema: Option<Value>,
    annotations: Option<Value>,
    icons: Vec<Icon>,
    meta: Option<Map<String, Value>>,
}

/// `Tool` of the MCP schema.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownTool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a Value>,
    #[serde(skip_serializing_if = "<[Icon]>::is_empty")]
    icons: &'a [Icon],
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Map<String, Value>>,
}

impl ResolvedTool {
    pub(super) fn at(&self, version: Version) -> ShownTool<'_> {
        let output = self.output_schema.as_ref().filter(|schema| {
            let any = version.has_any_structured_content();
            version.has_structured_content() && (any || schema["type"] == "object")
        });
        ShownTool {
            name: &self.name,
            title: self.title.as_deref().filter(|_| version.has_titles()),
            description: self.description.as_deref(),
            input_schema: &self.input_schema,
            output_schema: output,
            annotations: self.annotations.as_ref().filter(|_| version.has_tool_annotations()),
            icons: if version.has_icons() { &self.icons } else { &[] },
            meta: self.meta.as_ref().filter(|_| version.has_titles()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NoArgs, ToolAnnotations};
    use super::*;
    use serde_json::json;

    fn shown<I: InputSchema<NoArgs>>(tool: Tool<I>, version: Version) -> Value {
        let tool = tool.resolve::<NoArgs>(|| None).unwrap_or_else(|why| panic!("{why}"));
        serde_json::to_value(tool.at(version)).unwrap()
    }

    #[test]
    fn tool_names_have_a_bounded_length_and_alphabet() {
        let longest = "x".repeat(64);
        for good in ["a", "echo", "a.b/c-d_E9", longest.as_str()] {
            assert!(is_tool_name(good), "{good}");
        }
        let too_long = "x".repeat(65);
        for bad in ["", "a b", "a:b", "é", "a\n", too_long.as_str()] {
            assert!(!is_tool_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn arguments_are_an_object() {
        for schema in [json!({ "type": "string" }), json!({}), json!(true)] {
            let tool = Tool::new("t").input(schema);
            let why = tool.resolve::<NoArgs>(|| None).err().unwrap();
            assert_eq!(
                why.to_string(),
                "the input schema of the tool `t` must have the type `object`"
            );
        }
    }

    #[test]
    fn schema_is_sent_unchanged() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "description": "kept",
            "$defs": { "a": { "$anchor": "b" } },
            "if": { "properties": {} },
            "x-mcp-header": "Kept",
        });
        let tool = Tool::new("t").title("T").description("d").input(schema.clone());
        assert_eq!(
            shown(tool, Version::V2025_11_25),
            json!({ "name": "t", "title": "T", "description": "d", "inputSchema": schema })
        );
    }

    #[test]
    fn each_revision_gets_the_members_it_has() {
        let input = json!({ "type": "object", "properties": {} });
        let tool = Tool::new("t")
            .title("T")
            .output(json!({ "type": "object" }))
            .annotations(ToolAnnotations::new().read_only(true))
            .icon(Icon::new("data:,").mime_type("image/png").size("any"))
            .meta("example.com/a", 1);
        let mut expected = json!({ "name": "t", "inputSchema": input });
        assert_eq!(shown(tool.clone(), Version::V2024_11_05), expected);
        expected["annotations"] = json!({ "readOnlyHint": true });
        assert_eq!(shown(tool.clone(), Version::V2025_03_26), expected);
        expected["title"] = json!("T");
        expected["outputSchema"] = json!({ "type": "object" });
        expected["_meta"] = json!({ "example.com/a": 1 });
        assert_eq!(shown(tool.clone(), Version::V2025_06_18), expected);
        expected["icons"] = json!([{ "src": "data:,", "mimeType": "image/png", "sizes": ["any"] }]);
        assert_eq!(shown(tool.clone(), Version::V2025_11_25), expected);
        assert_eq!(shown(tool, Version::V2026_07_28), expected);
    }

    #[test]
    fn output_that_is_not_an_object_exists_since_2026_07_28() {
        let list = json!({ "type": "array", "items": { "type": "string" } });
        let tool = Tool::new("t").output(list.clone());
        for version in Version::ALL {
            let expected = (version == Version::V2026_07_28).then_some(&list);
            assert_eq!(shown(tool.clone(), version).get("outputSchema"), expected, "{version}");
        }
    }
}
