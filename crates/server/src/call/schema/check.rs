//! Checks a value against a schema. Describes the problems so that a model can act on them.

use super::values::{canonical, compare, equal, is_multiple, is_of_type};
use super::{Schema, shorten};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

/// Problems in one text. Beyond: the rest is not described.
const MAX_PROBLEMS: usize = 8;
/// Bytes of one problem. Beyond: the text is cut.
const MAX_PROBLEM_BYTES: usize = 300;
/// Longest string that a problem repeats, in bytes. Beyond: it names the length instead.
const MAX_SHOWN_BYTES: usize = 64;
/// Names, values or alternatives that a problem lists. Beyond: the list is cut.
const MAX_LISTED_ITEMS: usize = 10;
/// Steps for each byte of the text. A recursive schema with alternatives could take exponentially many. Beyond: the check
/// fails.
const STEPS_PER_BYTE: usize = 16;
const MIN_STEPS: usize = 10_000;
/// Depth of nested schemas. The parser allows 128 nested values. Beyond: the value is refused.
const MAX_SCHEMA_DEPTH: usize = 256;

impl Schema {
    /// Describes how an object violates the schema.
    pub(crate) fn check(&self, object: &str) -> Result<(), String> {
        if self.allows_every_object {
            return Ok(());
        }
        let value = serde_json::from_str(object).map_err(|error| format!("- {error}"))?;
        check(self, &value, object.len())
    }
}

/// Checks `value`, whose text has `bytes` bytes.
pub(super) fn check(schema: &Schema, value: &Value, bytes: usize) -> Result<(), String> {
    let steps = bytes.saturating_mul(STEPS_PER_BYTE).saturating_add(MIN_STEPS);
    let checker = Checker {
        schema,
        steps: Cell::new(steps),
        depth: Cell::new(0),
    };
    if checker.fits(&schema.root, value) {
        return Ok(());
    }
    checker.steps.set(steps);
    let mut problems = Problems::up_to(MAX_PROBLEMS);
    checker.visit(&schema.root, value, At::Root, &mut problems);
    let mut lines = problems.found;
    if problems.more {
        lines.push("- and more".to_owned());
    }
    Err(lines.join("\n"))
}

