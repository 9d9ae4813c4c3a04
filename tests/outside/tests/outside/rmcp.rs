//! An rmcp server without any Rethread code. Behind Rethread, clients pass every check that they pass on rmcp's own
//! transport. They also lose no call to a cut or a kill, and a client that does not read blocks no other.

mod raw;
mod streams;

use crate::conformance::conforms;
use crate::crash;
use crate::official_clients::{CLIENT2, CLIENTS, Client, PY1, PY2, SDK1};
use crate::script;
use crate::server::{RMCP, RMCP_ALONE, ServerProcess};
use std::collections::BTreeSet;

/// Runs one script against the same server on both transports. Behind Rethread all checks must pass, including by name
/// every check that passes on rmcp's own transport.
async fn compare(program: &str, script: &[&str]) {
    let (ours, theirs) = (RMCP.start(), RMCP_ALONE.start());
    let checks = async |server: &ServerProcess| script::checks(program, &[script, &[server.url()]].concat()).await;
    let (ours, theirs) = tokio::join!(checks(&ours), checks(&theirs));
    println!(
        "{}: {} of {} checks pass on Rethread, {} of {} on rmcp's own transport",
        script.join(" "),
        ours.passed.len(),
        ours.passed.len() + ours.failed.len(),
        theirs.passed.len(),
        theirs.passed.len() + theirs.failed.len()
    );
    assert!(
        !theirs.passed.is_empty(),
        "nothing to compare with: {:?}",
        theirs.failed
    );
    let lost: BTreeSet<_> = theirs.passed.difference(&ours.passed).collect();
    assert!(
        lost.is_empty(),
        "pass on rmcp's own transport only: {lost:?}\n{:?}",
        ours.failed
    );
    assert!(ours.failed.is_empty(), "{:?}", ours.failed);
}

async fn compare_features(client: &Client) {
    compare(client.program, client.features).await;
}

#[tokio::test]
async fn typescript_sdk_1_passes_the_same_checks_as_on_rmcp() {
    compare_features(&SDK1).await;
}

#[tokio::test]
async fn typescript_client_2_passes_the_same_checks_as_on_rmcp() {
    compare_features(&CLIENT2).await;
}

#[tokio::test]
async fn python_1_passes_the_same_checks_as_on_rmcp() {
    compare_features(&PY1).await;
}

#[tokio::test]
async fn python_2_passes_the_same_checks_as_on_rmcp() {
    compare_features(&PY2).await;
}

#[tokio::test]
async fn typescript_client_2_passes_the_same_stateless_checks_as_on_rmcp() {
    compare("node", &["ts/modern.mjs"]).await;
}

#[tokio::test]
async fn python_2_passes_the_same_stateless_checks_as_on_rmcp() {
    compare("py2/bin/python", &["py/modern.py"]).await;
}

/// rmcp no longer has this transport.
#[tokio::test]
async fn clients_use_the_transport_of_2024_11_05() {
    let server = RMCP.start();
    let url = format!("{}/sse", server.base_url());
    script::run("node", &["ts/old.mjs", "sse", &url, "sdk1"]).await;
    script::run("py1/bin/python", &["py/old.py", "sse", &url]).await;
}

#[tokio::test]
async fn clients_lose_nothing_to_cuts() {
    let server = RMCP.start();
    tokio::join!(
        SDK1.assert_cuts_lose_nothing_on(&server),
        CLIENT2.assert_cuts_lose_nothing_on(&server),
        PY1.assert_cuts_lose_nothing_on(&server),
        PY2.assert_cuts_lose_nothing_on(&server)
    );
}

/// Like the example, with fewer kills. Here a restored session gets a new rmcp server.
#[tokio::test]
async fn rst_03_clients_lose_nothing_to_kills() {
    let run = crash::CrashRun {
        name: "rmcp",
        program: &RMCP,
        kills: 10,
        clients: &CLIENTS,
        retry_ms: "1000",
        life: 1_300..2_000,
    };
    run.assert_nothing_lost().await;
}

#[tokio::test]
async fn conforms_to_2025_03_26() {
    conforms(&RMCP, "2025-03-26").await;
}

#[tokio::test]
async fn conforms_to_2025_06_18() {
    conforms(&RMCP, "2025-06-18").await;
}

#[tokio::test]
async fn conforms_to_2025_11_25() {
    conforms(&RMCP, "2025-11-25").await;
}

#[tokio::test]
async fn conforms_to_2026_07_28() {
    conforms(&RMCP, "2026-07-28").await;
}
