//! Forms: the restricted schemas of `elicitation/create`, made from Rust types.

use crate::call::derived_schema::schema_of_input;
use rethread_proto::Version;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

/// The formats of strings that a form may have (MCP schema).
const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

/// A type that a form cannot ask for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a form cannot ask for `{type_name}`: {reason}")]
#[non_exhaustive]
pub struct InvalidForm {
    /// The name of the type in its schema.
    pub type_name: String,
    /// The reason, with the name of the field.
    pub reason: String,
}

/// The schema of the form by which [`Context::elicit`](crate::Context::elicit) asks for a `T`.
///
/// A form of MCP is a flat object of strings, numbers, booleans and choices. A choice is an enum of unit variants, and a list of
/// choices is a `Vec` or a set of them. An `Option` is a field that may be left empty. Doc comments are descriptions; those of
/// variants are the titles of choices. Constraints that a form does not have, such as patterns, are left out.
///
/// Call it in a test to be sure that a type can be asked for:
///
/// ```
/// use schemars::JsonSchema;
///
/// #[derive(JsonSchema)]
/// struct Booking {
///     /// Your name
///     name: String,
///     seats: Option<u8>,
/// }
/// let schema = rethread::form_schema::<Booking>().unwrap();
/// assert_eq!(schema["properties"]["name"]["description"], "Your name");
///
/// #[derive(JsonSchema)]
/// struct Nested {
///     booking: Booking,
/// }
/// let why = rethread::form_schema::<Nested>().unwrap_err();
/// assert_eq!(why.reason, "`booking` is an object, and a form is flat");
/// ```
///
/// # Errors
/// If `T` cannot be such an object.
pub fn form_schema<T: JsonSchema>() -> Result<Value, InvalidForm> {
    restrict(&schema_of_input::<T>()).map_err(|reason| InvalidForm {
        type_name: T::schema_name().into_owned(),
        reason,
    })
}

fn restrict(schema: &Value) -> Result<Value, String> {
    if schema["type"] != "object"
        || ["oneOf", "anyOf", "allOf", "$ref"]
            .iter()
            .any(|key| schema.get(key).is_some())
    {
        return Err("it is not a struct with named fields".to_owned());
    }
    let Some(fields) = schema.get("properties").and_then(Value::as_object) else {
        return Err("it has no fields".to_owned());
    };
    let mut properties = Map::new();
    for (name, field) in fields {
        let field = field_schema(field).map_err(|reason| format!("`{name}` {reason}"))?;
        properties.insert(name.clone(), Value::Object(field));
    }
    let mut form = json!({ "type": "object", "properties": properties });
    if let Some(required) = schema.get("required") {
        form["required"] = required.clone();
    }
    Ok(form)
}

/// The schema of a field, or the reason why a form cannot have it.
fn field_schema(schema: &Value) -> Result<Map<String, Value>, String> {
    let Some(field) = schema.as_object().map(without_null) else {
        return Err("may be anything, and a field has one type".to_owned());
    };
    if let Some(choices) = choices(&field) {
        let mut shown = copied(&field, &[]);
        shown.insert("type".to_owned(), "string".into());
        shown.extend(choices.shown("oneOf"));
        return Ok(shown);
    }
    let kind = field.get("type").and_then(Value::as_str);
    let mut shown = match kind {
        Some("string") => {
            let mut shown = copied(&field, &["minLength", "maxLength", "format"]);
            if !shown
                .get("format")
                .is_some_and(|format| FORMATS.iter().any(|known| format == known))
            {
                shown.remove("format");
            }
            shown
        }
        Some("integer" | "number") => copied(&field, &["minimum", "maximum"]),
        Some("boolean") => copied(&field, &[]),
        Some("array") => {
            let items = field.get("items").and_then(Value::as_object);
            let Some(choices) = items.and_then(choices) else {
                return Err("is a list, and a form has lists of choices only".to_owned());
            };
            let mut items = Map::from_iter(choices.shown("anyOf"));
            if items.contains_key("enum") {
                items.insert("type".to_owned(), "string".into());
            }
            let mut shown = copied(&field, &["minItems", "maxItems"]);
            shown.insert("items".to_owned(), items.into());
            shown
        }
        Some("object") => return Err("is an object, and a form is flat".to_owned()),
        _ if field.contains_key("$ref") => return Err("contains itself, and a form is flat".to_owned()),
        _ => return Err("has several types, and a field has one".to_owned()),
    };
    shown.extend(kind.map(|kind| ("type".to_owned(), kind.into())));
    Ok(shown)
}

