//! Parked calls of 2026-07-28: handlers that act while their call waits for input (MRTR-04, MRTR-07, T-28, T-38).

mod messages;
mod shutdown;

use crate::support::{form, result_text};
use rethread::{Call, Context, Handler, LogLevel, McpService, Reply, RpcError, ServerInfo};
use rethread_testkit::client::{Client, ReceivedMessage, Reply as Response};
use serde_json::{Value, json};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";
const INVALID_PARAMS: i64 = -32602;

type HandlerFuture = Pin<Box<dyn Future<Output = Result<Reply, RpcError>> + Send>>;

/// A handler that runs a closure for every tool call.
#[derive(Clone)]
struct ClosureHandler {
    script: Arc<dyn Fn(Context, Value) -> HandlerFuture + Send + Sync>,
    relays: bool,
    calls: Arc<AtomicUsize>,
}

impl ClosureHandler {
    fn new<W>(script: impl Fn(Context, Value) -> W + Send + Sync + 'static) -> Self
    where
        W: Future<Output = Result<Reply, RpcError>> + Send + 'static,
    {
        ClosureHandler {
            script: Arc::new(move |cx, params| Box::pin(script(cx, params))),
            relays: false,
            calls: Arc::default(),
        }
    }

    fn serve(&self) -> (McpService, Client) {
        let service = McpService::builder(self.clone()).build();
        (service.clone(), Client::new(service))
    }
}

impl Handler for ClosureHandler {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("scripted", "1")
    }

    fn options(&self) -> rethread::HandlerOptions {
        let options = rethread::HandlerOptions::new();
        if self.relays { options.relays() } else { options }
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        (self.script)(cx.clone(), call.params()?).await
    }
}

/// Synchronizes the test and the handler: one semaphore permits a step, the other reports it.
#[derive(Clone)]
struct Steps(Arc<Semaphore>, Arc<Semaphore>);

impl Steps {
    fn new() -> Self {
        Steps(Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)))
    }

    async fn allowed(&self) {
        self.0.acquire().await.unwrap().forget();
    }

    fn done(&self) {
        self.1.add_permits(1);
    }

    /// Asks a question and abandons it when the test permits the next step.
    async fn ask_until_allowed(&self, cx: &Context) {
        tokio::select! {
            answer = cx.elicit_json(form()) => drop(answer),
            () = self.allowed() => {}
        }
    }

    /// Permits one step and waits until the handler reports it.
    async fn run(&self) {
        self.0.add_permits(1);
        within_timeout("the handler reports its step", self.1.acquire())
            .await
            .unwrap()
            .forget();
    }
}

async fn within_timeout<T>(step_name: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(10), future).await;
    done.unwrap_or_else(|_| panic!("not in time: {step_name}"))
}

fn text(words: &str) -> Reply {
    Reply::json(json!({ "content": [{ "type": "text", "text": words }] }))
}

async fn call(client: &Client, id: u64, more: Value, meta: Value) -> Response {
    let mut params = json!({ "name": "t", "arguments": {} });
    params
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    within_timeout("a response", client.stateless(id, "tools/call", params, meta)).await
}

async fn park(client: &Client, id: u64, meta: Value) -> Value {
    let first = call(client, id, json!({}), meta).await.json().await;
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    first
}

fn retry_params(asked: &Value) -> Value {
    json!({ "requestState": asked["result"]["requestState"], "inputResponses": { "q1": { "action": "accept" } } })
}

async fn messages(reply: Response) -> Vec<ReceivedMessage> {
    assert!(reply.is_stream(), "the retry is answered with a stream");
    within_timeout("the end of the stream", reply.events().rest()).await
}

