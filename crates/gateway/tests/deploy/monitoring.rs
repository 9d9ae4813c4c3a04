//! The files for monitoring: every metric in them exists, and systemd accepts the unit.

use crate::deploy_file;
use crate::kubernetes::objects;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The metrics of the library and the gateway, with their kinds.
fn metrics() -> BTreeMap<String, String> {
    let sources = [
        include_str!("../../../server/src/node/telemetry/help.rs"),
        include_str!("../../src/metrics.rs"),
    ];
    let mut metrics = BTreeMap::new();
    for source in sources {
        // A name, a kind and a text, each behind a comma.
        let pieces: Vec<_> = source.split('"').collect();
        for pair in pieces.windows(2) {
            let kind = pair[1].trim().strip_prefix(',').and_then(|rest| rest.split(',').next());
            let kind = kind.map(|kind| kind.trim().to_lowercase());
            if let Some(kind) = kind.filter(|kind| ["counter", "gauge", "histogram"].contains(&kind.as_str())) {
                metrics.insert(pair[0].to_owned(), kind);
            }
        }
    }
    assert!(metrics.len() > 50, "{metrics:?}");
    metrics
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let is_metric = |word: &&str| word.starts_with("rethread_") || word.starts_with("mcp_server_");
    words.filter(is_metric).map(str::to_owned).collect()
}

fn check(place: &str, text: &str) {
    let known = metrics();
    let found = names(text);
    assert!(!found.is_empty(), "{place} names no metric");
    for name in found {
        let suffix = ["_bucket", "_count", "_sum"]
            .into_iter()
            .find_map(|suffix| name.strip_suffix(suffix));
        let is_known = match (known.get(&name), suffix.and_then(|base| known.get(base))) {
            (Some(kind), _) => kind != "histogram",
            (None, Some(kind)) => kind == "histogram",
            (None, None) => false,
        };
        assert!(is_known, "{place}: {name} is not a metric of this program");
    }
}

fn rules(groups: &Value) -> Vec<&Value> {
    let groups = groups.as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap()).collect()
}

#[test]
fn ops_05_alerts_name_metrics_that_exist() {
    let text = deploy_file("alerts.yaml");
    let file = Value::deserialize(serde_norway::Deserializer::from_str(&text)).unwrap();
    let rules = rules(&file["groups"]);
    assert!(rules.len() >= 10);
    let mut alerts = BTreeSet::new();
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(alerts.insert(name), "{name} is there twice");
        check(name, rule["expr"].as_str().unwrap());
        assert!(
            rule["annotations"]["summary"].is_string() && rule["labels"]["severity"].is_string(),
            "{name}"
        );
    }
    let operator = objects("kubernetes-monitoring.yaml", "PrometheusRule");
    assert_eq!(
        operator[0]["spec"]["groups"], file["groups"],
        "both files have the same alerts"
    );
}

#[test]
fn ops_05_dashboard_names_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(&deploy_file("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut shown = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        for target in panel["targets"].as_array().unwrap() {
            let expr = target["expr"].as_str().unwrap();
            check(title, expr);
            shown.extend(names(expr));
        }
    }
    assert!(shown.len() >= 20, "{shown:?}");
}

#[test]
fn ops_05_service_monitor_finds_the_port() {
    let file = "kubernetes-monitoring.yaml";
    let (service, monitor) = (&objects(file, "Service")[0], &objects(file, "ServiceMonitor")[0]);
    let port = &service["spec"]["ports"][0];
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(
        (&endpoint["port"], &endpoint["path"]),
        (&port["name"], &Value::from("/metrics"))
    );
    assert_eq!(
        monitor["spec"]["selector"]["matchLabels"],
        service["metadata"]["labels"]
    );
    assert!(deploy_file(file).contains(&format!("--metrics=0.0.0.0:{}", port["port"])));
}

fn systemd_analyze(args: &[&str]) -> Option<(bool, String)> {
    let output = Command::new("systemd-analyze").args(args).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

/// Only where systemd is installed.
#[test]
fn systemd_accepts_the_unit_and_finds_little_exposure() {
    let unit = deploy_file("rethread.service");
    let line = |key: &str| {
        unit.lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap_or_else(|| panic!("{key}"))
    };
    assert_eq!(line("KillMode="), "mixed");
    assert_eq!(line("TimeoutStopSec="), "45s");
    assert!(
        !unit.lines().any(|line| line.starts_with("MemoryDenyWriteExecute")),
        "servers on Node need it"
    );
    if systemd_analyze(&["--version"]).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rethread.service");
    // `verify` wants programs that exist.
    std::fs::write(&path, unit.replace("/usr/bin/rethread", env!("CARGO_BIN_EXE_rethread"))).unwrap();
    let path = path.to_str().unwrap();
    let (is_valid, text) = systemd_analyze(&["verify", path]).unwrap();
    assert!(is_valid, "{text}");
    let (is_low, text) = systemd_analyze(&["security", "--offline=true", "--threshold=20", path]).unwrap();
    assert!(is_low, "{text}");
}