/// The members that every field may have, and `more`.
fn copied(field: &Map<String, Value>, more: &[&str]) -> Map<String, Value> {
    let names = ["title", "description", "default"].iter().chain(more);
    let members = names.filter_map(|name| Some(((*name).to_owned(), field.get(*name)?.clone())));
    members.collect()
}

/// The schema of `T` from that of `Option<T>`: in a form, a field that is not required may be left empty.
fn without_null(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut field = schema.clone();
    let is_null = |schema: &Value| schema["type"] == "null";
    if let Some(Value::Array(alternatives)) = field.get("anyOf") {
        let mut others = alternatives.iter().filter(|schema| !is_null(schema));
        if let (Some(Value::Object(inner)), None) = (others.next(), others.next()) {
            let inner = inner.clone();
            field.remove("anyOf");
            // The description of the field is more specific than that of its type.
            for (name, value) in inner {
                field.entry(name).or_insert(value);
            }
        }
    }
    if let Some(Value::Array(types)) = field.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            field.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(values)) = field.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if field.get("default").is_some_and(Value::is_null) {
        field.remove("default");
    }
    field
}

/// The values of an enum, each with its title.
struct Choices(Vec<(String, Option<String>)>);

impl Choices {
    /// The member that lists the choices: `enum`, or `titled` if a choice has a title.
    fn shown(&self, titled: &str) -> Option<(String, Value)> {
        if self.0.iter().all(|(_, title)| title.is_none()) {
            let values: Vec<_> = self.0.iter().map(|(value, _)| value).collect();
            return Some(("enum".to_owned(), json!(values)));
        }
        let choice = |(value, title): &(String, Option<String>)| json!({ "const": value, "title": title.as_ref().unwrap_or(value) });
        Some((titled.to_owned(), self.0.iter().map(choice).collect()))
    }
}

/// The choices of an enum of unit variants. `None` if `schema` is anything else.
fn choices(schema: &Map<String, Value>) -> Option<Choices> {
    let text = |name: &str| schema.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(value) = text("const") {
        return Some(Choices(vec![(value, text("title").or_else(|| text("description")))]));
    }
    if let Some(Value::Array(values)) = schema.get("enum") {
        let choices = values.iter().map(|value| Some((value.as_str()?.to_owned(), None)));
        return choices.collect::<Option<_>>().map(Choices);
    }
    let variants = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
    let each = variants.iter().map(|variant| choices(variant.as_object()?));
    let all: Vec<Choices> = each.collect::<Option<_>>()?;
    Some(Choices(all.into_iter().flat_map(|choices| choices.0).collect()))
}

/// Changes a form for clients of `version`. `None` if that revision has no such form.
pub(crate) fn for_version(mut form: Value, version: Version) -> Option<Value> {
    if version.has_elicitation_choices() {
        return Some(form);
    }
    for field in form.get_mut("properties")?.as_object_mut()?.values_mut() {
        let field = field.as_object_mut()?;
        if field.get("type")? == "array" {
            return None;
        }
        if field.get("type")? != "boolean" {
            field.remove("default");
        }
        if let Some(Value::Array(titled)) = field.remove("oneOf") {
            let all = |name: &str| titled.iter().map(|choice| choice[name].clone()).collect::<Value>();
            let (values, names) = (all("const"), all("title"));
            field.insert("enum".to_owned(), values);
            field.insert("enumNames".to_owned(), names);
        }
    }
    Some(form)
}

#[cfg(test)]
mod tests {
    #![allow(dead_code, reason = "the schemas of these types count")]

    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Class {
        First,
        Second,
    }

    #[derive(JsonSchema)]
    enum Meal {
        /// With meat
        Meat,
        Fish,
        /// Without either
        Plain,
    }

    #[derive(JsonSchema)]
    struct Booking {
        /// Your name
        #[schemars(length(min = 2))]
        name: String,
        #[schemars(email)]
        mail: Option<String>,
        #[schemars(extend("format" = "uuid"), regex(pattern = "-"))]
        ticket: String,
        seats: u8,
        #[serde(default)]
        price: Option<f64>,
        #[serde(default)]
        window: bool,
        class: Class,
        /// Another class
        other: Option<Class>,
        meal: Option<Meal>,
        extras: BTreeSet<Class>,
        courses: Vec<Meal>,
    }