/// The location of a value in the arguments.
#[derive(Clone, Copy)]
enum At<'a> {
    Root,
    Name(&'a At<'a>, &'a str),
    Index(&'a At<'a>, usize),
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Root => Ok(()),
            At::Name(At::Root, name) => f.write_str(name),
            At::Name(parent, name) => write!(f, "{parent}/{name}"),
            At::Index(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

/// The problems found so far. With a capacity of zero, only the existence of a problem counts, and no text is made.
struct Problems {
    found: Vec<String>,
    max: usize,
    more: bool,
}

impl Problems {
    fn up_to(max: usize) -> Self {
        Problems {
            found: Vec::new(),
            max,
            more: false,
        }
    }

    /// Always false: the value does not fit.
    fn add(&mut self, at: At<'_>, text: impl FnOnce() -> String) -> bool {
        if self.found.len() < self.max {
            let line = match at {
                At::Root => format!("- {}", text()),
                at => format!("- `{at}`: {}", text()),
            };
            self.found.push(shorten(line, MAX_PROBLEM_BYTES));
        } else {
            self.more = true;
        }
        false
    }

    /// Whether further problems are ignored.
    fn is_full(&self) -> bool {
        self.more
    }
}

struct Checker<'a> {
    schema: &'a Schema,
    /// The number of schemas that may still be checked.
    steps: Cell<usize>,
    depth: Cell<usize>,
}

impl Checker<'_> {
    fn fits(&self, schema: &Value, value: &Value) -> bool {
        self.visit(schema, value, At::Root, &mut Problems::up_to(0))
    }

    fn visit(&self, schema: &Value, value: &Value, at: At<'_>, out: &mut Problems) -> bool {
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(false) => return out.add(at, || "not allowed here".to_owned()),
            _ => return true,
        };
        let depth = self.depth.get();
        let Some(left) = self.steps.get().checked_sub(1).filter(|_| depth < MAX_SCHEMA_DEPTH) else {
            return out.add(at, || "nested too deeply to be checked".to_owned());
        };
        self.steps.set(left);
        self.depth.set(depth + 1);
        let mut fits = true;
        let alone = self.schema.ref_stands_alone && keywords.contains_key("$ref");
        for (keyword, operand) in keywords.iter().filter(|(keyword, _)| !alone || *keyword == "$ref") {
            fits &= self.keyword(keyword, operand, keywords, value, at, out);
            if !fits && out.is_full() {
                break;
            }
        }
        self.depth.set(depth);
        fits
    }

    fn keyword(
        &self,
        keyword: &str,
        operand: &Value,
        siblings: &Map<String, Value>,
        value: &Value,
        at: At<'_>,
        out: &mut Problems,
    ) -> bool {
        match keyword {
            "type" => {
                is_of_type(value, operand)
                    || out.add(at, || format!("expected {}, found {}", listed(operand), Shown(value)))
            }
            "enum" => {
                let mut allowed = operand.as_array().into_iter().flatten();
                allowed.any(|one| equal(one, value))
                    || out.add(at, || format!("{} is not one of {}", Shown(value), listed(operand)))
            }
            "const" => equal(operand, value) || out.add(at, || format!("expected {operand}, found {}", Shown(value))),
            "$ref" | "$dynamicRef" => {
                let target = operand.as_str().and_then(|reference| self.schema.resolve(reference));
                target.is_none_or(|schema| self.visit(schema, value, at, out))
            }
            "allOf" => {
                let mut fits = true;
                for schema in operand.as_array().into_iter().flatten() {
                    fits &= self.visit(schema, value, at, out);
                }
                fits
            }
            "anyOf" | "oneOf" => self.alternatives(keyword, operand, value, at, out),
            "not" => {
                !self.fits(operand, value)
                    || out.add(at, || format!("must not fit {}", shorten(operand.to_string(), 100)))
            }
            "if" => {
                let branch = if self.fits(operand, value) { "then" } else { "else" };
                siblings
                    .get(branch)
                    .is_none_or(|schema| self.visit(schema, value, at, out))
            }
            "dependentRequired" | "dependentSchemas" | "dependencies" => {
                self.dependent(operand, siblings, value, at, out)
            }
            _ => match value {
                Value::Number(number) => number_fits(keyword, operand, number, at, out),
                Value::String(text) => self.string(keyword, operand, text, at, out),
                Value::Array(items) => self.array(keyword, operand, siblings, items, at, out),
                Value::Object(members) => self.object(keyword, operand, siblings, members, at, out),
                Value::Null | Value::Bool(_) => true,
            },
        }
    }

    fn alternatives(&self, keyword: &str, operand: &Value, value: &Value, at: At<'_>, out: &mut Problems) -> bool {
        let schemas = || operand.as_array().into_iter().flatten();
        match schemas().filter(|schema| self.fits(schema, value)).take(2).count() {
            0 => out.add(at, || {
                if let Some(choices) = self.schema.choices(operand) {
                    return format!("{} is not one of {}", Shown(value), listed(&choices.into()));
                }
                let mut why = Vec::new();
                for schema in schemas().take(MAX_LISTED_ITEMS) {
                    let mut first = Problems::up_to(1);
                    self.visit(schema, value, At::Root, &mut first);
                    why.extend(first.found.iter().map(|line| line.trim_start_matches("- ").to_owned()));
                }
                format!("no alternative fits: {}", why.join("; or "))
            }),
            2 if keyword == "oneOf" => out.add(at, || "fits several alternatives, and must fit exactly one".to_owned()),
            _ => true,
        }
    }

    /// The keywords that apply because a member is present.
    fn dependent(
        &self,
        operand: &Value,
        siblings: &Map<String, Value>,
        value: &Value,
        at: At<'_>,
        out: &mut Problems,
    ) -> bool {
        let Value::Object(members) = value else { return true };
        let mut fits = true;
        for (name, needed) in operand.as_object().into_iter().flatten() {
            fits &= match needed {
                _ if !members.contains_key(name) => true,
                Value::Array(_) => self.object("required", needed, siblings, members, at, out),
                schema => self.visit(schema, value, at, out),
            };
        }
        fits
    }

    fn string(&self, keyword: &str, operand: &Value, text: &str, at: At<'_>, out: &mut Problems) -> bool {
        match keyword {
            "minLength" | "maxLength" => count_fits(keyword, operand, text.chars().count(), "characters", at, out),
            "pattern" => {
                let matches = operand.as_str().and_then(|pattern| self.schema.matches(pattern, text));
                matches.unwrap_or(true)
                    || out.add(at, || {
                        format!("{} does not match the pattern {operand}", Shown(&text.into()))
                    })
            }
            _ => true,
        }
    }

    fn array(
        &self,
        keyword: &str,
        operand: &Value,
        siblings: &Map<String, Value>,
        items: &[Value],
        at: At<'_>,
        out: &mut Problems,
    ) -> bool {
        let each = |schemas: &mut dyn Iterator<Item = &Value>, from: usize, out: &mut Problems| {
            let mut fits = true;
            for ((index, item), schema) in items.iter().enumerate().skip(from).zip(schemas) {
                fits &= self.visit(schema, item, At::Index(&at, index), out);
                if !fits && out.is_full() {
                    break;
                }
            }
            fits
        };
        let tuple = |keyword: &str| siblings.get(keyword).and_then(Value::as_array).map_or(0, Vec::len);
        match (keyword, operand) {
            ("minItems" | "maxItems", _) => count_fits(keyword, operand, items.len(), "items", at, out),
            ("prefixItems" | "items", Value::Array(schemas)) => each(&mut schemas.iter(), 0, out),
            ("items", schema) => each(&mut std::iter::repeat(schema), tuple("prefixItems"), out),
            // Before 2020-12, and only beside an array of schemas.
            ("additionalItems", schema) if siblings.get("items").is_some_and(Value::is_array) => {
                each(&mut std::iter::repeat(schema), tuple("items"), out)
            }
            ("contains", schema) => {
                let count = items.iter().filter(|item| self.fits(schema, item)).count();
                let bound = |keyword: &str, default| siblings.get(keyword).and_then(as_count).unwrap_or(default);
                let (min, max) = (bound("minContains", 1), bound("maxContains", usize::MAX));
                (min..=max).contains(&count)
                    || out.add(at, || format!("{count} items fit {}", shorten(schema.to_string(), 100)))
            }
            ("uniqueItems", Value::Bool(true)) => {
                let mut seen = HashSet::new();
                let repeated = items.iter().find(|item| !seen.insert(canonical(item)));
                repeated.is_none_or(|item| out.add(at, || format!("{} occurs more than once", Shown(item))))
            }
            _ => true,
        }
    }

    fn object(
        &self,
        keyword: &str,
        operand: &Value,
        siblings: &Map<String, Value>,
        members: &Map<String, Value>,
        at: At<'_>,
        out: &mut Problems,
    ) -> bool {
        let mut fits = true;
        match keyword {
            "minProperties" | "maxProperties" => {
                return count_fits(keyword, operand, members.len(), "members", at, out);
            }
            "required" => {
                let names = operand.as_array().into_iter().flatten().filter_map(Value::as_str);
                for name in names.filter(|name| !members.contains_key(*name)) {
                    fits = out.add(At::Name(&at, name), || format!("missing{}", expected(siblings, name)));
                }
            }
            "properties" => {
                for (name, schema) in operand.as_object().into_iter().flatten() {
                    if let Some(value) = members.get(name) {
                        fits &= self.visit(schema, value, At::Name(&at, name), out);
                    }
                }
            }
            "patternProperties" => {
                for (pattern, schema) in operand.as_object().into_iter().flatten() {
                    for (name, value) in members {
                        if self.schema.matches(pattern, name) == Some(true) {
                            fits &= self.visit(schema, value, At::Name(&at, name), out);
                        }
                    }
                }
            }
            "additionalProperties" => {
                let known = siblings.get("properties").and_then(Value::as_object);
                let patterns = siblings.get("patternProperties").and_then(Value::as_object);
                // A pattern that the engine does not support may allow anything.
                let matched = |name: &str| {
                    let mut patterns = patterns.into_iter().flat_map(Map::keys);
                    patterns.any(|pattern| self.schema.matches(pattern, name).unwrap_or(true))
                };
                let is_known = |name: &str| known.is_some_and(|known| known.contains_key(name)) || matched(name);
                for (name, value) in members.iter().filter(|(name, _)| !is_known(name)) {
                    let at = At::Name(&at, name);
                    fits &= match operand {
                        Value::Bool(false) => out.add(at, || format!("unknown name{}", known_names(known))),
                        schema => self.visit(schema, value, at, out),
                    };
                    if !fits && out.is_full() {
                        break;
                    }
                }
            }
            "propertyNames" => {
                for name in members.keys() {
                    fits &= self.visit(operand, &Value::String(name.clone()), At::Name(&at, name), out);
                }
            }
            _ => {}
        }
        fits
    }
}

