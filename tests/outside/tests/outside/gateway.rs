//! The gateway as a user runs it, with servers on stdin and stdout behind it: the example, the npm package
//! `@modelcontextprotocol/server-everything`, and a server of the official Python package in both its lines. Each session
//! has a server process of its own, so that clients run at the same time and do not disturb each other.

mod kills;
mod process;

use crate::script;
use process::{FROM_NPM, Gateway, PYTHON_1, PYTHON_2, Words};
use rethread_testkit::proxy::{BreakingProxy, CutPlan, CutStyle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many connections must have been cut, by all clients together, for a run to mean something.
const CUTS: usize = 100;

/// Enough calls for that, from each client.
const CALLS: &str = "40";

/// An official client: the program that runs it, and what its scripts want to hear before the URL.
#[derive(Clone, Copy)]
struct Client {
    program: &'static str,
    features: &'static [&'static str],
    behind: &'static [&'static str],
    crash: &'static [&'static str],
}

const SDK1: Client = Client {
    program: "node",
    features: &["ts/features.mjs", "sdk1"],
    behind: &["ts/behind.mjs", "sdk1"],
    crash: &["ts/crash.mjs", "sdk1"],
};
const CLIENT2: Client = Client {
    program: "node",
    features: &["ts/features.mjs", "client2"],
    behind: &["ts/behind.mjs", "client2"],
    crash: &["ts/crash.mjs", "client2"],
};
const PY1: Client = Client {
    program: "py1/bin/python",
    features: &["py/features.py"],
    behind: &["py/behind.py"],
    crash: &["py/crash.py"],
};
const PY2: Client = Client {
    program: "py2/bin/python",
    features: &["py/features.py"],
    behind: &["py/behind.py"],
    crash: &["py/crash.py"],
};
const CLIENTS: [Client; 4] = [SDK1, CLIENT2, PY1, PY2];

/// Four scripts at the same time: the program of each, and its arguments.
async fn at_once(runs: [(&str, Vec<&str>); 4]) {
    let [a, b, c, d] = runs
        .each_ref()
        .map(|(program, arguments)| script::run(program, arguments));
    tokio::join!(a, b, c, d);
}

async fn conforms(revision: &str) {
    let gateway = Gateway::before_example();
    let results = format!("conformance-gateway-{revision}");
    script::run("node", &["ts/conformance.mjs", &gateway.url(), revision, &results]).await;
}

#[tokio::test]
async fn conforms_to_2025_03_26() {
    conforms("2025-03-26").await;
}

#[tokio::test]
async fn conforms_to_2025_06_18() {
    conforms("2025-06-18").await;
}

#[tokio::test]
async fn conforms_to_2025_11_25() {
    conforms("2025-11-25").await;
}

#[tokio::test]
async fn conforms_to_2026_07_28() {
    conforms("2026-07-28").await;
}

#[tokio::test]
async fn all_clients_use_every_feature() {
    let gateway = Gateway::before_example();
    let url = gateway.url();
    at_once(CLIENTS.map(|client| (client.program, [client.features, &[&url, "--gateway"]].concat()))).await;
}

#[tokio::test]
async fn all_clients_use_the_transport_of_2024_11_05() {
    let gateway = Gateway::before_example();
    let url = gateway.old_url();
    at_once([
        ("node", vec!["ts/old.mjs", "sse", &url, "sdk1"]),
        ("node", vec!["ts/old.mjs", "sse", &url, "client2"]),
        ("py1/bin/python", vec!["py/old.py", "sse", &url]),
        ("py2/bin/python", vec!["py/old.py", "sse", &url]),
    ])
    .await;
}

/// One after the other: stateless clients of one caller share a server process, whose changes and cancellations are counted.
#[tokio::test]
async fn clients_use_the_stateless_revision() {
    let gateway = Gateway::before_example();
    script::run("node", &["ts/modern.mjs", &gateway.url()]).await;
    script::run("py2/bin/python", &["py/modern.py", &gateway.url()]).await;
}

/// Tools, progress, sampling, elicitation, roots, logging, resources, subscriptions, completion: over both transports.
async fn serves_all_clients(server: Words) {
    let gateway = Gateway::before(server);
    for url in [gateway.url(), gateway.old_url()] {
        at_once(CLIENTS.map(|client| (client.program, [client.behind, &[&url]].concat()))).await;
    }
}

#[tokio::test]
async fn the_server_from_npm_serves_all_clients() {
    serves_all_clients(FROM_NPM).await;
}

#[tokio::test]
async fn a_python_1_server_serves_all_clients() {
    serves_all_clients(PYTHON_1).await;
}

#[tokio::test]
async fn a_python_2_server_serves_all_clients() {
    serves_all_clients(PYTHON_2).await;
}

async fn loses_nothing_to_cuts(server: Words) {
    let gateway = Gateway::before(server);
    let seed = seed();
    println!("seed {seed}; RETHREAD_SEED={seed} repeats the run");
    let plan = CutPlan {
        chance: 1.0,
        max_idle: Duration::from_millis(300),
        style: CutStyle::Mixed,
        seed,
        ..CutPlan::default()
    };
    let proxy = BreakingProxy::start(gateway.addr(), plan).await.expect("a free port");
    let (url, seed) = (format!("{}/mcp", proxy.url()), seed.to_string());
    at_once(CLIENTS.map(|client| (client.program, [client.behind, &[&url, CALLS, &seed]].concat()))).await;
    println!("{} cuts", proxy.cuts());
    assert!(proxy.cuts() >= CUTS, "only {} cuts, {CUTS} are needed", proxy.cuts());
    proxy.stop().await;
}

#[tokio::test]
async fn clients_of_the_server_from_npm_lose_nothing_to_cuts() {
    loses_nothing_to_cuts(FROM_NPM).await;
}

#[tokio::test]
async fn clients_of_a_python_server_lose_nothing_to_cuts() {
    loses_nothing_to_cuts(PYTHON_1).await;
}

#[tokio::test]
async fn clients_of_the_server_from_npm_lose_nothing_to_kills() {
    kills::lose_nothing("npm", FROM_NPM, &CLIENTS).await;
}

#[tokio::test]
async fn clients_of_a_python_server_lose_nothing_to_kills() {
    kills::lose_nothing("python", PYTHON_1, &CLIENTS).await;
}

/// From the environment to repeat a run, otherwise from the clock. Small enough for every script's numbers.
fn seed() -> u64 {
    let given = std::env::var("RETHREAD_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos()) % 1_000_000
    })
}
