//! The conformance suite of one era through the gateway, in front of a server that is spoken to in the other era.

use crate::gateway::process::Gateway;
use crate::script;

const OWN_KEY: &str =
    "the scenario needs the key of the question that the server chose, and a request of a session has none";

/// Scenarios that no bridge can pass, each with its reason.
const EXCEPTIONS_UP: &[(&str, &str)] = &[
    (
        "server-stateless",
        "a server with sessions has no -32021: the error of a tool that lacks a capability is its own",
    ),
    ("input-required-result-basic-elicitation", OWN_KEY),
    ("input-required-result-ignore-extra-params", OWN_KEY),
];
const EXCEPTIONS_DOWN: &[(&str, &str)] = &[];

/// Scenarios leave parked calls behind, and each of them keeps its process.
const LEASE_CHILDREN: [&str; 2] = ["--lease-children", "24"];

async fn conforms(revision: &str, era: &str, exceptions: &[(&str, &str)]) {
    let gateway = Gateway::for_example_with(&[&["--era", era], &LEASE_CHILDREN[..]].concat());
    let results = format!("conformance-bridge-{revision}");
    let url = gateway.url();
    let exceptions: Vec<String> = exceptions
        .iter()
        .map(|(scenario, reason)| format!("--except={scenario}={reason}"))
        .collect();
    let exceptions: Vec<&str> = exceptions.iter().map(String::as_str).collect();
    let arguments = [&["ts/conformance.mjs", &*url, revision, &*results], &exceptions[..]].concat();
    script::run("node", &arguments).await;
}

#[tokio::test]
async fn server_with_sessions_conforms_to_2026_07_28() {
    conforms("2026-07-28", "legacy", EXCEPTIONS_UP).await;
}

#[tokio::test]
async fn stateless_server_conforms_to_2025_11_25() {
    conforms("2025-11-25", "modern", EXCEPTIONS_DOWN).await;
}
