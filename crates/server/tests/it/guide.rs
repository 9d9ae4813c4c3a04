//! Keeps the tables of the guide in step with the code.

use rethread::{Limits, MemoryLimits, Retention, SseUpgradeDelay, Timing};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const LIMITS: &str = include_str!("../../src/guide/limits.md");
const DEPLOYMENT: &str = include_str!("../../src/guide/deployment.md");
const FIRST_SERVER: &str = include_str!("../../src/guide/first_server.md");
const COMPARISON: &str = include_str!("../../src/guide/comparison.md");
const HELLO: &str = include_str!("../../examples/hello.rs");
const NGINX: &str = include_str!("../../src/guide/nginx.md");
const KUBERNETES: &str = include_str!("../../src/guide/kubernetes.md");
const TELEMETRY: &str = concat!(
    include_str!("../../src/node/telemetry.rs"),
    include_str!("../../src/node/telemetry/node_events.rs"),
    include_str!("../../src/node/telemetry/server_metrics.rs")
);

/// The first two cells of each row in the table under `heading`.
fn table<'a>(page: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let lines = page.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    let rows = lines
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| line.starts_with('|'));
    let cells = rows.skip(2).map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        (cells.next().unwrap(), cells.next().unwrap())
    });
    cells.collect()
}

fn without_backticks<'a>(rows: Vec<(&'a str, &'a str)>) -> BTreeMap<&'a str, &'a str> {
    rows.into_iter()
        .map(|(name, value)| (name.trim_matches('`'), value))
        .collect()
}

/// `4 MiB`, `16,384`.
fn parse_count(text: &str) -> u64 {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let shift = match unit {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        other => panic!("{other}"),
    };
    number.replace(',', "").parse::<u64>().unwrap() << shift
}

/// `100 ms`, `15 s`, `30 min`.
fn parse_duration(text: &str) -> Duration {
    let (number, unit) = text.split_once(' ').unwrap();
    let number = number.parse().unwrap();
    match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "min" => Duration::from_secs(60 * number),
        other => panic!("{other}"),
    }
}

#[test]
fn every_limit_is_in_the_guide_with_its_default() {
    let Value::Object(limits) = serde_json::to_value(Limits::default()).unwrap() else {
        panic!()
    };
    // A limit that is not set by default has no number.
    let code: BTreeMap<&str, Option<u64>> = limits
        .iter()
        .map(|(name, n)| (name.as_str(), (!n.is_null()).then(|| n.as_u64().unwrap())))
        .collect();
    let documented = without_backticks(table(LIMITS, "# How much"));
    let documented: BTreeMap<&str, Option<u64>> = documented
        .into_iter()
        .map(|(name, text)| (name, (text != "none").then(|| parse_count(text))))
        .collect();
    assert_eq!(documented, code);
}

#[test]
fn every_wait_is_in_the_guide_with_its_default() {
    let Value::Object(timing) = serde_json::to_value(Timing::default()).unwrap() else {
        panic!()
    };
    let duration = |value: &Value| serde_json::from_value::<Duration>(value.clone()).unwrap();
    let mut code: BTreeMap<&str, Duration> = timing.iter().map(|(name, d)| (name.as_str(), duration(d))).collect();
    let SseUpgradeDelay {
        resumable, fallback, ..
    } = SseUpgradeDelay::default();
    code.extend([("resumable", resumable), ("fallback", fallback)]);
    let documented = without_backticks(table(LIMITS, "# How long"));
    let documented: BTreeMap<&str, Duration> = documented
        .into_iter()
        .map(|(name, text)| (name, parse_duration(text)))
        .collect();
    assert_eq!(documented, code);
}

#[test]
fn every_retention_limit_is_in_the_guide() {
    let memory = MemoryLimits::default();
    let embedded = rethread_store_embedded::Limits::default();
    let Retention { events, bytes, age, .. } = memory.stream;
    assert_eq!(embedded.stream, memory.stream);
    assert_eq!(embedded.ended_streams_per_session, memory.ended_streams_per_session);
    let documented = table(LIMITS, "# What a store keeps");
    let [
        (_, per_stream),
        (_, of_bytes),
        (_, aged),
        (_, ended),
        (_, in_memory),
        (_, on_disk),
    ] = documented.as_slice()
    else {
        panic!("{documented:?}")
    };
    assert_eq!(parse_count(per_stream), events as u64);
    assert_eq!(parse_count(of_bytes), bytes as u64);
    assert_eq!(parse_duration(aged), age);
    assert_eq!(parse_count(ended), memory.ended_streams_per_session as u64);
    assert_eq!(parse_count(in_memory), memory.total_bytes as u64);
    assert_eq!(parse_count(on_disk), embedded.total_bytes);
}

