//! The official clients and the conformance suite through the balancer, with cut connections.

use super::cluster::Cluster;
use crate::official_clients::{CLIENT2, Client, PY1, PY2, SDK1, assert_enough_cuts, cutting_proxy, seed};
use crate::script;
use crate::server::ServerProcess;

/// Minimum number of cuts for a meaningful run.
const MIN_CUTS: usize = 50;

/// Calls per run. Most are cut several times.
const CALLS: &str = "60";

async fn assert_conforms(revision: &str) {
    let Some(cluster) = Cluster::start().await else { return };
    let results = format!("conformance-nodes-{revision}");
    script::run("node", &["ts/conformance.mjs", &cluster.url(), revision, &results]).await;
}

async fn assert_every_feature(client: &Client) {
    let Some(cluster) = Cluster::start().await else { return };
    script::run(client.program, &[client.features, &[&cluster.url()]].concat()).await;
}

async fn assert_stateless_revision(program: &str, script: &str) {
    let Some(cluster) = Cluster::start().await else { return };
    let nodes: Vec<_> = cluster.nodes.iter().flatten().map(ServerProcess::url).collect();
    script::run_on_nodes(program, &[script, &cluster.url()], &nodes).await;
}

async fn assert_cuts_lose_nothing(client: &Client) {
    let Some(cluster) = Cluster::start().await else { return };
    let seed = seed();
    let proxy = cutting_proxy(cluster.balancer.address(), seed).await;
    let (url, seed) = (format!("{}/mcp", proxy.url()), seed.to_string());
    script::run(client.program, &[client.cuts, &[&url, CALLS, &seed]].concat()).await;
    assert_enough_cuts(proxy, MIN_CUTS).await;
}

#[tokio::test]
async fn three_nodes_conform_to_2025_03_26() {
    assert_conforms("2025-03-26").await;
}

#[tokio::test]
async fn three_nodes_conform_to_2025_06_18() {
    assert_conforms("2025-06-18").await;
}

#[tokio::test]
async fn three_nodes_conform_to_2025_11_25() {
    assert_conforms("2025-11-25").await;
}

#[tokio::test]
async fn three_nodes_conform_to_2026_07_28() {
    assert_conforms("2026-07-28").await;
}

#[tokio::test]
async fn typescript_sdk_1_uses_every_feature_of_three_nodes() {
    assert_every_feature(&SDK1).await;
}

#[tokio::test]
async fn typescript_client_2_uses_every_feature_of_three_nodes() {
    assert_every_feature(&CLIENT2).await;
}

#[tokio::test]
async fn python_1_uses_every_feature_of_three_nodes() {
    assert_every_feature(&PY1).await;
}

#[tokio::test]
async fn python_2_uses_every_feature_of_three_nodes() {
    assert_every_feature(&PY2).await;
}

#[tokio::test]
async fn typescript_sdk_1_loses_nothing_to_cuts_in_front_of_three_nodes() {
    assert_cuts_lose_nothing(&SDK1).await;
}

#[tokio::test]
async fn typescript_client_2_loses_nothing_to_cuts_in_front_of_three_nodes() {
    assert_cuts_lose_nothing(&CLIENT2).await;
}

#[tokio::test]
async fn python_1_loses_nothing_to_cuts_in_front_of_three_nodes() {
    assert_cuts_lose_nothing(&PY1).await;
}

#[tokio::test]
async fn python_2_loses_nothing_to_cuts_in_front_of_three_nodes() {
    assert_cuts_lose_nothing(&PY2).await;
}

#[tokio::test]
async fn typescript_client_2_uses_the_stateless_revision_of_three_nodes() {
    assert_stateless_revision("node", "ts/modern.mjs").await;
}

#[tokio::test]
async fn python_2_uses_the_stateless_revision_of_three_nodes() {
    assert_stateless_revision("py2/bin/python", "py/modern.py").await;
}
