//! The built-in stdio server: a little of everything, and one call that takes its time.

use rethread::catalog::{Catalog, NoArgs, Prompt, PromptMessage, Resource, ResourceContents, Tool};
use rethread::{Context, McpService, Notifier, RpcError};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::BufReader;

/// The resource that changes.
const UPTIME: &str = "demo://uptime";

/// How often it changes.
const CHANGES: Duration = Duration::from_secs(2);

/// How often a countdown reports.
const TICK: Duration = Duration::from_millis(500);

/// The longest countdown: an hour is enough to see anything.
const LONGEST: u64 = 3600;

/// Speaks MCP on stdin and stdout until the input ends.
pub(crate) async fn serve() -> io::Result<()> {
    let mcp = McpService::builder(catalog(Instant::now()))
        .try_build()
        .map_err(io::Error::other)?;
    let ticker = tokio::spawn(touch(mcp.notifier()));
    let (input, output) = (BufReader::new(tokio::io::stdin()), tokio::io::stdout());
    let served = mcp.serve_lines(input, output).await;
    ticker.abort();
    served
}

/// Says again and again that the resource changed. Only who subscribed to it hears of that.
async fn touch(notifier: Notifier) {
    loop {
        tokio::time::sleep(CHANGES).await;
        notifier.resource_updated(UPTIME);
    }
}

fn catalog(started: Instant) -> Catalog {
    Catalog::new("rethread-demo", env!("CARGO_PKG_VERSION"))
        .title("Rethread demo")
        .instructions("Call `countdown`, break the connection, and resume: nothing is lost.")
        .tool(
            Tool::new("countdown")
                .description("Counts down, reports progress twice a second, and says when it is done")
                .input(json!({
                    "type": "object",
                    "properties": {
                        "seconds": { "type": "integer", "minimum": 0, "maximum": LONGEST, "default": 10 },
                    },
                })),
            countdown,
        )
        .tool(
            Tool::new("echo").description("Returns its message").input(json!({
                "type": "object",
                "properties": { "message": { "type": "string" } },
                "required": ["message"],
            })),
            echo,
        )
        .tool(
            Tool::new("ask_name").description("Asks the user for a name, and greets"),
            ask_name,
        )
        .resource(
            Resource::new(UPTIME, "uptime")
                .description("For how long this server has been running; changes every two seconds")
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

#[derive(Deserialize)]
struct Countdown {
    #[serde(default = "ten")]
    seconds: u64,
}

fn ten() -> u64 {
    10
}

async fn countdown(args: Countdown, cx: Context) -> Result<String, RpcError> {
    let seconds = args.seconds;
    if seconds > LONGEST {
        return Err(RpcError::invalid_params(format!("seconds must be at most {LONGEST}")));
    }
    let ticks = seconds * 2;
    let mut clock = tokio::time::interval_at(tokio::time::Instant::now() + TICK, TICK);
    for tick in 1..=ticks {
        tokio::select! {
            _ = clock.tick() => {}
            () = cx.cancelled() => return Err(RpcError::internal("cancelled")),
        }
        let left = format!("{} seconds left", (ticks - tick) as f64 / 2.0);
        cx.progress_of(tick as f64 / 2.0, seconds as f64, left.as_str()).await?;
    }
    Ok(format!("counted down from {seconds}"))
}

#[derive(Deserialize)]
struct Echo {
    message: String,
}

async fn echo(args: Echo, _: Context) -> Result<String, RpcError> {
    Ok(args.message)
}

async fn ask_name(_: NoArgs, cx: Context) -> Result<String, RpcError> {
    #[derive(Deserialize)]
    struct Elicited {
        action: String,
        #[serde(default)]
        content: Map<String, Value>,
    }
    let question = json!({
        "message": "What is your name?",
        "requestedSchema": {
            "type": "object",
            "properties": { "name": { "type": "string", "description": "Your name" } },
            "required": ["name"],
        },
    });
    let Elicited { action, content } = cx.elicit(question).await?.json()?;
    Ok(match content.get("name").and_then(Value::as_str) {
        Some(name) if action == "accept" => format!("Hello, {name}!"),
        _ => "Hello, whoever you are!".to_owned(),
    })
}

async fn explain(args: BTreeMap<String, String>, _: Context) -> Result<PromptMessage, RpcError> {
    let topic = args.get("topic").map_or("everything", String::as_str);
    Ok(PromptMessage::user(format!("Explain {topic} in plain words.")))
}
