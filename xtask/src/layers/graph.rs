//! The import graph: one node per file, one edge per file that defines an imported item.
//!
//! A path is followed through re-exports to the file that defines its item, so a module file with only re-exports is
//! never part of a cycle.

use super::imports::{Imports, PathUse, Use};
use std::collections::{BTreeMap, BTreeSet};

/// A chain of `use` statements longer than this is a loop.
const MAX_REEXPORTS: usize = 16;

/// A module path without `crate`: `["session", "registry"]`.
pub(crate) type ModulePath = Vec<String>;

/// Files as modules, and what each imports.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// For each module, the modules that it imports, each with the first line that does.
    edges: BTreeMap<ModulePath, BTreeMap<ModulePath, usize>>,
}

impl Graph {
    /// Builds the graph of files, given by module path. Ignores test modules and everything below them.
    pub(crate) fn new(mut files: BTreeMap<ModulePath, Imports>) -> Self {
        let tests: BTreeSet<ModulePath> = files
            .iter()
            .flat_map(|(module, imports)| {
                let children = imports.children.iter().filter(|child| child.is_test);
                children.map(|child| join(module, &child.name))
            })
            .collect();
        files.retain(|module, _| !(1..=module.len()).any(|length| tests.contains(&module[..length])));
        let mut edges = BTreeMap::new();
        for (module, imports) in &files {
            let targets = Resolver { files: &files, module }.targets(imports);
            edges.insert(module.clone(), targets);
        }
        Graph { edges }
    }

    /// All modules, each with its imports and their lines.
    pub(crate) fn modules(&self) -> impl Iterator<Item = (&ModulePath, &BTreeMap<ModulePath, usize>)> {
        self.edges.iter()
    }

    /// The cycles: each group of modules that all reach each other. Ignores modules for which `is_free` holds.
    pub(crate) fn cycles(&self, is_free: impl Fn(&ModulePath) -> bool) -> Vec<Vec<&ModulePath>> {
        let mut search = CycleSearch {
            graph: self,
            is_free,
            numbers: BTreeMap::new(),
            stack: Vec::new(),
            cycles: Vec::new(),
        };
        for module in self.edges.keys() {
            if !(search.is_free)(module) && !search.numbers.contains_key(module) {
                search.visit(module);
            }
        }
        let mut cycles = search.cycles;
        cycles.sort();
        cycles
    }

    /// The shortest way from a module of a cycle back to itself.
    pub(crate) fn shortest_loop<'a>(&'a self, cycle: &[&'a ModulePath]) -> Vec<&'a ModulePath> {
        let loops = cycle.iter().filter_map(|start| self.way_back(start, cycle));
        loops.min_by_key(Vec::len).unwrap_or_default()
    }

    fn way_back<'a>(&'a self, start: &'a ModulePath, cycle: &[&'a ModulePath]) -> Option<Vec<&'a ModulePath>> {
        let mut ways: Vec<Vec<&ModulePath>> = vec![vec![start]];
        let mut seen = BTreeSet::new();
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                let last = way.last().copied().unwrap_or(start);
                for target in self.edges.get(last).into_iter().flat_map(BTreeMap::keys) {
                    if target == start {
                        return Some([way, vec![start]].concat());
                    }
                    if cycle.contains(&target) && seen.insert(target) {
                        longer.push([way.clone(), vec![target]].concat());
                    }
                }
            }
            ways = longer;
        }
        None
    }
}

/// Finds the files that the paths of one module refer to.
struct Resolver<'a> {
    files: &'a BTreeMap<ModulePath, Imports>,
    module: &'a ModulePath,
}

