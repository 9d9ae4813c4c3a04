//! `xtask external-types`: types of other crates in the public signatures of ours.
//!
//! A new major version of such a crate is a breaking change of ours, so the list is a decision:
//! `xtask/external-types.txt`. A type of another crate of this workspace is on the list if the public API names it and
//! does not re-export it.

use crate::{files, run};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, ExitCode};

const LIST: &str = "xtask/external-types.txt";

const LIST_HEADER: &str = "\
# Types and traits of other crates in public signatures: the crate of ours, then the type.
# `cargo xtask external-types --write` makes this file.
";

/// The crates whose API others build on.
const PACKAGES: [&str; 3] = ["rethread", "rethread-proto", "rethread-store"];

/// Crates that are part of the language.
const STANDARD: [&str; 4] = ["alloc", "core", "proc_macro", "std"];

/// The rustdoc JSON format that this module was written for is 57. Each Rust version may have another.
const KNOWN_FORMAT: u64 = 57;

/// Set in the environment of cargo. This program then acts as [`rustdoc`].
pub(crate) const RUSTDOC_VARIABLE: &str = "XTASK_IS_RUSTDOC";

/// Foreign types by path, each with a place that names it.
type ForeignTypes = BTreeMap<String, String>;

/// `[--write]`: fails if the public signatures and the list differ, or writes the list.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let write = match options {
        [] => false,
        ["--write"] => true,
        _ => return Err(format!("external-types: unknown options: {}", options.join(" "))),
    };
    let mut found = ForeignTypes::new();
    for package in PACKAGES {
        let types = foreign_types(&document(package)?)?;
        found.extend(
            types
                .into_iter()
                .map(|(path, place)| (format!("{package} {path}"), place)),
        );
    }
    let list = run::root().join(LIST);
    if write {
        let lines: String = found.keys().map(|line| format!("{line}\n")).collect();
        return fs::write(&list, LIST_HEADER.to_owned() + &lines)
            .map_err(|error| format!("cannot write {LIST}: {error}"));
    }
    compare(&found, &files::text(&list)?)
}

