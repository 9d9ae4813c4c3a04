//! Every example does what its header says: the commands in it are run as they are written, and what they print is compared
//! with what one should see.
#![cfg(unix)]

use rethread_testkit::walkthrough::follow;
use std::path::Path;

#[test]
fn rmcp_macros() {
    follow(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/rmcp_macros.rs"));
}
