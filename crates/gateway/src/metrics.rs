//! The metrics of the program: the recorder, the names that only the gateway has, and `/metrics`.
//!
//! The library names the metrics of each server (`node::telemetry`). Gauges are computed when somebody asks for them.

use crate::gateway::Gateway;
use crate::task;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::time::Duration;

/// The buckets of all durations, in seconds (OPS-05).
const BUCKETS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];
/// The buckets of counts of events.
const COUNT_BUCKETS: [f64; 8] = [1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0];
/// How often the recorder moves samples to their buckets. Between two scrapes they would otherwise fill the memory.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The text format that [`Metrics::render`] writes.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The recorder of this process.
#[derive(Clone)]
pub(crate) struct Metrics(PrometheusHandle);

impl Metrics {
    /// Installs the recorder. Servers that are opened before report nothing, so this comes first.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let builder = PrometheusBuilder::new()
            .set_buckets(&BUCKETS)?
            .set_buckets_for_metric(Matcher::Suffix("_events".to_owned()), &COUNT_BUCKETS)?;
        let handle = builder.install_recorder()?;
        let upkeep = handle.clone();
        task::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP_INTERVAL).await;
                upkeep.run_upkeep();
            }
        });
        describe();
        Ok(Metrics(handle))
    }

    /// All metrics of this moment.
    pub(crate) fn render(&self, gateway: &Gateway) -> String {
        record_gauges(gateway);
        self.0.render()
    }
}

/// How a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildExit {
    /// The gateway has stopped it, and it ended in time.
    Asked,
    /// It ended by itself.
    Crashed,
    /// The gateway had to kill it.
    Killed,
}

impl ChildExit {
    const ALL: [ChildExit; 3] = [ChildExit::Asked, ChildExit::Crashed, ChildExit::Killed];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ChildExit::Asked => "asked",
            ChildExit::Crashed => "crashed",
            ChildExit::Killed => "killed",
        }
    }
}

/// Why the child of a session was stopped while the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HibernationCause {
    Idle,
    MaxChildren,
}

impl HibernationCause {
    const ALL: [HibernationCause; 2] = [HibernationCause::Idle, HibernationCause::MaxChildren];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            HibernationCause::Idle => "idle",
            HibernationCause::MaxChildren => "max_children",
        }
    }
}

/// The children of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChildCounts {
    /// Processes.
    pub(crate) running: usize,
    /// Sessions and stateless callers that have, or would have, a child of their own.
    pub(crate) needed: usize,
    /// Processes that wait for a session.
    pub(crate) spare: usize,
    /// Sessions whose child was stopped and starts again with the next call.
    pub(crate) hibernated: usize,
}

pub(crate) fn child_started(server: &str) {
    metrics::counter!("rethread_children_starts_total", "server" => server.to_owned()).increment(1);
}

/// A child has answered its first request.
pub(crate) fn child_ready(server: &str, took: Duration) {
    metrics::histogram!("rethread_child_start_duration_seconds", "server" => server.to_owned())
        .record(took.as_secs_f64());
}

/// A session got no child: `max_children` are running.
pub(crate) fn child_refused(server: &str) {
    metrics::counter!("rethread_children_refused_total", "server" => server.to_owned()).increment(1);
}

pub(crate) fn child_exited(server: &str, how: ChildExit) {
    metrics::counter!("rethread_children_exits_total", "server" => server.to_owned(), "how" => how.as_str())
        .increment(1);
}

pub(crate) fn child_hibernated(server: &str, cause: HibernationCause) {
    metrics::counter!("rethread_children_hibernated_total", "server" => server.to_owned(), "cause" => cause.as_str())
        .increment(1);
}

pub(crate) fn config_reloaded(is_ok: bool) {
    let outcome = if is_ok { "ok" } else { "failed" };
    metrics::counter!("rethread_config_reloads_total", "outcome" => outcome).increment(1);
}

/// A line of the audit log was dropped.
pub(crate) fn audit_dropped() {
    metrics::counter!("rethread_audit_dropped_total").increment(1);
}