/// Runs the real rustdoc with unstable options. Only rustdoc gets the variable that allows them, because build scripts
/// read it and cargo would rebuild their crates.
pub(crate) fn rustdoc() -> ExitCode {
    let mut command = Command::new("rustdoc");
    command.args(std::env::args_os().skip(1)).env("RUSTC_BOOTSTRAP", "1");
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot start rustdoc: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The documentation of a package as JSON.
fn document(package: &str) -> Result<Value, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let options = ["rustdoc", "--quiet", "--lib", "--all-features", "-p", package];
    let json = ["--", "-Z", "unstable-options", "--output-format", "json"];
    let mut command = run::cargo(&[&options[..], &json].concat());
    command.env("RUSTDOC", program).env(RUSTDOC_VARIABLE, "1");
    run::watch(&mut command, |_| ()).map_err(|error| format!("cannot document {package}: {error}"))?;
    let file = run::target().join("doc").join(package.replace('-', "_") + ".json");
    serde_json::from_str(&files::text(&file)?).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// The foreign types that public items of a crate name.
fn foreign_types(document: &Value) -> Result<ForeignTypes, String> {
    let format = document["format_version"].as_u64();
    let (Some(index), Some(paths)) = (document["index"].as_object(), document["paths"].as_object()) else {
        return Err(format!(
            "rustdoc JSON has format {format:?}, and xtask knows {KNOWN_FORMAT}: adapt xtask/src/external_types.rs"
        ));
    };
    let is_ours = |item: &&Value| item["crate_id"] == 0;
    let reexports: BTreeSet<u64> = index
        .values()
        .filter(is_ours)
        .filter_map(|item| item["inner"]["use"]["id"].as_u64())
        .collect();
    let reexported_modules: Vec<String> = reexports
        .iter()
        .filter_map(|id| paths.get(&id.to_string()))
        .filter(|path| path["kind"] == "module")
        .map(|path| joined(path) + "::")
        .collect();
    let mut types = ForeignTypes::new();
    for item in index.values().filter(is_ours).filter(|item| !is_generated_impl(item)) {
        let mut named = BTreeSet::new();
        collect_ids(&item["inner"], &mut named);
        for id in named {
            let Some(path) = paths.get(&id.to_string()).filter(|path| path["crate_id"] != 0) else {
                continue;
            };
            let name = joined(path);
            let krate = name.split("::").next().unwrap_or_default();
            let in_workspace = krate.starts_with("rethread");
            let is_reexported =
                reexports.contains(&id) || reexported_modules.iter().any(|module| name.starts_with(module));
            let is_allowed = STANDARD.contains(&krate) || (in_workspace && is_reexported);
            if !is_allowed {
                types.entry(name).or_insert_with(|| place(item));
            }
        }
    }
    Ok(types)
}

/// Auto traits and blanket implementations appear for each type, but are not written in the crate.
fn is_generated_impl(item: &Value) -> bool {
    let implementation = &item["inner"]["impl"];
    implementation["is_synthetic"] == true || implementation["blanket_impl"].is_object()
}

/// The ids of all paths in an item. A path of rustdoc is an object with `path`, `id` and `args`.
fn collect_ids(value: &Value, ids: &mut BTreeSet<u64>) {
    match value {
        Value::Object(members) => {
            if members.contains_key("path") && members.contains_key("args") {
                ids.extend(members.get("id").and_then(Value::as_u64));
            }
            members.values().for_each(|member| collect_ids(member, ids));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_ids(value, ids)),
        _ => {}
    }
}

fn joined(path: &Value) -> String {
    let names = path["path"].as_array().into_iter().flatten();
    names.filter_map(Value::as_str).collect::<Vec<_>>().join("::")
}

fn place(item: &Value) -> String {
    let span = &item["span"];
    let (file, line) = (span["filename"].as_str(), span["begin"][0].as_u64());
    format!("{}:{}", file.unwrap_or("?"), line.unwrap_or(0))
}

fn compare(found: &ForeignTypes, list: &str) -> Result<(), String> {
    let listed: BTreeSet<&str> = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let new = found.iter().filter(|(name, _)| !listed.contains(name.as_str()));
    let new: Vec<String> = new.map(|(name, place)| format!("  + {name} ({place})\n")).collect();
    let gone = listed.iter().filter(|name| !found.contains_key(**name));
    let gone: Vec<String> = gone.map(|name| format!("  - {name}\n")).collect();
    println!("{} types of other crates in public signatures", found.len());
    if new.is_empty() && gone.is_empty() {
        return Ok(());
    }
    Err(format!(
        "public signatures differ from {LIST}:\n{}{}if that is meant: cargo xtask external-types --write",
        new.concat(),
        gone.concat()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolved(id: u64) -> Value {
        json!({ "resolved_path": { "path": "X", "id": id, "args": null } })
    }

    fn item(crate_id: u64, inner: &Value) -> Value {
        json!({ "crate_id": crate_id, "inner": inner, "span": { "filename": "a.rs", "begin": [7, 1] } })
    }

    fn document(items: &[Value]) -> Value {
        let index: serde_json::Map<String, Value> = items
            .iter()
            .enumerate()
            .map(|(at, item)| (format!("{}", at + 100), item.clone()))
            .collect();
        let path =
            |crate_id: u64, path: &[&str], kind: &str| json!({ "crate_id": crate_id, "path": path, "kind": kind });
        json!({
            "format_version": KNOWN_FORMAT,
            "index": index,
            "paths": {
                "1": path(0, &["ours", "Own"], "struct"),
                "2": path(1, &["std", "vec", "Vec"], "struct"),
                "3": path(2, &["bytes", "bytes", "Bytes"], "struct"),
                "4": path(3, &["rethread_proto", "id", "Seq"], "struct"),
                "5": path(3, &["rethread_proto", "id"], "module"),
                "6": path(4, &["http_body", "Body"], "trait"),
            },
        })
    }

    fn names(items: &[Value]) -> Vec<String> {
        foreign_types(&document(items)).unwrap().into_keys().collect()
    }

    #[test]
    fn foreign_types_are_found_at_any_depth() {
        let argument = json!({ "resolved_path": { "path": "Vec", "id": 2, "args": { "types": [resolved(3)] } } });
        let function = json!({ "function": { "sig": { "inputs": [["x", argument]], "output": resolved(1) } } });
        let types = foreign_types(&document(&[item(0, &function)])).unwrap();
        assert_eq!(types, [("bytes::bytes::Bytes".to_owned(), "a.rs:7".to_owned())].into());
    }

    #[test]
    fn written_implementations_count_and_generated_ones_do_not() {
        let implementation = |synthetic: bool, blanket: Value| {
            let foreign = json!({ "path": "Body", "id": 6, "args": null });
            item(
                0,
                &json!({ "impl": { "trait": foreign, "is_synthetic": synthetic, "blanket_impl": blanket } }),
            )
        };
        assert_eq!(names(&[implementation(false, Value::Null)]), ["http_body::Body"]);
        assert_eq!(names(&[implementation(true, Value::Null)]), [""; 0]);
        assert_eq!(names(&[implementation(false, json!({ "generic": "T" }))]), [""; 0]);
    }

    #[test]
    fn items_of_other_crates_do_not_count() {
        assert_eq!(names(&[item(2, &json!({ "struct_field": resolved(3) }))]), [""; 0]);
    }

    #[test]
    fn type_of_the_workspace_counts_unless_it_is_reexported() {
        let field = item(0, &json!({ "struct_field": resolved(4) }));
        let reexport = |id: u64| item(0, &json!({ "use": { "source": "x", "id": id, "is_glob": false } }));
        assert_eq!(names(std::slice::from_ref(&field)), ["rethread_proto::id::Seq"]);
        assert_eq!(names(&[field.clone(), reexport(4)]), [""; 0]);
        assert_eq!(names(&[field, reexport(5)]), [""; 0]);
        let foreign = item(0, &json!({ "struct_field": resolved(3) }));
        assert_eq!(names(&[foreign, reexport(3)]), ["bytes::bytes::Bytes"]);
    }

    #[test]
    fn other_format_is_an_error() {
        assert!(foreign_types(&json!({ "format_version": 99 })).is_err());
    }

    #[test]
    fn new_and_removed_types_fail() {
        let found: ForeignTypes = [("rethread a::B".to_owned(), "x.rs:1".to_owned())].into();
        assert_eq!(compare(&found, "# comment\n\nrethread a::B\n"), Ok(()));
        let error = compare(&found, "rethread c::D\n").unwrap_err();
        assert!(
            error.contains("+ rethread a::B (x.rs:1)") && error.contains("- rethread c::D"),
            "{error}"
        );
    }
}
