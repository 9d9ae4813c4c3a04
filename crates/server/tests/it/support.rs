//! A handler whose calls a test controls step by step, and helpers for several modules.

use rethread::MemoryStore;
use rethread::store::Store;
use rethread::{Builder, McpService};
use rethread::{
    Call, Context, Handler, HeaderParams, InputRequests, LogLevel, Notification, Params, Peer, Principal, Reply,
    RpcError, ServerInfo,
};
use rethread_testkit::client::{Client, Session};
use rethread_testkit::flaky::{FlakyStore, Switches};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};

pub(crate) const V2025_03_26: &str = "2025-03-26";
pub(crate) const V2025_06_18: &str = "2025-06-18";
pub(crate) const V2025_11_25: &str = "2025-11-25";
/// The revisions with sessions on a single endpoint.
pub(crate) const LEGACY_REVISIONS: [&str; 3] = [V2025_03_26, V2025_06_18, V2025_11_25];

/// One step of a scripted call.
enum HandlerStep {
    Progress(f64),
    Log(LogLevel, String),
    Push(u64),
    Ask(&'static str, Value),
    Close,
    Finish(Value),
    Fail(RpcError),
    Panic,
}

/// The result of a step.
pub(crate) type StepResult = Result<Value, String>;

type QueuedStep = (HandlerStep, oneshot::Sender<StepResult>);

/// A handler whose tool calls execute the steps of a [`CallScript`].
#[derive(Clone)]
pub(crate) struct ScriptedHandler {
    waiting: Arc<Mutex<HashMap<String, mpsc::Receiver<QueuedStep>>>>,
    pub(crate) started: Arc<AtomicUsize>,
    pub(crate) ended: Arc<AtomicUsize>,
    pub(crate) notifications: Arc<Mutex<Vec<String>>>,
    mirrored: Arc<HeaderParams>,
}

/// Controls one call.
pub(crate) struct CallScript(mpsc::Sender<QueuedStep>);

impl ScriptedHandler {
    pub(crate) fn new() -> Self {
        ScriptedHandler {
            waiting: Arc::new(Mutex::new(HashMap::new())),
            started: Arc::default(),
            ended: Arc::default(),
            notifications: Arc::new(Mutex::new(Vec::new())),
            mirrored: Arc::new(
                HeaderParams::of_schema(&json!({ "type": "object", "properties": {
                "region": { "type": "string", "x-mcp-header": "Region" } } }))
                .unwrap(),
            ),
        }
    }

    /// Creates the script of the next call of the tool `name`.
    pub(crate) fn script(&self, name: &str) -> CallScript {
        let (sender, receiver) = mpsc::channel(16);
        self.waiting.lock().unwrap().insert(name.to_owned(), receiver);
        CallScript(sender)
    }

    /// An endpoint with this handler, and a client.
    pub(crate) fn serve(&self) -> (McpService, Client) {
        self.serve_with(|builder| builder)
    }

    pub(crate) fn serve_with(
        &self,
        configure: impl FnOnce(Builder<ScriptedHandler>) -> Builder<ScriptedHandler>,
    ) -> (McpService, Client) {
        let service = configure(McpService::builder(self.clone())).build();
        (service.clone(), Client::new(service))
    }
}

impl CallScript {
    async fn run(&self, step: HandlerStep) -> StepResult {
        let (done, outcome) = oneshot::channel();
        self.0
            .send((step, done))
            .await
            .map_err(|_| "the call has ended".to_owned())?;
        outcome.await.map_err(|_| "the call has ended".to_owned())?
    }

    pub(crate) async fn progress(&self, progress: u64) {
        self.run(HandlerStep::Progress(progress as f64)).await.unwrap();
    }

    pub(crate) async fn try_progress(&self, progress: u64) -> StepResult {
        self.run(HandlerStep::Progress(progress as f64)).await
    }

    pub(crate) async fn log(&self, level: LogLevel, text: &str) {
        self.run(HandlerStep::Log(level, text.to_owned())).await.unwrap();
    }

