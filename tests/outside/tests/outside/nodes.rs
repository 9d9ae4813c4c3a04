//! Several processes on one Redis behind a balancer without session affinity: any of them serves any request, and the death
//! of any of them is the same for clients as a broken connection.

pub(crate) mod cluster;
mod deaths;
mod every_request;
mod gateways;
mod idle_readers;
mod isolation;
mod modern_requests;
mod official;
mod outages;
mod push;
