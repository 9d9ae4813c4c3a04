//! Tests the files in `docs/deploy`: nginx runs with its files, and gateways with the arguments of the Kubernetes manifests and
//! of the compose file.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

#[path = "deploy/behind_nginx.rs"]
mod behind_nginx;
#[path = "deploy/curl.rs"]
mod curl;
#[path = "deploy/gateway.rs"]
mod gateway;
#[path = "deploy/kubernetes.rs"]
mod kubernetes;
#[path = "deploy/monitoring.rs"]
mod monitoring;
#[path = "deploy/nginx.rs"]
mod nginx;
#[path = "deploy/nodes.rs"]
mod nodes;
#[path = "deploy/team.rs"]
mod team;

/// A file of `docs/deploy`.
fn deploy_file(name: &str) -> String {
    let path = format!("{}/../../docs/deploy/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}
