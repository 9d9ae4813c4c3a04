//! Runs the commands in the header of each example and compares their output with the header.
#![cfg(unix)]

use rethread_testkit::walkthrough;
use std::path::Path;

#[test]
fn rmcp_macros() {
    walkthrough::run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/rmcp_macros.rs"));
}
