//! Typed questions to the client, in both eras.

use crate::support::{V2025_06_18, V2025_11_25, result_text};
use rethread::catalog::{Ask, NeedsInput, NoArgs, Tool};
use rethread::{AskError, Catalog, Context, Elicited, Inputs, McpService, SamplingRequest};
use rethread_testkit::client::Client;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize, JsonSchema)]
struct Booking {
    /// Your name
    #[schemars(length(min = 2))]
    name: String,
    meal: Option<Meal>,
}

#[derive(Debug, Deserialize, JsonSchema)]
enum Meal {
    /// With meat
    Meat,
    /// Without meat
    Plain,
}

fn describe(answer: Elicited<Booking>) -> String {
    match answer {
        Elicited::Accept(Booking { name, meal }) => format!("{name} eats {meal:?}"),
        Elicited::Decline => "declined".to_owned(),
        Elicited::Cancel => "cancelled".to_owned(),
    }
}

async fn book(_: NoArgs, cx: Context) -> Result<String, AskError> {
    Ok(describe(cx.elicit("Who travels?").await?))
}

async fn book_again(_: NoArgs, inputs: Inputs, _: Context) -> Result<String, NeedsInput> {
    let answer = inputs.elicited("booking")?;
    let answer = answer.ok_or_else(|| Ask::new().elicit::<Booking>("booking", "Who travels?"))?;
    Ok(describe(answer))
}

#[derive(Deserialize, JsonSchema)]
struct Nested {
    #[expect(dead_code, reason = "its schema counts")]
    booking: Booking,
}

async fn nested(_: NoArgs, cx: Context) -> Result<String, AskError> {
    cx.elicit::<Nested>("Who travels?").await.map(|_| String::new())
}

#[derive(Deserialize, JsonSchema)]
struct Menu {
    courses: Vec<Meal>,
}

async fn menu(_: NoArgs, cx: Context) -> Result<String, AskError> {
    let menu = cx.elicit::<Menu>("Which courses?").await?.accepted();
    Ok(format!("{:?}", menu.map(|menu| menu.courses)))
}

async fn capital(_: NoArgs, cx: Context) -> Result<String, AskError> {
    let answer = cx.sample(SamplingRequest::new("The capital of France?", 5)).await?;
    Ok(format!("{} says {}", answer.model, answer.text()))
}

async fn roots(_: NoArgs, cx: Context) -> Result<String, AskError> {
    let roots = cx.roots().await?;
    Ok(roots.into_iter().map(|root| root.uri).collect())
}

fn client() -> Client {
    let catalog = Catalog::new("asking", "1")
        .tool(Tool::new("book"), book)
        .tool_with_inputs(Tool::new("book_again"), book_again)
        .tool(Tool::new("nested"), nested)
        .tool(Tool::new("menu"), menu)
        .tool(Tool::new("capital"), capital)
        .tool(Tool::new("roots"), roots);
    Client::new(McpService::builder(catalog).build())
}

/// Calls `tool`, answers its question, and returns the question and the result.
async fn ask(client: &Client, version: &str, tool: &str, answer: Value) -> (Value, Value) {
    if version != "2026-07-28" {
        let session = client.open(version).await;
        let mut events = session.tool(1, tool, json!({})).await.events();
        let question = events.next().await.data;
        session.answer(&question["id"], answer).await;
        return (question["params"].clone(), events.next().await.data);
    }
    let call = json!({ "name": tool, "arguments": {} });
    let asked = client
        .stateless(1, "tools/call", call.clone(), json!({}))
        .await
        .json()
        .await;
    let (key, question) = asked["result"]["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let mut retry = call;
    retry["requestState"] = asked["result"]["requestState"].clone();
    if retry["requestState"].is_null() {
        retry.as_object_mut().unwrap().remove("requestState");
    }
    retry["inputResponses"] = json!({ key: answer });
    let result = client.stateless(2, "tools/call", retry, json!({})).await.json().await;
    (question["params"].clone(), result)
}

const BOTH_ERAS: [&str; 3] = [V2025_06_18, V2025_11_25, "2026-07-28"];

#[tokio::test]
async fn typed_form_is_answered_in_both_eras() {
    let client = client();
    let accept = json!({ "action": "accept", "content": { "name": "Ada", "meal": "Plain" } });
    for tool in ["book", "book_again"] {
        for version in BOTH_ERAS {
            let (question, result) = ask(&client, version, tool, accept.clone()).await;
            let mut meal = json!({ "type": "string" });
            if version == V2025_06_18 {
                meal["enum"] = json!(["Meat", "Plain"]);
                meal["enumNames"] = json!(["With meat", "Without meat"]);
            } else {
                meal["oneOf"] = json!([
                    { "const": "Meat", "title": "With meat" },
                    { "const": "Plain", "title": "Without meat" },
                ]);
            }
            let expected = json!({
                "message": "Who travels?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {
                        "name": { "type": "string", "description": "Your name", "minLength": 2 },
                        "meal": meal,
                    },
                    "required": ["name"],
                },
            });
            assert_eq!(question, expected, "{version} {tool}");
            assert_eq!(result_text(&result), "Ada eats Some(Plain)", "{version} {tool}");
            for (action, expected) in [("decline", "declined"), ("cancel", "cancelled")] {
                let (_, result) = ask(&client, version, tool, json!({ "action": action })).await;
                assert_eq!(result_text(&result), expected, "{version} {tool}");
            }
        }
    }
}

