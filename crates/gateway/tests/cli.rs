//! The program on the command line: help, errors, exit codes.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

#[path = "cli/check.rs"]
mod check;
#[path = "cli/client_files.rs"]
mod client_files;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/program.rs"]
mod program;
#[path = "cli/running_gateway.rs"]
mod running_gateway;
#[path = "cli/story.rs"]
mod story;
#[path = "cli/tour.rs"]
mod tour;
