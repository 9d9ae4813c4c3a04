//! The gateway and its child processes: a real program, real children, and whatever they do to each other.
//!
//! Needs Linux (`/proc`) and python3. Each test has a gateway of its own, and finds its processes by a marker.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

#[path = "children/client.rs"]
mod client;
#[path = "children/connections.rs"]
mod connections;
#[path = "children/death.rs"]
mod death;
#[path = "children/ending.rs"]
mod ending;
#[path = "children/eras.rs"]
mod eras;
#[path = "children/gateway.rs"]
mod gateway;
#[path = "children/ids.rs"]
mod ids;
#[path = "children/limits.rs"]
mod limits;
#[path = "children/lines.rs"]
mod lines;
#[path = "children/operating.rs"]
mod operating;
#[path = "children/reload.rs"]
mod reload;
#[path = "children/restart.rs"]
mod restart;
#[path = "children/running.rs"]
mod running;
#[path = "children/shared.rs"]
mod shared;