fn number_fits(keyword: &str, operand: &Value, number: &Number, at: At<'_>, out: &mut Problems) -> bool {
    let Value::Number(limit) = operand else { return true };
    let order = compare(number, limit);
    let (fits, text) = match keyword {
        "minimum" => (order.is_ge(), "is less than the minimum"),
        "maximum" => (order.is_le(), "is greater than the maximum"),
        "exclusiveMinimum" => (order.is_gt(), "is not greater than"),
        "exclusiveMaximum" => (order.is_lt(), "is not less than"),
        "multipleOf" => (is_multiple(number, limit), "is not a multiple of"),
        _ => return true,
    };
    fits || out.add(at, || format!("{number} {text} {limit}"))
}

fn as_count(value: &Value) -> Option<usize> {
    value
        .as_u64()
        .or_else(|| value.as_f64().map(|number| number as u64))
        .map(|count| count as usize)
}

fn count_fits(keyword: &str, operand: &Value, count: usize, of: &str, at: At<'_>, out: &mut Problems) -> bool {
    let Some(limit) = as_count(operand) else { return true };
    let (fits, bound) = match keyword.starts_with("min") {
        true => (count >= limit, "least"),
        false => (count <= limit, "most"),
    };
    fits || out.add(at, || format!("has {count} {of}, expected at {bound} {limit}"))
}

