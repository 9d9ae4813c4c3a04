//! Finds `x-mcp-header` in a tool's `inputSchema`, and refuses invalid annotations (HDR-05).

use super::{HeaderParams, Kind, Node, Param};
use http::HeaderName;
use serde_json::{Map, Value};

const ANNOTATION: &str = "x-mcp-header";

/// An invalid `x-mcp-header`. A client drops a tool that has one, so the tool is refused when it is registered (HDR-05).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`x-mcp-header` at `{at}` {fault}")]
#[non_exhaustive]
pub struct BadAnnotation {
    /// The annotated schema, as a JSON pointer into the `inputSchema`. Empty for the root.
    pub at: String,
    /// The violated rule.
    pub fault: AnnotationFault,
}

/// The rules for an `x-mcp-header`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnnotationFault {
    /// Not a string, empty, or with characters that a header name cannot have.
    #[error("is not the name of a header: it must be a string of letters, digits and !#$%&'*+-.^_`|~")]
    NotAToken,
    /// Another annotation of the schema has the same name, ignoring case.
    #[error("names the header `{0}`, which another property is mirrored in already")]
    Twice(String),
    /// The property has none of the three types that a header can hold.
    #[error("needs a `type` of \"string\", \"integer\" or \"boolean\"")]
    Type,
    /// Not on a property that is reached through `properties` alone. Its value would have no unique path in a call.
    #[error("is not on a property that is reached through `properties` alone")]
    Unreachable,
}

impl HeaderParams {
    /// Collects the annotations of `schema`, a tool's `inputSchema`. Fails with the invalid one (HDR-05).
    ///
    /// Keywords that hold data (`default`, `const`, `enum`, `examples`) are not searched, and a property named `x-mcp-header`
    /// is a property. Every other keyword is searched, because an annotation under an unknown keyword would be lost.
    pub fn of_schema(schema: &Value) -> Result<Self, BadAnnotation> {
        let mut seen = Vec::new();
        let mut root = Node::default();
        if let Value::Object(schema) = schema {
            if schema.contains_key(ANNOTATION) {
                return Err(AnnotationFault::Unreachable.at(""));
            }
            root = collect(schema, "", "arguments", &mut seen)?.unwrap_or_default();
        }
        Ok(HeaderParams { root })
    }
}

impl AnnotationFault {
    fn at(self, at: &str) -> BadAnnotation {
        BadAnnotation {
            at: at.to_owned(),
            fault: self,
        }
    }
}

/// The mirrored properties at and below a schema that is reached through `properties` alone, if any. `at` is the location of
/// the schema, `path` that of the described arguments.
fn collect(
    schema: &Map<String, Value>,
    at: &str,
    path: &str,
    seen: &mut Vec<HeaderName>,
) -> Result<Option<Node>, BadAnnotation> {
    let param = match schema.get(ANNOTATION) {
        Some(name) => Some(annotation(schema, name, path, seen).map_err(|fault| fault.at(at))?),
        None => None,
    };
    let mut children = Vec::new();
    for (keyword, value) in schema {
        let at = below(at, keyword);
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    let Value::Object(property) = property else { continue };
                    let path = format!("{path}.{name}");
                    if let Some(child) = collect(property, &below(&at, name), &path, seen)? {
                        children.push((name.clone(), child));
                    }
                }
            }
            _ => search(keyword, value, &at)?,
        }
    }
    Ok((param.is_some() || !children.is_empty()).then_some(Node { param, children }))
}

fn annotation(
    schema: &Map<String, Value>,
    name: &Value,
    path: &str,
    seen: &mut Vec<HeaderName>,
) -> Result<Param, AnnotationFault> {
    let name = name.as_str().filter(|name| !name.is_empty());
    let label = format!("Mcp-Param-{}", name.ok_or(AnnotationFault::NotAToken)?);
    // A `HeaderName` is a token of RFC 9110, in lower case.
    let header = HeaderName::from_bytes(label.as_bytes()).map_err(|_| AnnotationFault::NotAToken)?;
    let kind = match schema.get("type").and_then(Value::as_str) {
        Some("string") => Kind::Text,
        Some("integer") => Kind::Integer,
        Some("boolean") => Kind::Boolean,
        _ => return Err(AnnotationFault::Type),
    };
    if seen.contains(&header) {
        return Err(AnnotationFault::Twice(label));
    }
    seen.push(header.clone());
    Ok(Param {
        header,
        label,
        path: path.to_owned(),
        kind,
    })
}