impl Resolver<'_> {
    fn targets(&self, imports: &Imports) -> BTreeMap<ModulePath, usize> {
        let used = imports.uses.iter().filter_map(|import| {
            let is_used = |name| imports.words.contains(name);
            let only_passes_on = import.is_reexport && !import.name.as_ref().is_some_and(is_used);
            let place = match only_passes_on {
                true => None,
                false => self.place_of_use(self.module, import, 0),
            };
            // Paths that begin with an imported module are separate edges.
            let is_edge = |place: &Place| place.is_item || import.name.is_none();
            Some((place.filter(is_edge)?, import.line))
        });
        let named = imports.paths.iter().filter_map(|path| {
            let PathUse { scope, path, line } = path;
            Some((self.place(&in_scope(self.module, scope), path, 0)?, *line))
        });
        let mut targets = BTreeMap::new();
        for (place, line) in used.chain(named) {
            if &place.module != self.module {
                let first = targets.entry(place.module).or_insert(line);
                *first = line.min(*first);
            }
        }
        targets
    }

    fn place_of_use(&self, module: &ModulePath, import: &Use, reexports: usize) -> Option<Place> {
        self.place(&in_scope(module, &import.scope), &import.path, reexports)
    }

    /// The file that contains the item of a path, as seen from a module. `None` if it is in another crate.
    fn place(&self, from: &ModulePath, path: &[String], reexports: usize) -> Option<Place> {
        let mut module = from.clone();
        let mut rest = path;
        match path.first().map(String::as_str) {
            Some("crate") => {
                module.clear();
                rest = &path[1..];
            }
            Some("self" | "super") => {
                while let Some(step @ ("self" | "super")) = rest.first().map(String::as_str) {
                    if step == "super" {
                        module.pop();
                    }
                    rest = &rest[1..];
                }
            }
            Some(first) if self.files.contains_key(&join(from, first)) => {}
            // An imported module. An imported item is an edge at its `use`.
            Some(first) => {
                let import = self.import(from, first)?;
                if reexports > MAX_REEXPORTS || import.path.first().is_some_and(|start| start == first) {
                    return None;
                }
                let place = self.place_of_use(&self.file_of(from), import, reexports + 1)?;
                if place.is_item {
                    return None;
                }
                module = place.module;
                rest = &path[1..];
            }
            None => {}
        }
        self.item(module, rest, reexports)
    }

    /// Goes down from a module to the file that holds an item.
    fn item(&self, mut module: ModulePath, mut rest: &[String], reexports: usize) -> Option<Place> {
        while let Some((name, below)) = rest.split_first() {
            let child = join(&module, name);
            if self.files.contains_key(&child) {
                (module, rest) = (child, below);
                continue;
            }
            let file = self.file_of(&module);
            let import = self.import(&file, name).filter(|_| reexports < MAX_REEXPORTS);
            let reexported = import.and_then(|import| self.place_of_use(&file, import, reexports + 1));
            return match reexported {
                Some(place) if place.is_item => Some(place),
                Some(place) => self.item(place.module, below, reexports + 1),
                None => Some(Place {
                    module: file,
                    is_item: true,
                }),
            };
        }
        Some(Place {
            module: self.file_of(&module),
            is_item: false,
        })
    }

    /// The `use` that brings a name into a module.
    fn import(&self, module: &ModulePath, name: &str) -> Option<&Use> {
        let uses = &self.files.get(&self.file_of(module))?.uses;
        uses.iter().find(|import| import.name.as_deref() == Some(name))
    }

    /// The module of the file that holds a module, which may be an inline one.
    fn file_of(&self, module: &ModulePath) -> ModulePath {
        let mut file = module.clone();
        while !file.is_empty() && !self.files.contains_key(&file) {
            file.pop();
        }
        file
    }
}

/// A file, and whether the path names an item in it or the module itself.
#[derive(Debug)]
struct Place {
    module: ModulePath,
    is_item: bool,
}

fn join(module: &[String], name: &str) -> ModulePath {
    [module, &[name.to_owned()]].concat()
}

fn in_scope(module: &ModulePath, scope: &[String]) -> ModulePath {
    [module.as_slice(), scope].concat()
}

/// Tarjan's search for strongly connected components.
struct CycleSearch<'a, F> {
    graph: &'a Graph,
    is_free: F,
    /// The order of the visit, and the earliest module that is reachable on the stack.
    numbers: BTreeMap<&'a ModulePath, (usize, usize)>,
    stack: Vec<&'a ModulePath>,
    cycles: Vec<Vec<&'a ModulePath>>,
}

impl<'a, F: Fn(&ModulePath) -> bool> CycleSearch<'a, F> {
    fn visit(&mut self, module: &'a ModulePath) -> usize {
        let number = self.numbers.len();
        let mut earliest = number;
        self.numbers.insert(module, (number, number));
        self.stack.push(module);
        let targets = self.graph.edges.get(module).into_iter().flat_map(BTreeMap::keys);
        for target in targets {
            if (self.is_free)(target) {
                continue;
            }
            let reached = match self.numbers.get(target) {
                None => self.visit(target),
                Some((number, _)) if self.stack.contains(&target) => *number,
                Some(_) => continue,
            };
            earliest = earliest.min(reached);
        }
        self.numbers.insert(module, (number, earliest));
        if earliest == number {
            let start = self.stack.iter().position(|open| *open == module).unwrap_or_default();
            let mut component = self.stack.split_off(start);
            if component.len() > 1 {
                component.sort();
                self.cycles.push(component);
            }
        }
        earliest
    }
}

#[cfg(test)]
mod tests {
    use super::super::imports;
    use super::*;

    /// Texts by module path; the empty path is the crate root.
    type Files = &'static [(&'static str, &'static str)];

    fn graph(files: &[(&str, &str)]) -> Graph {
        let files = files.iter().map(|(module, text)| (path(module), imports::read(text)));
        Graph::new(files.collect())
    }

