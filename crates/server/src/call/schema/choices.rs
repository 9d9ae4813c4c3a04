//! The values of a choice that is written as alternatives, such as an enum with documented variants.

use super::Schema;
use serde_json::Value;

/// Schemas that are looked at. References can be recursive. Beyond: the alternatives count as no choice.
const MAX_STEPS: usize = 256;

impl Schema {
    /// The values that `alternatives` allow. `None` if one of them allows values that it does not name.
    pub(super) fn choices(&self, alternatives: &Value) -> Option<Vec<Value>> {
        let (mut steps, mut choices) = (MAX_STEPS, Vec::new());
        for schema in alternatives.as_array()? {
            self.add_choices(schema, &mut steps, &mut choices)?;
        }
        Some(choices)
    }

    fn add_choices(&self, schema: &Value, steps: &mut usize, choices: &mut Vec<Value>) -> Option<()> {
        *steps = steps.checked_sub(1)?;
        if schema["type"] == "null" {
            choices.push(Value::Null);
        } else if let Some(value) = schema.get("const") {
            choices.push(value.clone());
        } else if let Some(Value::Array(values)) = schema.get("enum") {
            choices.extend(values.iter().cloned());
        } else if let Some(inner) = schema.get("oneOf").or_else(|| schema.get("anyOf")) {
            for alternative in inner.as_array()? {
                self.add_choices(alternative, steps, choices)?;
            }
        } else {
            let target = self.resolve(schema.get("$ref")?.as_str()?)?;
            self.add_choices(target, steps, choices)?;
        }
        Some(())
    }
}
