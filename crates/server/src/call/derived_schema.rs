//! JSON Schemas of Rust types, in the form that MCP clients read best.

use schemars::generate::{Contract, SchemaSettings};
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// The schema of the values that deserialize to a `T`.
pub(crate) fn schema_of_input<T: JsonSchema>() -> Value {
    derive::<T>(Contract::Deserialize)
}

/// The schema of the values that a `T` serializes to.
pub(crate) fn schema_of_output<T: JsonSchema>() -> Value {
    derive::<T>(Contract::Serialize)
}

/// Draft 2020-12, the default of MCP, so `$schema` would add nothing. Subschemas are inlined, because many clients and models do
/// not follow references. Recursive types keep theirs.
fn derive<T: JsonSchema>(contract: Contract) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
        settings.contract = contract;
    });
    let generator = settings.with_transform(NumberFormats).into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    // The generator adds the name of the type, which is of no use to a model.
    if schema.get("title").and_then(Value::as_str) == Some(&*T::schema_name()) {
        schema.remove("title");
    }
    schema.to_value()
}

/// Replaces the formats of Rust numbers, such as `uint32`, by bounds. JSON Schema does not know them, and validators warn.
#[derive(Clone, Debug)]
struct NumberFormats;

impl Transform for NumberFormats {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        let bounds = match format {
            "int32" => Some((json!(i32::MIN), json!(i32::MAX))),
            "uint32" => Some((json!(u32::MIN), json!(u32::MAX))),
            // The generator adds the bounds of smaller integers. The bounds of larger ones exceed the numbers of most clients.
            "int8" | "uint8" | "int16" | "uint16" | "int64" | "uint64" | "int128" | "uint128" | "int" | "uint"
            | "float" | "double" => None,
            _ => return,
        };
        schema.remove("format");
        let Some(((least, most), members)) = bounds.zip(schema.as_object_mut()) else {
            return;
        };
        let (lower, upper) = (["minimum", "exclusiveMinimum"], ["maximum", "exclusiveMaximum"]);
        for (names, bound) in [(lower, least), (upper, most)] {
            if !names.iter().any(|name| members.contains_key(*name)) {
                members.insert(names[0].to_owned(), bound);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_has_descriptions_and_bounds_and_nothing_of_rust() {
        /// A place.
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "its schema counts")]
        struct Place {
            /// Degrees.
            x: f64,
        }
        /// Looks somewhere.
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "its schema counts")]
        struct Look {
            /// Where to look.
            at: Place,
            days: u32,
            size: Option<u64>,
            #[schemars(range(min = 1))]
            rank: i32,
        }
        let place = json!({
            "type": "object",
            "description": "Where to look.",
            "properties": { "x": { "type": "number", "description": "Degrees." } },
            "required": ["x"],
        });
        assert_eq!(
            schema_of_input::<Look>(),
            json!({
                "type": "object",
                "description": "Looks somewhere.",
                "properties": {
                    "at": place,
                    "days": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                    "size": { "type": ["integer", "null"], "minimum": 0 },
                    "rank": { "type": "integer", "minimum": 1, "maximum": i32::MAX },
                },
                "required": ["at", "days", "rank"],
            })
        );
    }

    #[test]
    fn input_and_output_of_a_type_differ() {
        #[derive(JsonSchema, serde::Serialize, serde::Deserialize)]
        struct Both {
            #[serde(default)]
            n: u8,
        }
        assert_eq!(schema_of_input::<Both>().get("required"), None);
        assert_eq!(schema_of_output::<Both>()["required"], json!(["n"]));
    }

    #[test]
    fn recursive_type_has_a_reference() {
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "its schema counts")]
        struct Node {
            next: Option<Box<Node>>,
        }
        let schema = schema_of_input::<Node>().to_string();
        assert!(schema.contains("\"$ref\":\"#"), "{schema}");
    }
}
