//! Listen streams of 2026-07-28: the filter, the notifications, and the changes that wait for a slow reader.
//!
//! A listen stream has no ids and no log. Each has its own filter: a change goes once to *every* stream whose filter
//! matches (SUB-05). A push message of the legacy era, in contrast, goes to exactly one stream (T-11).

use crate::jsonrpc::{Params, RequestId, RpcError, write_notification, write_result};
use crate::sse::Draft;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::sync::Arc;

/// A change that a subscription may match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// The resource at this URI. Shared, because one change goes to many streams.
    Updated(Arc<str>),
}

impl Change {
    /// The method of its notification.
    pub fn method(&self) -> &'static str {
        match self {
            Change::Tools => "notifications/tools/list_changed",
            Change::Prompts => "notifications/prompts/list_changed",
            Change::Resources => "notifications/resources/list_changed",
            Change::Updated(_) => "notifications/resources/updated",
        }
    }
}

/// The filter of a subscription: as requested, or the honoured part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// Changes of the list of tools.
    pub tools: bool,
    /// Changes of the list of prompts.
    pub prompts: bool,
    /// Changes of the list of resources.
    pub resources: bool,
    /// Updates of these resources and of those below them. Each URI once, in the requested order.
    pub uris: Vec<Box<str>>,
}

/// Limits of one filter. The same limits apply to the changes that wait for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterLimits {
    /// URIs.
    pub uris: usize,
    /// Bytes of all URIs together.
    pub uri_bytes: usize,
}

impl FilterLimits {
    /// A number of URIs and of their bytes.
    pub const fn new(uris: usize, uri_bytes: usize) -> Self {
        FilterLimits { uris, uri_bytes }
    }
}

/// The `listChanged` and `subscribe` capabilities that the server declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// `tools.listChanged`.
    pub tools: bool,
    /// `prompts.listChanged`.
    pub prompts: bool,
    /// `resources.listChanged`.
    pub resources: bool,
    /// `resources.subscribe`.
    pub subscribe: bool,
}

impl Filter {
    /// Reads the filter in the `params` of `subscriptions/listen` (SUB-01, SUB-08).
    pub fn read(params: &Params, limits: FilterLimits) -> Result<Filter, RpcError> {
        #[derive(Deserialize)]
        struct Listen<'a> {
            #[serde(borrow, default, deserialize_with = "even_null")]
            notifications: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'a> {
            #[serde(borrow, default, deserialize_with = "even_null")]
            tools_list_changed: Option<&'a RawValue>,
            #[serde(borrow, default, deserialize_with = "even_null")]
            prompts_list_changed: Option<&'a RawValue>,
            #[serde(borrow, default, deserialize_with = "even_null")]
            resources_list_changed: Option<&'a RawValue>,
            #[serde(borrow, default, deserialize_with = "even_null")]
            resource_subscriptions: Option<&'a RawValue>,
        }
        let text = std::str::from_utf8(params.as_json()).unwrap_or_default();
        let listen: Listen<'_> = object(text).ok_or_else(|| wrong("params", "an object"))?;
        let raw = listen
            .notifications
            .ok_or_else(|| RpcError::invalid_params("`params.notifications` is missing"))?;
        let fields: Fields<'_> = object(raw.get()).ok_or_else(|| wrong("params.notifications", "an object"))?;
        Ok(Filter {
            tools: flag("toolsListChanged", fields.tools_list_changed)?,
            prompts: flag("promptsListChanged", fields.prompts_list_changed)?,
            resources: flag("resourcesListChanged", fields.resources_list_changed)?,
            uris: uris(fields.resource_subscriptions, limits)?,
        })
    }

    /// The part of this filter that a server with the capabilities `offered` can honour (SUB-02).
    #[must_use]
    pub fn honour(&self, offered: Offered) -> Filter {
        Filter {
            tools: self.tools && offered.tools,
            prompts: self.prompts && offered.prompts,
            resources: self.resources && offered.resources,
            uris: if offered.subscribe {
                self.uris.clone()
            } else {
                Vec::new()
            },
        }
    }

    /// Whether the subscription gets `change` (SUB-04).
    pub fn matches(&self, change: &Change) -> bool {
        match change {
            Change::Tools => self.tools,
            Change::Prompts => self.prompts,
            Change::Resources => self.resources,
            Change::Updated(uri) => self.uris.iter().any(|subscribed| covers(subscribed, uri)),
        }
    }

    /// The first message of the listen stream that the request `id` opened. This must be the honoured filter (SUB-02).
    pub fn acknowledgement(&self, id: &RequestId) -> Draft {
        #[derive(Serialize)]
        struct Acknowledged<'a> {
            _meta: Meta<'a>,
            notifications: &'a Filter,
        }
        let params = Acknowledged {
            _meta: Meta::of(id),
            notifications: self,
        };
        draft("notifications/subscriptions/acknowledged", &params)
    }
}

