//! The arguments of a tool: their schema, from their type or written by hand.

#[cfg(feature = "schemars")]
use crate::call::derived_schema::schema_of_input;
use serde::Deserialize;
use serde_json::{Value, json};

/// The schema of the arguments comes from their type, which implements `schemars::JsonSchema`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypedInput;

/// The schema of the arguments is written by hand: see [`Tool::input`](super::Tool::input).
#[derive(Clone, Debug, PartialEq)]
pub struct JsonInput(pub(super) Value);

/// The source of the schema of a tool's arguments `A`: [`TypedInput`] or [`JsonInput`].
#[diagnostic::on_unimplemented(
    message = "the tool has no schema for its arguments `{A}`",
    label = "this tool needs a schema",
    note = "derive `schemars::JsonSchema` for `{A}`, or write the schema with `Tool::input`"
)]
pub trait InputSchema<A>: private::Sealed {
    /// The schema, and the description of its type.
    #[doc(hidden)]
    fn derive(self) -> (Value, Option<String>);
}

mod private {
    #[allow(unnameable_types, reason = "it keeps the trait closed")]
    pub trait Sealed {}
    impl Sealed for super::TypedInput {}
    impl Sealed for super::JsonInput {}
}

impl<A> InputSchema<A> for JsonInput {
    fn derive(self) -> (Value, Option<String>) {
        (self.0, None)
    }
}

#[cfg(feature = "schemars")]
impl<A: schemars::JsonSchema> InputSchema<A> for TypedInput {
    fn derive(self) -> (Value, Option<String>) {
        let mut schema = schema_of_input::<A>();
        if schema == Value::Bool(true) {
            schema = json!({}); // any value, of which only objects can be arguments
        }
        let description = schema.as_object_mut().and_then(|members| members.remove("description"));
        let description = description.as_ref().and_then(Value::as_str).map(str::to_owned);
        if is_object_of_alternatives(&schema) {
            schema["type"] = "object".into();
        }
        (schema, description)
    }
}

/// Whether `schema` allows objects only, but does not have the `type` that MCP requires. The schema of an enum is such a one.
#[cfg(feature = "schemars")]
fn is_object_of_alternatives(schema: &Value) -> bool {
    let is_object = |schema: &Value| schema["type"] == "object" || is_object_of_alternatives(schema);
    let alternatives = ["oneOf", "anyOf"].iter().find_map(|name| schema.get(name)?.as_array());
    match alternatives {
        _ if schema.get("type").is_some() => false,
        Some(alternatives) => alternatives.iter().all(is_object),
        None => ["enum", "const", "$ref", "not"]
            .iter()
            .all(|name| schema.get(name).is_none()),
    }
}

/// Without the feature `schemars` only a tool without arguments has a schema of its own.
#[cfg(not(feature = "schemars"))]
impl InputSchema<NoArgs> for TypedInput {
    fn derive(self) -> (Value, Option<String>) {
        (no_args(), None)
    }
}

/// The arguments of a tool without arguments. Accepts any object.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct NoArgs {}

fn no_args() -> Value {
    json!({ "type": "object", "properties": {} })
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for NoArgs {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NoArgs".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::Schema::try_from(no_args()).expect("an object is a schema")
    }
}

#[cfg(all(test, feature = "schemars"))]
mod tests {
    #![allow(dead_code, reason = "the schemas of these types count")]

    use super::*;
    use schemars::JsonSchema;

    fn derived<A: JsonSchema>() -> (Value, Option<String>) {
        InputSchema::<A>::derive(TypedInput)
    }

    #[test]
    fn description_of_the_type_is_not_repeated_in_the_schema() {
        /// Adds two numbers.
        #[derive(JsonSchema)]
        struct Add {
            /// The first number.
            a: f64,
        }
        let (schema, description) = derived::<Add>();
        assert_eq!(description.as_deref(), Some("Adds two numbers."));
        let a = json!({ "type": "number", "description": "The first number." });
        assert_eq!(
            schema,
            json!({ "type": "object", "properties": { "a": a }, "required": ["a"] })
        );
        assert_eq!(derived::<NoArgs>(), (no_args(), None));
    }

    #[test]
    fn alternatives_of_objects_are_an_object() {
        #[derive(JsonSchema)]
        #[serde(tag = "kind")]
        enum Shape {
            Circle { radius: f64 },
            Square { side: f64 },
        }
        #[derive(JsonSchema)]
        enum Unit {
            A,
            B,
        }
        #[derive(JsonSchema)]
        struct Tree {
            children: Vec<Tree>,
        }
        let (schema, _) = derived::<Shape>();
        assert_eq!(schema["type"], "object", "{schema}");
        assert_eq!(derived::<Value>().0, json!({ "type": "object" }));
        assert_eq!(derived::<std::collections::BTreeMap<String, u8>>().0["type"], "object");
        assert_eq!(derived::<Tree>().0["type"], "object");
        assert_eq!(derived::<String>().0["type"], "string");
        assert_eq!(derived::<Unit>().0["type"], "string");
    }
}
