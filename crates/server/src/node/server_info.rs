//! The name, version and capabilities of a server.

use serde_json::{Value, json};

/// The `_meta` key of the server's name and version.
pub(crate) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The name, version and capabilities of a server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The program's name.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// The title for people, if it differs from the name.
    pub title: Option<String>,
    /// `ServerCapabilities` of the MCP schema.
    pub capabilities: Value,
    /// Instructions for a model that uses the server.
    pub instructions: Option<String>,
}

impl ServerInfo {
    /// A server with tools and logging and no instructions.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        ServerInfo {
            name: name.into(),
            version: version.into(),
            title: None,
            capabilities: json!({ "tools": {}, "logging": {} }),
            instructions: None,
        }
    }

    /// The same server with other capabilities: `ServerCapabilities` of the MCP schema.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// The same server with a title.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// The same server with instructions for a model.
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// The `Implementation` object of the MCP schema.
    pub(crate) fn implementation(&self) -> Value {
        let mut value = json!({ "name": self.name, "version": self.version });
        if let Some(title) = &self.title {
            value["title"] = json!(title);
        }
        value
    }

    /// The member of `_meta` that names this server in every result of 2026-07-28.
    pub(crate) fn meta_member(&self) -> String {
        format!("\"{SERVER_INFO}\":{}", self.implementation())
    }

    /// Whether the capability `name`, such as `tools` or `resources.subscribe`, is declared and not `false`.
    pub fn declares(&self, name: &str) -> bool {
        declares(&self.capabilities, name)
    }
}

/// Whether `capabilities` have a member at the path `name` that is not `false`.
pub(crate) fn declares(capabilities: &Value, name: &str) -> bool {
    let mut at = capabilities;
    for part in name.split('.') {
        match at.get(part) {
            None | Some(Value::Null | Value::Bool(false)) => return false,
            Some(inner) => at = inner,
        }
    }
    true
}

impl Default for ServerInfo {
    fn default() -> Self {
        ServerInfo::new("rethread-server", env!("CARGO_PKG_VERSION"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_found_by_path() {
        let info = ServerInfo {
            capabilities: json!({ "resources": { "subscribe": true, "listChanged": false }, "tools": {} }),
            ..ServerInfo::default()
        };
        assert!(info.declares("tools") && info.declares("resources.subscribe"));
        assert!(!info.declares("resources.listChanged") && !info.declares("prompts") && !info.declares("tools.x"));
    }
}
