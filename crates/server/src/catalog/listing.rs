//! Lists in pages, whose entries may change while they are read.

use super::EntryError;
use super::function::params;
use crate::call::reply::Reply;
use crate::call::request::Call;
use parking_lot::RwLock;
use rethread_proto::Version;
use rethread_proto::jsonrpc::RpcError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Entries of one list. A list that grows without bound is a fault of the program. Beyond: [`EntryError::Full`].
const MAX_ENTRIES: usize = 10_000;

/// Named entries in the order of their addition, with their JSON.
pub(super) struct Listing<T> {
    /// The name of the kind of entry, for messages.
    kind: &'static str,
    /// The field of the list result.
    field: &'static str,
    rows: RwLock<Rows<T>>,
}

struct Rows<T> {
    by_name: HashMap<String, Arc<T>, foldhash::fast::RandomState>,
    /// Ascending by number.
    ordered: Vec<Row<T>>,
    /// The number of the entry that was added last. Numbers are never reused, so a cursor stays valid when entries change.
    last: u64,
}

struct Row<T> {
    number: u64,
    name: String,
    shown: Shown,
    entry: Arc<T>,
}

/// The JSON of an entry, for each revision.
pub(super) struct Shown([Arc<str>; Version::ALL.len()]);

impl Shown {
    /// Most entries look the same in most revisions, so equal texts are stored once.
    pub(super) fn new<S: Serialize>(entry: impl Fn(Version) -> S) -> Self {
        let mut texts: Vec<Arc<str>> = Vec::new();
        Shown(Version::ALL.map(|version| {
            let json = serde_json::to_string(&entry(version)).expect("an entry is made of strings and JSON values");
            if let Some(same) = texts.iter().find(|text| ***text == *json) {
                return Arc::clone(same);
            }
            texts.push(json.into());
            Arc::clone(&texts[texts.len() - 1])
        }))
    }

    fn at(&self, version: Version) -> &str {
        &self.0[version as usize]
    }
}

#[derive(Deserialize)]
struct ListParams<'a> {
    #[serde(borrow)]
    cursor: Option<Cow<'a, str>>,
}

impl<T> Listing<T> {
    pub(super) fn new(kind: &'static str, field: &'static str) -> Self {
        let rows = Rows {
            by_name: HashMap::default(),
            ordered: Vec::new(),
            last: 0,
        };
        Listing {
            kind,
            field,
            rows: RwLock::new(rows),
        }
    }

    /// Adds an entry with its JSON in the list.
    pub(super) fn add(&self, name: String, shown: Shown, entry: T) -> Result<(), EntryError> {
        let kind = self.kind;
        let mut rows = self.rows.write();
        if rows.by_name.contains_key(&name) {
            return Err(EntryError::NameTaken { kind, name });
        }
        if rows.ordered.len() >= MAX_ENTRIES {
            return Err(EntryError::Full { kind });
        }
        let entry = Arc::new(entry);
        rows.last += 1;
        let row = Row {
            number: rows.last,
            name: name.clone(),
            shown,
            entry: Arc::clone(&entry),
        };
        rows.ordered.push(row);
        rows.by_name.insert(name, entry);
        Ok(())
    }

