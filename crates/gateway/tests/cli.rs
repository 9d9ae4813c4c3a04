//! The program as a person meets it: its help, its errors, its exit codes.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

#[path = "cli/checking.rs"]
mod checking;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/run.rs"]
mod run;
#[path = "cli/tour.rs"]
mod tour;
