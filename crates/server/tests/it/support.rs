//! A handler on strings: the test says what a call does next, and knows when it was done.

use rethread::{Builder, McpService};
use rethread::{
    Call, Context, Handler, HeaderParams, InputRequests, LogLevel, Notification, Peer, Principal, Reply, RpcError,
    ServerInfo,
};
use rethread_testkit::client::Client;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};

pub(crate) const B: &str = "2025-03-26";
pub(crate) const C: &str = "2025-06-18";
pub(crate) const D: &str = "2025-11-25";
/// Every revision with sessions on one endpoint.
pub(crate) const SESSION_ERA: [&str; 3] = [B, C, D];

/// What a puppet does next.
enum Command {
    Progress(f64),
    Log(LogLevel, String),
    Push(u64),
    Ask(&'static str, Value),
    Close,
    Finish(Value),
    Fail(RpcError),
    Panic,
}

/// What came of it.
pub(crate) type Done = Result<Value, String>;

type Step = (Command, oneshot::Sender<Done>);

/// A handler whose `tools/call` does what the test says.
#[derive(Clone)]
pub(crate) struct Puppet {
    waiting: Arc<Mutex<HashMap<String, mpsc::Receiver<Step>>>>,
    pub(crate) started: Arc<AtomicUsize>,
    pub(crate) ended: Arc<AtomicUsize>,
    pub(crate) notices: Arc<Mutex<Vec<String>>>,
    mirrored: Arc<HeaderParams>,
}

/// The strings of one call.
pub(crate) struct Strings(mpsc::Sender<Step>);

impl Puppet {
    pub(crate) fn new() -> Self {
        Puppet {
            waiting: Arc::new(Mutex::new(HashMap::new())),
            started: Arc::default(),
            ended: Arc::default(),
            notices: Arc::new(Mutex::new(Vec::new())),
            mirrored: Arc::new(
                HeaderParams::of_schema(&json!({ "type": "object", "properties": {
                "region": { "type": "string", "x-mcp-header": "Region" } } }))
                .unwrap(),
            ),
        }
    }

    /// Strings for the next call of the tool `name`.
    pub(crate) fn strings(&self, name: &str) -> Strings {
        let (sender, receiver) = mpsc::channel(16);
        self.waiting.lock().unwrap().insert(name.to_owned(), receiver);
        Strings(sender)
    }

    /// An endpoint around this puppet, and a client of it.
    pub(crate) fn serve(&self) -> (McpService<Puppet>, Client) {
        self.serve_with(|builder| builder)
    }

    pub(crate) fn serve_with(
        &self,
        configure: impl FnOnce(Builder<Puppet>) -> Builder<Puppet>,
    ) -> (McpService<Puppet>, Client) {
        let service = configure(McpService::builder(self.clone())).build();
        (service.clone(), Client::new(service))
    }
}

impl Strings {
    async fn pull(&self, command: Command) -> Done {
        let (done, outcome) = oneshot::channel();
        self.0
            .send((command, done))
            .await
            .map_err(|_| "the call is gone".to_owned())?;
        outcome.await.map_err(|_| "the call is gone".to_owned())?
    }

    pub(crate) async fn progress(&self, progress: u64) {
        self.pull(Command::Progress(progress as f64)).await.unwrap();
    }

    pub(crate) async fn try_progress(&self, progress: u64) -> Done {
        self.pull(Command::Progress(progress as f64)).await
    }

    pub(crate) async fn log(&self, level: LogLevel, text: &str) {
        self.pull(Command::Log(level, text.to_owned())).await.unwrap();
    }

    pub(crate) async fn push(&self, n: u64) {
        self.pull(Command::Push(n)).await.unwrap();
    }

    pub(crate) async fn ask(&self, what: &'static str, params: Value) -> Done {
        self.pull(Command::Ask(what, params)).await
    }

    pub(crate) async fn close(&self) {
        self.pull(Command::Close).await.unwrap();
    }

    /// Finishes the call with a text, and waits until it is over.
    pub(crate) async fn finish(&self, text: &str) {
        let result = json!({ "content": [{ "type": "text", "text": text }] });
        self.pull(Command::Finish(result)).await.unwrap();
        self.over().await;
    }

    pub(crate) async fn fail(&self, error: RpcError) {
        self.pull(Command::Fail(error)).await.unwrap();
        self.over().await;
    }

    pub(crate) async fn panic(&self) {
        let _ = self.pull(Command::Panic).await;
        self.over().await;
    }

