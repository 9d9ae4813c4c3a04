//! JSON Schema, as far as the arguments of tools and the forms of elicitations need it.
//!
//! Supports drafts 7 to 2020-12, without annotations (`format`, `content*`), without `unevaluated*`, and without references
//! between documents. An unknown keyword restricts nothing. The crate `jsonschema` was measured first: 60 crates, 4 MB in the
//! program, and 160 seconds of processor time to build.

mod check;
mod choices;
#[cfg(test)]
mod tests;
mod values;

use regex_lite::Regex;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Keywords that restrict nothing.
const ANNOTATIONS: [&str; 8] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "examples",
];
const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Schema {
    root: Value,
    /// Compiled patterns by their text. A pattern that the engine does not support restricts nothing.
    patterns: HashMap<String, Regex>,
    /// JSON pointers by anchor.
    anchors: HashMap<String, String>,
    /// Before 2019-09 the keywords beside a `$ref` are ignored.
    ref_stands_alone: bool,
    allows_every_object: bool,
}

impl Schema {
    /// Fails with the location and the reason if `root` is not a valid schema, or refers to another document.
    pub(crate) fn compile(root: &Value) -> Result<Self, String> {
        let mut schema = Schema {
            root: root.clone(),
            patterns: HashMap::new(),
            anchors: HashMap::new(),
            ref_stands_alone: root["$schema"].as_str().is_some_and(|draft| draft.contains("/draft-0")),
            allows_every_object: allows_every_object(root),
        };
        let mut references = Vec::new();
        schema.look_through(root, "", &mut references)?;
        for (at, reference) in references {
            if schema.resolve(&reference).is_none() {
                return Err(format!("`{at}` refers to `{reference}`, which is not in the schema"));
            }
        }
        Ok(schema)
    }

    /// The schema that a `$ref` refers to.
    fn resolve(&self, reference: &str) -> Option<&Value> {
        let id = self.root.get("$id").and_then(Value::as_str).unwrap_or_default();
        let local = reference.strip_prefix(id.trim_end_matches('#')).unwrap_or(reference);
        match local.strip_prefix('#').or(local.is_empty().then_some(""))? {
            pointer if pointer.is_empty() || pointer.starts_with('/') => self.root.pointer(&percent_decoded(pointer)),
            anchor => self.root.pointer(self.anchors.get(anchor)?),
        }
    }

    /// Checks the form of a schema and its subschemas, and collects their references.
    fn look_through(&mut self, schema: &Value, at: &str, references: &mut Vec<(String, String)>) -> Result<(), String> {
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(_) => return Ok(()),
            _ => return Err(format!("`{at}` must be an object or a boolean")),
        };
        for (keyword, value) in keywords {
            let here = format!("{at}/{}", keyword.replace('~', "~0").replace('/', "~1"));
            let must = |be: &str| Err(format!("`{here}` must be {be}"));
            match keyword.as_str() {
                "type" => {
                    let names = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                    let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
                    if names.is_empty() || !names.iter().all(known) {
                        return must(&format!("one of {}", TYPES.join(", ")));
                    }
                }
                "$ref" | "$dynamicRef" => match value.as_str() {
                    Some(reference) => references.push((here, reference.to_owned())),
                    None => return must("a string"),
                },
                "$anchor" | "$dynamicAnchor" => match value.as_str() {
                    Some(anchor) => drop(self.anchors.insert(anchor.to_owned(), at.to_owned())),
                    None => return must("a string"),
                },
                "pattern" => match value.as_str() {
                    Some(pattern) => self.add_pattern(pattern),
                    None => return must("a string"),
                },
                "enum" if !value.is_array() => return must("an array"),
                "required" if !is_strings(value) => return must("an array of strings"),
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" if !value.is_number() => {
                    return must("a number");
                }
                "multipleOf" if !value.as_f64().is_some_and(|number| number > 0.0) => {
                    return must("a number above zero");
                }
                "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
                | "minContains" | "maxContains"
                    if !value
                        .as_f64()
                        .is_some_and(|number| number >= 0.0 && number.fract() == 0.0) =>
                {
                    return must("a count");
                }
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                    let Some(schemas) = value.as_object() else {
                        return must("an object");
                    };
                    for (name, schema) in schemas {
                        if keyword == "patternProperties" {
                            self.add_pattern(name);
                        }
                        let name = name.replace('~', "~0").replace('/', "~1");
                        self.look_through(schema, &format!("{here}/{name}"), references)?;
                    }
                }
                "allOf" | "anyOf" | "oneOf" | "prefixItems" | "items" if value.is_array() => {
                    for (n, schema) in value.as_array().into_iter().flatten().enumerate() {
                        self.look_through(schema, &format!("{here}/{n}"), references)?;
                    }
                }
                "allOf" | "anyOf" | "oneOf" | "prefixItems" => return must("an array"),
                "items"
                | "additionalItems"
                | "additionalProperties"
                | "propertyNames"
                | "contains"
                | "not"
                | "if"
                | "then"
                | "else" => self.look_through(value, &here, references)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn add_pattern(&mut self, pattern: &str) {
        match Regex::new(pattern) {
            Ok(regex) => drop(self.patterns.insert(pattern.to_owned(), regex)),
            Err(error) => tracing::warn!(pattern, %error, "arguments are not checked against this pattern"),
        }
    }

    /// Whether a text matches a pattern of the schema. `None` if the engine does not support the pattern.
    fn matches(&self, pattern: &str, text: &str) -> Option<bool> {
        self.patterns.get(pattern).map(|regex| regex.is_match(text))
    }
}

fn allows_every_object(schema: &Value) -> bool {
    let restricts = |(keyword, value): (&String, &Value)| match keyword.as_str() {
        "type" => value != "object",
        "properties" => value != &Value::Object(Map::new()),
        other => !ANNOTATIONS.contains(&other),
    };
    schema
        .as_object()
        .is_some_and(|keywords| !keywords.iter().any(restricts))
}

fn is_strings(value: &Value) -> bool {
    value.as_array().is_some_and(|all| all.iter().all(Value::is_string))
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let coded = after.get(..2).filter(|_| *first == b'%');
        match coded.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Cuts `text` to at most `bytes`, and marks the cut.
pub(crate) fn shorten(mut text: String, bytes: usize) -> String {
    const CUT: &str = "…";
    if text.len() > bytes {
        let mut end = bytes - CUT.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(CUT);
    }
    text
}
