//! Lists in pages.

use super::function::params;
use crate::call::reply::Reply;
use crate::call::request::Call;
use rethread_proto::jsonrpc::RpcError;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;

/// Named entries in the order of their addition, with their serialized JSON.
pub(super) struct Listing<T> {
    /// The name of the kind of entry, for messages.
    kind: &'static str,
    /// The field of the list result.
    field: &'static str,
    shown: Vec<Box<RawValue>>,
    entries: Vec<T>,
    index: HashMap<String, usize>,
}

#[derive(Deserialize)]
struct ListParams<'a> {
    #[serde(borrow)]
    cursor: Option<Cow<'a, str>>,
}

impl<T> Listing<T> {
    pub(super) fn new(kind: &'static str, field: &'static str) -> Self {
        Listing {
            kind,
            field,
            shown: Vec::new(),
            entries: Vec::new(),
            index: HashMap::new(),
        }
    }

    /// Adds an entry with its JSON in the list.
    pub(super) fn add(&mut self, key: String, shown: Box<RawValue>, entry: T) {
        assert!(
            !self.index.contains_key(&key),
            "the {} `{key}` is in the catalog already",
            self.kind
        );
        self.index.insert(key, self.entries.len());
        self.entries.push(entry);
        self.shown.push(shown);
    }

    pub(super) fn get(&self, key: &str) -> Option<&T> {
        self.index.get(key).map(|&at| &self.entries[at])
    }

    pub(super) fn entries(&self) -> &[T] {
        &self.entries
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Answers a list call.
    pub(super) fn page(&self, call: &Call, size: usize) -> Result<Reply, RpcError> {
        let ListParams { cursor } = params(call)?;
        self.page_after(cursor.as_deref(), size).map(Reply::raw)
    }

    fn page_after(&self, cursor: Option<&str>, size: usize) -> Result<String, RpcError> {
        let start = match cursor {
            None => 0,
            Some(cursor) => parse_cursor(cursor)
                .filter(|&start| start < self.shown.len())
                .ok_or_else(|| RpcError::invalid_params(format!("unknown cursor for {}", self.field)))?,
        };
        let rest = &self.shown[start..];
        let page = &rest[..rest.len().min(size)];
        let mut json = format!("{{\"{}\":[", self.field);
        json.reserve(page.iter().map(|line| line.get().len() + 1).sum::<usize>() + 32);
        for (i, line) in page.iter().enumerate() {
            if i > 0 {
                json.push(',');
            }
            json.push_str(line.get());
        }
        json.push(']');
        if page.len() < rest.len() {
            json.push_str(",\"nextCursor\":\"");
            json.push_str(&write_cursor(start + page.len()));
            json.push('"');
        }
        json.push('}');
        Ok(json)
    }
}

/// The JSON of an entry.
pub(super) fn shown(entry: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(entry).expect("an entry is made of strings and JSON values")
}

/// A cursor is the number of entries before it. It is encoded, because clients must treat it as opaque.
fn write_cursor(start: usize) -> String {
    format!("after-{start}")
}

fn parse_cursor(cursor: &str) -> Option<usize> {
    let start = cursor.strip_prefix("after-")?.parse().ok()?;
    (write_cursor(start) == cursor).then_some(start) // accepts only written cursors: no signs, no leading zeros
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn listing(entries: usize) -> Listing<()> {
        let mut listing = Listing::new("tool", "tools");
        for i in 0..entries {
            listing.add(format!("t{i}"), shown(&json!({ "name": format!("t{i}") })), ());
        }
        listing
    }

    fn page(listing: &Listing<()>, cursor: Option<&str>, size: usize) -> Value {
        serde_json::from_str(&listing.page_after(cursor, size).unwrap()).unwrap()
    }

    #[test]
    fn pages_join_to_the_whole_list() {
        for entries in 0..8 {
            let listing = listing(entries);
            for size in 1..10 {
                let (mut names, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
                loop {
                    let page = page(&listing, cursor.as_deref(), size);
                    let tools = page["tools"].as_array().unwrap();
                    assert!(tools.len() <= size);
                    names.extend(tools.iter().map(|t| t["name"].as_str().unwrap().to_owned()));
                    pages += 1;
                    match page.get("nextCursor") {
                        Some(next) => cursor = Some(next.as_str().unwrap().to_owned()),
                        None => break,
                    }
                }
                let expected: Vec<_> = (0..entries).map(|i| format!("t{i}")).collect();
                assert_eq!(names, expected);
                assert_eq!(pages, entries.div_ceil(size).max(1));
            }
        }
    }

    #[test]
    fn one_page_has_no_cursor() {
        assert_eq!(page(&listing(0), None, 5), json!({ "tools": [] }));
        assert_eq!(page(&listing(1), None, 1), json!({ "tools": [{ "name": "t0" }] }));
    }

    #[test]
    fn cursors_that_were_never_issued_are_refused() {
        let listing = listing(3);
        for bad in [
            "",
            "1",
            "after-",
            "after-3",
            "after-99",
            "after-+1",
            "after-01",
            "after--1",
            "after-99999999999999999999",
        ] {
            let error = listing.page_after(Some(bad), 1).unwrap_err();
            assert_eq!(error.code, -32602, "{bad}");
        }
    }

    #[test]
    fn entries_are_found_by_name() {
        let listing = listing(2);
        assert!(listing.get("t1").is_some() && listing.get("t2").is_none());
    }
}