    fn path(module: &str) -> ModulePath {
        module
            .split("::")
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn edges(graph: &Graph) -> Vec<String> {
        let pairs = graph.modules().flat_map(|(from, targets)| {
            let from = from.join("::");
            targets
                .iter()
                .map(move |(to, line)| format!("{from}:{line} {}", to.join("::")))
        });
        pairs.collect()
    }

    #[test]
    fn imports_lead_to_the_file_that_defines_the_item() {
        let table: [(&str, Files, &[&str]); 12] = [
            ("crate", &[("a", "use crate::b::C;"), ("b", "")], &["a:1 b"]),
            (
                "super",
                &[("a", ""), ("a::b", "\nuse super::C;"), ("a::c", "use super::b::D;")],
                &["a::b:2 a", "a::c:1 a::b"],
            ),
            ("child", &[("a", "mod b;\nuse b::C;"), ("a::b", "")], &["a:2 a::b"]),
            (
                "inline",
                &[("a", "fn f() { crate::b::c::D::new() }"), ("b", ""), ("b::c", "")],
                &["a:1 b::c"],
            ),
            (
                "reexport",
                &[
                    ("a", "use crate::b::D;"),
                    ("b", "mod c;\npub(crate) use c::D;"),
                    ("b::c", ""),
                ],
                &["a:1 b::c"],
            ),
            (
                "reexport that is used too",
                &[("b", "mod c;\npub(crate) use c::D;\nfn f(_: D) {}"), ("b::c", "")],
                &["b:2 b::c"],
            ),
            (
                "root",
                &[("", "mod a;\npub use a::A;"), ("a", ""), ("b", "use crate::A;")],
                &["b:1 a"],
            ),
            (
                "imported module",
                &[
                    ("a", "use crate::b;\nfn f() { b::D; b::g() }"),
                    ("b", "pub(crate) use self::c::D;"),
                    ("b::c", ""),
                ],
                &["a:2 b", "a:2 b::c"],
            ),
            (
                "renamed",
                &[("a", "use crate::b as d;\nfn f() { d::e() }"), ("b", "")],
                &["a:2 b"],
            ),
            ("glob", &[("a", "use crate::b::*;"), ("b", "")], &["a:1 b"]),
            (
                "other crates",
                &[("a", "use std::b::C;\nuse c::D;\nfn f() { Vec::new() }"), ("b", "")],
                &[],
            ),
            (
                "inline module",
                &[
                    ("a", "mod b { fn f() { super::super::c::d() } use super::E; }"),
                    ("c", ""),
                ],
                &["a:1 c"],
            ),
        ];
        for (name, files, expected) in table {
            assert_eq!(edges(&graph(files)), expected, "{name}");
        }
    }

    #[test]
    fn test_modules_are_left_out() {
        let files = [
            (
                "a",
                "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod more { use crate::b::C; }",
            ),
            ("a::tests", "use crate::b::C;"),
            ("a::tests::deep", "use crate::b::C;"),
            ("b", ""),
        ];
        let graph = graph(&files);
        assert_eq!(edges(&graph), [""; 0]);
        assert_eq!(graph.modules().count(), 2);
    }

    #[test]
    fn mutual_reexports_terminate() {
        let files = [
            ("a", "pub use crate::b::X;"),
            ("b", "pub use crate::a::X;"),
            ("c", "use crate::a::X;\nuse d::d;"),
        ];
        let _ = graph(&files);
    }

    #[test]
    fn cycles_are_found() {
        let table: [(Files, &[&[&str]]); 4] = [
            (&[("a", "use crate::b::B;"), ("b", "use crate::c::C;"), ("c", "")], &[]),
            (
                &[
                    ("a", "use crate::b::B;"),
                    ("b", "use crate::a::A;"),
                    ("c", "use crate::a::A;"),
                ],
                &[&["a", "b"]],
            ),
            (
                &[
                    ("a", "use crate::b::B;"),
                    ("b", "use crate::c::C;"),
                    ("c", "use crate::a::A;"),
                    ("d", "use d::X;"),
                ],
                &[&["a", "b", "c"]],
            ),
            (
                &[("a", "mod b;\nuse b::X;"), ("a::b", "use super::Y;")],
                &[&["a", "a::b"]],
            ),
        ];
        for (files, expected) in table {
            let graph = graph(files);
            let cycles: Vec<Vec<String>> = graph
                .cycles(|_| false)
                .into_iter()
                .map(|cycle| cycle.into_iter().map(|module| module.join("::")).collect())
                .collect();
            assert_eq!(cycles, expected, "{files:?}");
        }
    }

    #[test]
    fn free_modules_are_not_part_of_cycles() {
        let graph = graph(&[("", "mod a;\nfn f() { a::b() }"), ("a", "use crate::f;")]);
        assert_eq!(graph.cycles(|_| false).len(), 1);
        assert_eq!(graph.cycles(Vec::is_empty).len(), 0);
    }

    #[test]
    fn shortest_loop_of_a_cycle_is_shown() {
        let graph = graph(&[
            ("a", "use crate::b::B;"),
            ("b", "use crate::c::C;\nuse crate::d::D;"),
            ("c", "use crate::a::A;"),
            ("d", "use crate::b::B;"),
        ]);
        let cycles = graph.cycles(|_| false);
        let names: Vec<String> = graph.shortest_loop(&cycles[0]).iter().map(|m| m.join("::")).collect();
        assert_eq!(names, ["b", "d", "b"]);
    }
}
