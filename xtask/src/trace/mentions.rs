//! The code and the tests that cite each requirement, over all files of the repository.

use super::requirements::{Requirement, is_id};
use super::source::{self, Excerpt, Origin};
use crate::files;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The folders of code and tests, without this crate: its ids are data.
const PLACES: [&str; 3] = ["crates", "tests", "examples"];

/// All mentions, by id.
#[derive(Debug, Default)]
pub(crate) struct Mentions {
    by_id: BTreeMap<String, Mention>,
    /// Cited ids that are not in the list: typing errors or removed rows.
    unknown: BTreeSet<String>,
}

/// The code and the tests that cite one id.
#[derive(Debug, Default)]
pub(crate) struct Mention {
    /// Files.
    pub(crate) code: BTreeSet<String>,
    /// Tests by name.
    pub(crate) tests: BTreeSet<String>,
}

impl Mentions {
    /// Reads the whole repository.
    pub(crate) fn collect(root: &Path, requirements: &[Requirement]) -> Result<Self, String> {
        let ids: BTreeSet<&str> = requirements.iter().map(|row| row.id.as_str()).collect();
        let mut mentions = Mentions::default();
        for file in PLACES.iter().flat_map(|place| files::below(&root.join(place))) {
            let name = files::name(root, &file);
            if let Some(kind) = Kind::of(&name) {
                mentions.read(&name, kind, &files::text(&file)?, &ids);
            }
        }
        Ok(mentions)
    }

    /// The mentions of an id, if there are any.
    pub(crate) fn of(&self, id: &str) -> Option<&Mention> {
        self.by_id.get(id)
    }

    /// Ids that are cited and not in the list.
    pub(crate) fn unknown(&self) -> &BTreeSet<String> {
        &self.unknown
    }

    fn read(&mut self, file: &str, kind: Kind, text: &str, ids: &BTreeSet<&str>) {
        let whole_file = || Origin::Test(file.to_owned());
        let excerpts = match kind {
            Kind::Script => vec![(whole_file(), Excerpt::Comment(text.to_owned()))],
            Kind::Code => source::read(text, Origin::Code, |_, attribute| attribute),
            Kind::Tests => source::read(text, whole_file(), |_, attribute| attribute),
            // Cases of a macro have no test attribute, so their names decide.
            Kind::Cases => source::read(text, Origin::Code, |name, attribute| {
                attribute || !in_name(name, ids).is_empty()
            }),
        };
        for (origin, excerpt) in excerpts {
            let found = match &excerpt {
                Excerpt::TestName(name) => in_name(name, ids),
                Excerpt::Comment(text) => in_comment(text),
            };
            for id in found {
                if !ids.contains(id.as_str()) {
                    if is_of_a_known_family(&id, ids) {
                        self.unknown.insert(format!("{id} ({file})"));
                    }
                    continue;
                }
                let mention = self.by_id.entry(id).or_default();
                match &origin {
                    Origin::Code => mention.code.insert(file.to_owned()),
                    Origin::Test(name) => mention.tests.insert(name.clone()),
                };
            }
        }
    }
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Functions with a test attribute and test modules are test code.
    Code,
    /// The whole file is test code.
    Tests,
    /// Test cases that other crates run.
    Cases,
    /// Not Rust. The whole file is a test.
    Script,
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        let in_tests = name.split('/').any(|part| part == "tests" || part == "tests.rs");
        match name.rsplit_once('.')?.1 {
            "rs" if in_tests => Some(Kind::Tests),
            "rs" if name.starts_with("crates/testkit/") => Some(Kind::Cases),
            "rs" => Some(Kind::Code),
            "md" | "json" | "toml" | "lock" => None,
            _ if in_tests => Some(Kind::Script),
            _ => None,
        }
    }
}

/// The ids in a comment: `SSE-05, RES-09`.
fn in_comment(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| is_id(word)).map(str::to_owned).collect()
}

