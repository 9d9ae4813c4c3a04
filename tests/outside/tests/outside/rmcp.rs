//! A server that is written with rmcp, and of which no line knows Rethread. Behind Rethread its clients can do all that
//! they can do behind rmcp's own transport, and what they cannot do there: lose no call to a cut or a kill, and go on
//! while somebody does not read.

mod raw;
mod streams;

use crate::clients::{CLIENT2, Client, PY1, PY2, SDK1};
use crate::conformance::conforms;
use crate::crash;
use crate::script;
use crate::server::{Everything, RMCP, RMCP_ALONE};
use std::collections::BTreeSet;

/// The same script against the same server on both transports. On ours every check passes; so each that passes on rmcp's
/// own does, which is asked by name.
async fn compare(program: &str, script: &[&str]) {
    let (ours, theirs) = (RMCP.start(), RMCP_ALONE.start());
    let checks = async |server: &Everything| script::checks(program, &[script, &[server.url()]].concat()).await;
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
async fn typescript_sdk_1_can_do_all_that_it_can_on_rmcp() {
    compare_features(&SDK1).await;
}

#[tokio::test]
async fn typescript_client_2_can_do_all_that_it_can_on_rmcp() {
    compare_features(&CLIENT2).await;
}

#[tokio::test]
async fn python_1_can_do_all_that_it_can_on_rmcp() {
    compare_features(&PY1).await;
}

#[tokio::test]
async fn python_2_can_do_all_that_it_can_on_rmcp() {
    compare_features(&PY2).await;
}

#[tokio::test]
async fn typescript_client_2_can_do_all_that_it_can_on_rmcp_without_sessions() {
    compare("node", &["ts/modern.mjs"]).await;
}

#[tokio::test]
async fn python_2_can_do_all_that_it_can_on_rmcp_without_sessions() {
    compare("py2/bin/python", &["py/modern.py"]).await;
}

/// The transport of 2024-11-05, which rmcp has no longer.
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
        SDK1.survives_cuts_on(&server),
        CLIENT2.survives_cuts_on(&server),
        PY1.survives_cuts_on(&server),
        PY2.survives_cuts_on(&server)
    );
}

/// As the example does it, with fewer kills: what is new here is that the server is made anew from the stored session.
#[tokio::test]
async fn rst_03_clients_lose_nothing_to_kills() {
    let run = crash::Run {
        name: "rmcp",
        program: &RMCP,
        kills: 10,
        clients: &[crash::SDK1, crash::CLIENT2, crash::PY1, crash::PY2],
        retry_ms: "1000",
        life: 1_300..2_000,
    };
    run.survives_kills().await;
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
