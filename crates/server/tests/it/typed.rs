//! Typed tools: schemas, results and errors, in every revision.

use crate::support::{LEGACY_REVISIONS, V2025_03_26, V2025_06_18, V2025_11_25, result_text};
use rethread::catalog::{Json, NoArgs, Tool, ToolError};
use rethread::{CallEnded, Catalog, Context, McpService, RpcError};
use rethread_testkit::client::Client;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::io;
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::MakeWriter;

const V2026_07_28: &str = "2026-07-28";

/// Looks up the weather.
#[derive(Deserialize, JsonSchema)]
struct Lookup {
    /// Where to look
    city: String,
    #[serde(default)]
    unit: Unit,
    #[schemars(range(min = 1, max = 7))]
    days: Option<u8>,
}

#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unit {
    #[default]
    Celsius,
    Fahrenheit,
}

#[derive(Serialize, JsonSchema)]
struct Weather {
    /// Of the air
    temperature: f64,
    city: String,
}

async fn lookup(args: Lookup, _: Context) -> Result<Json<Weather>, ToolError> {
    let temperature = match args.unit {
        Unit::Celsius => 20.0,
        Unit::Fahrenheit => 68.0,
    };
    Ok(Json(Weather {
        temperature: temperature + f64::from(args.days.unwrap_or(0)),
        city: args.city,
    }))
}

async fn cities(_: NoArgs, _: Context) -> Json<Vec<&'static str>> {
    Json(vec!["Ulm", "Bern"])
}

fn client() -> Client {
    let catalog = Catalog::new("weather", "1")
        .tool(Tool::new("lookup"), lookup)
        .tool(Tool::new("cities").description("Lists cities"), cities);
    Client::new(McpService::builder(catalog).build())
}

async fn request(client: &Client, version: &str, method: &str, params: Value) -> Value {
    if version == V2026_07_28 {
        client.stateless(1, method, params, json!({})).await.json().await
    } else {
        client.open(version).await.call(1, method, params).await.json().await
    }
}

async fn call(client: &Client, version: &str, tool: &str, arguments: Value) -> Value {
    request(
        client,
        version,
        "tools/call",
        json!({ "name": tool, "arguments": arguments }),
    )
    .await
}

#[tokio::test]
async fn tools_are_listed_from_their_types() {
    let client = client();
    let input = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "description": "Where to look" },
            "unit": { "type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius" },
            "days": { "type": ["integer", "null"], "minimum": 1, "maximum": 7 },
        },
        "required": ["city"],
    });
    let output = json!({
        "type": "object",
        "properties": {
            "temperature": { "type": "number", "description": "Of the air" },
            "city": { "type": "string" },
        },
        "required": ["temperature", "city"],
    });
    let list = json!({ "type": "array", "items": { "type": "string" } });
    for version in LEGACY_REVISIONS.into_iter().chain([V2026_07_28]) {
        let answer = request(&client, version, "tools/list", json!({})).await;
        let mut expected = json!([
            { "name": "lookup", "description": "Looks up the weather.", "inputSchema": input },
            {
                "name": "cities", "description": "Lists cities",
                "inputSchema": { "type": "object", "properties": {} },
            },
        ]);
        if version >= V2025_06_18 {
            expected[0]["outputSchema"] = output.clone();
        }
        if version == V2026_07_28 {
            expected[1]["outputSchema"] = list.clone();
        }
        assert_eq!(answer["result"]["tools"], expected, "{version}");
    }
}

