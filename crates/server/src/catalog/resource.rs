//! Resources: list, read, subscribe.

use super::function::{FunctionFuture, params};
use super::listing::{Listing, Shown};
use super::template::UriTemplate;
use super::{Annotations, EntryError, Icon};
use crate::call::context::Context;
use crate::call::reply::Reply;
use crate::call::request::Call;
use rethread_proto::Version;
use rethread_proto::jsonrpc::RpcError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

/// The description of a resource for clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Resource {
    uri: String,
    #[serde(flatten)]
    about: About,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

/// The description of a resource template for clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotations>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    icons: Vec<Icon>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<Map<String, Value>>,
}

impl About {
    fn new(name: String) -> Self {
        About {
            name,
            ..About::default()
        }
    }

    /// The members that `version` has.
    fn at(&self, version: Version) -> Self {
        let mut about = self.clone();
        if !version.has_titles() {
            (about.title, about.meta) = (None, None);
        }
        if !version.has_icons() {
            about.icons.clear();
        }
        about
    }
}

/// The setters that a resource and a template share.
macro_rules! about_setters {
    () => {
        /// The title for people. Since 2025-06-18; earlier clients do not get it.
        pub fn title(mut self, title: impl Into<String>) -> Self {
            self.about.title = Some(title.into());
            self
        }

        /// A description of the contents, for a model.
        pub fn description(mut self, description: impl Into<String>) -> Self {
            self.about.description = Some(description.into());
            self
        }

        /// Hints for clients.
        pub fn annotations(mut self, annotations: Annotations) -> Self {
            self.about.annotations = Some(annotations);
            self
        }

        /// Adds an icon. Since 2025-11-25; earlier clients do not get it.
        pub fn icon(mut self, icon: Icon) -> Self {
            self.about.icons.push(icon);
            self
        }

        /// Adds a member of `_meta`. Since 2025-06-18; earlier clients do not get it.
        pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
            self.about
                .meta
                .get_or_insert_default()
                .insert(key.into(), value.into());
            self
        }
    };
}

impl Resource {
    /// The resource at `uri`.
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Resource {
            uri: uri.into(),
            about: About::new(name.into()),
            size: None,
        }
    }

    about_setters!();

    /// The MIME type, such as `text/plain`.
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.about.mime_type = Some(mime_type.into());
        self
    }

    /// The size of the contents in bytes, before base64.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    fn at(&self, version: Version) -> Self {
        Resource {
            about: self.about.at(version),
            ..self.clone()
        }
    }
}

impl ResourceTemplate {
    /// The resources at `uri_template`, such as `test://items/{id}`.
    pub fn new(uri_template: impl Into<String>, name: impl Into<String>) -> Self {
        ResourceTemplate {
            uri_template: uri_template.into(),
            about: About::new(name.into()),
        }
    }

    about_setters!();

    /// The MIME type, if all resources of the template have the same.
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.about.mime_type = Some(mime_type.into());
        self
    }

    fn at(&self, version: Version) -> Self {
        ResourceTemplate {
            about: self.about.at(version),
            ..self.clone()
        }
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

type TemplateEntry = (UriTemplate, ReadTemplate);

/// The resources of a catalog.
pub(super) struct Resources {
    single: Listing<ReadOne>,
    templates: Listing<TemplateEntry>,
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
    pub(super) fn add<F, Fut, R>(&self, resource: Resource, read: F) -> Result<(), EntryError>
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<ResourceContents>>,
    {
        let shown = Shown::new(|version| resource.at(version));
        let mime_type = resource.about.mime_type;
        let entry: ReadOne = Box::new(move |uri, cx| reply(read(uri, cx), mime_type.clone()));
        self.single.add(resource.uri, shown, entry)
    }

    pub(super) fn add_template<F, Fut, R>(&self, template: ResourceTemplate, read: F) -> Result<(), EntryError>
    where
        F: Fn(BTreeMap<String, String>, String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<ResourceContents>>,
    {
        let uris = UriTemplate::parse(&template.uri_template).map_err(|why| {
            let text = &template.uri_template;
            EntryError::Invalid(format!("the resource template `{text}` cannot be used: {why}"))
        })?;
        let shown = Shown::new(|version| template.at(version));
        let mime_type = template.about.mime_type;
        let entry: ReadTemplate = Box::new(move |vars, uri, cx| reply(read(vars, uri, cx), mime_type.clone()));
        self.templates.add(template.uri_template, shown, (uris, entry))
    }

    pub(super) fn remove(&self, uri: &str) -> bool {
        self.single.remove(uri)
    }

    pub(super) fn remove_template(&self, uri_template: &str) -> bool {
        self.templates.remove(uri_template)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.single.is_empty() && self.templates.is_empty()
    }

    /// Whether `uri` is a resource, or the text of a template.
    pub(super) fn knows(&self, uri: &str) -> bool {
        self.single.get(uri).is_some() || self.templates.get(uri).is_some()
    }

    pub(super) fn page(&self, call: &Call, version: Version, size: usize) -> Result<Reply, RpcError> {
        self.single.page(call, version, size)
    }

    pub(super) fn page_of_templates(&self, call: &Call, version: Version, size: usize) -> Result<Reply, RpcError> {
        self.templates.page(call, version, size)
    }

    /// Starts a `resources/read`.
    pub(super) fn read(&self, call: &Call, cx: &Context) -> Result<FunctionFuture, RpcError> {
        let UriParams { uri } = params(call)?;
        if let Some(read) = self.single.get(&uri) {
            return Ok(read(uri.into_owned(), cx.clone()));
        }
        match self.expand(&uri) {
            Some((variables, template)) => Ok((template.1)(variables, uri.into_owned(), cx.clone())),
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

    fn expand(&self, uri: &str) -> Option<(BTreeMap<String, String>, Arc<TemplateEntry>)> {
        self.templates.find(|(uris, _)| uris.matches(uri))
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

#[cfg(test)]
mod tests {
    use super::super::Role;
    use super::*;

    #[test]
    fn each_revision_gets_the_members_it_has() {
        let hints = Annotations::new().audience([Role::User]);
        let resource = Resource::new("test://a", "a")
            .title("A")
            .size(3)
            .annotations(hints.clone())
            .icon(Icon::new("data:,"))
            .meta("a", 1);
        let template = ResourceTemplate::new("test://{a}", "a")
            .title("A")
            .annotations(hints)
            .icon(Icon::new("data:,"))
            .meta("a", 1);
        let both = |version| {
            let resource = serde_json::to_value(resource.at(version)).unwrap();
            [resource, serde_json::to_value(template.at(version)).unwrap()]
        };
        let hints = json!({ "audience": ["user"] });
        let mut expected = [
            json!({ "uri": "test://a", "name": "a", "size": 3, "annotations": hints }),
            json!({ "uriTemplate": "test://{a}", "name": "a", "annotations": hints }),
        ];
        assert_eq!(both(Version::V2025_03_26), expected);
        for shown in &mut expected {
            shown["title"] = json!("A");
            shown["_meta"] = json!({ "a": 1 });
        }
        assert_eq!(both(Version::V2025_06_18), expected);
        for shown in &mut expected {
            shown["icons"] = json!([{ "src": "data:," }]);
        }
        assert_eq!(both(Version::V2025_11_25), expected);
    }
}
