//! The page names what is tested here, and every option of rmcp's transport.

use rethread::{Limits, MemoryLimits, SseUpgradeDelay, Timing};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

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

/// So do those tests of the adapter that the page names.
#[test]
fn what_the_page_names_of_the_adapters_tests_is_there() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let named: Vec<_> = PAGE.split('`').filter_map(|word| word.strip_prefix("it::")).collect();
    assert!(named.len() > 4, "{named:?}");
    for name in named {
        let (file, test) = name.split_once("::").expect("a file and a test");
        let source = std::fs::read_to_string(tests.join(format!("{file}.rs"))).expect("the file is there");
        assert!(source.contains(&format!("async fn {test}(")), "there is no {name}");
    }
}

/// The defaults of both sides are what the page says.
#[test]
fn the_page_tells_the_defaults() {
    let rmcp = StreamableHttpServerConfig::default();
    let session = LocalSessionManager::default().session_config;
    let (limits, timing, kept) = (Limits::default(), Timing::default(), MemoryLimits::default().stream);
    let seconds = |time: Option<Duration>| time.expect("it is set").as_secs();
    let upgrade = SseUpgradeDelay::default();
    assert_eq!(rmcp.sse_retry, session.sse_retry, "in both structs");
    assert!(rmcp.legacy_session_mode && !rmcp.json_response && !rmcp.stateless_protocol_metadata_required);
    assert_eq!(rmcp.allowed_hosts, ["localhost", "127.0.0.1", "::1"]);
    assert!(rmcp.allowed_origins.is_empty() && rmcp.session_store.is_none());
    let rows = [
        (
            "sse_keep_alive",
            seconds(rmcp.sse_keep_alive),
            "s",
            format!("{} s;", timing.keep_alive.as_secs()),
        ),
        (
            "sse_retry",
            seconds(rmcp.sse_retry),
            "s",
            format!("{} s", timing.retry.as_secs()),
        ),
        (
            "max_request_body_bytes",
            (rmcp.max_request_body_bytes >> 20) as u64,
            "MiB",
            format!("{} MiB", limits.body_bytes >> 20),
        ),
        (
            "keep_alive",
            seconds(session.keep_alive) / 60,
            "min",
            format!("{} min", timing.session_idle.as_secs() / 60),
        ),
        (
            "channel_capacity",
            session.channel_capacity as u64,
            "messages",
            format!(
                "{} events, {} MiB; {}",
                kept.events,
                kept.bytes >> 20,
                limits.window_events
            ),
        ),
        (
            "completed_cache_ttl",
            session.completed_cache_ttl.as_secs(),
            "s",
            format!("{} min", kept.age.as_secs() / 60),
        ),
        (
            "init_timeout",
            seconds(session.init_timeout),
            "s",
            format!("{} s", timing.body.as_secs()),
        ),
    ];
    for (option, value, unit, ours) in rows {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{option}`")));
        let cells: Vec<&str> = row.expect("a row").split('|').map(str::trim).collect();
        assert!(cells[2].starts_with(&format!("{value} {unit}")), "rmcp: {cells:?}");
        assert!(cells[4].starts_with(&ours), "rethread: {cells:?}, {ours}");
    }
    let upgrade = format!(
        "{} ms on 2025-11-25, else {} s",
        upgrade.resumable.as_millis(),
        upgrade.fallback.as_secs()
    );
    assert!(PAGE.contains(&upgrade), "{upgrade}");
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