/// MRTR-06: on 2026-07-28 the answer is a parameter of the request.
#[tokio::test]
async fn mrtr_06_answer_that_violates_the_form_is_an_error() {
    let client = client();
    for (version, code) in [(V2025_11_25, -32603), ("2026-07-28", -32602)] {
        for (content, problem) in [
            (json!({ "name": "A" }), ": `name`: has 1 characters"),
            (json!({}), "`name`: missing"),
            (
                json!({ "name": "Ada", "meal": "Fish" }),
                "`meal`: \"Fish\" is not one of \"Meat\", \"Plain\"",
            ),
        ] {
            let answer = json!({ "action": "accept", "content": content });
            let (_, result) = ask(&client, version, "book", answer).await;
            assert_eq!(result["error"]["code"], code, "{version}: {result}");
            let message = result["error"]["message"].as_str().unwrap();
            assert!(
                message.contains("not what was asked for") && message.contains(problem),
                "{message}"
            );
        }
    }
}

#[tokio::test]
async fn form_that_cannot_be_asked_is_an_error_of_the_tool() {
    let client = client();
    for version in [V2025_06_18, V2025_11_25] {
        let reply = client.open(version).await.tool(1, "nested", json!({})).await;
        assert!(!reply.is_stream(), "nothing was asked");
        let error = &reply.json().await["error"];
        let expected = "a form cannot ask for `Nested`: `booking` is an object, and a form is flat";
        assert_eq!((&error["code"], &error["message"]), (&json!(-32603), &json!(expected)));
    }
}

#[tokio::test]
async fn lists_of_choices_exist_since_2025_11_25() {
    let client = client();
    let answer = json!({ "action": "accept", "content": { "courses": ["Meat", "Meat"] } });
    for version in [V2025_11_25, "2026-07-28"] {
        let (question, result) = ask(&client, version, "menu", answer.clone()).await;
        let items = &question["requestedSchema"]["properties"]["courses"]["items"];
        assert_eq!(
            items["anyOf"][0],
            json!({ "const": "Meat", "title": "With meat" }),
            "{version}"
        );
        assert_eq!(result_text(&result), "Some([Meat, Meat])", "{version}");
    }
    let reply = client.open(V2025_06_18).await.tool(1, "menu", json!({})).await;
    let error = &reply.json().await["error"];
    assert_eq!(
        error["message"],
        "the client does not support forms with lists of choices"
    );
}

#[tokio::test]
async fn model_and_roots_are_asked_in_both_eras() {
    let client = client();
    let text = json!({ "type": "text", "text": "Paris" });
    for version in BOTH_ERAS {
        let sampled = json!({ "role": "assistant", "model": "m", "content": text });
        let (question, result) = ask(&client, version, "capital", sampled).await;
        let message = json!({ "role": "user", "content": { "type": "text", "text": "The capital of France?" } });
        assert_eq!(question, json!({ "messages": [message], "maxTokens": 5 }), "{version}");
        assert_eq!(result_text(&result), "m says Paris", "{version}");
        let (_, result) = ask(&client, version, "roots", json!({ "roots": [{ "uri": "file:///a" }] })).await;
        assert_eq!(result_text(&result), "file:///a", "{version}");
        let (_, result) = ask(&client, version, "roots", json!({})).await;
        let message = result["error"]["message"].as_str().unwrap();
        assert!(message.contains("missing field `roots`"), "{message}");
    }
}
