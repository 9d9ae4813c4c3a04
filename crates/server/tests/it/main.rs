//! The service from outside, without a socket where none is needed. One binary, one module per subject.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod arguments;
mod bursts;
mod calls;
mod clock_steps;
mod delivery;
mod gaps;
mod guide;
mod hostile;
mod http_sse;
mod isolation;
mod late;
mod lifecycle;
mod lines;
mod modern;
mod mrtr;
mod opening;
mod oracle;
mod push;
mod questions;
mod races;
mod restart;
mod sessions;
mod subscriptions;
mod support;
mod transcripts;
