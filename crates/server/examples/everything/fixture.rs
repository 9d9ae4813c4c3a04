//! Tools that measure speed, delivery and resumption from outside, over the wire.

use rethread::catalog::{Catalog, NoArgs, Tool};
use rethread::{Context, LogLevel, Notifier, RpcError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// State that the fixture tools share.
#[derive(Default)]
pub(crate) struct Fixture {
    sleeps: Sleeps,
    /// Tools exist before their service, so the notifier is set later.
    pub(crate) notifier: OnceLock<Notifier>,
}

/// The outcomes of the calls of `sleep`.
#[derive(Default)]
struct Sleeps {
    started: AtomicU64,
    finished: AtomicU64,
    cancelled: AtomicU64,
}

pub(crate) fn add_to(catalog: Catalog, fixture: &Arc<Fixture>) -> Catalog {
    let (sleeping, counting) = (fixture.clone(), fixture.clone());
    catalog
        .tool(
            tool("echo", "Returns its message", json!({ "message": string("") })),
            echo,
        )
        .tool(
            tool(
                "burst",
                "Reports progress many times",
                json!({ "events": count(10), "bytes": count(32), "delay_us": count(0) }),
            ),
            burst,
        )
        .tool(
            tool("sleep", "Is silent for a while", json!({ "ms": count(1000) })),
            move |args, cx| sleep(sleeping.clone(), args, cx),
        )
        .tool(
            tool("counters", "Tells what became of the calls of sleep", json!({})),
            move |_: NoArgs, _| counters(counting.clone()),
        )
        .tool(
            tool(
                "log_burst",
                "Logs many times",
                json!({ "count": count(10), "bytes": count(32) }),
            ),
            log_burst,
        )
        .tool(
            tool(
                "close_connection",
                "Closes its connection at once and finishes later",
                json!({ "ms": count(500) }),
            ),
            close_connection,
        )
        .tool(
            Tool::new("region_echo")
                .description("Returns its arguments, which clients also send as headers")
                .input(json!({
                    "type": "object",
                    "properties": {
                        "region": { "type": "string", "x-mcp-header": "Region" },
                        "n": { "type": "integer", "x-mcp-header": "N" },
                    },
                    "required": ["region"],
                })),
            region_echo,
        )
}

/// The default of a number.
pub(crate) fn or<const DEFAULT: u64>() -> u64 {
    DEFAULT
}

/// A tool without required arguments.
pub(crate) fn tool(name: &str, description: &str, properties: Value) -> Tool {
    let mut schema = json!({ "type": "object" });
    schema["properties"] = properties;
    Tool::new(name).description(description).input(schema)
}

pub(crate) fn count(default: u64) -> Value {
    json!({ "type": "integer", "minimum": 0, "default": default })
}

pub(crate) fn string(default: &str) -> Value {
    json!({ "type": "string", "default": default })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Echo {
    message: String,
}

async fn echo(args: Echo, _: Context) -> Result<String, RpcError> {
    Ok(args.message)
}

#[derive(Deserialize)]
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
            cx.progress_of(event as f64, events as f64, message.as_str()).await?;
        }
    }
    Ok(format!("burst {events} done"))
}

#[derive(Deserialize)]
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

async fn counters(fixture: Arc<Fixture>) -> Result<String, RpcError> {
    let Sleeps {
        started,
        finished,
        cancelled,
    } = &fixture.sleeps;
    let [started, finished, cancelled] = [started, finished, cancelled].map(|n| n.load(Relaxed));
    Ok(format!(
        r#"{{"started":{started},"finished":{finished},"cancelled":{cancelled}}}"#
    ))
}

#[derive(Deserialize)]
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

#[derive(Deserialize)]
struct CloseConnection {
    #[serde(default = "or::<500>")]
    ms: u64,
}

async fn close_connection(args: CloseConnection, cx: Context) -> Result<&'static str, RpcError> {
    cx.close_connection().await;
    tokio::time::sleep(Duration::from_millis(args.ms)).await;
    Ok("reconnected")
}

#[derive(Deserialize, Serialize)]
struct RegionEcho {
    region: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<i64>,
}

async fn region_echo(args: RegionEcho, _: Context) -> Result<String, RpcError> {
    serde_json::to_string(&args).map_err(|e| RpcError::internal(e.to_string()))
}

/// `text`, padded with `x` to `length` characters.
pub(crate) fn padded(mut text: String, length: u64) -> Result<String, RpcError> {
    const MAX_TEXT_BYTES: usize = 16 << 20;
    let length = usize::try_from(length).ok().filter(|&length| length <= MAX_TEXT_BYTES);
    let length = length.ok_or_else(|| RpcError::invalid_params(format!("bytes must be at most {MAX_TEXT_BYTES}")))?;
    text.extend(std::iter::repeat_n('x', length.saturating_sub(text.chars().count())));
    Ok(text)
}
