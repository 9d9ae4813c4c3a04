//! `xtask layers`: checks that the import graphs of the server and the gateway follow their layers.
//!
//! A folder is a layer. A module imports from its own layer and from lower ones. Files do not import each other in a
//! cycle. Test modules are ignored. In `crates/gateway/src` the order of the folders that carry messages is checked.

mod gateway;
mod graph;
mod imports;
mod report;

use crate::run;
use graph::{Graph, ModulePath};
use report::Report;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const SOURCE: &str = "crates/server/src";

/// `xtask test` fails on a violation in these layers. If all layers are listed, it also fails on a file in no layer.
const ENFORCED: &[Layer] = &Layer::ALL;

/// A folder of `crates/server/src`, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Endpoint,
    /// Beside `Endpoint`: neither imports the other.
    Catalog,
    Call,
    Session,
    Stream,
    Node,
}

impl Layer {
    const ALL: [Layer; 6] = [
        Layer::Endpoint,
        Layer::Catalog,
        Layer::Call,
        Layer::Session,
        Layer::Stream,
        Layer::Node,
    ];

    fn name(self) -> &'static str {
        match self {
            Layer::Endpoint => "endpoint",
            Layer::Catalog => "catalog",
            Layer::Call => "call",
            Layer::Session => "session",
            Layer::Stream => "stream",
            Layer::Node => "node",
        }
    }

    fn height(self) -> usize {
        match self {
            Layer::Endpoint | Layer::Catalog => 4,
            Layer::Call => 3,
            Layer::Session => 2,
            Layer::Stream => 1,
            Layer::Node => 0,
        }
    }

    fn may_import(self, other: Layer) -> bool {
        self == other || self.height() > other.height()
    }
}

/// The place of a module in the order of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    In(Layer),
    /// The crate root and the guide import anything.
    Free,
    /// A file that is not in the folder of a layer.
    Outside,
}

impl Position {
    /// `has_folder` is whether a top-level module has a folder: `call.rs` alone is not a layer.
    fn of(module: &ModulePath, has_folder: impl Fn(&str) -> bool) -> Self {
        let Some(top) = module.first() else {
            return Position::Free;
        };
        match Layer::ALL.into_iter().find(|layer| layer.name() == top) {
            _ if top == "guide" => Position::Free,
            Some(layer) if has_folder(top) => Position::In(layer),
            _ => Position::Outside,
        }
    }
}

/// `[--report]`
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let report = read()?;
    print!("{report}");
    match options {
        [] => report.check(&Layer::ALL, true).and_then(|()| check_gateway()),
        ["--report"] => Ok(()),
        _ => Err(format!("layers: unknown options: {}", options.join(" "))),
    }
}

/// Prints a summary, and fails on a violation in an enforced layer.
pub(crate) fn check() -> Result<(), String> {
    let report = read()?;
    println!("{}", report.summary());
    let is_complete = Layer::ALL.iter().all(|layer| ENFORCED.contains(layer));
    report.check(ENFORCED, is_complete)?;
    check_gateway()
}

fn read() -> Result<Report, String> {
    Ok(Report::new(read_graph(SOURCE)?))
}

fn check_gateway() -> Result<(), String> {
    let upward = gateway::upward(&read_graph(gateway::SOURCE)?);
    match upward.is_empty() {
        true => Ok(()),
        false => Err(format!("imports that do not point down:\n{}", upward.join("\n"))),
    }
}

fn read_graph(source: &str) -> Result<Graph, String> {
    let mut files = BTreeMap::new();
    collect(&run::root().join(source), &mut Vec::new(), &mut files)?;
    let files = files.into_iter().map(|(module, text)| (module, imports::read(&text)));
    Ok(Graph::new(files.collect()))
}

/// Reads every Rust file of a folder under the path of its module.
fn collect(folder: &Path, module: &mut ModulePath, files: &mut BTreeMap<ModulePath, String>) -> Result<(), String> {
    let failed = |error| format!("cannot read {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
            continue;
        };
        let is_root = module.is_empty() && ["lib", "main"].contains(&name);
        if !is_root && name != "mod" {
            module.push(name.to_owned());
        }
        if path.is_dir() {
            collect(&path, module, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.insert(module.clone(), fs::read_to_string(&path).map_err(failed)?);
        }
        if !is_root && name != "mod" {
            module.pop();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_point_down() {
        for (from, to, expected) in [
            (Layer::Endpoint, Layer::Node, true),
            (Layer::Endpoint, Layer::Catalog, false),
            (Layer::Catalog, Layer::Endpoint, false),
            (Layer::Catalog, Layer::Call, true),
            (Layer::Call, Layer::Call, true),
            (Layer::Session, Layer::Call, false),
            (Layer::Stream, Layer::Session, false),
            (Layer::Node, Layer::Stream, false),
        ] {
            assert_eq!(from.may_import(to), expected, "{from:?} {to:?}");
        }
    }

    #[test]
    fn folder_makes_a_layer() {
        let position = |module: &str| {
            let module = module.split("::").filter(|name| !name.is_empty()).map(str::to_owned);
            Position::of(&module.collect(), |name| name != "call")
        };
        assert_eq!(position(""), Position::Free);
        assert_eq!(position("guide"), Position::Free);
        assert_eq!(position("session"), Position::In(Layer::Session));
        assert_eq!(position("session::streams"), Position::In(Layer::Session));
        assert_eq!(position("call"), Position::Outside);
        assert_eq!(position("outbox"), Position::Outside);
    }
}
