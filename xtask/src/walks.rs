//! Checks the walks of ARCHITECTURE.md: lists of functions that one request passes through.

use crate::run;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The sources of the functions in walks, with the prefix of their modules.
const SOURCES: [(&str, &str); 3] = [
    ("proto::", "crates/proto/src"),
    ("", "crates/server/src"),
    ("", "crates/gateway/src"),
];
const MAX_STEPS_PER_FILE: usize = 2;

/// The titles of the walks, each with the functions that it names, in order.
fn walks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let section = text.split("## Life of a request\n").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let walks = section.split("\n### ").skip(1);
    walks
        .map(|walk| {
            let (title, steps) = walk.split_once('\n').unwrap_or((walk, ""));
            let quoted = steps.split('`').skip(1).step_by(2);
            (title, quoted.filter(|name| name.contains("::")).collect())
        })
        .collect()
}

/// The file that defines a function, such as `call::run::handler_future`.
fn file_of(root: &Path, name: &str) -> Option<PathBuf> {
    let named = |(prefix, folder): (&str, &str)| defines(&root.join(folder), name.strip_prefix(prefix)?);
    SOURCES.into_iter().find_map(named)
}

fn defines(folder: &Path, path: &str) -> Option<PathBuf> {
    let (module, function) = path.rsplit_once("::")?;
    let file = folder.join(module.replace("::", "/")).with_extension("rs");
    let code = fs::read_to_string(&file).ok()?;
    let definition = format!("fn {function}");
    let is_defined = code
        .split(&definition)
        .skip(1)
        .any(|after| after.starts_with(['(', '<']));
    is_defined.then_some(file)
}

#[test]
fn walks_name_functions_and_no_file_more_than_twice() {
    let root = run::root();
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let walks = walks(&text);
    assert_eq!(walks.len(), 5, "{walks:?}");
    for (title, functions) in walks {
        assert!(functions.len() > 5, "{title}: {functions:?}");
        let mut steps = BTreeMap::<PathBuf, Vec<&str>>::new();
        for function in functions {
            let file = file_of(&root, function).unwrap_or_else(|| panic!("{title}: `{function}` is not a function"));
            steps.entry(file).or_default().push(function);
        }
        for (file, functions) in steps {
            let count = functions.len();
            assert!(
                count <= MAX_STEPS_PER_FILE,
                "{title}: {functions:?} of {}",
                file.display()
            );
        }
    }
}

#[test]
fn function_is_found_by_its_module_only() {
    let root = run::root();
    assert!(file_of(&root, "call::run::handler_future").is_some());
    assert!(file_of(&root, "proto::stream::resume::plan").is_some());
    for absent in [
        "call::run::handler",
        "call::run::work",
        "call::walk::handler_future",
        "handler_future",
    ] {
        assert_eq!(file_of(&root, absent), None, "{absent}");
    }
}
