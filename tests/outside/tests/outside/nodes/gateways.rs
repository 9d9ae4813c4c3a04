//! Three gateways behind the balancer, with the example on stdio behind each: the official clients and the conformance
//! suite. A session belongs to the gateway that has its child process, and the others forward to it.

use super::cluster::Cluster;
use crate::gateway::run_concurrently;
use crate::official_clients::{CLIENTS, assert_enough_cuts, cutting_proxy, seed};
use crate::script;
use crate::server::ServerProcess;

/// Minimum number of cuts of all clients together for a meaningful run.
const MIN_CUTS: usize = 100;

/// Calls per client.
const CALLS: &str = "40";

async fn assert_conforms(revision: &str) {
    let Some(cluster) = Cluster::start_gateways().await else {
        return;
    };
    let results = format!("conformance-gateways-{revision}");
    script::run("node", &["ts/conformance.mjs", &cluster.url(), revision, &results]).await;
}

#[tokio::test]
async fn three_gateways_conform_to_2025_03_26() {
    assert_conforms("2025-03-26").await;
}

#[tokio::test]
async fn three_gateways_conform_to_2025_06_18() {
    assert_conforms("2025-06-18").await;
}

#[tokio::test]
async fn three_gateways_conform_to_2025_11_25() {
    assert_conforms("2025-11-25").await;
}

#[tokio::test]
async fn three_gateways_conform_to_2026_07_28() {
    assert_conforms("2026-07-28").await;
}

#[tokio::test]
async fn all_clients_use_every_feature_of_three_gateways() {
    let Some(cluster) = Cluster::start_gateways().await else {
        return;
    };
    let url = cluster.url();
    run_concurrently(CLIENTS.map(|client| (client.program, [client.features, &[&url, "--gateway"]].concat()))).await;
}

#[tokio::test]
async fn all_clients_lose_nothing_to_cuts_in_front_of_three_gateways() {
    let Some(cluster) = Cluster::start_gateways().await else {
        return;
    };
    let seed = seed();
    let proxy = cutting_proxy(cluster.balancer.address(), seed).await;
    let (url, seed) = (format!("{}/mcp", proxy.url()), seed.to_string());
    run_concurrently(CLIENTS.map(|client| (client.program, [client.cuts, &[&url, CALLS, &seed]].concat()))).await;
    assert_enough_cuts(proxy, MIN_CUTS).await;
}

/// One after the other: stateless clients of one caller share a server process, and the scripts count its changes.
#[tokio::test]
async fn clients_use_the_stateless_revision_of_three_gateways() {
    let Some(cluster) = Cluster::start_gateways().await else {
        return;
    };
    let nodes: Vec<_> = cluster.nodes.iter().flatten().map(ServerProcess::url).collect();
    for (program, script) in [("node", "ts/modern.mjs"), ("py2/bin/python", "py/modern.py")] {
        script::run_on_nodes(program, &[script, &cluster.url()], &nodes).await;
    }
}
