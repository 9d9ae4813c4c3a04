//! Keeps `docs/migrating-from-rmcp.md` in step with these tests and with rmcp's options.

use rethread::{Limits, MemoryLimits, SseUpgradeDelay, Timing};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const PAGE: &str = include_str!("../../../../docs/migrating-from-rmcp.md");
const TESTS: [&str; 5] = [
    include_str!("call_streams.rs"),
    include_str!("get_streams.rs"),
    include_str!("lifetimes.rs"),
    include_str!("responses.rs"),
    include_str!("sessions.rs"),
];

/// The page names every test, and every named test exists.
#[test]
fn page_names_each_test() {
    let tests: BTreeSet<&str> = TESTS.iter().flat_map(|source| tests_in(source)).collect();
    // The last cell of a table row holds only the test name.
    let cells = PAGE
        .lines()
        .filter_map(|line| line.strip_suffix("` |")?.rsplit_once("| `"));
    let named: BTreeSet<&str> = cells.map(|(_, name)| name).collect();
    assert!(tests.len() > 15, "only these tests: {tests:?}");
    assert_eq!(named, tests);
}

/// The page also names tests in `tests/it`.
#[test]
fn adapter_tests_on_the_page_exist() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let named: Vec<_> = PAGE.split('`').filter_map(|word| word.strip_prefix("it::")).collect();
    assert!(named.len() > 4, "{named:?}");
    for name in named {
        let (file, test) = name.split_once("::").expect("a file and a test");
        let source = std::fs::read_to_string(tests.join(format!("{file}.rs"))).expect("a test file");
        assert!(source.contains(&format!("async fn {test}(")), "no test {name}");
    }
}

/// The page states the defaults of both sides.
#[test]
fn defaults_on_the_page_are_current() {
    let rmcp = StreamableHttpServerConfig::default();
    let session = LocalSessionManager::default().session_config;
    let (limits, timing, kept) = (Limits::default(), Timing::default(), MemoryLimits::default().stream);
    let seconds = |time: Option<Duration>| time.expect("a default").as_secs();
    let upgrade = SseUpgradeDelay::default();
    assert_eq!(rmcp.sse_retry, session.sse_retry, "equal in both structs");
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
    for (option, value, unit, rethread) in rows {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{option}`")));
        let cells: Vec<&str> = row.expect("a row").split('|').map(str::trim).collect();
        assert!(cells[2].starts_with(&format!("{value} {unit}")), "rmcp: {cells:?}");
        assert!(cells[4].starts_with(&rethread), "rethread: {cells:?}, {rethread}");
    }
    let upgrade = format!(
        "{} ms on 2025-11-25, else {} s",
        upgrade.resumable.as_millis(),
        upgrade.fallback.as_secs()
    );
    assert!(PAGE.contains(&upgrade), "{upgrade}");
}

/// A new option of rmcp needs a row on the page.
#[test]
fn page_names_each_option() {
    let config = format!("{:#?}", StreamableHttpServerConfig::default());
    let manager = LocalSessionManager::default();
    let session = format!("{:#?}", manager.session_config);
    let options: Vec<&str> = [&config, &session].into_iter().flat_map(|text| fields(text)).collect();
    assert!(
        options.contains(&"sse_retry") && options.contains(&"completed_cache_ttl"),
        "{options:?}"
    );
    for option in options {
        // Private. Set by `enforce_origin_validation`, which the page names.
        if option != "validate_empty_origin_allowlist" {
            assert!(PAGE.contains(&format!("`{option}`")), "the page lacks {option}");
        }
    }
}

fn tests_in(source: &str) -> impl Iterator<Item = &str> {
    let after = source.split("#[tokio::test]\nasync fn ").skip(1);
    after.filter_map(|text| text.split('(').next())
}

/// The first-level field names of a struct in `Debug` output.
fn fields(text: &str) -> impl Iterator<Item = &str> {
    let first_level = text.lines().filter_map(|line| line.strip_prefix("    "));
    first_level.filter_map(|line| {
        let (name, _) = line.split_once(": ")?;
        name.chars().all(|c| c.is_ascii_lowercase() || c == '_').then_some(name)
    })
}
