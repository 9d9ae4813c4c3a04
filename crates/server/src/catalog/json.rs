//! Typed results.

use super::{IntoToolResult, ToolError, ToolResult};
use crate::call::derived_schema::schema_of_output;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// A typed result of a tool: `structuredContent` for programs, the same JSON as text for the model, and the schema of `T` as the
/// `outputSchema` of the tool.
///
/// ```
/// use rethread::Context;
/// use rethread::catalog::{Catalog, Json, NoArgs, Tool};
/// use schemars::JsonSchema;
/// use serde::Serialize;
///
/// #[derive(Serialize, JsonSchema)]
/// struct Weather {
///     /// In degrees Celsius
///     temperature: f64,
/// }
///
/// async fn weather(_: NoArgs, _: Context) -> Json<Weather> {
///     Json(Weather { temperature: 21.5 })
/// }
///
/// let catalog = Catalog::new("weather", "1.0.0").tool(Tool::new("weather"), weather);
/// ```
///
/// Clients before 2025-06-18 get the text alone. So do clients before 2026-07-28 if `T` is not a JSON object, such as a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize + JsonSchema> IntoToolResult for Json<T> {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        let text = serde_json::to_string(&self.0)?; // in the order of the fields, which a `Value` does not keep
        let structured_content = Some(serde_json::to_value(&self.0)?);
        Ok(ToolResult {
            structured_content,
            ..ToolResult::new(vec![text.into()])
        })
    }

    fn output_schema() -> Option<Value> {
        Some(schema_of_output::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[derive(Serialize, JsonSchema)]
    struct Sum {
        /// The sum.
        sum: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    }

    #[test]
    fn result_has_text_and_structure() {
        let result = Json(Sum { sum: 3.0, note: None }).into_tool_result().unwrap();
        assert_eq!(
            serde_json::to_value(result).unwrap(),
            json!({ "content": [{ "type": "text", "text": r#"{"sum":3.0}"# }], "structuredContent": { "sum": 3.0 } })
        );
        let schema = json!({
            "type": "object",
            "properties": {
                "sum": { "type": "number", "description": "The sum." },
                "note": { "type": ["string", "null"] },
            },
            "required": ["sum"],
        });
        assert_eq!(Json::<Sum>::output_schema(), Some(schema.clone()));
        assert_eq!(Result::<Json<Sum>, ToolError>::output_schema(), Some(schema));
    }

    #[test]
    fn result_that_is_not_json_is_a_failure() {
        let keys = BTreeMap::from([((1, 2), 3)]);
        assert!(serde_json::to_value(&keys).is_err());
        #[derive(Serialize, JsonSchema)]
        struct Keys(#[schemars(with = "u8")] BTreeMap<(u8, u8), u8>);
        let result = Json(Keys(keys)).into_tool_result();
        assert!(result.is_err(), "{result:?}");
    }
}
