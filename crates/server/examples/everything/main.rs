//! One server for testing clients: the tools, resources and prompts of the public MCP conformance suite, and the fixture
//! tools that measure speed, delivery and resumption from outside.
//!
//! ```text
//! cargo run --release --example everything -- --listen 127.0.0.1:8931
//! ```
//!
//! You should see one line, `everything: ready at http://127.0.0.1:8931/mcp`. Then, in another terminal:
//!
//! ```text
//! npx @modelcontextprotocol/inspector --cli http://127.0.0.1:8931/mcp --transport http --method tools/list
//! npx @modelcontextprotocol/conformance server --url http://127.0.0.1:8931/mcp --suite all --spec-version 2026-07-28
//! ```
//!
//! With `--store redis://127.0.0.1:6379` several processes share sessions and streams, and any of them serves any request.
//!
//! With `--store embedded --data DIR` sessions and streams survive the process: kill it with `kill -9`, start it again, and
//! clients continue.
//!
//! Old clients find the transport of 2024-11-05 at `/sse`. `--stdio` uses JSON-RPC lines instead of HTTP.
//!
//! Ctrl-C or SIGTERM drains it: running calls get a few seconds to finish, and the exit code is 0.
//!
//! `tools`, `questions`, `inputs`, `resources` and `prompts` each add their part to a [`Catalog`]. `fixture` and
//! `unsolicited` add the measuring tools. `serve` puts the service on a socket with hyper alone.

mod fixture;
mod inputs;
mod media;
mod prompts;
mod questions;
mod resources;
mod serve;
mod tools;
mod unsolicited;

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use fixture::Fixture;
use http::{Request, Response};
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use rethread::{Body, Catalog, HttpSse, McpService, Notifier, Principal};
use rethread_store_embedded::{EmbeddedStore, Sync};
use rethread_store_redis::{RedisCluster, RedisOptions, RedisStore, RedisUrl};
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::net::TcpListener;
use tokio::time::MissedTickBehavior;
use tower::Service;
use tracing_subscriber::EnvFilter;

/// The shortest lease. Each renewal needs a part of it.
const MIN_LEASE: Duration = Duration::from_millis(100);

/// Shorter secrets can be guessed.
const MIN_SECRET_BYTES: usize = 16;

/// How long running calls may take to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// An MCP server that offers something of everything, for testing clients.
#[derive(Parser)]
#[command(name = "everything", version)]
struct Options {
    /// The address to serve on; port 0 picks a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8931")]
    listen: SocketAddr,
    /// Speak JSON-RPC lines on stdin and stdout instead of HTTP.
    #[arg(long, conflicts_with = "listen")]
    stdio: bool,
    /// Where sessions and events are kept: `memory`, `embedded`, or the URL of a Redis server, which several processes share.
    #[arg(long, value_name = "STORE", default_value = "memory", value_parser = Store::parse)]
    store: Store,
    /// With Redis: a name of this process that no other process uses. A newer process with the same name replaces it at once.
    #[arg(long, value_name = "NAME")]
    node_id: Option<String>,
    /// With Redis: the other processes act for this one when it has not renewed its lease for this time. A bare number means
    /// seconds.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = lease)]
    lease: Duration,
    /// With Redis: a file with a secret that all processes share. Without it, the store has a random one.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The folder of a store that keeps files; made if it is not there.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// When the embedded store counts something as written.
    #[arg(long, value_enum, default_value_t = SyncMode::Interval)]
    sync: SyncMode,
    /// For tests: `Authorization: Bearer NAME` makes NAME the principal of a request.
    #[arg(long)]
    trust_bearer: bool,
    /// For tests: never report an update of the watched resource, so that idle sessions stay silent.
    #[arg(long)]
    no_updates: bool,
    /// For tests: the tool `record_run` appends a line to this file for each of its runs.
    #[arg(long, value_name = "FILE")]
    runs: Option<PathBuf>,
    /// For tests: each session has an owner, as with a handler that holds state of sessions. Other nodes forward its calls.
    #[arg(long)]
    own_sessions: bool,
    /// How long clients are asked to wait before they reconnect.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    retry_ms: u64,
    /// One more `Host` to answer to, besides the loopback names. May be repeated.
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// One more `Origin` to accept, besides the loopback ones. May be repeated.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
}

