//! An rmcp server on rmcp's own transport or on Rethread.
//!
//! ```text
//! cargo run -p rethread-rmcp-fixture -- --transport rethread --listen 127.0.0.1:8931
//! ```
//!
//! You should see one line, `everything: ready at http://127.0.0.1:8931/mcp`. `--transport rmcp` serves the same server with
//! rmcp's transport. The outside tests compare the two. `--transport stdio` serves one client on stdin and stdout.

use axum::Router;
use axum::serve::ListenerExt;
use clap::{Parser, ValueEnum};
use rethread::{Context, McpService};
use rethread_rmcp::RmcpHandler;
use rethread_store_embedded::EmbeddedStore;
use rmcp::ServiceExt;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp_everything::{EverythingServer, SharedState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Time for running calls to finish at shutdown.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);

/// An MCP server with every feature, for testing transports.
#[derive(Parser)]
#[command(name = "rmcp-everything", version)]
struct Options {
    /// Transport to use.
    #[arg(long, value_enum)]
    transport: Transport,
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8931")]
    listen: SocketAddr,
    /// Store of sessions and events, for Rethread.
    #[arg(long, value_enum, default_value_t = Store::Memory)]
    store: Store,
    /// Folder of the embedded store; created if missing.
    #[arg(long, value_name = "DIR", required_if_eq("store", "embedded"))]
    data: Option<PathBuf>,
    /// Reconnect delay for clients.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    retry_ms: u64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Transport {
    /// `StreamableHttpService` of rmcp.
    Rmcp,
    /// `McpService` of Rethread.
    Rethread,
    /// Lines on stdin and stdout, as rmcp serves them.
    Stdio,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Store {
    /// In memory; lost at exit.
    Memory,
    /// In files; survives a restart.
    Embedded,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    // rmcp logs every disconnect as an error, and the tests disconnect often.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,rmcp=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
    let served = match options.transport {
        Transport::Rmcp => with_rmcp(&options).await,
        Transport::Rethread => with_rethread(&options).await,
        Transport::Stdio => on_stdio().await,
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rmcp-everything: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves one client, until it closes stdin.
async fn on_stdio() -> io::Result<()> {
    let shared = Arc::new(SharedState::default());
    let server = EverythingServer::new(shared.clone());
    let running = server.serve(rmcp::transport::stdio()).await.map_err(io::Error::other)?;
    tokio::select! {
        ended = running.waiting() => ended.map(drop).map_err(io::Error::other),
        () = shared.changes().notify_watched_resource() => Ok(()),
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
    let shared = Arc::new(SharedState::default());
    let served = shared.clone();
    let service = StreamableHttpService::new(
        move || Ok(EverythingServer::new(served.clone())),
        Arc::new(sessions),
        config,
    );
    let routes = Router::new().route_service("/mcp", service);
    serve(options.listen, routes, shared, async move { stop.cancel() }).await
}

async fn with_rethread(options: &Options) -> io::Result<()> {
    // rmcp has no API to close a connection. Rethread's context of the call is in the extensions.
    let shared = SharedState::with_close_connection(Box::new(|call| {
        let context = call.extensions.get::<Context>().cloned();
        Box::pin(async move {
            if let Some(context) = context {
                context.close_connection().await;
            }
        })
    }));
    let shared = Arc::new(shared);
    let served = shared.clone();
    let mut builder = McpService::builder(RmcpHandler::new(move || EverythingServer::new(served.clone())))
        .retry(Duration::from_millis(options.retry_ms));
    if let (Store::Embedded, Some(data)) = (options.store, &options.data) {
        let store = EmbeddedStore::builder().open(data);
        builder = builder.store(store.map_err(io::Error::other)?);
    }
    let mcp = builder.try_build().map_err(io::Error::other)?;
    let http_sse = mcp.http_sse("/messages");
    let routes = Router::new()
        .route_service("/mcp", mcp.clone())
        .route_service("/sse", http_sse.clone())
        .route_service("/messages", http_sse);
    serve(options.listen, routes, shared, async move {
        mcp.shutdown(SHUTDOWN_DEADLINE).await;
    })
    .await
}

/// Serves until a stop signal, then waits for `shutdown`, which ends all responses.
async fn serve(
    listen: SocketAddr,
    routes: Router,
    shared: Arc<SharedState>,
    shutdown: impl Future<Output = ()> + Send + 'static,
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
        shutdown.await;
    };
    let serving = axum::serve(listener, routes).with_graceful_shutdown(stopped);
    tokio::select! {
        served = serving => served,
        () = shared.changes().notify_watched_resource() => Ok(()),
    }
}

/// Resolves on SIGTERM or SIGINT. The handlers are installed by this call, not by the first poll.
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
