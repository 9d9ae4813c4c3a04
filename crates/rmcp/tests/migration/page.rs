//! The page names what is tested here, and every option of rmcp's transport.

use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../docs/migrating-from-rmcp.md");
const TESTS: [&str; 5] = [
    include_str!("answers.rs"),
    include_str!("endings.rs"),
    include_str!("gets.rs"),
    include_str!("sessions.rs"),
    include_str!("streams.rs"),
];

/// Each claim has a test that the page names, and no test is left out.
#[test]
fn the_page_names_each_test() {
    let tests: BTreeSet<&str> = TESTS.iter().flat_map(|source| tests_in(source)).collect();
    // In the tables of the page a test is the last cell, alone.
    let cells = PAGE
        .lines()
        .filter_map(|line| line.strip_suffix("` |")?.rsplit_once("| `"));
    let named: BTreeSet<&str> = cells.map(|(_, name)| name).collect();
    assert!(tests.len() > 15, "tests are found: {tests:?}");
    assert_eq!(named, tests);
}

/// When rmcp gets an option, the page must say what becomes of it.
#[test]
fn the_page_names_each_option() {
    let config = format!("{:#?}", StreamableHttpServerConfig::default());
    let manager = LocalSessionManager::default();
    let session = format!("{:#?}", manager.session_config);
    let options: Vec<&str> = [&config, &session].into_iter().flat_map(|text| fields(text)).collect();
    assert!(
        options.contains(&"sse_retry") && options.contains(&"completed_cache_ttl"),
        "{options:?}"
    );
    for option in options {
        // Private: it is set by `enforce_origin_validation`, which is there.
        if option != "validate_empty_origin_allowlist" {
            assert!(PAGE.contains(&format!("`{option}`")), "what becomes of {option}?");
        }
    }
}

fn tests_in(source: &str) -> impl Iterator<Item = &str> {
    let after = source.split("#[tokio::test]\nasync fn ").skip(1);
    after.filter_map(|text| text.split('(').next())
}

/// The names of fields at the first level of a struct that was printed.
fn fields(text: &str) -> impl Iterator<Item = &str> {
    let first_level = text.lines().filter_map(|line| line.strip_prefix("    "));
    first_level.filter_map(|line| {
        let (name, _) = line.split_once(": ")?;
        name.chars().all(|c| c.is_ascii_lowercase() || c == '_').then_some(name)
    })
}
