//! Tools that send unsolicited messages: to this session, or to every session.

use rethread::catalog::{Catalog, NoArgs};
use rethread::{Context, ListKind, Notifier, Peer, RpcError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use tokio::task::consume_budget;

use crate::fixture::{Fixture, count, or, padded, string, tool};
use crate::resources::WATCHED;

pub(crate) fn add_to(catalog: Catalog, fixture: &Arc<Fixture>) -> Catalog {
    let [all, tools, prompts] = [(); 3].map(|()| fixture.clone());
    catalog
        .tool(
            tool(
                "push",
                "Sends messages to this session that belong to no call",
                json!({ "count": count(1), "tag": string("") }),
            ),
            push,
        )
        .tool(
            tool(
                "notify_self",
                "Sends padded messages to this session that belong to no call",
                json!({ "events": count(1), "bytes": count(32), "tag": string("") }),
            ),
            notify_self,
        )
        .tool(
            tool(
                "notify_all",
                "Sends one message to every session",
                json!({
                    "kind": { "type": "string", "enum": ["message", "tools", "prompts", "resources", "updated"] },
                    "text": string(""),
                }),
            ),
            move |args, cx| notify_all(all.clone(), args, cx),
        )
        .tool(
            tool(
                "test_trigger_tool_change",
                "Says that the tools have changed",
                json!({}),
            ),
            move |_: NoArgs, _| trigger(tools.clone(), ListKind::Tools),
        )
        .tool(
            tool(
                "test_trigger_prompt_change",
                "Says that the prompts have changed",
                json!({}),
            ),
            move |_: NoArgs, _| trigger(prompts.clone(), ListKind::Prompts),
        )
}

#[derive(Deserialize)]
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

#[derive(Deserialize)]
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct NotifyAll {
    kind: Option<Kind>,
    text: String,
}

#[derive(Deserialize)]
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

async fn trigger(fixture: Arc<Fixture>, list: ListKind) -> Result<&'static str, RpcError> {
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
