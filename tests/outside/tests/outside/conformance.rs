//! The official conformance suite, once per revision.

use crate::script;
use crate::server::{EXAMPLE, Program, ServerProcess};

pub(crate) async fn conforms(program: &'static Program, revision: &str) {
    let server = program.start();
    let results = format!("conformance-{}-{revision}", program.name());
    script::run("node", &["ts/conformance.mjs", server.url(), revision, &results]).await;
}

#[tokio::test]
async fn conforms_to_2025_03_26() {
    conforms(&EXAMPLE, "2025-03-26").await;
}

#[tokio::test]
async fn conforms_to_2025_06_18() {
    conforms(&EXAMPLE, "2025-06-18").await;
}

#[tokio::test]
async fn conforms_to_2025_11_25() {
    conforms(&EXAMPLE, "2025-11-25").await;
}

#[tokio::test]
async fn conforms_to_2026_07_28() {
    conforms(&EXAMPLE, "2026-07-28").await;
}

/// Also a process that has already served other revisions must conform.
#[tokio::test]
async fn one_process_conforms_to_every_revision() {
    let server = ServerProcess::start();
    for revision in ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2026-07-28"] {
        let results = format!("conformance-all-{revision}");
        script::run("node", &["ts/conformance.mjs", server.url(), revision, &results]).await;
    }
}
