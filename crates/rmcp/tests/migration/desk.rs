//! The server of all these tests, and the two transports that serve it.

use http::Request;
use rethread::{Builder, McpService, Principal};
use rethread_rmcp::RmcpHandler;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    ElicitRequestParams, ElicitationSchema, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// What a test holds of the servers that it talks to.
pub(crate) struct Backstage {
    /// A step of work that is gated takes a permit.
    pub(crate) gate: Semaphore,
    steps: watch::Sender<usize>,
    finished: watch::Sender<usize>,
    peer: Mutex<Option<Peer<RoleServer>>>,
    /// How many servers were made.
    pub(crate) made: AtomicUsize,
}

impl Backstage {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Backstage {
            gate: Semaphore::new(0),
            steps: watch::Sender::new(0),
            finished: watch::Sender::new(0),
            peer: Mutex::new(None),
            made: AtomicUsize::new(0),
        })
    }

    /// Waits until `n` steps were done in all.
    pub(crate) async fn stepped(&self, n: usize) {
        let _ = crate::client::within(self.steps.subscribe().wait_for(|done| *done >= n)).await;
    }

    /// Waits until `n` works were finished in all.
    pub(crate) async fn finished(&self, n: usize) {
        let _ = crate::client::within(self.finished.subscribe().wait_for(|done| *done >= n)).await;
    }

    /// Says something that belongs to no call, in the session that was opened last.
    pub(crate) async fn announce(&self, text: &str) {
        let peer = self.peer.lock().unwrap().clone().expect("a session is open");
        let said = peer.notify_logging_message(LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(text)));
        crate::client::within(said).await.expect("it can be said");
    }
}

/// A server as rmcp's users write them.
#[derive(Clone)]
pub(crate) struct Desk {
    backstage: Arc<Backstage>,
    count: Arc<AtomicUsize>,
    #[allow(dead_code)] // the macro decides whether it reads it
    tool_router: ToolRouter<Self>,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Work {
    steps: usize,
    #[serde(default)]
    gated: bool,
    /// How much each step says.
    #[serde(default)]
    bytes: usize,
    #[serde(default)]
    logs: bool,
    /// Counts down.
    #[serde(default)]
    backwards: bool,
}

#[tool_router]
impl Desk {
    fn new(backstage: &Arc<Backstage>) -> Self {
        backstage.made.fetch_add(1, Ordering::Relaxed);
        Desk {
            backstage: Arc::clone(backstage),
            count: Arc::default(),
            tool_router: Self::tool_router(),
        }
    }

    #[tool(description = "Says it again")]
    fn echo(&self, Parameters(Echo { text }): Parameters<Echo>) -> String {
        text
    }

    #[tool(description = "Counts in its session")]
    fn count(&self) -> String {
        (self.count.fetch_add(1, Ordering::Relaxed) + 1).to_string()
    }

    #[tool(description = "Works in steps, and says so")]
    async fn work(
        &self,
        Parameters(work): Parameters<Work>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let broken = |error: rmcp::ServiceError| ErrorData::internal_error(format!("said in vain: {error}"), None);
        let token = context.meta.get_progress_token();
        for step in 1..=work.steps {
            if work.gated {
                self.backstage.gate.acquire().await.expect("it stays open").forget();
            }
            if work.logs {
                let log = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(format!("step {step}")));
                context.peer.notify_logging_message(log).await.map_err(broken)?;
            }
            if let Some(token) = token.clone() {
                let step = if work.backwards { work.steps + 1 - step } else { step };
                let step = u32::try_from(step).expect("not that many");
                let progress =
                    ProgressNotificationParam::new(token, f64::from(step)).with_message("x".repeat(work.bytes));
                context.peer.notify_progress(progress).await.map_err(broken)?;
            }
            self.backstage.steps.send_modify(|done| *done += 1);
        }
        self.backstage.finished.send_modify(|done| *done += 1);
        Ok(format!("{} steps", work.steps))
    }

    #[tool(description = "Asks who is there")]
    async fn ask(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let schema = ElicitationSchema::builder().required_string("name").build();
        let question = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: "Who?".to_owned(),
            requested_schema: schema.expect("a plain schema"),
        };
        let answer = context.peer.create_elicitation(question).await;
        let answer = answer.map_err(|error| ErrorData::internal_error(format!("no answer: {error}"), None))?;
        let content: Value = answer.content.unwrap_or_default();
        Ok(content["name"].as_str().unwrap_or_default().to_owned())
    }
}

#[tool_handler]
impl ServerHandler for Desk {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_logging().build())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        *self.backstage.peer.lock().unwrap() = Some(context.peer);
    }
}

/// Something that listens.
pub(crate) struct Endpoint {
    pub(crate) addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Endpoint {
    async fn of(app: axum::Router) -> Self {
        let app = app.layer(tower::util::MapRequestLayer::new(known));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Endpoint { addr, task }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// rmcp's own transport, as it comes.
pub(crate) async fn rmcp(backstage: &Arc<Backstage>) -> Endpoint {
    let config = StreamableHttpServerConfig::default();
    rmcp_with(backstage, config, LocalSessionManager::default()).await
}

pub(crate) async fn rmcp_with(
    backstage: &Arc<Backstage>,
    config: StreamableHttpServerConfig,
    manager: LocalSessionManager,
) -> Endpoint {
    let backstage = Arc::clone(backstage);
    let service = StreamableHttpService::new(move || Ok(Desk::new(&backstage)), Arc::new(manager), config);
    Endpoint::of(axum::Router::new().route_service("/mcp", service)).await
}

/// Ours, as it comes.
pub(crate) async fn rethread(backstage: &Arc<Backstage>) -> Endpoint {
    rethread_with(backstage, |builder| builder).await.0
}

pub(crate) async fn rethread_with(
    backstage: &Arc<Backstage>,
    configure: impl FnOnce(Builder<RmcpHandler<Desk>>) -> Builder<RmcpHandler<Desk>>,
) -> (Endpoint, McpService<RmcpHandler<Desk>>) {
    let backstage = Arc::clone(backstage);
    let service = configure(McpService::builder(RmcpHandler::new(move || Desk::new(&backstage)))).build();
    let app = axum::Router::new().route_service("/mcp", service.clone());
    (Endpoint::of(app).await, service)
}

/// An auth layer, as far as a test needs one.
fn known<B>(mut request: Request<B>) -> Request<B> {
    if let Some(name) = request.headers().get("x-caller") {
        let principal = Principal::new("https://issuer.example", name.to_str().unwrap().to_owned());
        request.extensions_mut().insert(principal);
    }
    request
}