/// On the wire only true and non-empty members appear (SUB-02).
impl Serialize for Filter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            tools_list_changed: bool,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            prompts_list_changed: bool,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            resources_list_changed: bool,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            resource_subscriptions: &'a [Box<str>],
        }
        let wire = Wire {
            tools_list_changed: self.tools,
            prompts_list_changed: self.prompts,
            resources_list_changed: self.resources,
            resource_subscriptions: &self.uris,
        };
        wire.serialize(serializer)
    }
}

/// Whether a subscription to `subscribed` gets an update of `updated`: the same URI, or one below it, where "below"
/// begins at a `/`, `?` or `#` (T-26). The same rule applies to both eras.
pub fn covers(subscribed: &str, updated: &str) -> bool {
    const BORDER: [char; 3] = ['/', '?', '#'];
    let Some(rest) = updated.strip_prefix(subscribed) else {
        return false;
    };
    rest.is_empty() || !subscribed.is_empty() && (subscribed.ends_with(BORDER) || rest.starts_with(BORDER))
}

/// The changes that wait for a slow reader of a listen stream. Repeated changes are merged (SUB-08).
///
/// Bounded by construction: three lists, as many updated URIs as `room` allows, and beyond those only URIs in the
/// filter itself.
#[derive(Debug)]
pub struct Pending {
    order: Vec<Change>,
    known: HashSet<Change>,
    /// Bytes of the waiting updated URIs.
    uri_bytes: usize,
    room: FilterLimits,
}

impl Pending {
    /// No changes. Up to `room` updated resources are tracked individually.
    pub fn new(room: FilterLimits) -> Self {
        Pending {
            order: Vec::new(),
            known: HashSet::new(),
            uri_bytes: 0,
            room,
        }
    }

    /// Adds `change` if `filter` matches it. True if it is new, so that the reader must be woken.
    ///
    /// A subscription to a folder may match any number of files below it. When `room` is used up, the folder is
    /// reported instead of another file: less exact, but nothing is missed.
    pub fn add(&mut self, filter: &Filter, change: &Change) -> bool {
        if self.known.contains(change) || !filter.matches(change) {
            return false;
        }
        let change = match change {
            Change::Updated(uri) if !self.has_room_for(uri) => {
                let above = filter.uris.iter().filter(|subscribed| covers(subscribed, uri));
                let nearest = above.max_by_key(|subscribed| subscribed.len());
                Change::Updated(nearest.map_or_else(|| uri.clone(), |subscribed| Arc::from(&**subscribed)))
            }
            other => other.clone(),
        };
        let new = self.known.insert(change.clone());
        if new {
            if let Change::Updated(uri) = &change {
                self.uri_bytes += uri.len();
            }
            self.order.push(change);
        }
        new
    }

    /// All waiting changes, in the order of their first arrival. Later changes are new again.
    pub fn take(&mut self) -> Vec<Change> {
        self.known = HashSet::new(); // an idle stream needs no buffer
        self.uri_bytes = 0;
        std::mem::take(&mut self.order)
    }

