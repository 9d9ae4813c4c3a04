//! Refuses repeated members of `params` and of their `_meta`.
//!
//! JSON does not define which of two equal members counts. This server decides by `name`, `uri`, `_meta` and others, and
//! passes the text on unchanged. A server behind it that uses the other member would run a tool that nothing has checked. So
//! all repeated members are refused, because we cannot know which members a server reads, and no client repeats one by
//! accident. Members inside of `arguments` and other values are the tool's responsibility. Arguments that are mirrored in
//! headers have their own check (HDR-04).
//!
//! The scan already checks usual messages. This module checks all others.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

/// The longest part of a name that a refusal repeats, in characters. The rest is left out.
const MAX_SHOWN_CHARS: usize = 64;

/// Checks raw params that are valid JSON. The error describes the problem.
pub(super) fn check_params(params: &str) -> Result<(), String> {
    if !params.starts_with('{') {
        return Ok(());
    }
    let Unique { meta } = serde_json::from_str(params).map_err(|error| format!("invalid `params`: {error}"))?;
    match meta.filter(|meta| meta.get().starts_with('{')) {
        Some(meta) => serde_json::from_str(meta.get())
            .map(|Unique { .. }| ())
            .map_err(|error| format!("invalid `_meta`: {error}")),
        None => Ok(()),
    }
}

/// An object with distinct members, and the one of them that is checked too.
struct Unique<'a> {
    meta: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Unique<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Borrowed unless it has escapes.
        #[derive(Deserialize, PartialEq, Eq, Hash)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Unique<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique<'de>, A::Error> {
                let (mut seen, mut meta) = (HashSet::new(), None);
                while let Some(name) = map.next_key::<Name<'de>>()? {
                    if name.0 == "_meta" {
                        meta = Some(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                    if let Some(Name(twice)) = seen.replace(name) {
                        let shown: String = twice.chars().take(MAX_SHOWN_CHARS).collect();
                        return Err(serde::de::Error::custom(format_args!("`{shown}` is there twice")));
                    }
                }
                Ok(Unique { meta })
            }
        }

        deserializer.deserialize_map(Members)
    }
}
