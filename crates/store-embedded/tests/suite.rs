//! The suite that every backend passes, over a directory on the disk.

mod common;

use common::Embedded;
use rethread_store_embedded::Sync;

rethread_testkit::store_suite!(Embedded::with(Sync::default()));

/// The suite once more, with every append on the disk before it is acknowledged.
mod always {
    use super::*;

    rethread_testkit::store_suite!(Embedded::with(Sync::Always));
}