#[tokio::test]
async fn typed_results_are_structured_where_the_revision_has_it() {
    let client = client();
    for version in LEGACY_REVISIONS.into_iter().chain([V2026_07_28]) {
        let object = call(&client, version, "lookup", json!({ "city": "Ulm", "days": 2 })).await;
        assert_eq!(
            result_text(&object),
            r#"{"temperature":22.0,"city":"Ulm"}"#,
            "{version}"
        );
        let structured = json!({ "temperature": 22.0, "city": "Ulm" });
        let expected = (version != V2025_03_26).then_some(&structured);
        assert_eq!(object["result"].get("structuredContent"), expected, "{version}");
        let list = call(&client, version, "cities", json!({})).await;
        assert_eq!(result_text(&list), r#"["Ulm","Bern"]"#, "{version}");
        let structured = json!(["Ulm", "Bern"]);
        let expected = (version == V2026_07_28).then_some(&structured);
        assert_eq!(list["result"].get("structuredContent"), expected, "{version}");
    }
}

/// VER-10.
#[tokio::test]
async fn ver_10_arguments_are_checked_against_the_schema_of_their_type() {
    let client = client();
    for (arguments, expected) in [
        (json!({}), "- `city`: missing; expected: string, Where to look"),
        (
            json!({ "city": "Ulm", "days": 9 }),
            "- `days`: 9 is greater than the maximum 7",
        ),
        (
            json!({ "city": "Ulm", "unit": "kelvin" }),
            r#"- `unit`: "kelvin" is not one of "celsius", "fahrenheit""#,
        ),
    ] {
        for version in [V2025_11_25, V2026_07_28] {
            let answer = call(&client, version, "lookup", arguments.clone()).await;
            assert_eq!(answer["result"]["isError"], true, "{version}: {answer}");
            assert_eq!(
                result_text(&answer),
                format!("Invalid arguments:\n{expected}"),
                "{version}"
            );
        }
    }
}

/// Everything that is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

/// An error that its author wrote.
#[derive(Debug, thiserror::Error)]
#[error("own secret")]
struct OwnError(#[source] io::Error);

#[tokio::test]
async fn errors_are_logged_and_their_details_are_not_sent() {
    async fn of_io(_: NoArgs, _: Context) -> Result<String, ToolError> {
        Err(io::Error::other("io secret"))?;
        Ok(String::new())
    }
    async fn of_anyhow(_: NoArgs, _: Context) -> anyhow::Result<()> {
        let read: io::Result<()> = Err(io::Error::other("io secret"));
        anyhow::Context::context(read, "anyhow secret")
    }
    async fn own(_: NoArgs, _: Context) -> Result<Json<Weather>, OwnError> {
        Err(OwnError(io::Error::other("io secret")))
    }
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let catalog = Catalog::new("failing", "1")
        .tool(Tool::new("io"), of_io)
        .tool(Tool::new("anyhow"), of_anyhow)
        .tool(Tool::new("own"), own);
    let client = Client::new(McpService::builder(catalog).build());
    for (tool, cause) in [
        ("io", "io secret"),
        ("anyhow", "anyhow secret: io secret"),
        ("own", "own secret: io secret"),
    ] {
        for version in [V2025_03_26, V2025_11_25, V2026_07_28] {
            let answer = call(&client, version, tool, json!({})).await;
            let expected = "The tool failed. The log of the server has the reason.";
            assert_eq!(answer["result"]["isError"], true, "{version} {tool}: {answer}");
            assert_eq!(result_text(&answer), expected, "{version} {tool}");
            let logged = log.take();
            assert_eq!(logged.matches("function failed").count(), 1, "{logged}");
            for part in [
                format!("name=\"{tool}\""),
                format!("error={cause}"),
                "request=1".to_owned(),
            ] {
                assert!(logged.contains(&part), "{part} is not in {logged}");
            }
        }
    }
}

#[tokio::test]
async fn messages_and_protocol_errors_reach_the_client() {
    async fn message(_: NoArgs, _: Context) -> Result<(), ToolError> {
        let written: io::Result<()> = Err(io::Error::other("the disk is full"));
        written.map_err(ToolError::message)
    }
    async fn protocol(_: NoArgs, _: Context) -> Result<(), ToolError> {
        Err(RpcError::new(-32050, "busy").with_data(json!({ "seconds": 3 })))?;
        Ok(())
    }
    let log = Log::default();
    let warnings = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
    let _guard = tracing::subscriber::set_default(warnings.with_writer(log.clone()).finish());
    let catalog = Catalog::new("failing", "1")
        .tool(Tool::new("message"), message)
        .tool(Tool::new("protocol"), protocol);
    let client = Client::new(McpService::builder(catalog).build());
    let answer = call(&client, V2025_11_25, "message", json!({})).await;
    assert_eq!(
        (&answer["result"]["isError"], result_text(&answer)),
        (&json!(true), "the disk is full")
    );
    let answer = call(&client, V2025_11_25, "protocol", json!({})).await;
    assert_eq!(
        answer["error"],
        json!({ "code": -32050, "message": "busy", "data": { "seconds": 3 } })
    );
    assert_eq!(log.take(), "");
}

#[tokio::test]
async fn progress_takes_strings_of_any_type() {
    async fn report(_: NoArgs, cx: Context) -> Result<(), CallEnded> {
        let owned = "borrowed".to_owned();
        cx.progress(1.0, "literal").await?;
        cx.progress(2.0, &owned).await?;
        cx.progress(3.0, owned).await?;
        cx.progress(4.0, format!("made of {}", 4)).await?;
        cx.progress(5.0, Cow::Borrowed("cow")).await?;
        cx.progress(6.0, Some("option")).await?;
        cx.progress_of(7.0, 7.0, None).await
    }
    let catalog = Catalog::new("reporting", "1").tool(Tool::new("report"), report);
    let client = Client::new(McpService::builder(catalog).build());
    let session = client.open(V2025_11_25).await;
    let mut events = session.tool(1, "report", json!({})).await.events();
    let texts = ["literal", "borrowed", "borrowed", "made of 4", "cow", "option"];
    for text in texts {
        assert_eq!(events.next().await.data["params"]["message"], text);
    }
    assert_eq!(events.next().await.data["params"].get("message"), None);
    assert_eq!(events.next().await.data["result"], json!({ "content": [] }));
}
