//! Resources: text, binary, a template, and one that changes.

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde::Serialize;
use serde_json::json;

use crate::media;

/// The resource that changes every two seconds.
pub(crate) const WATCHED: &str = "test://watched-resource";

pub(crate) const TEMPLATE: &str = "test://template/{id}/data";

/// Completions of the template's id.
pub(crate) const IDS: &[&str] = &["1", "12", "123"];

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";

pub(crate) fn all() -> Vec<Resource> {
    vec![
        Resource::new(TEXT, "static-text")
            .with_description("A text that never changes")
            .with_mime_type("text/plain"),
        Resource::new(BINARY, "static-binary")
            .with_description("A picture that never changes")
            .with_mime_type("image/png"),
        Resource::new(WATCHED, "watched-resource")
            .with_description("A text to subscribe to. The server reports a change every two seconds")
            .with_mime_type("text/plain"),
    ]
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let template = ResourceTemplate::new(TEMPLATE, "template")
        .with_description("Data for any id")
        .with_mime_type("application/json");
    vec![template]
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    id: &'a str,
    template_test: bool,
    data: String,
}

pub(crate) fn read(uri: String) -> Result<ReadResourceResult, ErrorData> {
    let contents = match uri.as_str() {
        TEXT => {
            ResourceContents::text("This is the content of the static text resource.", uri).with_mime_type("text/plain")
        }
        BINARY => ResourceContents::blob(media::PNG, uri).with_mime_type("image/png"),
        WATCHED => ResourceContents::text("Watched resource content.", uri).with_mime_type("text/plain"),
        _ => {
            let Some(id) = id_of(&uri) else {
                let data = json!({ "uri": uri });
                return Err(ErrorData::resource_not_found("Resource not found", Some(data)));
            };
            let data = Data {
                id,
                template_test: true,
                data: format!("Data for ID: {id}"),
            };
            let json = serde_json::to_string(&data).map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
            ResourceContents::text(json, uri).with_mime_type("application/json")
        }
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

/// The id in a URI of the template.
fn id_of(uri: &str) -> Option<&str> {
    let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}
