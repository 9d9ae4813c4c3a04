//! Runs the store suite on the embedded store.

mod common;

use common::Embedded;
use rethread_store_embedded::Sync;

rethread_testkit::store_suite!(Embedded::with(Sync::default()));

/// The suite with a sync before every acknowledgement.
mod always {
    use super::*;

    rethread_testkit::store_suite!(Embedded::with(Sync::Always));
}
