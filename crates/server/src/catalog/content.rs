//! Content blocks of tool results and prompt messages.

use super::{Resource, ResourceContents};
use serde::Serialize;
use serde_json::Value;

/// A content block.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    #[serde(rename_all = "camelCase")]
    Image {
        /// The bytes in base64.
        data: String,
        /// Such as `image/png`.
        mime_type: String,
    },
    /// A sound.
    #[serde(rename_all = "camelCase")]
    Audio {
        /// The bytes in base64.
        data: String,
        /// Such as `audio/wav`.
        mime_type: String,
    },
    /// A resource with its contents.
    Resource {
        /// The resource.
        resource: ResourceContents,
    },
    /// A resource that the client may read. Since 2025-06-18.
    ResourceLink(Resource),
    /// A block written by hand.
    #[serde(untagged)]
    Json(Value),
}

impl Content {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Content::Text { text: text.into() }
    }

    /// An image block; `data` is base64.
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Content::Image {
            data: data.into(),
            mime_type: mime_type.into(),
        }
    }

    /// An audio block; `data` is base64.
    pub fn audio(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Content::Audio {
            data: data.into(),
            mime_type: mime_type.into(),
        }
    }

    /// An embedded resource that is text.
    pub fn resource(uri: impl Into<String>, mime_type: impl Into<String>, text: impl Into<String>) -> Self {
        ResourceContents::text(uri, text).mime_type(mime_type).into()
    }

    /// An embedded resource that is bytes; `blob` is base64.
    pub fn resource_blob(uri: impl Into<String>, mime_type: impl Into<String>, blob: impl Into<String>) -> Self {
        ResourceContents::blob(uri, blob).mime_type(mime_type).into()
    }

    /// A link to a resource. Revisions before 2025-06-18 do not have it.
    pub fn resource_link(resource: Resource) -> Self {
        Content::ResourceLink(resource)
    }

    /// A block written by hand, for members that the other constructors lack, such as `annotations`.
    pub fn json(block: Value) -> Self {
        Content::Json(block)
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Content::text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Content::text(text)
    }
}

impl From<ResourceContents> for Content {
    fn from(resource: ResourceContents) -> Self {
        Content::Resource { resource }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn blocks_have_the_shape_of_the_schema() {
        let link = Resource::new("test://a", "a").mime_type("text/plain");
        for (block, shape) in [
            (Content::text("hi"), json!({ "type": "text", "text": "hi" })),
            (
                Content::image("aGk=", "image/png"),
                json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" }),
            ),
            (
                Content::audio("aGk=", "audio/wav"),
                json!({ "type": "audio", "data": "aGk=", "mimeType": "audio/wav" }),
            ),
            (
                Content::resource("test://a", "text/plain", "hi"),
                json!({ "type": "resource", "resource": { "uri": "test://a", "mimeType": "text/plain", "text": "hi" } }),
            ),
            (
                Content::resource_blob("test://a", "image/png", "aGk="),
                json!({ "type": "resource", "resource": { "uri": "test://a", "mimeType": "image/png", "blob": "aGk=" } }),
            ),
            (
                Content::resource_link(link),
                json!({ "type": "resource_link", "uri": "test://a", "name": "a", "mimeType": "text/plain" }),
            ),
            (
                Content::json(json!({ "type": "text", "text": "", "annotations": { "priority": 1 } })),
                json!({ "type": "text", "text": "", "annotations": { "priority": 1 } }),
            ),
        ] {
            assert_eq!(serde_json::to_value(&block).unwrap(), shape);
        }
    }
}
