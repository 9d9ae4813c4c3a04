//! The gateway in front of stdio servers: the example, the npm package `@modelcontextprotocol/server-everything`, and
//! servers of the official Python package, 1.x and 2.x. Each session has its own server process, so clients run
//! concurrently without affecting each other.

pub(crate) mod kills;
mod oauth;
mod observation;
mod powershell;
pub(crate) mod process;

use crate::official_clients::{CLIENTS, assert_enough_cuts, cutting_proxy, seed};
use crate::script;
use process::{CommandLine, FROM_NPM, Gateway, PYTHON_1, PYTHON_2};
use std::net::SocketAddr;

/// Minimum number of cuts of all clients together for a meaningful run.
const MIN_CUTS: usize = 100;

/// Calls per client.
const CALLS: &str = "40";

/// Runs four scripts concurrently, each given as program and arguments.
pub(crate) async fn run_concurrently(runs: [(&str, Vec<&str>); 4]) {
    let [a, b, c, d] = runs
        .each_ref()
        .map(|(program, arguments)| script::run(program, arguments));
    tokio::join!(a, b, c, d);
}

async fn conforms(revision: &str) {
    let gateway = Gateway::for_example();
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
    let gateway = Gateway::for_example();
    let url = gateway.url();
    run_concurrently(CLIENTS.map(|client| (client.program, [client.features, &[&url, "--gateway"]].concat()))).await;
}

#[tokio::test]
async fn all_clients_use_the_transport_of_2024_11_05() {
    let gateway = Gateway::for_example();
    let url = gateway.old_url();
    run_concurrently([
        ("node", vec!["ts/old.mjs", "sse", &url, "sdk1"]),
        ("node", vec!["ts/old.mjs", "sse", &url, "client2"]),
        ("py1/bin/python", vec!["py/old.py", "sse", &url]),
        ("py2/bin/python", vec!["py/old.py", "sse", &url]),
    ])
    .await;
}

/// One after the other: stateless clients of one caller share a server process, and the scripts count its changes.
#[tokio::test]
async fn clients_use_the_stateless_revision() {
    let gateway = Gateway::for_example();
    script::run("node", &["ts/modern.mjs", &gateway.url()]).await;
    script::run("py2/bin/python", &["py/modern.py", &gateway.url()]).await;
}

/// Tools, progress, sampling, elicitation, roots, logging, resources, subscriptions and completion on both transports.
async fn serves_all_clients(server: CommandLine) {
    let gateway = Gateway::for_server(server);
    for url in [gateway.url(), gateway.old_url()] {
        run_concurrently(CLIENTS.map(|client| (client.program, [client.behind_gateway, &[&url]].concat()))).await;
    }
}

#[tokio::test]
async fn npm_server_serves_all_clients() {
    serves_all_clients(FROM_NPM).await;
}

#[tokio::test]
async fn python_1_server_serves_all_clients() {
    serves_all_clients(PYTHON_1).await;
}

#[tokio::test]
async fn python_2_server_serves_all_clients() {
    serves_all_clients(PYTHON_2).await;
}

pub(crate) async fn loses_nothing_to_cuts(server: CommandLine) {
    let gateway = Gateway::for_server(server);
    assert_cuts_lose_nothing(gateway.addr()).await;
}

/// Runs all clients behind a proxy that cuts their connections to a server.
pub(crate) async fn assert_cuts_lose_nothing(server: SocketAddr) {
    let seed = seed();
    let proxy = cutting_proxy(server, seed).await;
    let (url, seed) = (format!("{}/mcp", proxy.url()), seed.to_string());
    run_concurrently(CLIENTS.map(|client| {
        let arguments = [client.behind_gateway, &[&url, CALLS, &seed]].concat();
        (client.program, arguments)
    }))
    .await;
    assert_enough_cuts(proxy, MIN_CUTS).await;
}

#[tokio::test]
async fn clients_of_an_npm_server_lose_nothing_to_cuts() {
    loses_nothing_to_cuts(FROM_NPM).await;
}

#[tokio::test]
async fn clients_of_a_python_server_lose_nothing_to_cuts() {
    loses_nothing_to_cuts(PYTHON_1).await;
}

#[tokio::test]
async fn clients_of_an_npm_server_lose_nothing_to_kills() {
    kills::assert_kills_lose_nothing("npm", FROM_NPM, &CLIENTS).await;
}

#[tokio::test]
async fn clients_of_a_python_server_lose_nothing_to_kills() {
    kills::assert_kills_lose_nothing("python", PYTHON_1, &CLIENTS).await;
}
