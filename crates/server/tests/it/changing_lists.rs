//! Entries of a catalog that are added and removed while clients are connected.

use crate::support::{V2025_11_25, result_text};
use rethread::catalog::{
    CatalogHandle, EntryError, NoArgs, Prompt, PromptMessage, Resource, ResourceContents, ResourceTemplate, Tool,
    with_state,
};
use rethread::{Catalog, Context, McpService};
use rethread_testkit::client::{Client, Events};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const QUIET_PERIOD: Duration = Duration::from_millis(20);

async fn pong(_: NoArgs, _: Context) -> &'static str {
    "pong"
}

fn serve(catalog: Catalog) -> (CatalogHandle, McpService, Client) {
    let handle = catalog.handle();
    let service = McpService::builder(catalog).build();
    let client = Client::new(service.clone());
    (handle, service, client)
}

/// A `subscriptions/listen` stream for every list.
async fn listen(client: &Client) -> Events {
    let all = json!({ "toolsListChanged": true, "resourcesListChanged": true, "promptsListChanged": true });
    let params = json!({ "notifications": all });
    let mut events = client
        .stateless(1, "subscriptions/listen", params, json!({}))
        .await
        .events();
    let acknowledged = events.next().await.data;
    assert_eq!(acknowledged["params"]["notifications"], all);
    events
}

async fn list(client: &Client, method: &str, field: &str) -> Vec<Value> {
    let answer = client.stateless(1, method, json!({}), json!({})).await.json().await;
    answer["result"][field].as_array().unwrap().clone()
}

async fn changed(events: &mut Events, list: &str) {
    let change = events.next().await.data;
    assert_eq!(change["method"], format!("notifications/{list}/list_changed"));
}

#[tokio::test]
async fn every_change_of_a_list_is_announced_to_both_eras() {
    let (handle, _service, client) = serve(Catalog::new("changing", "1"));
    let session = client.open(V2025_11_25).await;
    let capabilities = &session.initialize_response["result"]["capabilities"];
    for list in ["tools", "resources", "prompts"] {
        assert_eq!(capabilities[list]["listChanged"], true, "{capabilities}");
    }
    let mut get = session.get(None).await.events();
    let mut listen = listen(&client).await;
    type Change<'a> = (&'a str, &'a str, &'a str, usize, &'a dyn Fn() -> bool);
    let read = |uri, _| async { Ok(ResourceContents::text(uri, "")) };
    let changes: [Change<'_>; 8] = [
        ("tools", "tools/list", "tools", 1, &|| {
            handle.add_tool(Tool::new("ping"), pong).is_ok()
        }),
        ("tools", "tools/list", "tools", 0, &|| handle.remove_tool("ping")),
        ("resources", "resources/list", "resources", 1, &|| {
            handle.add_resource(Resource::new("test://a", "a"), read).is_ok()
        }),
        ("resources", "resources/list", "resources", 0, &|| {
            handle.remove_resource("test://a")
        }),
        ("resources", "resources/templates/list", "resourceTemplates", 1, &|| {
            let template = ResourceTemplate::new("test://{a}", "a");
            handle.add_template(template, move |_, uri, cx| read(uri, cx)).is_ok()
        }),
        ("resources", "resources/templates/list", "resourceTemplates", 0, &|| {
            handle.remove_template("test://{a}")
        }),
        ("prompts", "prompts/list", "prompts", 1, &|| {
            let make = |_, _| async { Ok(PromptMessage::user("hello")) };
            handle.add_prompt(Prompt::new("p"), make).is_ok()
        }),
        ("prompts", "prompts/list", "prompts", 0, &|| handle.remove_prompt("p")),
    ];
    for (kind, method, field, entries, change) in changes {
        assert!(change(), "{method} {entries}");
        changed(&mut get, kind).await;
        changed(&mut listen, kind).await;
        assert_eq!(list(&client, method, field).await.len(), entries, "{method}");
    }
}

