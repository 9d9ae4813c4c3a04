//! Several gateways with one store behind a load balancer without session affinity.
//!
//! Needs Linux (`/proc`), python3 and redis-server. Each test starts its own gateways and its own store.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

#[path = "nodes/auth.rs"]
mod auth;
#[path = "children/client.rs"]
#[allow(dead_code)] // other tests use the rest
mod client;
#[path = "nodes/cluster.rs"]
mod cluster;
#[path = "nodes/death.rs"]
mod death;
#[path = "children/gateway.rs"]
#[allow(dead_code)] // other tests use the rest
mod gateway;
#[path = "nodes/restart.rs"]
mod restart;
#[path = "nodes/routing.rs"]
mod routing;
#[path = "nodes/stateless.rs"]
mod stateless;
#[path = "nodes/store.rs"]
mod store;