    pub(crate) async fn push(&self, n: u64) {
        self.run(HandlerStep::Push(n)).await.unwrap();
    }

    pub(crate) async fn ask(&self, question: &'static str, params: Value) -> StepResult {
        self.run(HandlerStep::Ask(question, params)).await
    }

    pub(crate) async fn close(&self) {
        self.run(HandlerStep::Close).await.unwrap();
    }

    /// Finishes the call with a text and waits for its end.
    pub(crate) async fn finish(&self, text: &str) {
        let result = json!({ "content": [{ "type": "text", "text": text }] });
        self.run(HandlerStep::Finish(result)).await.unwrap();
        self.wait_for_end().await;
    }

    pub(crate) async fn fail(&self, error: RpcError) {
        self.run(HandlerStep::Fail(error)).await.unwrap();
        self.wait_for_end().await;
    }

    pub(crate) async fn panic(&self) {
        let _ = self.run(HandlerStep::Panic).await;
        self.wait_for_end().await;
    }

    /// Waits until the handler has been dropped.
    pub(crate) async fn wait_for_end(&self) {
        self.0.closed().await;
        tokio::task::yield_now().await;
    }
}

struct EndCounter(Arc<AtomicUsize>);

impl Drop for EndCounter {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Handler for ScriptedHandler {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("handler", "1.0.0").with_capabilities(json!({
            "tools": { "listChanged": true }, "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true }, "logging": {},
        }))
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        match call.method() {
            "resources/subscribe" | "resources/unsubscribe" => return Ok(Reply::empty()),
            "tools/call" => {}
            other => return Err(RpcError::method_not_found(other)),
        }
        #[derive(serde::Deserialize)]
        struct Tool {
            name: String,
            #[serde(default)]
            arguments: Value,
        }
        let tool: Tool = call.params()?;
        if tool.name == "own_input" {
            return own_input(&call);
        }
        if tool.name == "echo" || tool.name == "mirrored" {
            let text = tool.arguments["message"].as_str().unwrap_or_default();
            return Ok(Reply::json(json!({ "content": [{ "type": "text", "text": text }] })));
        }
        let script = self.waiting.lock().unwrap().remove(&tool.name);
        let Some(mut steps) = script else {
            return Err(RpcError::invalid_params(format!("unknown tool: {}", tool.name)));
        };
        self.started.fetch_add(1, Ordering::Relaxed);
        let _end_counter = EndCounter(Arc::clone(&self.ended));
        loop {
            let step = tokio::select! {
                step = steps.recv() => step,
                () = cx.cancelled() => return Err(RpcError::internal("cancelled")),
            };
            let Some((step, done)) = step else {
                cx.cancelled().await; // the test dropped the script: the call never ends
                return Err(RpcError::internal("cancelled"));
            };
            let outcome = match step {
                HandlerStep::Progress(progress) => {
                    cx.progress(progress, None).await.map(|()| Value::Null).map_err(text)
                }
                HandlerStep::Log(level, message) => cx
                    .log(level, "scripted", message)
                    .await
                    .map(|()| Value::Null)
                    .map_err(text),
                HandlerStep::Push(n) => {
                    let params = json!({ "level": "info", "data": n });
                    cx.session()
                        .expect("a session")
                        .push("notifications/message", params)
                        .map(|()| Value::Null)
                        .map_err(text)
                }
                HandlerStep::Ask(question, params) => {
                    let answer = match question {
                        "sample" => cx.sample_json(params).await,
                        "elicit" => cx.elicit_json(params).await,
                        "roots" => cx.roots_json().await,
                        "ping" => {
                            let _ = done.send(cx.ping().await.map(|()| Value::Null).map_err(text));
                            continue;
                        }
                        other => panic!("unknown question: {other}"),
                    };
                    answer.map(|answer| answer.json().unwrap()).map_err(text)
                }
                HandlerStep::Close => {
                    cx.close_connection().await;
                    Ok(Value::Null)
                }
                HandlerStep::Finish(result) => {
                    let _ = done.send(Ok(Value::Null));
                    return Ok(Reply::json(result));
                }
                HandlerStep::Fail(error) => {
                    let _ = done.send(Ok(Value::Null));
                    return Err(error);
                }
                HandlerStep::Panic => panic!("on purpose"),
            };
            let _ = done.send(outcome);
        }
    }

