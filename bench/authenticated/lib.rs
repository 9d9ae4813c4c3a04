//! Counts the instructions of the pure core with callgrind: `cargo xtask instructions`. Counts are deterministic, so a
//! change of one percent is visible.