/// Searches for misplaced annotations: in the value of any keyword except `properties`.
fn search(keyword: &str, value: &Value, at: &str) -> Result<(), BadAnnotation> {
    match (keyword, value) {
        ("default" | "const" | "enum" | "examples" | "example" | ANNOTATION, _) => Ok(()),
        // The keys are user-defined names, not keywords.
        (
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies",
            Value::Object(named),
        ) => named
            .iter()
            .try_for_each(|(name, schema)| search_schema(schema, &below(at, name))),
        _ => search_schema(value, at),
    }
}

/// Searches for annotations in a schema, or in an array of schemas.
fn search_schema(schema: &Value, at: &str) -> Result<(), BadAnnotation> {
    match schema {
        Value::Object(schema) if schema.contains_key(ANNOTATION) => Err(AnnotationFault::Unreachable.at(at)),
        Value::Object(schema) => schema
            .iter()
            .try_for_each(|(keyword, value)| search(keyword, value, &below(at, keyword))),
        Value::Array(schemas) => schemas
            .iter()
            .enumerate()
            .try_for_each(|(index, schema)| search_schema(schema, &below(at, &index.to_string()))),
        _ => Ok(()),
    }
}

/// A JSON pointer with one more step (RFC 6901).
fn below(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fault(schema: &Value) -> BadAnnotation {
        HeaderParams::of_schema(schema).expect_err(&schema.to_string())
    }

    fn property(property: &Value) -> Value {
        json!({ "type": "object", "properties": { "p": property } })
    }

    #[test]
    fn hdr_05_annotations_are_tokens() {
        for name in ["Region", "r", "X-1", "a.b_c~d", "!#$%&'*+-.^_`|~", "9"] {
            let schema = property(&json!({ "type": "string", "x-mcp-header": name }));
            assert!(!HeaderParams::of_schema(&schema).unwrap().is_empty(), "{name}");
        }
        for name in [
            json!(""),
            json!(" "),
            json!("a b"),
            json!("a:"),
            json!("a\r\nb"),
            json!("a\u{0}"),
            json!("a/b"),
            json!("(a)"),
            json!("\u{fc}"),
            json!(7),
            json!(null),
            json!(true),
            json!(["a"]),
            json!({ "name": "a" }),
        ] {
            let found = fault(&property(&json!({ "type": "string", "x-mcp-header": name })));
            assert_eq!(found.fault, AnnotationFault::NotAToken, "{name}");
            assert_eq!(found.at, "/properties/p");
        }
    }

    #[test]
    fn hdr_05_annotations_need_a_scalar_type() {
        for kind in ["string", "integer", "boolean"] {
            let schema = property(&json!({ "type": kind, "x-mcp-header": "P" }));
            assert!(HeaderParams::of_schema(&schema).is_ok(), "{kind}");
        }
        for schema in [
            json!({ "type": "number", "x-mcp-header": "P" }),
            json!({ "type": "object", "x-mcp-header": "P" }),
            json!({ "type": "array", "x-mcp-header": "P" }),
            json!({ "type": "null", "x-mcp-header": "P" }),
            json!({ "type": ["string", "null"], "x-mcp-header": "P" }),
            json!({ "type": 7, "x-mcp-header": "P" }),
            json!({ "$ref": "#/$defs/p", "x-mcp-header": "P" }),
            json!({ "enum": ["a"], "x-mcp-header": "P" }),
            json!({ "x-mcp-header": "P" }),
        ] {
            assert_eq!(
                fault(&property(&schema)),
                AnnotationFault::Type.at("/properties/p"),
                "{schema}"
            );
        }
    }

    #[test]
    fn hdr_05_annotations_are_unique_ignoring_case() {
        let two = |a: &str, b: &str| {
            HeaderParams::of_schema(&json!({ "properties": {
                "a": { "type": "string", "x-mcp-header": a },
                "b": { "properties": { "c": { "type": "integer", "x-mcp-header": b } } }
            } }))
        };
        assert!(two("A", "B").is_ok());
        for (a, b) in [("A", "A"), ("Region", "REGION"), ("x-y", "X-y")] {
            let found = two(a, b).unwrap_err();
            assert_eq!(found.fault, AnnotationFault::Twice(format!("Mcp-Param-{b}")));
            assert_eq!(found.at, "/properties/b/properties/c");
        }
    }

    /// T-03: the revision's text allows nested `properties`, its proposal did not.
    #[test]
    fn hdr_05_annotations_are_reached_through_properties_alone() {
        let p = json!({ "type": "string", "x-mcp-header": "P" });
        let inner = json!({ "type": "object", "properties": { "p": p } });
        let nested = json!({ "properties": { "a": { "properties": { "b": inner } } } });
        assert!(!HeaderParams::of_schema(&nested).unwrap().is_empty());
        for (schema, at) in [
            (json!({ "type": "string", "x-mcp-header": "P" }), ""),
            (json!({ "items": p }), "/items"),
            (json!({ "items": [true, p] }), "/items/1"),
            (json!({ "prefixItems": [p] }), "/prefixItems/0"),
            (json!({ "contains": p }), "/contains"),
            (json!({ "$defs": { "d": p } }), "/$defs/d"),
            (json!({ "definitions": { "d": inner } }), "/definitions/d/properties/p"),
            (json!({ "oneOf": [{}, inner] }), "/oneOf/1/properties/p"),
            (json!({ "anyOf": [inner] }), "/anyOf/0/properties/p"),
            (json!({ "allOf": [inner] }), "/allOf/0/properties/p"),
            (json!({ "not": inner }), "/not/properties/p"),
            (json!({ "if": inner }), "/if/properties/p"),
            (json!({ "then": inner }), "/then/properties/p"),
            (json!({ "else": inner }), "/else/properties/p"),
            (
                json!({ "patternProperties": { "^a/~": p } }),
                "/patternProperties/^a~1~0",
            ),
            (json!({ "additionalProperties": p }), "/additionalProperties"),
            (json!({ "unevaluatedProperties": p }), "/unevaluatedProperties"),
            (json!({ "propertyNames": p }), "/propertyNames"),
            (
                json!({ "dependentSchemas": { "a": inner } }),
                "/dependentSchemas/a/properties/p",
            ),
            (json!({ "x-ours": { "deep": [inner] } }), "/x-ours/deep/0/properties/p"),
            (
                json!({ "properties": { "list": { "type": "array", "items": inner } } }),
                "/properties/list/items/properties/p",
            ),
            (
                json!({ "properties": { "a": { "type": "string", "x-mcp-header": "A", "anyOf": [p] } } }),
                "/properties/a/anyOf/0",
            ),
            (json!({ "properties": [p] }), "/properties/0"),
        ] {
            assert_eq!(fault(&schema), AnnotationFault::Unreachable.at(at), "{schema}");
            // A server that must serve such a schema finds the annotation there, and removes it.
            let mut mended = schema.clone();
            let annotated = mended.pointer_mut(at).and_then(Value::as_object_mut).unwrap();
            assert!(annotated.remove(ANNOTATION).is_some());
            assert!(HeaderParams::of_schema(&mended).is_ok(), "{mended}");
        }
    }

    #[test]
    fn hdr_05_data_and_property_names_are_not_annotations() {
        let data = json!({ "type": "string", "x-mcp-header": "P" });
        for schema in [
            json!({ "default": data, "examples": [data], "const": data, "enum": [data] }),
            json!({ "properties": { "x-mcp-header": { "type": "string" } } }),
            json!({ "$defs": { "x-mcp-header": { "type": "string" } } }),
            json!({ "anyOf": [{ "properties": { "x-mcp-header": { "type": "string" } } }] }),
            json!({ "properties": { "a": true, "b": { "default": data } } }),
            json!({ "properties": { "default": { "type": "string" } } }),
            json!({ "description": "x-mcp-header" }),
            json!({ "required": ["x-mcp-header"] }),
            json!({}),
            json!(true),
            json!(null),
            json!([data]),
        ] {
            assert!(HeaderParams::of_schema(&schema).unwrap().is_empty(), "{schema}");
        }
        // Such a property can be mirrored like any other.
        let schema =
            json!({ "properties": { "x-mcp-header": data, "default": { "type": "string", "x-mcp-header": "D" } } });
        assert_eq!(HeaderParams::of_schema(&schema).unwrap().root.children.len(), 2);
    }

    #[test]
    fn hdr_05_invalid_annotation_has_location_and_reason() {
        for (schema, said) in [
            (
                property(&json!({ "type": "number", "x-mcp-header": "P" })),
                "`x-mcp-header` at `/properties/p` needs a `type` of \"string\", \"integer\" or \"boolean\"",
            ),
            (
                json!({ "allOf": [{ "x-mcp-header": "P" }] }),
                "`x-mcp-header` at `/allOf/0` is not on a property that is reached through `properties` alone",
            ),
            (
                json!({ "properties": {
                    "a": { "type": "string", "x-mcp-header": "p" },
                    "b": { "type": "string", "x-mcp-header": "P" }
                } }),
                "`x-mcp-header` at `/properties/b` names the header `Mcp-Param-P`, which another property \
                 is mirrored in already",
            ),
        ] {
            assert_eq!(fault(&schema).to_string(), said);
        }
    }
}
