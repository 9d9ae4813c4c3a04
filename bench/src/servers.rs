//! The servers under test, each a process of this program: `rethread-bench server limit|ours|rmcp`.

mod limit;
mod memory_events;
mod ours;
mod rmcp;
mod socket;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Which server to be.
#[derive(Subcommand)]
pub(crate) enum Which {
    /// Bare hyper: the bytes that the others send, and nothing behind them.
    Limit,
    /// This library.
    Ours(Ours),
    /// The official Rust SDK.
    Rmcp(Rmcp),
}

/// How this library is configured.
#[derive(Args)]
pub(crate) struct Ours {
    /// Where sessions and events are kept.
    #[arg(long, value_enum, default_value_t = Store::Memory)]
    store: Store,
    /// The folder of the embedded store.
    #[arg(long, required_if_eq("store", "embedded"))]
    data: Option<PathBuf>,
    /// Makes every call a stream from its first byte, so that all of it can be resumed.
    #[arg(long)]
    streams: bool,
    /// Serves the server that is written with the official SDK, through the adapter.
    #[arg(long)]
    adapter: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    Memory,
    Embedded,
}

/// How the official SDK is configured.
#[derive(Args)]
pub(crate) struct Rmcp {
    /// Keeps no sessions and answers in JSON: the only way it does so.
    #[arg(long)]
    json: bool,
    /// Gives it an event store, in memory.
    #[arg(long)]
    store: bool,
}

/// Serves until it is killed. All run on the same runtime: tokio's usual one, with one worker, since there is one core.
pub(crate) fn run(which: &Which) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    // On the worker, or every connection would have to be handed over from this thread.
    match which {
        Which::Limit => runtime.block_on(async { tokio::spawn(limit::serve()).await })?,
        Which::Ours(options) if options.adapter => {
            let service = ours::adapted(options)?;
            runtime.block_on(async { tokio::spawn(socket::serve(service)).await })?
        }
        Which::Ours(options) => {
            let service = ours::service(options)?;
            runtime.block_on(async { tokio::spawn(socket::serve(service)).await })?
        }
        Which::Rmcp(options) => {
            let service = rmcp::service(options);
            runtime.block_on(async { tokio::spawn(socket::serve(service)).await })?
        }
    }
}
