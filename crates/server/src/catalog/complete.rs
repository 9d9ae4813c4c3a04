//! Completion of arguments.

use super::function::{FunctionFuture, params};
use crate::call::context::Context;
use crate::call::reply::Reply;
use crate::call::request::Call;
use rethread_proto::jsonrpc::RpcError;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::future::Future;

/// The most values that one completion may hold (MCP schema). Beyond: the rest is left out, and `hasMore` is true.
const MAX_VALUES: usize = 100;

/// The owner of the completed argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum Reference {
    /// A prompt.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// The prompt's name.
        name: String,
    },
    /// A resource template.
    #[serde(rename = "ref/resource")]
    Resource {
        /// The template as it is written.
        uri: String,
    },
}

impl Reference {
    /// The prompt `name`.
    pub fn prompt(name: impl Into<String>) -> Self {
        Reference::Prompt { name: name.into() }
    }

    /// The resource template `uri_template`.
    pub fn template(uri_template: impl Into<String>) -> Self {
        Reference::Resource {
            uri: uri_template.into(),
        }
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reference::Prompt { name } => write!(f, "prompt `{name}`"),
            Reference::Resource { uri } => write!(f, "resource `{uri}`"),
        }
    }
}

type Suggest = Box<dyn Fn(String, Context) -> FunctionFuture + Send + Sync>;

/// The functions that complete arguments.
#[derive(Default)]
pub(super) struct Completers(HashMap<(Reference, String), Suggest>);

#[derive(Deserialize)]
struct CompleteParams {
    #[serde(rename = "ref")]
    reference: Reference,
    argument: Typed,
}

#[derive(Deserialize)]
struct Typed {
    name: String,
    value: String,
}

impl Completers {
    pub(super) fn add<F, Fut>(&mut self, of: Reference, argument: String, suggest: F)
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<String>, RpcError>> + Send + 'static,
    {
        let suggest: Suggest = Box::new(move |value, cx| {
            let suggesting = suggest(value, cx);
            Box::pin(async move { Ok(Reply::json(Completed::new(suggesting.await?))) })
        });
        let key = (of, argument);
        assert!(
            !self.0.contains_key(&key),
            "the argument `{}` of the {} is completed already",
            key.1,
            key.0
        );
        self.0.insert(key, suggest);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Starts a `completion/complete`. An argument of something that `exists`, but without a completion function, has no
    /// suggestions.
    pub(super) fn call(
        &self,
        call: &Call,
        cx: &Context,
        exists: impl FnOnce(&Reference) -> bool,
    ) -> Result<FunctionFuture, RpcError> {
        let CompleteParams { reference, argument } = params(call)?;
        let known = exists(&reference);
        let key = (reference, argument.name);
        match self.0.get(&key) {
            Some(suggest) => Ok(suggest(argument.value, cx.clone())),
            None if known => Ok(Box::pin(async { Ok(Reply::json(Completed::new(Vec::new()))) })),
            None => Err(RpcError::invalid_params(format!("unknown {}", key.0))),
        }
    }
}

#[derive(Serialize)]
struct Completed {
    completion: Values,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Values {
    values: Vec<String>,
    total: usize,
    has_more: bool,
}

impl Completed {
    fn new(mut values: Vec<String>) -> Self {
        let total = values.len();
        values.truncate(MAX_VALUES);
        let has_more = total > MAX_VALUES;
        Completed {
            completion: Values {
                values,
                total,
                has_more,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn completion_has_at_most_a_hundred_values() {
        let shown = |count: usize| serde_json::to_value(Completed::new(vec!["v".to_owned(); count])).unwrap();
        assert_eq!(
            shown(0),
            json!({ "completion": { "values": [], "total": 0, "hasMore": false } })
        );
        for (count, values, more) in [(1, 1, false), (100, 100, false), (101, 100, true)] {
            let completion = &shown(count)["completion"];
            assert_eq!(completion["values"].as_array().unwrap().len(), values);
            assert_eq!(
                (&completion["total"], &completion["hasMore"]),
                (&json!(count), &json!(more))
            );
        }
    }

    #[test]
    fn references_are_read_from_the_wire() {
        let read = |json| serde_json::from_value::<Reference>(json).ok();
        assert_eq!(
            read(json!({ "type": "ref/prompt", "name": "p" })),
            Some(Reference::prompt("p"))
        );
        let uri = "test://t/{id}";
        assert_eq!(
            read(json!({ "type": "ref/resource", "uri": uri })),
            Some(Reference::template(uri))
        );
        assert_eq!(read(json!({ "type": "ref/tool", "name": "p" })), None);
    }
}
