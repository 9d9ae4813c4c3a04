//! Resources: text, bytes, a template and one that changes.

use rethread::catalog::{Catalog, Reference, Resource, ResourceContents, ResourceTemplate};
use rethread::{Context, RpcError};
use serde::Serialize;
use std::collections::BTreeMap;

use crate::media;

/// The resource that changes every two seconds.
pub(crate) const WATCHED: &str = "test://watched-resource";

const TEMPLATE: &str = "test://template/{id}/data";

pub(crate) fn add_to(catalog: Catalog) -> Catalog {
    catalog
        .resource(
            Resource::new("test://static-text", "static-text")
                .description("A text that never changes")
                .mime_type("text/plain"),
            static_text,
        )
        .resource(
            Resource::new("test://static-binary", "static-binary")
                .description("A picture that never changes")
                .mime_type("image/png"),
            static_binary,
        )
        .resource(
            Resource::new(WATCHED, "watched-resource")
                .description("A text to subscribe to: it is said to change every two seconds")
                .mime_type("text/plain"),
            watched,
        )
        .template(
            ResourceTemplate::new(TEMPLATE, "template")
                .description("Data for any id")
                .mime_type("application/json"),
            data_for_id,
        )
        .complete(Reference::template(TEMPLATE), "id", suggest_id)
}

async fn static_text(uri: String, _: Context) -> Result<ResourceContents, RpcError> {
    Ok(ResourceContents::text(
        uri,
        "This is the content of the static text resource.",
    ))
}

async fn static_binary(uri: String, _: Context) -> Result<ResourceContents, RpcError> {
    Ok(ResourceContents::blob(uri, media::PNG))
}

async fn watched(uri: String, _: Context) -> Result<ResourceContents, RpcError> {
    Ok(ResourceContents::text(uri, "Watched resource content."))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    id: &'a str,
    template_test: bool,
    data: String,
}

async fn data_for_id(vars: BTreeMap<String, String>, uri: String, _: Context) -> Result<ResourceContents, RpcError> {
    let id = &vars["id"];
    let data = Data {
        id,
        template_test: true,
        data: format!("Data for ID: {id}"),
    };
    let json = serde_json::to_string(&data).map_err(|e| RpcError::internal(e.to_string()))?;
    Ok(ResourceContents::text(uri, json))
}

async fn suggest_id(typed: String, _: Context) -> Result<Vec<String>, RpcError> {
    let ids = ["1", "12", "123"].map(str::to_owned);
    Ok(ids.into_iter().filter(|id| id.starts_with(&typed)).collect())
}
