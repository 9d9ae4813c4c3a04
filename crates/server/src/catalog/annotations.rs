//! Hints about tools and resources.

use serde::Serialize;

/// Hints about a tool. Since 2025-03-26; earlier clients do not get them.
///
/// ```
/// use rethread::catalog::{Tool, ToolAnnotations};
///
/// let tool = Tool::new("search").annotations(ToolAnnotations::new().read_only(true).open_world(false));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct ToolAnnotations {
    #[serde(skip_serializing_if = "Option::is_none")]
    read_only_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destructive_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotent_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_world_hint: Option<bool>,
}

impl ToolAnnotations {
    /// No hints.
    pub fn new() -> Self {
        ToolAnnotations::default()
    }

    /// The tool changes nothing. Clients assume `false`.
    pub fn read_only(mut self, hint: bool) -> Self {
        self.read_only_hint = Some(hint);
        self
    }

    /// The tool may delete or overwrite. Clients assume `true`.
    pub fn destructive(mut self, hint: bool) -> Self {
        self.destructive_hint = Some(hint);
        self
    }

    /// A second call with the same arguments changes nothing more. Clients assume `false`.
    pub fn idempotent(mut self, hint: bool) -> Self {
        self.idempotent_hint = Some(hint);
        self
    }

    /// The tool reaches systems outside of this server. Clients assume `true`.
    pub fn open_world(mut self, hint: bool) -> Self {
        self.open_world_hint = Some(hint);
        self
    }
}

/// Hints about a resource.
///
/// ```
/// use rethread::catalog::{Annotations, Resource, Role};
///
/// let hints = Annotations::new().audience([Role::Assistant]).priority(0.9);
/// let resource = Resource::new("note://today", "today").annotations(hints);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Annotations {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    audience: Vec<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_modified: Option<String>,
}

/// The author or the reader of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl Annotations {
    /// No hints.
    pub fn new() -> Self {
        Annotations::default()
    }

    /// The intended readers.
    pub fn audience(mut self, readers: impl IntoIterator<Item = Role>) -> Self {
        self.audience = readers.into_iter().collect();
        self
    }

    /// The importance, from 0 (optional) to 1 (required). Other values are moved to the nearer end.
    pub fn priority(mut self, priority: f64) -> Self {
        self.priority = Some(priority.clamp(0.0, 1.0)).filter(|value| value.is_finite());
        self
    }

    /// The time of the last change, in ISO 8601.
    pub fn last_modified(mut self, time: impl Into<String>) -> Self {
        self.last_modified = Some(time.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hints_have_the_shape_of_the_schema() {
        let tool = ToolAnnotations::new();
        assert_eq!(serde_json::to_value(tool).unwrap(), json!({}));
        let tool = tool
            .read_only(true)
            .destructive(false)
            .idempotent(true)
            .open_world(false);
        let expected = json!({
            "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false,
        });
        assert_eq!(serde_json::to_value(tool).unwrap(), expected);
        let hints = Annotations::new()
            .audience([Role::User, Role::Assistant])
            .priority(2.0)
            .last_modified("2026-07-28T12:00:00Z");
        let expected = json!({
            "audience": ["user", "assistant"], "priority": 1.0, "lastModified": "2026-07-28T12:00:00Z",
        });
        assert_eq!(serde_json::to_value(hints).unwrap(), expected);
        assert_eq!(
            serde_json::to_value(Annotations::new().priority(f64::NAN)).unwrap(),
            json!({})
        );
    }
}
