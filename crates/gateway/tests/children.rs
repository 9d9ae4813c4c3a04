//! The gateway with real child processes.
//!
//! Needs Linux (`/proc`) and python3. Each test starts its own gateway, and finds its processes by a marker.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

#[path = "children/admin.rs"]
mod admin;
#[path = "children/admin_actions.rs"]
mod admin_actions;
#[path = "children/admin_page.rs"]
mod admin_page;
#[path = "children/answer_rows.rs"]
mod answer_rows;
#[path = "children/answer_table.rs"]
mod answer_table;
#[path = "children/audit.rs"]
mod audit;
#[path = "children/auth.rs"]
mod auth;
#[path = "children/bridge.rs"]
mod bridge;
#[path = "children/client.rs"]
mod client;
#[path = "children/connections.rs"]
mod connections;
#[path = "children/crash.rs"]
mod crash;
#[path = "children/drain.rs"]
mod drain;
#[path = "children/eras.rs"]
mod eras;
#[path = "children/gateway.rs"]
#[allow(dead_code)] // the tests with several nodes use the rest
mod gateway;
#[path = "children/hibernation.rs"]
mod hibernation;
#[path = "children/hosts.rs"]
mod hosts;
#[path = "children/ids.rs"]
mod ids;
#[path = "children/issuer_outages.rs"]
mod issuer_outages;
#[path = "children/jwt.rs"]
mod jwt;
#[path = "children/landing.rs"]
mod landing;
#[path = "children/limits.rs"]
mod limits;
#[path = "children/lines.rs"]
mod lines;
#[path = "children/metric_table.rs"]
mod metric_table;
#[path = "children/monitoring.rs"]
mod monitoring;
#[path = "children/operations.rs"]
mod operations;
#[path = "children/principal_limits.rs"]
mod principal_limits;
#[path = "children/reload.rs"]
mod reload;
#[path = "children/restart.rs"]
mod restart;
#[path = "children/secrets.rs"]
mod secrets;
#[path = "children/shared.rs"]
mod shared;
#[path = "children/shutdown.rs"]
mod shutdown;
#[path = "children/tape.rs"]
mod tape;
#[path = "children/tls.rs"]
mod tls;
#[path = "children/traces.rs"]
mod traces;
