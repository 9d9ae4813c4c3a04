//! Three gateways behind the balancer, with the example on stdio behind each: the official clients and the conformance
//! suite. A session belongs to the gateway that has its child process, and the others forward to it.

use super::cluster::Cluster;
use crate::gateway::{assert_cuts_lose_nothing, run_concurrently};
use crate::official_clients::CLIENTS;
use crate::script;

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
async fn all_clients_use_every_feature_of_three_gateways() {
    let Some(cluster) = Cluster::start_gateways().await else {
        return;
    };
    let url = cluster.url();
    run_concurrently(CLIENTS.map(|client| {
        (
            client.program,
            [client.features, &[&url, "--gateway", "--nodes"]].concat(),
        )
    }))
    .await;
}

#[tokio::test]
async fn all_clients_lose_nothing_to_cuts_in_front_of_three_gateways() {
    if let Some(cluster) = Cluster::start_npm_gateways().await {
        assert_cuts_lose_nothing(cluster.balancer.address()).await;
    }
}
