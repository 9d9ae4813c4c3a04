//! The files in `docs/deploy` do what they say: nginx is run with its, and the gateway with what Kubernetes would give it.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

#[path = "deploy/gateway.rs"]
mod gateway;
#[path = "deploy/kubernetes.rs"]
mod kubernetes;
#[path = "deploy/nginx.rs"]
mod nginx;
#[path = "deploy/proxied.rs"]
mod proxied;
#[path = "deploy/stream.rs"]
mod stream;

/// A file of `docs/deploy`.
fn file(name: &str) -> String {
    let path = format!("{}/../../docs/deploy/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}
