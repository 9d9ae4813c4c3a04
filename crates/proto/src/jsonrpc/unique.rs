//! No member of `params` is there twice, nor one of their `_meta`.
//!
//! JSON leaves open which of two equal members counts. We decide by `name`, `uri`, `_meta` and others, and pass the text on as
//! it came: a server behind us that takes the other one would run a tool that nobody has seen. So both are refused, whatever
//! their name: we cannot know which members a server decides by, and no client writes one twice by accident. What is inside
//! of `arguments` and other values is between the client and the tool; nothing is decided by it here, except for the arguments
//! that are repeated in headers, which have a check of their own (HDR-04).
//!
//! The usual message is cleared by the one pass that cuts it. This is for all others.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

/// As much of a name as is repeated to the client.
const MAX_SHOWN_CHARS: usize = 64;

/// Checks raw params that are valid JSON. The error says what is wrong with them.
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

/// An object whose members are all different, and the one of them that is looked into.
struct Unique<'a> {
    meta: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Unique<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Borrowed unless it was written with escapes.
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
