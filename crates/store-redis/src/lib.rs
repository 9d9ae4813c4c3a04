//! The store of Rethread on Redis or Valkey. Several nodes behind a load balancer share sessions and streams: any node
//! serves any request.
//!
//! ```no_run
//! # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
//! use rethread_store_redis::{RedisCluster, RedisOptions};
//!
//! let cluster = RedisCluster::connect(RedisOptions::parse("redis://localhost:6379")?).await?;
//! println!("{}", cluster.promises());
//! let store = cluster.store("example").await?;
//! # drop(store); Ok(())
//! # }
//! ```
//!
//! Every change is one script, which the server runs atomically. `src/scripts` has one file per script. A script checks
//! everything first and writes last.

mod broadcasts;
mod cluster;
mod cluster_store;
mod coding;
mod connection;
mod error;
mod events;
mod keys;
mod link;
mod mailbox;
mod members;
mod options;
mod promises;
mod push;
mod reply;
mod scripts;
mod sessions;
mod store;
mod streams;
mod subscriber;
mod views;
mod watches;

pub use cluster::RedisCluster;
pub use error::ConnectError;
pub use options::{RedisOptions, RedisUrl};
pub use promises::{Persistence, Promises};
pub use store::RedisStore;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