/// The contents of the code blocks of the given kinds.
fn blocks(page: &str, kinds: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.extend(kinds.contains(&kind).then(|| text.join("\n")));
        }
    }
    found
}

/// A test runs the example, so the page shows working code.
#[test]
fn first_server_in_the_guide_is_the_example() {
    let header = HELLO.lines().map_while(|line| line.strip_prefix("//!"));
    let header: Vec<&str> = header.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let tried = blocks(&header.join("\n"), &["sh", "text"]);
    assert!(tried.len() > 4, "{tried:?}");
    assert_eq!(blocks(FIRST_SERVER, &["sh", "text"]), tried);
    let code = &HELLO[HELLO.find("use ").unwrap()..];
    assert_eq!(blocks(FIRST_SERVER, &["no_run"]), [code.trim_end()]);
}

/// A test runs the first program, and both are compiled.
#[test]
fn programs_of_the_comparison_are_the_examples() {
    for (kind, file) in [
        ("no_run", "examples/typed.rs"),
        ("rust,ignore", "../rmcp/examples/notes.rs"),
    ] {
        let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let code = &text[text.find("\nuse ").unwrap() + 1..];
        assert_eq!(blocks(COMPARISON, &[kind]), [code.trim_end()], "{file}");
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let lines = code.lines().filter(is_code).count().to_string();
        let row = COMPARISON
            .lines()
            .find(|line| line.starts_with("| lines without"))
            .unwrap();
        assert!(
            row.split('|').any(|cell| cell.trim() == lines),
            "{file} has {lines} lines"
        );
    }
}

/// Tests of the gateway run these files. The pages show them in full.
#[test]
fn configuration_files_are_in_the_guide() {
    for (page, kind, file) in [(NGINX, "nginx", "nginx.conf"), (KUBERNETES, "yaml", "kubernetes.yaml")] {
        let path = format!("{}/../../docs/deploy/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(blocks(page, &[kind]), [text.trim_end()], "{file}");
    }
}

/// The metrics that operators of several nodes need, each with its meaning.
const METRICS_OF_NODES: &[(&str, &str)] = &[
    ("lease seconds left", "rethread_lease_seconds"),
    ("live nodes", "rethread_live_nodes"),
    ("views", "rethread_sessions_active"),
    ("invalidations", "rethread_invalidations_total"),
    ("forwards", "rethread_forwards_total"),
    ("seconds of forwards", "rethread_forward_seconds"),
    ("mailbox depth", "rethread_mailbox_messages"),
    ("mailbox age", "rethread_mailbox_age_seconds"),
    ("remote readers", "rethread_remote_readers"),
    ("wake-ups", "rethread_wakeups_total"),
    ("re-reads", "rethread_rereads_total"),
    ("subscriber reconnects", "rethread_subscriber_reconnects_total"),
    ("append seconds", "rethread_append_seconds"),
    ("events per append", "rethread_append_events"),
    ("fenced appends", "rethread_streams_fenced_total"),
    ("takeovers", "rethread_takeovers_total"),
    ("orphans closed", "rethread_calls_orphaned_total"),
    ("store gaps", "rethread_store_gaps_total"),
];

/// A metric that is renamed or removed would leave dashboards empty.
#[test]
fn every_metric_of_several_nodes_is_in_the_guide() {
    let documented = without_backticks(table(DEPLOYMENT, "# Metrics and logs"));
    for (what, name) in METRICS_OF_NODES {
        assert!(documented.contains_key(name), "{what}: {name}");
        assert!(TELEMETRY.contains(&format!("\"{name}\"")), "{what}: {name}");
    }
}

#[test]
fn every_metric_is_in_the_guide() {
    let mut code = BTreeMap::new();
    for kind in ["counter", "gauge", "histogram"] {
        let start = format!("metrics::{kind}!(\"");
        let uses = TELEMETRY.split(&start).skip(1);
        code.extend(uses.map(|rest| (rest.split('"').next().unwrap(), kind)));
    }
    // Counters of events have their names in a table.
    let events = TELEMETRY.split("=> \"rethread_").skip(1);
    let events: Vec<_> = events
        .map(|rest| format!("rethread_{}", rest.split('"').next().unwrap()))
        .collect();
    code.extend(events.iter().map(|name| (name.as_str(), "counter")));
    assert!(code.len() > 10, "{code:?}");
    assert_eq!(without_backticks(table(DEPLOYMENT, "# Metrics and logs")), code);
}