    /// Removes an entry. Calls that run it have their own reference to it.
    pub(super) fn remove(&self, name: &str) -> bool {
        let mut rows = self.rows.write();
        let removed = rows.by_name.remove(name);
        let at = rows.ordered.iter().position(|row| row.name == name);
        let row = at.map(|at| rows.ordered.remove(at));
        drop(rows); // an entry contains code of the user, which may run when it is dropped
        drop(row);
        removed.is_some()
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<T>> {
        self.rows.read().by_name.get(name).map(Arc::clone)
    }

    /// The first entry for which `test` returns something. `test` runs under the lock of the list.
    pub(super) fn find<R>(&self, mut test: impl FnMut(&T) -> Option<R>) -> Option<(R, Arc<T>)> {
        let rows = self.rows.read();
        let mut entries = rows.ordered.iter().map(|row| &row.entry);
        entries.find_map(|entry| Some((test(entry)?, Arc::clone(entry))))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.read().ordered.is_empty()
    }

    /// Answers a list call.
    pub(super) fn page(&self, call: &Call, version: Version, size: usize) -> Result<Reply, RpcError> {
        let ListParams { cursor } = params(call)?;
        self.page_after(cursor.as_deref(), version, size).map(Reply::raw)
    }

    fn page_after(&self, cursor: Option<&str>, version: Version, size: usize) -> Result<String, RpcError> {
        let rows = self.rows.read();
        let start = match cursor {
            None => 0,
            Some(cursor) => {
                // A cursor was written only if an entry followed it, which may have been removed since.
                let number = parse_cursor(cursor).filter(|number| (1..rows.last).contains(number));
                let unknown = || RpcError::invalid_params(format!("unknown cursor for {}", self.field));
                let number = number.ok_or_else(unknown)?;
                rows.ordered.partition_point(|row| row.number <= number)
            }
        };
        let rest = &rows.ordered[start..];
        let page = &rest[..rest.len().min(size)];
        let mut json = format!("{{\"{}\":[", self.field);
        json.reserve(page.iter().map(|row| row.shown.at(version).len() + 1).sum::<usize>() + 32);
        for (i, row) in page.iter().enumerate() {
            if i > 0 {
                json.push(',');
            }
            json.push_str(row.shown.at(version));
        }
        json.push(']');
        if let Some(last) = page.last().filter(|_| page.len() < rest.len()) {
            json.push_str(",\"nextCursor\":\"");
            json.push_str(&write_cursor(last.number));
            json.push('"');
        }
        json.push('}');
        Ok(json)
    }
}

/// A cursor is the number of the last entry before it. It is encoded, because clients must treat it as opaque.
fn write_cursor(number: u64) -> String {
    format!("after-{number}")
}

fn parse_cursor(cursor: &str) -> Option<u64> {
    let number = cursor.strip_prefix("after-")?.parse().ok()?;
    (write_cursor(number) == cursor).then_some(number) // accepts only written cursors: no signs, no leading zeros
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn add(listing: &Listing<()>, name: &str) -> Result<(), EntryError> {
        listing.add(name.to_owned(), Shown::new(|_| json!({ "name": name })), ())
    }

    fn listing(entries: usize) -> Listing<()> {
        let listing = Listing::new("tool", "tools");
        for i in 0..entries {
            add(&listing, &format!("t{i}")).unwrap();
        }
        listing
    }

    fn page(listing: &Listing<()>, cursor: Option<&str>, size: usize) -> Value {
        let page = listing.page_after(cursor, Version::V2025_11_25, size).unwrap();
        serde_json::from_str(&page).unwrap()
    }

    /// The names of a page, and the cursor of the next one.
    fn names(listing: &Listing<()>, cursor: Option<&str>, size: usize) -> (Vec<String>, Option<String>) {
        let page = page(listing, cursor, size);
        let tools = page["tools"].as_array().unwrap();
        let names = tools.iter().map(|t| t["name"].as_str().unwrap().to_owned());
        let next = page.get("nextCursor").map(|next| next.as_str().unwrap().to_owned());
        (names.collect(), next)
    }

    #[test]
    fn pages_join_to_the_whole_list() {
        for entries in 0..8 {
            let listing = listing(entries);
            for size in 1..10 {
                let (mut all, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
                loop {
                    let (names, next) = names(&listing, cursor.as_deref(), size);
                    assert!(names.len() <= size);
                    all.extend(names);
                    pages += 1;
                    cursor = next;
                    if cursor.is_none() {
                        break;
                    }
                }
                let expected: Vec<_> = (0..entries).map(|i| format!("t{i}")).collect();
                assert_eq!(all, expected);
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
            "after-0",
            "after-3",
            "after-99",
            "after-+1",
            "after-01",
            "after--1",
            "after-99999999999999999999",
        ] {
            let error = listing.page_after(Some(bad), Version::V2025_11_25, 1).unwrap_err();
            assert_eq!(error.code, -32602, "{bad}");
        }
    }

    #[test]
    fn cursor_stays_valid_while_entries_change() {
        let listing = listing(4);
        let (first, cursor) = names(&listing, None, 2);
        assert_eq!(first, ["t0", "t1"]);
        // An entry before the cursor, the entry at the cursor, and one after it.
        for name in ["t0", "t1", "t2"] {
            assert!(listing.remove(name));
        }
        add(&listing, "t0").unwrap();
        let (second, end) = names(&listing, cursor.as_deref(), 2);
        assert_eq!(
            (second.as_slice(), end),
            (["t3", "t0"].map(str::to_owned).as_slice(), None)
        );
        for name in ["t0", "t3"] {
            assert!(listing.remove(name));
        }
        assert_eq!(page(&listing, cursor.as_deref(), 2), json!({ "tools": [] }));
    }

    #[test]
    fn entries_are_found_by_name_until_they_are_removed() {
        let listing = listing(2);
        assert!(listing.get("t1").is_some() && listing.get("t2").is_none());
        assert!(listing.remove("t1") && !listing.remove("t1"));
        assert!(listing.get("t1").is_none() && listing.get("t0").is_some());
        add(&listing, "t1").unwrap();
        assert!(listing.get("t1").is_some());
    }

    #[test]
    fn list_is_bounded() {
        let listing = listing(MAX_ENTRIES);
        assert_eq!(add(&listing, "more"), Err(EntryError::Full { kind: "tool" }));
        assert!(listing.remove("t7"));
        assert_eq!(add(&listing, "more"), Ok(()));
        let name = "more".to_owned();
        assert_eq!(add(&listing, "more"), Err(EntryError::NameTaken { kind: "tool", name }));
    }

    #[test]
    fn equal_texts_are_stored_once() {
        let shown = Shown::new(Version::has_icons);
        let [a, b, c, d, e] = &shown.0;
        assert!(Arc::ptr_eq(a, b) && Arc::ptr_eq(a, c) && Arc::ptr_eq(d, e));
        assert_eq!(
            (shown.at(Version::V2025_06_18), shown.at(Version::V2026_07_28)),
            ("false", "true")
        );
    }
}