/// A value in a message. Only short values are shown.
struct Shown<'a>(&'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) if text.len() > MAX_SHOWN_BYTES => write!(f, "a string of {} bytes", text.len()),
            Value::Array(_) => f.write_str("an array"),
            Value::Object(_) => f.write_str("an object"),
            short => short.fmt(f),
        }
    }
}

/// The operand of `type` or `enum` as text.
fn listed(operand: &Value) -> String {
    match operand {
        Value::Array(all) if all.len() > MAX_LISTED_ITEMS => {
            let some: Vec<_> = all[..MAX_LISTED_ITEMS]
                .iter()
                .map(|one| Shown(one).to_string())
                .collect();
            format!("{} and {} others", some.join(", "), all.len() - MAX_LISTED_ITEMS)
        }
        Value::Array(all) => all
            .iter()
            .map(|one| Shown(one).to_string())
            .collect::<Vec<_>>()
            .join(", "),
        Value::String(name) => name.clone(),
        other => other.to_string(),
    }
}

/// The expected value of a missing member, by its schema.
fn expected(siblings: &Map<String, Value>, name: &str) -> String {
    let schema = siblings.get("properties").and_then(|properties| properties.get(name));
    let member = |key: &str| schema?.get(key).map(listed);
    let hints = [
        member("type"),
        member("enum").map(|values| format!("one of {values}")),
        member("description"),
    ];
    match hints.into_iter().flatten().collect::<Vec<_>>() {
        nothing if nothing.is_empty() => String::new(),
        hints => format!("; expected: {}", hints.join(", ")),
    }
}

fn known_names(known: Option<&Map<String, Value>>) -> String {
    let names: Vec<_> = known
        .into_iter()
        .flat_map(Map::keys)
        .take(MAX_LISTED_ITEMS)
        .map(String::as_str)
        .collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; known: {}", names.join(", ")),
    }
}
