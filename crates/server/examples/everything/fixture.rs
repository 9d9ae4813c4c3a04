//! Tools that measure speed, delivery and resumption from outside, over the wire.

use rethread::catalog::{Catalog, NoArgs, Tool, ToolError, with_state};
use rethread::{Context, LogLevel, Notifier, RpcError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// State that the fixture tools share.
#[derive(Default)]
pub(crate) struct Fixture {
    sleeps: Sleeps,
    /// The file in which `record_run` records its runs.
    runs: Option<PathBuf>,
    /// Tools exist before their service, so the notifier is set later.
    pub(crate) notifier: OnceLock<Notifier>,
}

impl Fixture {
    pub(crate) fn new(runs: Option<PathBuf>) -> Self {
        Fixture {
            runs,
            ..Fixture::default()
        }
    }
}

/// The outcomes of the calls of `sleep`.
#[derive(Default)]
struct Sleeps {
    started: AtomicU64,
    finished: AtomicU64,
    cancelled: AtomicU64,
}

pub(crate) fn add_to(catalog: Catalog, fixture: &Arc<Fixture>) -> Catalog {
    catalog
        .tool(Tool::new("echo"), echo)
        .tool(Tool::new("burst"), burst)
        .tool(Tool::new("sleep"), with_state(fixture, sleep))
        .tool(
            Tool::new("counters").description("Counts the started, finished and cancelled calls of sleep"),
            with_state(fixture, counters),
        )
        .tool(Tool::new("record_run"), with_state(fixture, record_run))
        .tool(Tool::new("log_burst"), log_burst)
        .tool(Tool::new("close_connection"), close_connection)
        .tool(Tool::new("region_echo"), region_echo)
}

/// The default of a number.
pub(crate) fn or<const DEFAULT: u64>() -> u64 {
    DEFAULT
}

/// Returns its message
#[derive(Deserialize, JsonSchema)]
struct Echo {
    #[serde(default)]
    message: String,
}

async fn echo(args: Echo, _: Context) -> String {
    args.message
}

/// Reports progress many times
#[derive(Deserialize, JsonSchema)]
struct Burst {
    #[serde(default = "or::<10>")]
    events: u64,
    #[serde(default = "or::<32>")]
    bytes: u64,
    #[serde(default = "or::<0>")]
    delay_us: u64,
}

async fn burst(args: Burst, cx: Context) -> Result<String, RpcError> {
    let Burst {
        events,
        bytes,
        delay_us,
    } = args;
    if cx.wants_progress() {
        let message = padded(String::new(), bytes)?;
        for event in 1..=events {
            if event > 1 && delay_us > 0 {
                tokio::time::sleep(Duration::from_micros(delay_us)).await;
            }
            cx.progress_of(event as f64, events as f64, &message).await?;
        }
    }
    Ok(format!("burst {events} done"))
}

/// Is silent for a while
#[derive(Deserialize, JsonSchema)]
struct Sleep {
    #[serde(default = "or::<1000>")]
    ms: u64,
}

async fn sleep(fixture: Arc<Fixture>, args: Sleep, cx: Context) -> Result<String, RpcError> {
    let run = Run::start(&fixture.sleeps);
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(args.ms)) => {
            run.finish();
            Ok(format!("slept {}", args.ms))
        }
        () = cx.cancelled() => Err(RpcError::internal("cancelled")),
    }
}

/// One call of `sleep`. If it ends early, also by a drop, it counts as cancelled.
struct Run<'a> {
    sleeps: &'a Sleeps,
    finished: bool,
}

impl<'a> Run<'a> {
    fn start(sleeps: &'a Sleeps) -> Self {
        sleeps.started.fetch_add(1, Relaxed);
        Run {
            sleeps,
            finished: false,
        }
    }

    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let counter = if self.finished {
            &self.sleeps.finished
        } else {
            &self.sleeps.cancelled
        };
        counter.fetch_add(1, Relaxed);
    }
}

async fn counters(fixture: Arc<Fixture>, _: NoArgs, _: Context) -> String {
    let Sleeps {
        started,
        finished,
        cancelled,
    } = &fixture.sleeps;
    let [started, finished, cancelled] = [started, finished, cancelled].map(|n| n.load(Relaxed));
    format!(r#"{{"started":{started},"finished":{finished},"cancelled":{cancelled}}}"#)
}

/// Records its run in a file, and is silent for a while
#[derive(Deserialize, JsonSchema)]
struct RecordRun {
    key: String,
    #[serde(default = "or::<0>")]
    ms: u64,
}

/// The record is complete before anything else happens, so it survives a kill. Several processes append to the file.
async fn record_run(fixture: Arc<Fixture>, args: RecordRun, _: Context) -> Result<String, RpcError> {
    let runs = fixture.runs.as_ref();
    let runs = runs.ok_or_else(|| RpcError::invalid_params("the server was started without --runs"))?;
    let file = OpenOptions::new().create(true).append(true).open(runs);
    let recorded = file.and_then(|mut file| file.write_all(format!("{}\n", args.key).as_bytes()));
    recorded.map_err(|error| RpcError::internal(error.to_string()))?;
    tokio::time::sleep(Duration::from_millis(args.ms)).await;
    Ok(args.key)
}

/// Logs many times
#[derive(Deserialize, JsonSchema)]
struct LogBurst {
    #[serde(default = "or::<10>")]
    count: u64,
    #[serde(default = "or::<32>")]
    bytes: u64,
}

async fn log_burst(args: LogBurst, cx: Context) -> Result<String, RpcError> {
    #[derive(Serialize)]
    struct Entry<'a> {
        n: u64,
        pad: &'a str,
    }
    let pad = &padded(String::new(), args.bytes)?;
    for n in 1..=args.count {
        cx.log(LogLevel::Info, "fixture", Entry { n, pad }).await?;
    }
    Ok(format!("logged {}", args.count))
}

/// Closes its connection at once and finishes later
#[derive(Deserialize, JsonSchema)]
struct CloseConnection {
    #[serde(default = "or::<500>")]
    ms: u64,
}

async fn close_connection(args: CloseConnection, cx: Context) -> &'static str {
    cx.close_connection().await;
    tokio::time::sleep(Duration::from_millis(args.ms)).await;
    "reconnected"
}

/// Returns its arguments, which clients also send as headers
#[derive(Deserialize, Serialize, JsonSchema)]
struct RegionEcho {
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", default, skip_serializing_if = "Option::is_none", extend("x-mcp-header" = "N"))]
    n: Option<i64>,
}

async fn region_echo(args: RegionEcho, _: Context) -> Result<String, ToolError> {
    Ok(serde_json::to_string(&args)?)
}

/// `text`, padded with `x` to `length` characters.
pub(crate) fn padded(mut text: String, length: u64) -> Result<String, RpcError> {
    const MAX_TEXT_BYTES: usize = 16 << 20;
    let length = usize::try_from(length).ok().filter(|&length| length <= MAX_TEXT_BYTES);
    let length = length.ok_or_else(|| RpcError::invalid_params(format!("bytes must be at most {MAX_TEXT_BYTES}")))?;
    text.extend(std::iter::repeat_n('x', length.saturating_sub(text.chars().count())));
    Ok(text)
}