/// MRTR-04.
#[tokio::test]
async fn mrtr_04_handler_that_ends_while_parked_answers_the_retry_under_its_id() {
    let steps = Steps::new();
    let on = steps.clone();
    let handler = ClosureHandler::new(move |cx, params| {
        let steps = on.clone();
        async move {
            steps.ask_until_allowed(&cx).await;
            steps.done();
            match params["arguments"]["fails"].as_bool() {
                Some(true) => Err(RpcError::new(-32000, "gave up")),
                _ => Ok(text("went on without")),
            }
        }
    });
    let (service, client) = handler.serve();
    for (id, fails, more) in [
        (10, false, json!({ "inputResponses": { "q1": {} } })),
        (20, false, json!({})),
        (30, true, json!({})),
    ] {
        let arguments = json!({ "arguments": { "fails": fails } });
        let first = call(&client, id, arguments.clone(), json!({})).await.json().await;
        steps.run().await;
        let mut retry = json!({ "requestState": first["result"]["requestState"] });
        for part in [&arguments, &more] {
            retry.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        }
        let answer = call(&client, id + 1, retry.clone(), json!({})).await.json().await;
        assert_eq!(answer["id"], id + 1, "{answer}");
        match fails {
            false => assert_eq!(result_text(&answer), "went on without", "nothing is asked again"),
            true => assert_eq!(answer["error"]["message"], "gave up"),
        }
        assert_eq!((service.stats().parked_calls, service.stats().running_calls), (0, 0));
        let again = call(&client, id + 2, retry, json!({})).await.json().await;
        assert_eq!(again["error"]["code"], INVALID_PARAMS, "T-28: {again}");
    }
}

/// T-28: the handler ends while the retry arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t_28_answer_concurrent_with_the_retry_is_not_lost() {
    let steps = Steps::new();
    let on = steps.clone();
    let handler = ClosureHandler::new(move |cx, _| {
        let steps = on.clone();
        async move {
            steps.ask_until_allowed(&cx).await;
            // A large reply takes time to encode.
            let long = Reply::raw(format!("{{\"content\":[{}0]}}", "\"a\",".repeat(400_000)));
            steps.done();
            Ok(long)
        }
    });
    let (_, client) = handler.serve();
    for delay in 0..12 {
        let first = park(&client, 1, json!({})).await;
        steps.run().await;
        tokio::time::sleep(Duration::from_millis(delay)).await;
        let retrying = async { call(&client, 2, retry_params(&first), json!({})).await.json().await };
        let answer = within_timeout("the retry is answered", retrying).await;
        let content = answer["result"]["content"].as_array().map(Vec::len);
        assert_eq!((&answer["id"], content), (&json!(2), Some(400_001)));
    }
}

/// MRTR-06: the handler has stopped waiting.
#[tokio::test]
async fn mrtr_06_abandoned_question_is_not_asked_again() {
    let steps = Steps::new();
    let on = steps.clone();
    let handler = ClosureHandler::new(move |cx, _| {
        let steps = on.clone();
        async move {
            steps.ask_until_allowed(&cx).await;
            steps.done();
            cx.roots_json().await?;
            Ok(text("roots"))
        }
    });
    let (_, client) = handler.serve();
    let first = park(&client, 1, json!({})).await;
    steps.run().await;
    let state = |asked: &Value| json!({ "requestState": asked["result"]["requestState"] });
    let second = call(&client, 2, state(&first), json!({})).await.json().await;
    let asked = second["result"]["inputRequests"].as_object().unwrap();
    assert_eq!(asked.keys().collect::<Vec<_>>(), ["q2"], "{second}");
    let mut retry = state(&second);
    retry["inputResponses"] = json!({ "q2": { "roots": [] } });
    let answer = call(&client, 3, retry, json!({})).await.json().await;
    assert_eq!(result_text(&answer), "roots");
}