    fn meals() -> Value {
        json!([
            { "const": "Fish", "title": "Fish" },
            { "const": "Meat", "title": "With meat" },
            { "const": "Plain", "title": "Without either" },
        ])
    }

    #[test]
    fn form_has_the_shape_of_the_schema() {
        let form = form_schema::<Booking>().unwrap();
        let meals = meals();
        assert_eq!(
            form,
            json!({
                "type": "object",
                "properties": {
                    "name": { "type": "string", "description": "Your name", "minLength": 2 },
                    "mail": { "type": "string", "format": "email" },
                    "ticket": { "type": "string" },
                    "seats": { "type": "integer", "minimum": 0, "maximum": 255 },
                    "price": { "type": "number" },
                    "window": { "type": "boolean", "default": false },
                    "class": { "type": "string", "enum": ["first", "second"] },
                    "other": { "type": "string", "description": "Another class", "enum": ["first", "second"] },
                    "meal": { "type": "string", "oneOf": meals },
                    "extras": { "type": "array", "items": { "type": "string", "enum": ["first", "second"] } },
                    "courses": { "type": "array", "items": { "anyOf": meals } },
                },
                "required": ["name", "ticket", "seats", "class", "extras", "courses"],
            })
        );
    }

    #[test]
    fn form_of_2025_06_18_has_plain_choices() {
        #[derive(JsonSchema)]
        struct Plain {
            #[serde(default)]
            name: String,
            #[serde(default)]
            window: bool,
            meal: Meal,
        }
        let form = form_schema::<Plain>().unwrap();
        assert_eq!(for_version(form.clone(), Version::V2025_11_25), Some(form.clone()));
        let older = for_version(form, Version::V2025_06_18).unwrap();
        assert_eq!(
            older["properties"],
            json!({
                "name": { "type": "string" },
                "window": { "type": "boolean", "default": false },
                "meal": {
                    "type": "string",
                    "enum": ["Fish", "Meat", "Plain"],
                    "enumNames": ["Fish", "With meat", "Without either"],
                },
            })
        );
        let lists = form_schema::<Booking>().unwrap();
        assert_eq!(for_version(lists, Version::V2025_06_18), None);
    }

    #[test]
    fn types_that_are_no_forms_are_refused_with_the_field() {
        #[derive(JsonSchema)]
        struct Inner {
            a: String,
        }
        #[derive(JsonSchema)]
        struct Outer {
            inner: Inner,
        }
        #[derive(JsonSchema)]
        struct Names {
            names: Vec<String>,
        }
        #[derive(JsonSchema)]
        struct Any {
            any: Value,
        }
        #[derive(JsonSchema)]
        #[serde(untagged)]
        enum TextOrNumber {
            Text(String),
            Number(i64),
        }
        #[derive(JsonSchema)]
        struct Mixed {
            mixed: TextOrNumber,
        }
        #[derive(JsonSchema)]
        struct Chain {
            next: Option<Box<Chain>>,
        }
        #[derive(JsonSchema)]
        #[serde(tag = "kind")]
        enum Tagged {
            A { a: String },
        }
        let refused = |form: Result<Value, InvalidForm>| form.unwrap_err().to_string();
        for (why, expected) in [
            (
                refused(form_schema::<Outer>()),
                "a form cannot ask for `Outer`: `inner` is an object, and a form is flat",
            ),
            (
                refused(form_schema::<Names>()),
                "a form cannot ask for `Names`: `names` is a list, and a form has lists of choices only",
            ),
            (
                refused(form_schema::<Any>()),
                "a form cannot ask for `Any`: `any` may be anything, and a field has one type",
            ),
            (
                refused(form_schema::<Mixed>()),
                "a form cannot ask for `Mixed`: `mixed` has several types, and a field has one",
            ),
            (
                refused(form_schema::<Chain>()),
                "a form cannot ask for `Chain`: `next` contains itself, and a form is flat",
            ),
            (
                refused(form_schema::<Tagged>()),
                "a form cannot ask for `Tagged`: it is not a struct with named fields",
            ),
            (
                refused(form_schema::<String>()),
                "a form cannot ask for `string`: it is not a struct with named fields",
            ),
            (
                refused(form_schema::<BTreeMap<String, String>>()),
                "a form cannot ask for `Map_of_string`: it has no fields",
            ),
        ] {
            assert_eq!(why, expected);
        }
    }
}
