//! Resources: list, read, subscribe.

use super::function::{FunctionFuture, params};
use super::page::{Listing, shown};
use super::template::UriTemplate;
use crate::call::context::Context;
use crate::call::reply::Reply;
use crate::call::request::Call;
use rethread_proto::jsonrpc::RpcError;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;

/// The description of a resource for clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    uri: String,
    #[serde(flatten)]
    about: About,
}

/// The description of a resource template for clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplate {
    uri_template: String,
    #[serde(flatten)]
    about: About,
}

/// The common members of a resource and a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct About {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
}

impl Resource {
    /// The resource at `uri`.
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Resource {
            uri: uri.into(),
            about: About {
                name: name.into(),
                ..About::default()
            },
        }
    }

    /// The title for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.about.title = Some(title.into());
        self
    }

    /// A description of the contents, for a model.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.about.description = Some(description.into());
        self
    }

    /// The MIME type, such as `text/plain`.
    #[must_use]
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.about.mime_type = Some(mime_type.into());
        self
    }
}

impl ResourceTemplate {
    /// The resources at `uri_template`, such as `test://items/{id}`.
    pub fn new(uri_template: impl Into<String>, name: impl Into<String>) -> Self {
        ResourceTemplate {
            uri_template: uri_template.into(),
            about: About {
                name: name.into(),
                ..About::default()
            },
        }
    }

    /// The title for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.about.title = Some(title.into());
        self
    }

    /// A description of the contents, for a model.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.about.description = Some(description.into());
        self
    }

    /// The MIME type, if all resources of the template have the same.
    #[must_use]
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.about.mime_type = Some(mime_type.into());
        self
    }
}

/// The contents of a resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents {
    uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
    #[serde(flatten)]
    data: Data,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Data {
    Text(String),
    Blob(String),
}

impl ResourceContents {
    /// Text at `uri`.
    pub fn text(uri: impl Into<String>, text: impl Into<String>) -> Self {
        ResourceContents {
            uri: uri.into(),
            mime_type: None,
            data: Data::Text(text.into()),
        }
    }

    /// Bytes at `uri`, in base64.
    pub fn blob(uri: impl Into<String>, base64: impl Into<String>) -> Self {
        ResourceContents {
            uri: uri.into(),
            mime_type: None,
            data: Data::Blob(base64.into()),
        }
    }

    /// The MIME type. Without it, the MIME type of the resource is sent.
    #[must_use]
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }
}

impl From<ResourceContents> for Vec<ResourceContents> {
    fn from(contents: ResourceContents) -> Self {
        vec![contents]
    }
}

type ReadOne = Box<dyn Fn(String, Context) -> FunctionFuture + Send + Sync>;
type ReadTemplate = Box<dyn Fn(BTreeMap<String, String>, String, Context) -> FunctionFuture + Send + Sync>;

/// The resources of a catalog.
pub(super) struct Resources {
    single: Listing<ReadOne>,
    templates: Listing<(UriTemplate, ReadTemplate)>,
}

impl Default for Resources {
    fn default() -> Self {
        Resources {
            single: Listing::new("resource", "resources"),
            templates: Listing::new("resource template", "resourceTemplates"),
        }
    }
}

#[derive(Deserialize)]
struct UriParams<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
}

impl Resources {
    pub(super) fn add<F, Fut, R>(&mut self, resource: Resource, read: F)
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<ResourceContents>>,
    {
        let shown = shown(&resource);
        let mime_type = resource.about.mime_type;
        let entry: ReadOne = Box::new(move |uri, cx| reply(read(uri, cx), mime_type.clone()));
        self.single.add(resource.uri, shown, entry);
    }

    pub(super) fn add_template<F, Fut, R>(&mut self, template: ResourceTemplate, read: F)
    where
        F: Fn(BTreeMap<String, String>, String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<ResourceContents>>,
    {
        let uris = UriTemplate::parse(&template.uri_template).unwrap_or_else(|why| {
            panic!(
                "the resource template `{}` cannot be used: {why}",
                template.uri_template
            )
        });
        let shown = shown(&template);
        let mime_type = template.about.mime_type;
        let entry: ReadTemplate = Box::new(move |vars, uri, cx| reply(read(vars, uri, cx), mime_type.clone()));
        self.templates.add(template.uri_template, shown, (uris, entry));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.single.is_empty() && self.templates.is_empty()
    }

    /// Whether `uri` is a resource, or the text of a template.
    pub(super) fn knows(&self, uri: &str) -> bool {
        self.single.get(uri).is_some() || self.templates.get(uri).is_some()
    }

    pub(super) fn page(&self, call: &Call, size: usize) -> Result<Reply, RpcError> {
        self.single.page(call, size)
    }

    pub(super) fn page_of_templates(&self, call: &Call, size: usize) -> Result<Reply, RpcError> {
        self.templates.page(call, size)
    }

    /// Starts a `resources/read`.
    pub(super) fn read(&self, call: &Call, cx: &Context) -> Result<FunctionFuture, RpcError> {
        let UriParams { uri } = params(call)?;
        if let Some(read) = self.single.get(&uri) {
            return Ok(read(uri.into_owned(), cx.clone()));
        }
        match self.expand(&uri) {
            Some((variables, read)) => Ok(read(variables, uri.into_owned(), cx.clone())),
            None => Err(not_found(&uri, cx)),
        }
    }

    /// Answers `resources/subscribe` and `resources/unsubscribe`. The transport does the rest.
    pub(super) fn watch(&self, call: &Call, cx: &Context) -> Result<Reply, RpcError> {
        let UriParams { uri } = params(call)?;
        if self.single.get(&uri).is_some() || self.expand(&uri).is_some() {
            Ok(Reply::empty())
        } else {
            Err(not_found(&uri, cx))
        }
    }

    fn expand(&self, uri: &str) -> Option<(BTreeMap<String, String>, &ReadTemplate)> {
        let mut templates = self.templates.entries().iter();
        templates.find_map(|(uris, read)| Some((uris.matches(uri)?, read)))
    }
}

#[derive(Serialize)]
struct Read {
    contents: Vec<ResourceContents>,
}

fn reply<Fut, R>(reading: Fut, mime_type: Option<String>) -> FunctionFuture
where
    Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
    R: Into<Vec<ResourceContents>>,
{
    Box::pin(async move {
        let mut contents: Vec<ResourceContents> = reading.await?.into();
        for part in &mut contents {
            if part.mime_type.is_none() {
                part.mime_type.clone_from(&mime_type);
            }
        }
        Ok(Reply::json(Read { contents }))
    })
}

fn not_found(uri: &str, cx: &Context) -> RpcError {
    let code = cx.version().resource_not_found_code(); // VER-12
    RpcError::new(code, format!("resource not found: {uri}")).with_data(json!({ "uri": uri }))
}
