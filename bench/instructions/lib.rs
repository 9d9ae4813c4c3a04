//! Instructions that the pure core needs, counted by callgrind: `cargo xtask instructions`. The figures are the same on every
//! run, so that a change of a hundredth shows.