    /// Waits until the handler is gone.
    pub(crate) async fn over(&self) {
        self.0.closed().await;
        tokio::task::yield_now().await;
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Handler for Puppet {
    fn info(&self) -> ServerInfo {
        ServerInfo {
            capabilities: json!({
                "tools": { "listChanged": true }, "prompts": { "listChanged": true },
                "resources": { "subscribe": true, "listChanged": true }, "logging": {},
            }),
            ..ServerInfo::new("puppet", "1.0.0")
        }
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
        if tool.name == "own" {
            return own_input(&call);
        }
        if tool.name == "echo" || tool.name == "mirrored" {
            let text = tool.arguments["message"].as_str().unwrap_or_default();
            return Ok(Reply::json(json!({ "content": [{ "type": "text", "text": text }] })));
        }
        let taken = self.waiting.lock().unwrap().remove(&tool.name);
        let Some(mut steps) = taken else {
            return Err(RpcError::invalid_params(format!("unknown tool: {}", tool.name)));
        };
        self.started.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(Arc::clone(&self.ended));
        loop {
            let step = tokio::select! {
                step = steps.recv() => step,
                () = cx.cancelled() => return Err(RpcError::internal("cancelled")),
            };
            let Some((command, done)) = step else {
                cx.cancelled().await; // the test let go of the strings: the call hangs
                return Err(RpcError::internal("cancelled"));
            };
            let outcome = match command {
                Command::Progress(progress) => cx.progress(progress, None).await.map(|()| Value::Null).map_err(text),
                Command::Log(level, message) => cx
                    .log(level, "puppet", message)
                    .await
                    .map(|()| Value::Null)
                    .map_err(text),
                Command::Push(n) => {
                    let params = json!({ "level": "info", "data": n });
                    cx.session()
                        .expect("a session")
                        .push("notifications/message", params)
                        .map(|()| Value::Null)
                        .map_err(text)
                }
                Command::Ask(what, params) => {
                    let answer = match what {
                        "sample" => cx.sample(params).await,
                        "elicit" => cx.elicit(params).await,
                        "roots" => cx.roots().await,
                        "ping" => {
                            let _ = done.send(cx.ping().await.map(|()| Value::Null).map_err(text));
                            continue;
                        }
                        other => panic!("no such question: {other}"),
                    };
                    answer.map(|answer| answer.json().unwrap()).map_err(text)
                }
                Command::Close => {
                    cx.close_connection().await;
                    Ok(Value::Null)
                }
                Command::Finish(result) => {
                    let _ = done.send(Ok(Value::Null));
                    return Ok(Reply::json(result));
                }
                Command::Fail(error) => {
                    let _ = done.send(Ok(Value::Null));
                    return Err(error);
                }
                Command::Panic => panic!("as the test wished"),
            };
            let _ = done.send(outcome);
        }
    }

    async fn header_params(&self, tool: &str, _: &Principal) -> Option<Arc<HeaderParams>> {
        (tool == "mirrored").then(|| Arc::clone(&self.mirrored))
    }

    async fn on_notification(&self, notice: Notification, _: &Peer) {
        self.notices.lock().unwrap().push(notice.method().to_owned());
    }
}

/// A tool that asks in an answer of its own, and keeps its state with the client.
fn own_input(call: &Call) -> Result<Reply, RpcError> {
    let inputs = call.inputs();
    if let (Some(answer), Some(state)) = (inputs.response::<Value>("name")?, inputs.state()) {
        let text = format!("{} {}", String::from_utf8_lossy(state), answer["content"]["name"]);
        return Ok(Reply::json(json!({ "content": [{ "type": "text", "text": text }] })));
    }
    let mut requests = InputRequests::new();
    let params = json!({ "mode": "form", "message": "?", "requestedSchema": { "type": "object", "properties": {} } });
    requests
        .ask("name", "elicitation/create", &params.to_string().into())
        .unwrap();
    Ok(Reply::input_required(requests, Some(b"kept".to_vec())))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A `tools/call` with a progress token equal to its id, as a member of a batch.
pub(crate) fn tool_call(id: u64, name: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": name, "_meta": { "progressToken": id } } })
}

/// The text of a tool's answer.
pub(crate) fn text_of(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {answer}"))
}

/// The progress values among messages.
pub(crate) fn progress_of(messages: &[rethread_testkit::client::ReceivedMessage]) -> Vec<u64> {
    let progress = |m: &rethread_testkit::client::ReceivedMessage| m.data["params"]["progress"].as_u64();
    messages.iter().filter_map(progress).collect()
}