/// The metrics of a server that exist before anything has happened.
pub(crate) fn register_server(server: &str) {
    let name = || server.to_owned();
    metrics::counter!("rethread_children_starts_total", "server" => name()).increment(0);
    metrics::counter!("rethread_children_refused_total", "server" => name()).increment(0);
    let _ = metrics::histogram!("rethread_child_start_duration_seconds", "server" => name());
    for how in ChildExit::ALL {
        metrics::counter!("rethread_children_exits_total", "server" => name(), "how" => how.as_str()).increment(0);
    }
    for cause in HibernationCause::ALL {
        metrics::counter!("rethread_children_hibernated_total", "server" => name(), "cause" => cause.as_str())
            .increment(0);
    }
}

fn record_gauges(gateway: &Gateway) {
    for mount in gateway.mounts() {
        mount.mcp.record_gauges();
        let name = || mount.server.name.clone();
        let counts = mount.child_counts();
        metrics::gauge!("rethread_children_running", "server" => name()).set(counts.running as f64);
        metrics::gauge!("rethread_children_needed", "server" => name()).set(counts.needed as f64);
        metrics::gauge!("rethread_children_spare", "server" => name()).set(counts.spare as f64);
        metrics::gauge!("rethread_sessions_hibernated", "server" => name()).set(counts.hibernated as f64);
    }
    gateway.record_key_gauges();
}

/// Describes a metric by its name and text.
type Describe = fn(&'static str, &'static str);

/// The texts of the metrics that only the gateway has.
const HELP: &[(&str, Describe, &str)] = &[
    (
        "rethread_audit_dropped_total",
        counter,
        "Lines of the audit log that were dropped",
    ),
    ("rethread_build_info", gauge, "The version of the program"),
    (
        "rethread_child_start_duration_seconds",
        histogram,
        "Time from the start of a child until it has answered",
    ),
    ("rethread_children_exits_total", counter, "Children that ended"),
    (
        "rethread_children_hibernated_total",
        counter,
        "Children that were stopped while their session goes on",
    ),
    (
        "rethread_children_needed",
        gauge,
        "Sessions and callers that have or would have a child",
    ),
    (
        "rethread_children_refused_total",
        counter,
        "Children that were not started because of the limit",
    ),
    ("rethread_children_running", gauge, "Children that run"),
    ("rethread_children_spare", gauge, "Children that wait for a session"),
    ("rethread_children_starts_total", counter, "Children that were started"),
    ("rethread_config_reloads_total", counter, "Reloads of the configuration"),
    ("rethread_jwks_age_seconds", gauge, "Age of the keys of an issuer"),
    (
        "rethread_jwks_fetches_total",
        counter,
        "Fetches of the keys of an issuer",
    ),
    ("rethread_jwks_keys", gauge, "Keys of an issuer"),
    (
        "rethread_sessions_hibernated",
        gauge,
        "Sessions whose child starts again with the next call",
    ),
    ("rethread_tls_reloads_total", counter, "Reloads of the certificate"),
];

fn counter(name: &'static str, text: &'static str) {
    metrics::describe_counter!(name, text);
}

fn gauge(name: &'static str, text: &'static str) {
    metrics::describe_gauge!(name, text);
}

fn histogram(name: &'static str, text: &'static str) {
    metrics::describe_histogram!(name, text);
}

fn describe() {
    for (name, describe, text) in HELP {
        describe(name, text);
    }
    metrics::gauge!("rethread_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    metrics::counter!("rethread_audit_dropped_total").increment(0);
    for outcome in ["ok", "failed"] {
        metrics::counter!("rethread_config_reloads_total", "outcome" => outcome).increment(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// OPS-05: a metric without a text has no HELP line. `rethread_auth_total` is the library's.
    #[test]
    fn ops_05_every_metric_of_the_gateway_has_a_text() {
        let own = include_str!("metrics.rs").split("#[cfg(test)]").next().unwrap();
        let sources = [own, include_str!("auth/metrics.rs"), include_str!("tls.rs")];
        let used = sources.into_iter().flat_map(|source| {
            ["counter", "gauge", "histogram"].into_iter().flat_map(move |kind| {
                let start = format!("metrics::{kind}!(\"");
                let uses = source.split(&start).skip(1).map(|rest| rest.split('"').next().unwrap());
                uses.map(str::to_owned).collect::<Vec<_>>()
            })
        });
        let used: BTreeSet<_> = used.filter(|name| name != "rethread_auth_total").collect();
        let described: BTreeSet<_> = HELP.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(used, described);
    }
}
