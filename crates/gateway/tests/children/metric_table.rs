//! The metrics of a gateway are exactly those of its documentation, with these labels and buckets.

use crate::auth::{ADA, write_tokens};
use crate::client::{Client, LATEST};
use crate::gateway::{GatewayBuilder, fake_child_command};
use crate::monitoring::monitor;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Upper bounds of the buckets of durations, in seconds.
const BUCKETS: [&str; 15] = [
    "0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "30", "60", "120", "300", "+Inf",
];

/// The rows of the table in `docs/operation.md`: name, kind and labels.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operation.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text
        .lines()
        .skip_while(|line| *line != "| metric | kind | labels |")
        .skip(2);
    let mut metrics = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let labels = cells[2]
            .split(',')
            .map(|label| label.split(':').next().unwrap().trim().to_owned());
        // The values of a label follow its name, in backticks.
        let labels: BTreeSet<_> = labels
            .filter(|label| !label.is_empty() && !label.starts_with('`'))
            .collect();
        for name in cells[0].split(',') {
            let name = name.trim().trim_matches('`').to_owned();
            metrics.insert(name, (cells[1].to_owned(), labels.clone()));
        }
    }
    metrics
}

/// The names and labels of the samples, without the parts of histograms.
fn labels_of(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, labels) = line
            .split_once('{')
            .unwrap_or_else(|| (line.split(' ').next().unwrap(), "}"));
        let names = labels
            .split("=\"")
            .map(|part| part.rsplit([',', '{']).next().unwrap().to_owned());
        let count = labels.matches("=\"").count();
        let names: BTreeSet<_> = names.take(count).filter(|name| name != "le").collect();
        found.entry(name.to_owned()).or_default().extend(names);
    }
    found
}

/// OPS-05: each row of the table exists in a real gateway, from the start, with its kind, its labels and its buckets.
#[tokio::test]
async fn ops_05_metrics_are_those_of_the_table() {
    let builder = GatewayBuilder::new().option("--config rethread.toml --metrics 127.0.0.1:0");
    let command = serde_json::to_string(&fake_child_command("legacy", builder.marker())).unwrap();
    std::fs::write(builder.path("keys.json"), "{\"keys\":[]}").unwrap();
    let text = format!(
        "memory = true\n[auth]\ntokens = 'tokens.toml'\n[auth.jwt.corp]\nissuer = 'https://login.example'\n\
         jwks_file = 'keys.json'\naudience = ['x']\n[servers.files]\ncommand = {command}\n"
    );
    std::fs::write(builder.path("rethread.toml"), text).unwrap();
    write_tokens(&builder, &[("ada", &[ADA], "")]);
    let gateway = builder.start();
    let monitor = monitor(&gateway).await;
    let text = monitor.send("GET", "/metrics", &[], b"").await.text().await;
    let found = labels_of(&text);
    for (name, (kind, labels)) in documented() {
        assert!(
            text.contains(&format!("# TYPE {name} {kind}\n")),
            "{name} is not a {kind}\n{text}"
        );
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no text");
        let sample = match kind.as_str() {
            "histogram" => format!("{name}_count"),
            _ => name.clone(),
        };
        assert_eq!(found.get(&sample), Some(&labels), "{name}");
        if kind == "histogram" {
            let bounds = text
                .lines()
                .filter(|line| line.starts_with(&format!("{name}_bucket{{")));
            let bounds: BTreeSet<_> = bounds
                .map(|line| line.rsplit("le=\"").next().unwrap().split('"').next().unwrap())
                .collect();
            assert_eq!(bounds, BTreeSet::from(BUCKETS), "{name}");
        }
    }
    for name in [
        "mcp_server_operation_duration_seconds_count",
        "rethread_leases_lost_total",
    ] {
        assert!(found.contains_key(name), "{name} is there from the start");
    }
    let failed = text.lines().any(|line| {
        line.starts_with("mcp_server_operation_duration_seconds_count") && line.contains("error_type=\"other\"")
    });
    assert!(failed, "an alert uses `other`");
}

/// `[metrics] tools = true` adds the names that the server has listed, and no name of a client.
#[tokio::test]
async fn ops_06_tools_are_labels_once_the_server_has_listed_them() {
    let builder = GatewayBuilder::new().option("--config rethread.toml");
    let command = serde_json::to_string(&fake_child_command("legacy", builder.marker())).unwrap();
    let text = format!(
        "memory = true\n[metrics]\nlisten = '127.0.0.1:0'\ntools = true\n[servers.files]\ncommand = {command}\n"
    );
    std::fs::write(builder.path("rethread.toml"), text).unwrap();
    let gateway = builder.start();
    let monitor = monitor(&gateway).await;
    let session = Client::new(gateway.addr, "/servers/files").open_session(LATEST).await;
    session.call(1, "tools/list", json!({})).await.response().await;
    for (id, tool) in [(2, "echo"), (3, "planted"), (4, "also-planted")] {
        session.call_tool(id, tool, json!({ "text": "x" })).await;
    }
    let scrape = crate::monitoring::scrape(&monitor).await;
    let calls = |tool| {
        let labels = [("server", "files"), ("mcp_method_name", "tools/call"), ("tool", tool)];
        scrape.sum("mcp_server_operation_duration_seconds_count", &labels)
    };
    assert_eq!((calls("echo"), calls("other"), calls("planted")), (1.0, 2.0, 0.0));
}
