//! The built-in stdio server: tools, a changing resource, a prompt, and a call that takes long.

use crate::task;
use rethread::catalog::{Catalog, NoArgs, Prompt, PromptMessage, Resource, ResourceContents, Tool};
use rethread::{AskError, CallEnded, Context, Elicited, McpService, Notifier, RpcError};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::BufReader;

const UPTIME_URI: &str = "demo://uptime";

/// The interval of change notifications for [`UPTIME_URI`].
const UPTIME_INTERVAL: Duration = Duration::from_secs(2);

/// The interval of progress reports of a countdown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// The longest countdown. Beyond: invalid arguments.
const MAX_COUNTDOWN_SECONDS: u64 = 3600;

/// Serves MCP on stdin and stdout until the input ends.
pub(crate) async fn serve() -> io::Result<()> {
    let mcp = McpService::builder(catalog(Instant::now()))
        .try_build()
        .map_err(io::Error::other)?;
    let ticker = task::spawn(notify_uptime(mcp.notifier()));
    let (input, output) = (BufReader::new(tokio::io::stdin()), tokio::io::stdout());
    let served = mcp.serve_lines(input, output).await;
    ticker.abort();
    served
}

/// Notifies subscribers that the resource has changed, again and again.
async fn notify_uptime(notifier: Notifier) {
    loop {
        tokio::time::sleep(UPTIME_INTERVAL).await;
        notifier.resource_updated(UPTIME_URI);
    }
}

fn catalog(started: Instant) -> Catalog {
    Catalog::new("rethread-demo", env!("CARGO_PKG_VERSION"))
        .title("Rethread demo")
        .instructions("Call `countdown`, break the connection, and resume: no event is lost.")
        .tool(Tool::new("countdown"), countdown)
        .tool(Tool::new("echo"), echo)
        .tool(
            Tool::new("ask_name").description("Asks the user for a name, and greets the user"),
            ask_name,
        )
        .resource(
            Resource::new(UPTIME_URI, "uptime")
                .description("How long this server has been running; changes every two seconds")
                .mime_type("text/plain"),
            move |uri, _| async move {
                let text = format!("{} seconds", started.elapsed().as_secs());
                Ok(ResourceContents::text(uri, text))
            },
        )
        .prompt(
            Prompt::new("explain")
                .description("Asks for an explanation of a topic in plain words")
                .argument("topic", "What to explain", true),
            explain,
        )
}

/// Counts down and reports progress twice a second
#[derive(Deserialize, JsonSchema)]
struct CountdownArgs {
    #[serde(default = "default_seconds")]
    #[schemars(range(max = MAX_COUNTDOWN_SECONDS))]
    seconds: u64,
}

fn default_seconds() -> u64 {
    10
}

async fn countdown(args: CountdownArgs, cx: Context) -> Result<String, CallEnded> {
    let seconds = args.seconds;
    let ticks = seconds * 2;
    let mut clock = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
    for tick in 1..=ticks {
        tokio::select! {
            _ = clock.tick() => {}
            () = cx.cancelled() => return Err(CallEnded),
        }
        let left = format!("{} seconds left", (ticks - tick) as f64 / 2.0);
        cx.progress_of(tick as f64 / 2.0, seconds as f64, left).await?;
    }
    Ok(format!("counted down from {seconds}"))
}

/// Returns its message
#[derive(Deserialize, JsonSchema)]
struct EchoArgs {
    message: String,
}

async fn echo(args: EchoArgs, _: Context) -> String {
    args.message
}

#[derive(Deserialize, JsonSchema)]
struct NameForm {
    /// Your name
    name: String,
}

async fn ask_name(_: NoArgs, cx: Context) -> Result<String, AskError> {
    Ok(match cx.elicit("What is your name?").await? {
        Elicited::Accept(NameForm { name }) => format!("Hello, {name}!"),
        Elicited::Decline | Elicited::Cancel => "Hello, stranger!".to_owned(),
    })
}

async fn explain(args: BTreeMap<String, String>, _: Context) -> Result<PromptMessage, RpcError> {
    let topic = args.get("topic").map_or("everything", String::as_str);
    Ok(PromptMessage::user(format!("Explain {topic} in plain words.")))
}
