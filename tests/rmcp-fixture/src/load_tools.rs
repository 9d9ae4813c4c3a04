//! Tools that measure speed, delivery and resumption over the wire.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, schemars, tool, tool_router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::EverythingServer;
use crate::emit::progress;

/// Counters of `sleep` calls.
#[derive(Default)]
pub(crate) struct SleepCounters {
    started: AtomicU64,
    finished: AtomicU64,
    cancelled: AtomicU64,
}

#[derive(Deserialize, JsonSchema)]
struct Echo {
    #[serde(default)]
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Burst {
    #[serde(default = "number_default::<10>")]
    events: u64,
    #[serde(default = "number_default::<32>")]
    bytes: u64,
    #[serde(default = "number_default::<0>")]
    delay_us: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Sleep {
    #[serde(default = "number_default::<1000>")]
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct LogBurst {
    #[serde(default = "number_default::<10>")]
    count: u64,
    #[serde(default = "number_default::<32>")]
    bytes: u64,
}

#[derive(Deserialize, JsonSchema)]
struct CloseConnection {
    #[serde(default = "number_default::<500>")]
    ms: u64,
}

#[derive(Deserialize, JsonSchema, Serialize)]
struct RegionEcho {
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
    // Not an `Option`: its schema is a list of types, but a header needs a string, a number or a boolean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", extend("x-mcp-header" = "N"))]
    n: Option<i64>,
}

#[tool_router(router = load_tools, vis = "pub(crate)")]
impl EverythingServer {
    #[tool(description = "Returns its message")]
    async fn echo(&self, Parameters(args): Parameters<Echo>) -> String {
        args.message
    }

    #[tool(description = "Reports progress many times")]
    async fn burst(
        &self,
        Parameters(args): Parameters<Burst>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let Burst {
            events,
            bytes,
            delay_us,
        } = args;
        if context.meta.get_progress_token().is_some() {
            let message = padded(String::new(), bytes)?;
            for event in 1..=events {
                if event > 1 && delay_us > 0 {
                    tokio::time::sleep(Duration::from_micros(delay_us)).await;
                }
                progress(&context, event as f64, events as f64, &message).await?;
            }
        }
        Ok(format!("burst {events} done"))
    }

    #[tool(description = "Is silent for a while")]
    async fn sleep(
        &self,
        Parameters(args): Parameters<Sleep>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let run = SleepRun::start(&self.shared.sleep_counters);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(args.ms)) => {
                run.finish();
                Ok(format!("slept {}", args.ms))
            }
            () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
        }
    }

    #[tool(description = "Counts the started, finished and cancelled calls of sleep")]
    async fn counters(&self) -> String {
        let SleepCounters {
            started,
            finished,
            cancelled,
        } = &self.shared.sleep_counters;
        let [started, finished, cancelled] = [started, finished, cancelled].map(|n| n.load(Relaxed));
        format!(r#"{{"started":{started},"finished":{finished},"cancelled":{cancelled}}}"#)
    }

    #[tool(description = "Logs many times")]
    async fn log_burst(
        &self,
        Parameters(args): Parameters<LogBurst>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let pad = padded(String::new(), args.bytes)?;
        for n in 1..=args.count {
            self.log(&context, "fixture", json!({ "n": n, "pad": pad })).await?;
        }
        Ok(format!("logged {}", args.count))
    }

    #[tool(
        name = "close_connection",
        description = "Closes its connection at once and finishes later"
    )]
    async fn close_connection_tool(
        &self,
        Parameters(args): Parameters<CloseConnection>,
        context: RequestContext<RoleServer>,
    ) -> String {
        self.close_connection(&context).await;
        tokio::time::sleep(Duration::from_millis(args.ms)).await;
        "reconnected".to_owned()
    }

    #[tool(description = "Returns its arguments, which clients also send as headers")]
    async fn region_echo(&self, Parameters(args): Parameters<RegionEcho>) -> Result<String, ErrorData> {
        serde_json::to_string(&args).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}

/// A running `sleep` call. Every early end counts as cancelled, including a drop.
struct SleepRun<'a> {
    sleep_counters: &'a SleepCounters,
    finished: bool,
}

impl<'a> SleepRun<'a> {
    fn start(sleep_counters: &'a SleepCounters) -> Self {
        sleep_counters.started.fetch_add(1, Relaxed);
        SleepRun {
            sleep_counters,
            finished: false,
        }
    }

    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for SleepRun<'_> {
    fn drop(&mut self) {
        let counter = if self.finished {
            &self.sleep_counters.finished
        } else {
            &self.sleep_counters.cancelled
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// A serde default for numbers.
pub(crate) fn number_default<const DEFAULT: u64>() -> u64 {
    DEFAULT
}

/// Pads `text` with `x` to `length`.
pub(crate) fn padded(mut text: String, length: u64) -> Result<String, ErrorData> {
    const MAX_TEXT_BYTES: usize = 16 << 20;
    let length = usize::try_from(length).ok().filter(|&length| length <= MAX_TEXT_BYTES);
    let length =
        length.ok_or_else(|| ErrorData::invalid_params(format!("bytes must be at most {MAX_TEXT_BYTES}"), None))?;
    text.extend(std::iter::repeat_n('x', length.saturating_sub(text.chars().count())));
    Ok(text)
}
