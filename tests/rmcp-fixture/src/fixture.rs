//! Tools that measure speed, delivery and resumption from outside, through the wire alone.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, schemars, tool, tool_router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::Everything;
use crate::say::progress;

/// What became of the calls of `sleep`.
#[derive(Default)]
pub(crate) struct Sleeps {
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
    #[serde(default = "or::<10>")]
    events: u64,
    #[serde(default = "or::<32>")]
    bytes: u64,
    #[serde(default = "or::<0>")]
    delay_us: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Sleep {
    #[serde(default = "or::<1000>")]
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct LogBurst {
    #[serde(default = "or::<10>")]
    count: u64,
    #[serde(default = "or::<32>")]
    bytes: u64,
}

#[derive(Deserialize, JsonSchema)]
struct CloseConnection {
    #[serde(default = "or::<500>")]
    ms: u64,
}

#[derive(Deserialize, JsonSchema, Serialize)]
struct RegionEcho {
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
    // Not `Option`: only strings, numbers and booleans may be headers, and the schema of an option is a list of types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", extend("x-mcp-header" = "N"))]
    n: Option<i64>,
}

#[tool_router(router = fixture_tools, vis = "pub(crate)")]
impl Everything {
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
        let run = Run::start(&self.process.sleeps);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(args.ms)) => {
                run.finish();
                Ok(format!("slept {}", args.ms))
            }
            () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
        }
    }

    #[tool(description = "Tells what became of the calls of sleep")]
    async fn counters(&self) -> String {
        let Sleeps {
            started,
            finished,
            cancelled,
        } = &self.process.sleeps;
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

/// One call of `sleep`. Whatever ends it before its time, also if that is a drop, counts as a cancel.
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

/// The default of a number.
pub(crate) fn or<const DEFAULT: u64>() -> u64 {
    DEFAULT
}

/// `text` and as many `x` as it takes to make it `length` long.
pub(crate) fn padded(mut text: String, length: u64) -> Result<String, ErrorData> {
    const MOST: usize = 16 << 20;
    let length = usize::try_from(length).ok().filter(|&length| length <= MOST);
    let length = length.ok_or_else(|| ErrorData::invalid_params(format!("bytes must be at most {MOST}"), None))?;
    text.extend(std::iter::repeat_n('x', length.saturating_sub(text.chars().count())));
    Ok(text)
}
