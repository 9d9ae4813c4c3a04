//! One server, written with rmcp, on either of two transports: rmcp's own, or Rethread.
//!
//! ```text
//! cargo run -p rethread-rmcp-fixture -- --transport rethread --listen 127.0.0.1:8931
//! ```
//!
//! You should see one line, `everything: ready at http://127.0.0.1:8931/mcp`. With `--transport rmcp` the same server is
//! reached in the same way, and the outside tests compare what clients see.

use axum::Router;
use axum::serve::ListenerExt;
use clap::{Parser, ValueEnum};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp_everything::{Everything, Process};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// An MCP server that offers something of everything, for testing transports.
#[derive(Parser)]
#[command(name = "rmcp-everything", version)]
struct Options {
    /// Who carries the messages.
    #[arg(long, value_enum)]
    transport: Transport,
    /// The address to serve on; port 0 picks a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8931")]
    listen: SocketAddr,
    /// Where Rethread keeps sessions and events.
    #[arg(long, value_enum, default_value_t = Store::Memory)]
    store: Store,
    /// The folder of a store that keeps files; made if it is not there.
    #[arg(long, value_name = "DIR", required_if_eq("store", "embedded"))]
    data: Option<PathBuf>,
    /// How long clients are asked to wait before they reconnect.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    retry_ms: u64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Transport {
    /// `StreamableHttpService` of rmcp.
    Rmcp,
    /// `McpService` of Rethread.
    Rethread,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Store {
    /// In this process: gone when it ends.
    Memory,
    /// In files: survives a restart.
    Embedded,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rmcp-everything: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> io::Result<()> {
    match options.transport {
        Transport::Rmcp => with_rmcp(&options).await,
        Transport::Rethread => Err(io::Error::other("not yet")),
    }
}

async fn with_rmcp(options: &Options) -> io::Result<()> {
    let retry = Some(Duration::from_millis(options.retry_ms));
    let stop = CancellationToken::new();
    let config = StreamableHttpServerConfig::default()
        .with_sse_retry(retry)
        .with_cancellation_token(stop.clone());
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.sse_retry = retry;
    let process = Arc::new(Process::default());
    let served = process.clone();
    let service = StreamableHttpService::new(move || Ok(Everything::new(served.clone())), Arc::new(sessions), config);
    let drain = async move { stop.cancel() };
    serve(
        options.listen,
        Router::new().route_service("/mcp", service),
        process,
        drain,
    )
    .await
}

/// Serves until told to stop, then waits for `drain`, after which no answer is open any more.
async fn serve(
    listen: SocketAddr,
    routes: Router,
    process: Arc<Process>,
    drain: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let stop = stop_signal()?;
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {listen}: {error}")))?;
    println!("everything: ready at http://{}/mcp", listener.local_addr()?);
    let listener = listener.tap_io(|socket| {
        let _ = socket.set_nodelay(true);
    });
    let stopped = async {
        stop.await;
        drain.await;
    };
    let serving = axum::serve(listener, routes).with_graceful_shutdown(stopped);
    tokio::select! {
        served = serving => served,
        () = process.changes().touch_the_watched_resource() => Ok(()),
    }
}

/// Resolves on SIGTERM or SIGINT. They are caught from now on, not from the first poll on.
fn stop_signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}
