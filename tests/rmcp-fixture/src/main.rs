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
use rethread::{Context, McpService};
use rethread_rmcp::RmcpHandler;
use rethread_store_embedded::EmbeddedStore;
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

/// How long running calls may take to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

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
    // rmcp calls it an error when a client leaves, as clients under test do.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,rmcp=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
    let served = match options.transport {
        Transport::Rmcp => with_rmcp(&options).await,
        Transport::Rethread => with_rethread(&options).await,
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rmcp-everything: {error}");
            ExitCode::FAILURE
        }
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
    let routes = Router::new().route_service("/mcp", service);
    serve(options.listen, routes, process, async move { stop.cancel() }).await
}

async fn with_rethread(options: &Options) -> io::Result<()> {
    // The one thing that rmcp has no word for: Rethread's own view of the call is among the extensions.
    let process = Process::closing_connections_with(Box::new(|call| {
        let context = call.extensions.get::<Context>().cloned();
        Box::pin(async move {
            if let Some(context) = context {
                context.close_connection().await;
            }
        })
    }));
    let process = Arc::new(process);
    let served = process.clone();
    let mut builder = McpService::builder(RmcpHandler::new(move || Everything::new(served.clone())))
        .retry(Duration::from_millis(options.retry_ms));
    if let (Store::Embedded, Some(data)) = (options.store, &options.data) {
        let store = EmbeddedStore::builder().open(data);
        builder = builder.store(store.map_err(io::Error::other)?);
    }
    let mcp = builder.try_build().map_err(io::Error::other)?;
    let old = mcp.http_sse("/messages");
    let routes = Router::new()
        .route_service("/mcp", mcp.clone())
        .route_service("/sse", old.clone())
        .route_service("/messages", old);
    serve(
        options.listen,
        routes,
        process,
        async move { mcp.shutdown(DRAIN).await },
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