    async fn header_params(&self, tool: &str, _: &Params, _: &Principal) -> Option<Arc<HeaderParams>> {
        (tool == "mirrored").then(|| Arc::clone(&self.mirrored))
    }

    async fn on_notification(&self, notification: Notification, _: &Peer) {
        self.notifications
            .lock()
            .unwrap()
            .push(notification.method().to_owned());
    }
}

/// A tool that returns an input-required result and stores its state with the client.
fn own_input(call: &Call) -> Result<Reply, RpcError> {
    let inputs = call.inputs();
    if let (Some(answer), Some(state)) = (inputs.response::<Value>("name")?, inputs.state()) {
        let text = format!("{} {}", String::from_utf8_lossy(state), answer["content"]["name"]);
        return Ok(Reply::json(json!({ "content": [{ "type": "text", "text": text }] })));
    }
    let mut requests = InputRequests::new();
    requests
        .ask("name", "elicitation/create", &form().to_string().into())
        .unwrap();
    Ok(Reply::input_required(requests, Some(b"state".to_vec())))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A `tools/call` request whose progress token is its id, for use in a batch.
pub(crate) fn tool_call(id: u64, name: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": name, "_meta": { "progressToken": id } } })
}

/// The text of a tool result.
pub(crate) fn result_text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {answer}"))
}

/// The values of the progress notifications.
pub(crate) fn progress_values(messages: &[rethread_testkit::client::ReceivedMessage]) -> Vec<u64> {
    let progress = |m: &rethread_testkit::client::ReceivedMessage| m.data["params"]["progress"].as_u64();
    messages.iter().filter_map(progress).collect()
}

/// The params of a form elicitation.
pub(crate) fn form() -> Value {
    json!({ "mode": "form", "message": "?", "requestedSchema": { "type": "object", "properties": {} } })
}

/// The same client with a principal.
pub(crate) fn as_principal(client: &Client, name: &'static str) -> Client {
    client.with_request_hook(move |request| {
        request
            .extensions_mut()
            .insert(Principal::new("https://issuer.example", name));
    })
}

/// A store with switchable faults around `store`.
pub(crate) fn flaky_store(store: &MemoryStore) -> (FlakyStore<MemoryStore>, Arc<Switches>) {
    let flaky = FlakyStore::new(store.clone());
    let switches = flaky.switches();
    (flaky, switches)
}

/// A session of `version` on a store with switchable faults.
pub(crate) async fn flaky_session(version: &str) -> (ScriptedHandler, Session, Arc<Switches>) {
    let handler = ScriptedHandler::new();
    let (store, switches) = flaky_store(&MemoryStore::default());
    let (_, client) = handler.serve_with(|builder| builder.store(store));
    let session = client.open(version).await;
    (handler, session, switches)
}

/// Starts a process on `store`. A second one on the same store is a restart.
pub(crate) fn start(handler: &ScriptedHandler, store: &(impl Store + Clone)) -> (McpService, Client) {
    handler.serve_with(|builder| builder.store(store.clone()))
}

/// Pushes numbers to the session from inside a call.
pub(crate) async fn push(handler: &ScriptedHandler, session: &Session, numbers: std::ops::Range<u64>) {
    let script = handler.script("pusher");
    let (reply, ()) = tokio::join!(
        session.call("pusher", "tools/call", json!({ "name": "pusher" })),
        async {
            for n in numbers {
                script.push(n).await;
            }
            script.finish("pushed").await;
        }
    );
    assert_eq!(result_text(&reply.answer().await), "pushed");
}