/// GW-07, MRTR-05: the relay's own question is parked with our seal, and its retry is not a second call. The
/// `requestState` of the server behind the relay is forwarded.
#[tokio::test]
async fn gw_07_relay_distinguishes_its_own_request_state() {
    let mut relay = ClosureHandler::new(|cx, params| async move {
        if params["requestState"] == "the server's own" {
            return Ok(text("passed on"));
        }
        let answer = cx.request("elicitation/create", form()).await?;
        Ok(text(&String::from_utf8_lossy(answer.raw())))
    });
    relay.relays = true;
    let (service, client) = relay.serve();
    let first = park(&client, 1, json!({})).await;
    let retry = retry_params(&first);
    let (mut tampered, mut other) = (retry.clone(), retry.clone());
    let mut state = retry["requestState"].as_str().unwrap().as_bytes().to_vec();
    let middle = state.len() / 2;
    state[middle] = if state[middle] == b'A' { b'B' } else { b'A' };
    tampered["requestState"] = json!(String::from_utf8(state).unwrap());
    other["arguments"] = json!({ "a": 1 });
    for (step_name, spoiled) in [("tampered", tampered), ("other arguments", other)] {
        let refused = call(&client, 2, spoiled, json!({})).await.json().await;
        assert_eq!(refused["error"]["code"], INVALID_PARAMS, "{step_name}: {refused}");
    }
    let answer = call(&client, 3, retry.clone(), json!({})).await.json().await;
    assert_eq!(
        (&answer["id"], result_text(&answer)),
        (&json!(3), r#"{"action":"accept"}"#)
    );
    assert_eq!(relay.calls.load(Ordering::Relaxed), 1, "one call");
    let replayed = call(&client, 4, retry.clone(), json!({})).await.json().await;
    assert_eq!(replayed["error"]["code"], INVALID_PARAMS, "T-28: {replayed}");
    // RST-05: the next process has another key, but it recognizes our seal and does not forward the state.
    let (_, next) = relay.serve();
    let lost = call(&next, 5, retry, json!({})).await.json().await;
    assert_eq!(lost["error"]["code"], INVALID_PARAMS, "{lost}");
    let passed = call(&client, 6, json!({ "requestState": "the server's own" }), json!({})).await;
    assert_eq!(result_text(&passed.json().await), "passed on");
    assert_eq!(relay.calls.load(Ordering::Relaxed), 2);
    assert_eq!((service.stats().parked_calls, service.stats().running_calls), (0, 0));
}

/// D13: questions that a parked call has withdrawn leave room for others.
#[tokio::test]
async fn d13_withdrawn_questions_of_a_parked_call_do_not_count() {
    let steps = Steps::new();
    let handler = ClosureHandler::new({
        let steps = steps.clone();
        move |cx, _| {
            let steps = steps.clone();
            async move {
                steps.ask_until_allowed(&cx).await;
                for _ in 0..200 {
                    let asked = tokio::time::timeout(Duration::from_micros(100), cx.elicit_json(form())).await;
                    if let Ok(Err(error)) = asked {
                        steps.done();
                        return Err(RpcError::internal(format!("{error:?}")));
                    }
                }
                steps.done();
                Ok(text("asked often"))
            }
        }
    });
    let (_, client) = handler.serve();
    let asked = park(&client, 1, json!({})).await;
    steps.run().await; // it withdraws 200 questions while it is parked
    let answer = call(&client, 2, retry_params(&asked), json!({})).await.json().await;
    assert_eq!(result_text(&answer), "asked often", "{answer}");
}

/// SEC-06: what parked calls keep is bounded in bytes, and is free again when they end.
#[tokio::test]
async fn sec_06_parked_calls_are_bounded_in_bytes() {
    let handler = ClosureHandler::new(|cx, _| async move {
        let _ = cx.elicit_json(form()).await;
        Ok(text("done"))
    });
    let limits = rethread::Limits::default().with(|limits| limits.parked_bytes = 10_000);
    let service = McpService::builder(handler).limits(limits).build();
    let client = Client::new(service.clone());
    let large = json!({ "arguments": { "x": "y".repeat(4_000) } });
    let first = call(&client, 1, large.clone(), json!({})).await.json().await;
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    let second = call(&client, 2, large.clone(), json!({})).await.json().await;
    assert_eq!(second["result"]["resultType"], "input_required", "{second}");
    let third = call(&client, 3, large.clone(), json!({})).await.json().await;
    assert_eq!(third["error"]["code"], -32603, "{third}");
    let mut retry = retry_params(&first);
    retry["arguments"] = large["arguments"].clone();
    let answer = call(&client, 4, retry, json!({})).await.json().await;
    assert_eq!(result_text(&answer), "done", "{answer}");
    let third = call(&client, 5, large, json!({})).await.json().await;
    assert_eq!(third["result"]["resultType"], "input_required", "{third}");
    assert_eq!(service.stats().parked_calls, 2);
}
