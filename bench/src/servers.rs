//! The servers under test, each a process of this program: `rethread-bench server bare-hyper|rethread|rmcp`.

mod accepted_token;
mod bare_hyper;
mod rethread;
mod rmcp;
mod rmcp_event_store;
mod socket;

pub(crate) use accepted_token::TokenKind;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// The server to run.
#[derive(Subcommand)]
pub(crate) enum ServerCommand {
    /// hyper with canned responses.
    BareHyper,
    /// This library.
    Rethread(RethreadOptions),
    /// The official Rust SDK.
    Rmcp(RmcpOptions),
}

/// Options of this library.
#[derive(Args)]
pub(crate) struct RethreadOptions {
    /// Store of sessions and events.
    #[arg(long, value_enum, default_value_t = Store::Memory)]
    store: Store,
    /// URL of the Redis store.
    #[arg(long, required_if_eq("store", "redis"), value_name = "URL")]
    redis: Option<String>,
    /// With Redis: sessions belong to the node that opened them, as with a handler that keeps state of a session.
    #[arg(long)]
    owned: bool,
    /// Folder of the embedded store.
    #[arg(long, required_if_eq("store", "embedded"))]
    data: Option<PathBuf>,
    /// Answer every call with a stream at once, so that it can be resumed.
    #[arg(long)]
    streams: bool,
    /// Serve the rmcp server through the adapter.
    #[arg(long)]
    rmcp: bool,
    /// Authenticate callers, who have a token of this kind.
    #[arg(long, value_name = "static|jwt")]
    auth: Option<TokenKind>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    Memory,
    Embedded,
    Redis,
}

/// Options of the official SDK.
#[derive(Args)]
pub(crate) struct RmcpOptions {
    /// Run without sessions and answer in JSON. rmcp answers in JSON only without sessions.
    #[arg(long)]
    json: bool,
    /// Use an event store in memory.
    #[arg(long)]
    store: bool,
}

/// Serves until killed. All servers use tokio's multi-thread runtime with one worker, because they have one core.
pub(crate) fn run(which: &ServerCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    // Accept on the worker. Otherwise every connection moves between threads.
    match which {
        ServerCommand::BareHyper => runtime.block_on(async { tokio::spawn(bare_hyper::serve()).await })?,
        ServerCommand::Rethread(options) if options.rmcp => {
            let service = rethread::rmcp_builder(options)?.try_build()?;
            runtime.block_on(async { tokio::spawn(socket::serve(service)).await })?
        }
        ServerCommand::Rethread(options) => {
            let service = runtime.block_on(rethread::service(options))?;
            runtime.block_on(async { tokio::spawn(socket::serve(service)).await })?
        }
        ServerCommand::Rmcp(options) => {
            let service = rmcp::service(options);
            runtime.block_on(async { tokio::spawn(socket::serve(service)).await })?
        }
    }
}