    /// The number of waiting changes.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no changes wait.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn has_room_for(&self, uri: &str) -> bool {
        self.updates() < self.room.uris && self.uri_bytes + uri.len() <= self.room.uri_bytes
    }

    fn updates(&self) -> usize {
        let lists = [Change::Tools, Change::Prompts, Change::Resources];
        self.order.len() - lists.iter().filter(|list| self.known.contains(list)).count()
    }
}

/// The notification of `change` on the listen stream that the request `subscription` opened (SUB-03).
pub fn notification(change: &Change, subscription: &RequestId) -> Draft {
    #[derive(Serialize)]
    struct Changed<'a> {
        _meta: Meta<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        uri: Option<&'a str>,
    }
    let params = Changed {
        _meta: Meta::of(subscription),
        uri: match change {
            Change::Updated(uri) => Some(uri),
            _ => None,
        },
    };
    draft(change.method(), &params)
}

/// The last message of the listen stream that the request `id` opened: its response. On HTTP nothing else shows that
/// the end is intended (SUB-06, T-01).
pub fn closing(id: &RequestId, server_info: Option<&Value>) -> Draft {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Ended<'a> {
        result_type: &'static str,
        #[serde(rename = "_meta")]
        meta: Meta<'a>,
    }
    let ended = Ended {
        result_type: "complete",
        meta: Meta {
            server_info,
            ..Meta::of(id)
        },
    };
    let result = serde_json::to_vec(&ended).expect("a JSON value can be written to memory");
    Draft::new(result.len() + 64, |out| write_result(out, id, &result))
}

#[derive(Serialize)]
struct Meta<'a> {
    /// The id as the client wrote it: `7` stays a number and `"7"` a string (SUB-03, T-25).
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: &'a RequestId,
    #[serde(
        rename = "io.modelcontextprotocol/serverInfo",
        skip_serializing_if = "Option::is_none"
    )]
    server_info: Option<&'a Value>,
}

impl<'a> Meta<'a> {
    fn of(subscription: &'a RequestId) -> Self {
        Meta {
            subscription,
            server_info: None,
        }
    }
}

fn draft(method: &str, params: &impl Serialize) -> Draft {
    Draft::new(192, |out| {
        write_notification(out, method, params).expect("a JSON value can be written to memory");
    })
}

/// `null` is a value of the wrong type, not a missing one.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Parses an object. A struct alone would also accept an array.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    let object = text.trim_ascii_start().starts_with('{');
    object.then(|| serde_json::from_str(text).ok()).flatten()
}

fn flag(name: &str, raw: Option<&RawValue>) -> Result<bool, RpcError> {
    match raw.map(RawValue::get) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(wrong(&format!("params.notifications.{name}"), "a boolean")),
    }
}

fn uris(raw: Option<&RawValue>, limits: FilterLimits) -> Result<Vec<Box<str>>, RpcError> {
    const NAME: &str = "params.notifications.resourceSubscriptions";
    let Some(raw) = raw else {
        return Ok(Vec::new());
    };
    let not_strings = |_| wrong(NAME, "an array of strings");
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(not_strings)?;
    if items.len() > limits.uris {
        let message = format!("`{NAME}` has {} URIs, at most {} are allowed", items.len(), limits.uris);
        return Err(RpcError::invalid_params(message));
    }
    if raw.get().len() > limits.uri_bytes {
        let message = format!("`{NAME}` is longer than {} bytes", limits.uri_bytes);
        return Err(RpcError::invalid_params(message));
    }
    let mut seen = HashSet::with_capacity(items.len());
    let mut uris = Vec::with_capacity(items.len());
    for item in items {
        let uri: Box<str> = serde_json::from_str(item.get()).map_err(not_strings)?;
        if seen.insert(uri.clone()) {
            uris.push(uri);
        }
    }
    Ok(uris)
}

fn wrong(name: &str, kind: &str) -> RpcError {
    RpcError::invalid_params(format!("`{name}` must be {kind}"))
}

#[cfg(test)]
mod tests;
