//! What the embedded store does when the machine fails it: killed, without power, on a disk that is damaged or full.
//!
//! Every test prints its seed; `FAULTS_SEED=<seed>` runs it again with the same one.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "faults/disk.rs"]
mod disk;
#[path = "faults/full_disk.rs"]
mod full_disk;
#[path = "faults/ledger.rs"]
mod ledger;
#[path = "faults/load.rs"]
mod load;
#[path = "faults/power_cut.rs"]
mod power_cut;
#[path = "faults/support.rs"]
mod support;
#[path = "faults/torn.rs"]
mod torn;