#[tokio::test]
async fn change_that_fails_is_not_announced() {
    let (handle, service, client) = serve(Catalog::new("changing", "1").tool(Tool::new("ping"), pong));
    let mut listen = listen(&client).await;
    let taken = EntryError::NameTaken {
        kind: "tool",
        name: "ping".to_owned(),
    };
    assert_eq!(handle.add_tool(Tool::new("ping"), pong), Err(taken));
    let invalid = handle.add_tool(Tool::new("no name"), pong).unwrap_err();
    assert!(matches!(invalid, EntryError::Invalid(_)), "{invalid}");
    let schema = json!({ "type": "object", "properties": { "a": { "type": "strng" } } });
    let invalid = handle.add_tool(Tool::new("a").input(schema), pong).unwrap_err();
    assert!(matches!(invalid, EntryError::Invalid(_)), "{invalid}");
    assert!(!handle.remove_tool("pong") && !handle.remove_prompt("ping"));
    assert!(listen.is_silent_for(QUIET_PERIOD).await);
    drop((service, client, listen));
    while !matches!(handle.add_tool(Tool::new("late"), pong), Err(EntryError::Closed)) {
        assert!(handle.remove_tool("late"));
        tokio::task::yield_now().await; // a connection that closes has the service for a moment longer
    }
    assert!(!handle.remove_tool("ping"));
}

#[tokio::test]
async fn call_of_a_removed_tool_finishes() {
    #[derive(Clone, Default)]
    struct Steps {
        started: Arc<Notify>,
        finish: Arc<Notify>,
    }
    async fn wait(steps: Steps, _: NoArgs, _: Context) -> &'static str {
        steps.started.notify_one();
        steps.finish.notified().await;
        "finished"
    }
    let steps = Steps::default();
    let catalog = Catalog::new("changing", "1").tool(Tool::new("wait"), with_state(&steps, wait));
    let (handle, _service, client) = serve(catalog);
    let session = client.open(V2025_11_25).await;
    let running = tokio::spawn({
        let session = session.clone();
        async move { session.tool(1, "wait", json!({})).await.answer().await }
    });
    steps.started.notified().await;
    assert!(handle.remove_tool("wait"));
    let late = session.tool(2, "wait", json!({})).await.json().await;
    assert_eq!(
        (&late["error"]["code"], &late["error"]["message"]),
        (&json!(-32602), &json!("unknown tool: wait"))
    );
    steps.finish.notify_one();
    assert_eq!(result_text(&running.await.unwrap()), "finished");
}

/// The body of a closure runs before its future, and must not run under the lock of the list.
#[tokio::test]
async fn tool_may_change_the_list_that_it_is_in() {
    let catalog = Catalog::new("changing", "1");
    let handle = catalog.handle();
    let replace = move |_: NoArgs, _: Context| {
        let removed = handle.remove_tool("replace");
        let added = handle.add_tool(Tool::new("ping"), pong);
        async move { format!("{removed} {added:?}") }
    };
    let catalog = catalog.tool(Tool::new("replace"), replace);
    let client = Client::new(McpService::builder(catalog).build());
    let session = client.open(V2025_11_25).await;
    let replaced = session.tool(1, "replace", json!({})).await.answer().await;
    assert_eq!(result_text(&replaced), "true Ok(())");
    let added = session.tool(2, "ping", json!({})).await.answer().await;
    assert_eq!(result_text(&added), "pong");
}

/// HDR-05: the headers of a tool that was added later are checked too.
#[tokio::test]
async fn hdr_05_added_tool_has_mirrored_headers() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Echo {
        #[schemars(extend("x-mcp-header" = "Region"))]
        region: String,
    }
    async fn echo(args: Echo, _: Context) -> String {
        args.region
    }
    let (handle, _service, client) = serve(Catalog::new("changing", "1"));
    handle.add_tool(Tool::new("echo"), echo).unwrap();
    let call = json!({ "name": "echo", "arguments": { "region": "eu" } });
    let refused = client.stateless(1, "tools/call", call.clone(), json!({})).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json().await["error"]["code"], -32020);
    let with_header = client.with_request_hook(|request| {
        let value = "eu".parse().unwrap();
        request.headers_mut().insert("mcp-param-region", value);
    });
    let answer = with_header
        .stateless(1, "tools/call", call, json!({}))
        .await
        .json()
        .await;
    assert_eq!(result_text(&answer), "eu");
}
