//! JSON values as JSON Schema compares them: `1` and `1.0` are the same number.

use serde_json::{Number, Value};
use std::cmp::Ordering;

pub(super) fn is_of_type(value: &Value, names: &Value) -> bool {
    let is = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    };
    names.as_array().map_or_else(|| is(names), |names| names.iter().any(is))
}

pub(super) fn compare(one: &Number, other: &Number) -> Ordering {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => {
            let (one, other) = (one.as_f64().unwrap_or(0.0), other.as_f64().unwrap_or(0.0));
            one.partial_cmp(&other).unwrap_or(Ordering::Equal)
        }
    }
}

pub(super) fn is_multiple(number: &Number, of: &Number) -> bool {
    if let (Some(number), Some(of)) = (number.as_i128(), of.as_i128()) {
        return number % of == 0;
    }
    let quotient = number.as_f64().unwrap_or(0.0) / of.as_f64().unwrap_or(1.0);
    let error = (quotient - quotient.round()).abs();
    !quotient.is_finite() || error <= f64::EPSILON * quotient.abs().max(1.0) * 4.0
}

/// Equal as JSON: `1` is `1.0`.
pub(super) fn equal(one: &Value, other: &Value) -> bool {
    one == other
        || match (one, other) {
            (Value::Number(one), Value::Number(other)) => compare(one, other).is_eq(),
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
                canonical(one) == canonical(other)
            }
            _ => false,
        }
}

/// The same text for equal values.
pub(super) fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.as_i128().is_none() && float.fract() == 0.0 && float.abs() < 1e15 => {
                (float as i64).to_string()
            }
            _ => number.to_string(),
        },
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let member = |(name, value)| format!("{}:{}", Value::from(String::as_str(name)), canonical(value));
            format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}
