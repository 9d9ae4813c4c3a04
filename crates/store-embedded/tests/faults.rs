//! Fault injection for the embedded store: SIGKILL, power cuts, damaged files and full disks.
//!
//! Every test prints its seed. `FAULTS_SEED=<seed>` repeats a run.

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
#[path = "faults/rng.rs"]
mod rng;
#[path = "faults/support.rs"]
mod support;
#[path = "faults/torn.rs"]
mod torn;