/// The ids in a test's name: `sse_05_sse_07_priming_and_retry_blocks`. Here a number is an id only if the list has it.
fn in_name(name: &str, ids: &BTreeSet<&str>) -> Vec<String> {
    let words: Vec<&str> = name.split('_').collect();
    let pairs = words
        .windows(2)
        .map(|pair| format!("{}-{}", pair[0].to_ascii_uppercase(), pair[1]));
    pairs.filter(|id| ids.contains(id.as_str())).collect()
}

fn is_of_a_known_family(id: &str, ids: &BTreeSet<&str>) -> bool {
    let family = |id: &str| id.split('-').next().map(str::to_owned);
    ids.iter().any(|known| family(known) == family(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> BTreeSet<&'static str> {
        ["RES-07", "S2C-01", "SSE-05", "SSE-07", "T-02"].into_iter().collect()
    }

    #[test]
    fn ids_are_found_in_names_and_comments() {
        assert_eq!(in_name("sse_05_sse_07_priming", &ids()), ["SSE-05", "SSE-07"]);
        assert_eq!(in_name("the_rule_s2c_01", &ids()), ["S2C-01"]);
        assert!(in_name("res_7_and_res_99_and_http_04", &ids()).is_empty());
        assert_eq!(
            in_comment("(RES-07), SSE-05/T-02: UTF-8, x-RES-07."),
            ["RES-07", "SSE-05", "T-02"]
        );
    }

    #[test]
    fn kind_of_a_file_follows_from_its_path() {
        for (name, kind) in [
            ("crates/proto/src/sse.rs", Some(Kind::Code)),
            ("crates/server/tests/resume/main.rs", Some(Kind::Tests)),
            ("crates/server/src/hub/tests.rs", Some(Kind::Tests)),
            ("crates/testkit/src/store_suite.rs", Some(Kind::Cases)),
            (
                "crates/server/tests/transcripts/2025-11-25/resume.http",
                Some(Kind::Script),
            ),
            ("tests/outside/clients/ts/cuts.mjs", Some(Kind::Script)),
            ("tests/outside/clients/README.md", None),
            ("crates/server/Cargo.toml", None),
        ] {
            assert_eq!(Kind::of(name), kind, "{name}");
        }
    }

    #[test]
    fn code_and_tests_are_distinguished() {
        let mut mentions = Mentions::default();
        let text =
            "// RES-07: a rule\nfn rule() {}\n#[cfg(test)]\nmod tests {\n#[test]\nfn t_02_holds() {\n// SSE-05\n}\n}";
        mentions.read("crates/a/src/b.rs", Kind::Code, text, &ids());
        assert!(mentions.of("RES-07").unwrap().code.contains("crates/a/src/b.rs"));
        assert!(mentions.of("RES-07").unwrap().tests.is_empty());
        for id in ["T-02", "SSE-05"] {
            assert!(mentions.of(id).unwrap().tests.contains("t_02_holds"), "{id}");
        }
        mentions.read("crates/a/src/c.rs", Kind::Code, "// RES-99 UTF-16", &ids());
        assert_eq!(
            mentions.unknown().iter().collect::<Vec<_>>(),
            ["RES-99 (crates/a/src/c.rs)"]
        );
    }

    #[test]
    fn cases_count_by_their_names_and_scripts_as_a_whole() {
        let mut mentions = Mentions::default();
        let text = "/// SSE-07\npub async fn res_07_case() {}\n/// SSE-05\npub fn other() {}";
        mentions.read("crates/testkit/src/suite.rs", Kind::Cases, text, &ids());
        mentions.read("tests/x.mjs", Kind::Script, "// T-02", &ids());
        assert!(mentions.of("RES-07").unwrap().tests.contains("res_07_case"));
        assert!(mentions.of("SSE-07").unwrap().tests.contains("res_07_case"));
        assert!(mentions.of("SSE-05").unwrap().tests.is_empty());
        assert!(mentions.of("T-02").unwrap().tests.contains("tests/x.mjs"));
    }
}
