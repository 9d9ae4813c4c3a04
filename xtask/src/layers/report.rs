//! The report of the graph and its violations.

use super::graph::{Graph, ModulePath};
use super::{Layer, Position, SOURCE};
use std::fmt;

/// The graph with the position of each module.
#[derive(Debug)]
pub(crate) struct Report {
    graph: Graph,
}

/// An import that does not point down: into a higher layer, the layer beside, or no layer.
#[derive(Debug)]
struct UpwardImport<'a> {
    from: &'a ModulePath,
    from_layer: Layer,
    to: &'a ModulePath,
    to_layer: Option<Layer>,
    line: usize,
}

impl Report {
    pub(crate) fn new(graph: Graph) -> Self {
        Report { graph }
    }

    /// Fails on a violation in one of these layers. With `everywhere`, a file outside of all layers is a violation too.
    pub(crate) fn check(&self, layers: &[Layer], everywhere: bool) -> Result<(), String> {
        let concerns = |module: &ModulePath| match self.position(module) {
            Position::In(layer) => layers.contains(&layer),
            Position::Outside => everywhere,
            Position::Free => false,
        };
        let upward = self.upward().iter().filter(|import| concerns(import.from)).count();
        let cycles = self
            .cycles()
            .iter()
            .filter(|cycle| cycle.iter().any(|module| concerns(module)))
            .count();
        let outside = if everywhere { self.outside().len() } else { 0 };
        match (upward, cycles, outside) {
            (0, 0, 0) => Ok(()),
            _ => Err(format!(
                "imports that do not point down: {upward}, cycles: {cycles}, files not in a layer: {outside}; \
                 see `cargo xtask layers --report`"
            )),
        }
    }

    /// A summary with counts and one loop per cycle.
    pub(crate) fn summary(&self) -> String {
        let (cycles, upward) = (self.cycles(), self.upward());
        let mut text = format!(
            "{} modules of {SOURCE}: {} not in a layer, {} in {} cycles, {} imports that do not point down",
            self.graph.modules().count(),
            self.outside().len(),
            cycles.iter().map(Vec::len).sum::<usize>(),
            cycles.len(),
            upward.len(),
        );
        for cycle in &cycles {
            text += &format!("\n  cycle of {}: {}", cycle.len(), self.shortest_loop(cycle));
        }
        text
    }

    fn position(&self, module: &ModulePath) -> Position {
        let has_folder = |name: &str| {
            let mut modules = self.graph.modules().map(|(module, _)| module);
            modules.any(|module| module.len() > 1 && module[0] == name)
        };
        Position::of(module, has_folder)
    }

    fn outside(&self) -> Vec<&ModulePath> {
        let modules = self.graph.modules().map(|(module, _)| module);
        modules
            .filter(|module| self.position(module) == Position::Outside)
            .collect()
    }

    fn cycles(&self) -> Vec<Vec<&ModulePath>> {
        self.graph.cycles(|module| self.position(module) == Position::Free)
    }