#[derive(Clone)]
enum Store {
    /// In this process: gone when it ends.
    Memory,
    /// In files: survives a restart.
    Embedded,
    /// In a server that several processes share.
    Redis(RedisUrl),
}

impl Store {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "memory" => Ok(Store::Memory),
            "embedded" => Ok(Store::Embedded),
            url => RedisUrl::parse(url)
                .map(Store::Redis)
                .map_err(|error| error.to_string()),
        }
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s'), text.strip_suffix('m')) {
        (Some(number), ..) => (number, 0.001),
        (_, Some(number), _) => (number, 1.0),
        (.., Some(number)) => (number, 60.0),
        _ => (text, 1.0),
    };
    let number: f64 = number.parse().map_err(|_| "not a time, such as 10s".to_owned())?;
    match Duration::try_from_secs_f64(number * unit) {
        Ok(lease) if lease >= MIN_LEASE => Ok(lease),
        _ => Err("at least 100ms".into()),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum SyncMode {
    /// When it is on the disk: survives a power cut.
    Always,
    /// When the operating system has it; synced every 50 ms. Survives kill -9.
    Interval,
    /// When the operating system has it, which writes it when it likes.
    Os,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("everything: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> io::Result<()> {
    let fixture = Arc::new(Fixture::new(options.runs.clone()));
    let mut catalog = catalog(&fixture);
    if options.own_sessions {
        catalog = catalog.holds_session_state();
    }
    let mut builder = McpService::builder(catalog)
        .retry(Duration::from_millis(options.retry_ms))
        .behind_gateway(std::env::var_os(rethread::BEHIND_GATEWAY).is_some());
    if matches!(options.store, Store::Embedded) {
        let data = options.data.as_deref();
        let data = data.ok_or_else(|| io::Error::other("--store embedded needs --data DIR"))?;
        let sync = match options.sync {
            SyncMode::Always => Sync::Always,
            SyncMode::Interval => Sync::default(),
            SyncMode::Os => Sync::Os,
        };
        let store = EmbeddedStore::builder().sync(sync).open(data);
        builder = builder.store(store.map_err(io::Error::other)?);
    }
    if let Store::Redis(url) = &options.store {
        builder = builder.store(redis(url.clone(), &options).await?);
    }
    for host in &options.allow_host {
        builder = builder.allow_host(host);
    }
    for origin in &options.allow_origin {
        builder = builder.allow_origin(origin);
    }
    let mcp = builder.try_build().map_err(io::Error::other)?;
    let _ = fixture.notifier.set(mcp.notifier());
    let ticker = (!options.no_updates).then(|| tokio::spawn(touch_the_watched_resource(mcp.notifier())));

    let stop = serve::stop_signal()?;
    if options.stdio {
        let (input, output) = (BufReader::new(tokio::io::stdin()), tokio::io::stdout());
        tokio::select! {
            served = mcp.serve_lines(input, output) => served?,
            () = stop => {}
        }
        std::process::exit(0); // a read of stdin cannot be cancelled
    }
    mcp.join().await;
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|e| io::Error::new(e.kind(), format!("cannot listen on {}: {e}", options.listen)))?;
    println!("everything: ready at http://{}/mcp", listener.local_addr()?);
    let (mut endpoint, mut old) = (mcp.clone(), mcp.http_sse("/messages"));
    let trusts_bearer = options.trust_bearer;
    let routes = tower::service_fn(move |mut request| {
        if trusts_bearer {
            trust_bearer(&mut request);
        }
        route(&mut endpoint, &mut old, request)
    });
    let drain = async { mcp.shutdown(DRAIN).await };
    tokio::select! {
        () = serve::until(stop, listener, routes, drain) => {}
        () = mcp.replaced() => return Err(io::Error::other("a newer process uses the name of this node")),
    }
    if let Some(ticker) = ticker {
        ticker.abort();
    }
    Ok(())
}

/// Connects to a store that several processes share.
async fn redis(url: RedisUrl, options: &Options) -> io::Result<RedisStore> {
    let mut settings = RedisOptions::new(url).with_lease(options.lease);
    if let Some(name) = &options.node_id {
        settings = settings.with_node_id(name.as_str());
    }
    if let Some(file) = &options.secret_file {
        let secret = shared_secret(&std::fs::read(file)?);
        settings = settings.with_secret(secret.map_err(io::Error::other)?);
    }
    let cluster = RedisCluster::connect(settings).await.map_err(io::Error::other)?;
    cluster.store("everything").await.map_err(io::Error::other)
}

/// The secret in a file. The gateway makes the same secret of the same file.
fn shared_secret(content: &[u8]) -> Result<[u8; 32], String> {
    match content.trim_ascii() {
        secret if secret.len() < MIN_SECRET_BYTES => Err(format!("the secret has fewer than {MIN_SECRET_BYTES} bytes")),
        secret => Ok(Sha256::digest(secret).into()),
    }
}

/// A response of the service, or an empty 404.
type Answer = Result<Response<Either<Body, Empty<Bytes>>>, Infallible>;

/// Takes the name in a bearer token for the principal.
fn trust_bearer(request: &mut Request<Incoming>) {
    let token = request.headers().get(http::header::AUTHORIZATION);
    let name = token.and_then(|token| token.to_str().ok()?.strip_prefix("Bearer "));
    if let Some(name) = name.map(str::to_owned) {
        request.extensions_mut().insert(Principal::new("everything", name));
    }
}

/// `/mcp` for every revision, `/sse` and `/messages` for the transport of 2024-11-05.
fn route(
    mcp: &mut McpService,
    old: &mut HttpSse,
    request: Request<Incoming>,
) -> impl Future<Output = Answer> + Send + use<> {
    let answer = match request.uri().path() {
        "/mcp" => Some(mcp.call(request)),
        "/sse" | "/messages" => Some(old.call(request)),
        _ => None,
    };
    async {
        match answer {
            Some(answer) => Ok(answer.await?.map(Either::Left)),
            None => Ok(serve::not_found().map(Either::Right)),
        }
    }
}

/// The complete catalog.
fn catalog(fixture: &Arc<Fixture>) -> Catalog {
    let catalog = Catalog::new("everything", env!("CARGO_PKG_VERSION"))
        .title("Rethread: everything")
        .instructions("A server for testing MCP clients. Its tools do nothing useful, and do it reliably.");
    let catalog = tools::add_to(catalog);
    let catalog = questions::add_to(catalog);
    let catalog = inputs::add_to(catalog);
    let catalog = resources::add_to(catalog);
    let catalog = prompts::add_to(catalog);
    let catalog = fixture::add_to(catalog, fixture);
    unsolicited::add_to(catalog, fixture)
}

/// Notifies every two seconds that the watched resource changed. Only sessions that subscribed to it get the notification.
async fn touch_the_watched_resource(notifier: Notifier) {
    let mut ticks = tokio::time::interval(Duration::from_secs(2));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        notifier.resource_updated(resources::WATCHED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_has_a_unit_or_is_in_seconds() {
        let millis = |text| lease(text).map(|lease| lease.as_millis());
        for (text, expected) in [
            ("10s", 10_000),
            ("1500ms", 1_500),
            ("2m", 120_000),
            ("10", 10_000),
            ("0.5", 500),
        ] {
            assert_eq!(millis(text), Ok(expected), "{text}");
        }
        for text in ["", "s", "10 apples", "50ms", "-1s", "inf", "NaN"] {
            assert!(millis(text).is_err(), "{text}");
        }
    }

    #[test]
    fn secret_is_trimmed_and_has_a_minimum_length() {
        let secret = shared_secret(b"0123456789abcdef");
        assert!(secret.is_ok());
        assert_eq!(shared_secret(b" 0123456789abcdef\n"), secret);
        assert!(shared_secret(b"0123456789abcde\n").is_err());
    }
}
