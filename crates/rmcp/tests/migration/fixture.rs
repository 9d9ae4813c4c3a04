//! The test server and the two transports that serve it.

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

/// Controls and observes all servers of one test.
pub(crate) struct ServerControl {
    /// Each gated step takes a permit.
    pub(crate) gate: Semaphore,
    steps: watch::Sender<usize>,
    finished: watch::Sender<usize>,
    peer: Mutex<Option<Peer<RoleServer>>>,
    /// Number of servers that the factory created.
    pub(crate) created: AtomicUsize,
}

impl ServerControl {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(ServerControl {
            gate: Semaphore::new(0),
            steps: watch::Sender::new(0),
            finished: watch::Sender::new(0),
            peer: Mutex::new(None),
            created: AtomicUsize::new(0),
        })
    }

    /// Waits until `n` steps are done in total.
    pub(crate) async fn wait_for_steps(&self, n: usize) {
        let _ = crate::client::within(self.steps.subscribe().wait_for(|done| *done >= n)).await;
    }

    /// Waits until `n` calls of `work` have finished in total.
    pub(crate) async fn wait_for_finished(&self, n: usize) {
        let _ = crate::client::within(self.finished.subscribe().wait_for(|done| *done >= n)).await;
    }

    /// Sends a log message outside of any call, in the newest session.
    pub(crate) async fn push_log(&self, text: &str) {
        let peer = self.peer.lock().unwrap().clone().expect("a session is open");
        let sending =
            peer.notify_logging_message(LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(text)));
        crate::client::within(sending).await.expect("sent");
    }
}

/// A server as rmcp users write them.
#[derive(Clone)]
pub(crate) struct FixtureServer {
    control: Arc<ServerControl>,
    count: Arc<AtomicUsize>,
    #[allow(dead_code)] // some versions of the macro do not read it
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
    /// Message bytes of each step.
    #[serde(default)]
    bytes: usize,
    #[serde(default)]
    logs: bool,
    /// Report progress in falling values.
    #[serde(default)]
    backwards: bool,
}

#[tool_router]
impl FixtureServer {
    fn new(control: &Arc<ServerControl>) -> Self {
        control.created.fetch_add(1, Ordering::Relaxed);
        FixtureServer {
            control: Arc::clone(control),
            count: Arc::default(),
            tool_router: Self::tool_router(),
        }
    }

    #[tool(description = "Return the argument")]
    fn echo(&self, Parameters(Echo { text }): Parameters<Echo>) -> String {
        text
    }

    #[tool(description = "Count the calls of the session")]
    fn count(&self) -> String {
        (self.count.fetch_add(1, Ordering::Relaxed) + 1).to_string()
    }

    #[tool(description = "Work in steps and report progress")]
    async fn work(
        &self,
        Parameters(work): Parameters<Work>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let send_failed = |error: rmcp::ServiceError| ErrorData::internal_error(format!("send failed: {error}"), None);
        let token = context.meta.get_progress_token();
        for step in 1..=work.steps {
            if work.gated {
                self.control.gate.acquire().await.expect("the gate stays open").forget();
            }
            if work.logs {
                let log = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(format!("step {step}")));
                context.peer.notify_logging_message(log).await.map_err(send_failed)?;
            }
            if let Some(token) = token.clone() {
                let step = if work.backwards { work.steps + 1 - step } else { step };
                let step = u32::try_from(step).expect("few steps");
                let progress =
                    ProgressNotificationParam::new(token, f64::from(step)).with_message("x".repeat(work.bytes));
                context.peer.notify_progress(progress).await.map_err(send_failed)?;
            }
            self.control.steps.send_modify(|done| *done += 1);
        }
        self.control.finished.send_modify(|done| *done += 1);
        Ok(format!("{} steps", work.steps))
    }

    #[tool(description = "Ask the client for a name")]
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
impl ServerHandler for FixtureServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_logging().build())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        *self.control.peer.lock().unwrap() = Some(context.peer);
    }
}

/// A listening server. Dropping it stops the server.
pub(crate) struct Endpoint {
    pub(crate) addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Endpoint {
    async fn listen(app: axum::Router) -> Self {
        let app = app.layer(tower::util::MapRequestLayer::new(authenticate));
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

/// rmcp's own transport with its defaults.
pub(crate) async fn rmcp(control: &Arc<ServerControl>) -> Endpoint {
    let config = StreamableHttpServerConfig::default();
    rmcp_with(control, config, LocalSessionManager::default()).await
}

pub(crate) async fn rmcp_with(
    control: &Arc<ServerControl>,
    config: StreamableHttpServerConfig,
    manager: LocalSessionManager,
) -> Endpoint {
    let control = Arc::clone(control);
    let service = StreamableHttpService::new(move || Ok(FixtureServer::new(&control)), Arc::new(manager), config);
    Endpoint::listen(axum::Router::new().route_service("/mcp", service)).await
}

/// Rethread with its defaults.
pub(crate) async fn rethread(control: &Arc<ServerControl>) -> Endpoint {
    rethread_with(control, |builder| builder).await.0
}

pub(crate) async fn rethread_with(
    control: &Arc<ServerControl>,
    configure: impl FnOnce(Builder<RmcpHandler<FixtureServer>>) -> Builder<RmcpHandler<FixtureServer>>,
) -> (Endpoint, McpService) {
    let control = Arc::clone(control);
    let service = configure(McpService::builder(RmcpHandler::new(move || {
        FixtureServer::new(&control)
    })))
    .build();
    let app = axum::Router::new().route_service("/mcp", service.clone());
    (Endpoint::listen(app).await, service)
}

/// A minimal auth layer: the header `x-caller` names the principal.
fn authenticate<B>(mut request: Request<B>) -> Request<B> {
    if let Some(name) = request.headers().get("x-caller") {
        let principal = Principal::new("https://issuer.example", name.to_str().unwrap().to_owned());
        request.extensions_mut().insert(principal);
    }
    request
}