    fn upward(&self) -> Vec<UpwardImport<'_>> {
        let mut upward = Vec::new();
        for (from, targets) in self.graph.modules() {
            let Position::In(from_layer) = self.position(from) else {
                continue;
            };
            for (to, line) in targets {
                let to_layer = match self.position(to) {
                    Position::In(to_layer) if from_layer.may_import(to_layer) => continue,
                    Position::In(to_layer) => Some(to_layer),
                    Position::Outside => None,
                    Position::Free => continue,
                };
                upward.push(UpwardImport {
                    from,
                    from_layer,
                    to,
                    to_layer,
                    line: *line,
                });
            }
        }
        upward
    }

    fn describe(&self, import: &UpwardImport<'_>) -> String {
        format!(
            "{}:{}: {} imports {} ({})",
            self.file(import.from),
            import.line,
            import.from_layer.name(),
            name(import.to),
            import.to_layer.map_or("not in a layer", Layer::name),
        )
    }

    fn shortest_loop(&self, cycle: &[&ModulePath]) -> String {
        let modules: Vec<String> = self.graph.shortest_loop(cycle).into_iter().map(name).collect();
        modules.join(" -> ")
    }

    fn file(&self, module: &ModulePath) -> String {
        match module.as_slice() {
            [] => format!("{SOURCE}/lib.rs"),
            module => format!("{SOURCE}/{}.rs", module.join("/")),
        }
    }

    fn write_modules(&self, f: &mut fmt::Formatter<'_>, title: &str, position: Position) -> fmt::Result {
        writeln!(f, "{title}")?;
        let mut is_empty = true;
        for (module, targets) in self.graph.modules() {
            if self.position(module) == position {
                is_empty = false;
                let targets: Vec<String> = targets.keys().map(name).collect();
                let arrow = if targets.is_empty() { "" } else { " -> " };
                writeln!(f, "  {}{arrow}{}", name(module), targets.join(", "))?;
            }
        }
        if is_empty {
            writeln!(f, "  (no files)")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for layer in Layer::ALL {
            self.write_modules(f, layer.name(), Position::In(layer))?;
        }
        self.write_modules(f, "not in a layer", Position::Outside)?;
        self.write_modules(f, "free", Position::Free)?;
        for cycle in self.cycles() {
            writeln!(
                f,
                "\ncycle of {} modules, for example {}",
                cycle.len(),
                self.shortest_loop(&cycle)
            )?;
            for (module, targets) in self.graph.modules().filter(|(module, _)| cycle.contains(module)) {
                let mut edges: Vec<_> = targets.iter().filter(|(target, _)| cycle.contains(target)).collect();
                edges.sort_by_key(|(_, line)| **line);
                for (target, line) in edges {
                    writeln!(
                        f,
                        "  {}:{line}: {} -> {}",
                        self.file(module),
                        name(module),
                        name(target)
                    )?;
                }
            }
        }
        let upward = self.upward();
        if !upward.is_empty() {
            writeln!(f, "\nimports that do not point down")?;
        }
        for import in &upward {
            writeln!(f, "  {}", self.describe(import))?;
        }
        writeln!(f, "\n{}", self.summary().lines().next().unwrap_or_default())
    }
}

fn name(module: &ModulePath) -> String {
    match module.as_slice() {
        [] => "crate".to_owned(),
        module => module.join("::"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::imports;
    use super::*;

    fn report(files: &[(&str, &str)]) -> Report {
        let path = |module: &str| {
            module
                .split("::")
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let files = files.iter().map(|(module, text)| (path(module), imports::read(text)));
        Report::new(Graph::new(files.collect()))
    }

    #[test]
    fn layers_in_order_pass() {
        let report = report(&[
            ("", "mod call;\npub use call::run::Run;"),
            ("call", "mod run;"),
            ("call::run", "use crate::node::clock::Clock;"),
            ("node", "mod clock;"),
            ("node::clock", ""),
        ]);
        assert_eq!(report.check(&Layer::ALL, true), Ok(()));
    }

    #[test]
    fn upward_import_fails_with_file_and_line() {
        let report = report(&[
            ("call", "mod run;"),
            ("call::run", ""),
            ("node", "mod clock;"),
            ("node::clock", "\nuse crate::call::run::Run;"),
        ]);
        assert!(report.check(&[Layer::Call], false).is_ok());
        assert!(report.check(&[Layer::Node], false).is_err());
        let text = report.to_string();
        let line = "crates/server/src/node/clock.rs:2: node imports call::run (call)";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn cycle_fails_with_its_edges() {
        let report = report(&[
            ("node", "mod a;\nmod b;"),
            ("node::a", "use super::b::B;"),
            ("node::b", "use super::a::A;"),
        ]);
        assert!(report.check(&[Layer::Node], false).is_err());
        assert!(report.check(&[Layer::Call], false).is_ok());
        let text = report.to_string();
        assert!(
            text.contains("cycle of 2 modules, for example node::a -> node::b -> node::a"),
            "{text}"
        );
        assert!(
            text.contains("crates/server/src/node/b.rs:1: node::b -> node::a"),
            "{text}"
        );
    }

    #[test]
    fn file_outside_of_the_layers_fails_the_whole_check_only() {
        let report = report(&[("outbox", "")]);
        assert!(report.check(&Layer::ALL, true).is_err());
        assert!(report.check(&Layer::ALL, false).is_ok());
        assert!(report.to_string().contains("not in a layer\n  outbox\n"));
    }
}
