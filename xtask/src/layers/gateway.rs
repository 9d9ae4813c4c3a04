//! The order of the folders of `crates/gateway/src` that carry messages.
//!
//! Only the order is checked: the other folders of the gateway have none, and files of one folder may import each other.

use super::graph::{Graph, ModulePath};

pub(super) const SOURCE: &str = "crates/gateway/src";

/// The folders, lowest first. `upstream` is the seam to a server, so it names no process, and nothing that uses one.
const ORDER: [&[&str]; 4] = [&["upstream"], &["child"], &["relay", "probe"], &["mount"]];

/// The imports that point up, each as a line of text.
pub(super) fn upward(graph: &Graph) -> Vec<String> {
    let mut upward = Vec::new();
    for (from, imports) in graph.modules() {
        for (to, line) in imports {
            if height(from).zip(height(to)).is_some_and(|(from, to)| to > from) {
                upward.push(format!(
                    "{SOURCE}: {}:{line} imports {}",
                    from.join("::"),
                    to.join("::")
                ));
            }
        }
    }
    upward
}

fn height(module: &ModulePath) -> Option<usize> {
    let folder = module.first()?;
    ORDER.iter().position(|folders| folders.contains(&folder.as_str()))
}

#[cfg(test)]
mod tests {
    use super::super::imports;
    use super::*;

    #[test]
    fn seam_names_no_process() {
        let file = |path: &str, text: &str| {
            let module: ModulePath = path.split("::").map(str::to_owned).collect();
            (module, imports::read(text))
        };
        let graph = Graph::new(
            [
                file("upstream", "use crate::child::Pool;\nuse crate::settings::Settings;"),
                file("child", "use crate::upstream::Seam;\npub struct Pool;"),
                file("relay", "use crate::child::Pool;\nfn f() { crate::mount::open(); }"),
                file("probe", "use crate::relay::Relay;"),
                file("mount", "use crate::relay::Relay;\npub fn open() {}"),
                file("settings", "use crate::mount::open;\npub struct Settings;"),
            ]
            .into(),
        );
        assert_eq!(
            upward(&graph),
            [
                "crates/gateway/src: relay:2 imports mount",
                "crates/gateway/src: upstream:1 imports child"
            ]
        );
    }
}
