//! Tools that send unsolicited messages: to this session, or to every session.

use rethread::catalog::{Catalog, NoArgs, Tool, with_state};
use rethread::{Context, ListKind, Notifier, Peer, RpcError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::task::consume_budget;

use crate::fixture::{Fixture, or, padded};
use crate::resources::WATCHED;

pub(crate) fn add_to(catalog: Catalog, fixture: &Arc<Fixture>) -> Catalog {
    catalog
        .tool(Tool::new("push"), push)
        .tool(Tool::new("notify_self"), notify_self)
        .tool(Tool::new("notify_all"), with_state(fixture, notify_all))
        .tool(
            Tool::new("test_trigger_tool_change").description("Says that the tools have changed"),
            with_state(&(fixture.clone(), ListKind::Tools), trigger),
        )
        .tool(
            Tool::new("test_trigger_prompt_change").description("Says that the prompts have changed"),
            with_state(&(fixture.clone(), ListKind::Prompts), trigger),
        )
}

/// Sends messages to this session that belong to no call
#[derive(Deserialize, JsonSchema)]
struct Push {
    #[serde(default = "or::<1>")]
    count: u64,
    #[serde(default)]
    tag: String,
}

async fn push(args: Push, cx: Context) -> Result<String, RpcError> {
    #[derive(Serialize)]
    struct Pushed<'a> {
        push: &'a str,
        n: u64,
    }
    let push = args.tag.as_str();
    let session = session(&cx)?;
    for n in 1..=args.count {
        consume_budget().await; // a push never waits, so a long loop must yield
        session.push("notifications/message", message(Pushed { push, n }))?;
    }
    Ok(format!("pushed {}", args.count))
}

/// Sends padded messages to this session that belong to no call
#[derive(Deserialize, JsonSchema)]
struct NotifySelf {
    #[serde(default = "or::<1>")]
    events: u64,
    #[serde(default = "or::<32>")]
    bytes: u64,
    #[serde(default)]
    tag: String,
}

async fn notify_self(args: NotifySelf, cx: Context) -> Result<String, RpcError> {
    let session = session(&cx)?;
    for event in 1..=args.events {
        consume_budget().await;
        let data = padded(format!("{} {event} ", args.tag), args.bytes)?;
        session.push("notifications/message", message(data))?;
    }
    Ok(format!("notified {}", args.events))
}

/// Sends one message to every session
#[derive(Deserialize, JsonSchema)]
struct NotifyAll {
    #[schemars(with = "Kind", default)]
    kind: Option<Kind>,
    #[serde(default)]
    text: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Message,
    Tools,
    Prompts,
    Resources,
    Updated,
}

async fn notify_all(fixture: Arc<Fixture>, args: NotifyAll, cx: Context) -> Result<&'static str, RpcError> {
    let all = notifier(&fixture)?;
    let usual = if cx.version().has_sessions() {
        Kind::Message
    } else {
        Kind::Tools
    };
    match args.kind.unwrap_or(usual) {
        Kind::Message => all.broadcast("notifications/message", message(args.text)),
        Kind::Tools => all.list_changed(ListKind::Tools),
        Kind::Prompts => all.list_changed(ListKind::Prompts),
        Kind::Resources => all.list_changed(ListKind::Resources),
        Kind::Updated => all.resource_updated(WATCHED),
    }
    Ok("notified")
}

async fn trigger((fixture, list): (Arc<Fixture>, ListKind), _: NoArgs, _: Context) -> Result<&'static str, RpcError> {
    notifier(&fixture)?.list_changed(list);
    Ok("notified")
}

fn notifier(fixture: &Fixture) -> Result<&Notifier, RpcError> {
    let notifier = fixture.notifier.get();
    notifier.ok_or_else(|| RpcError::internal("not connected yet"))
}

/// The params of a `notifications/message`.
#[derive(Serialize)]
struct Message<T> {
    level: &'static str,
    logger: &'static str,
    data: T,
}

fn message<T: Serialize>(data: T) -> Message<T> {
    Message {
        level: "info",
        logger: "fixture",
        data,
    }
}

fn session(cx: &Context) -> Result<&Peer, RpcError> {
    let none = || RpcError::invalid_params("this tool needs a session, which this revision does not have");
    cx.session().ok_or_else(none)
}
