//! The test server, written as rmcp users write servers. Each tool exercises one feature.

use crate::support::LayerMarker;
use rethread_rmcp::RmcpHandler;
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// Controls and observes all servers of one test.
#[derive(Default)]
pub(crate) struct ServerControl {
    events: Mutex<Vec<String>>,
    recorded: Notify,
    gates: Mutex<HashMap<String, Arc<Semaphore>>>,
    pub(crate) retained_peers: Mutex<Vec<Peer<RoleServer>>>,
    /// Number of servers that the factory created.
    pub(crate) created: AtomicUsize,
    /// Supported versions; `None` means all.
    pub(crate) versions: Mutex<Option<Vec<ProtocolVersion>>>,
    /// Servers handle subscriptions with rmcp's `listen`.
    pub(crate) handles_subscriptions: AtomicBool,
    /// Servers request the roots in `on_initialized`.
    pub(crate) asks_in_on_initialized: AtomicBool,
}

impl ServerControl {
    pub(crate) fn record(&self, event: impl Into<String>) {
        self.events.lock().unwrap().push(event.into());
        self.recorded.notify_waiters();
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    /// Waits until a server has recorded `event`.
    pub(crate) async fn wait_for(&self, event: &str) {
        let poll = async {
            loop {
                let recorded = self.recorded.notified();
                if self.events().iter().any(|seen| seen == event) {
                    return;
                }
                recorded.await;
            }
        };
        let outcome = tokio::time::timeout(Duration::from_secs(30), poll).await;
        assert!(outcome.is_ok(), "no server recorded {event:?}: {:?}", self.events());
    }

    fn gate(&self, name: &str) -> Arc<Semaphore> {
        let mut gates = self.gates.lock().unwrap();
        let gate = gates
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(0)));
        Arc::clone(gate)
    }

    /// Lets one call pass the gate.
    pub(crate) fn open_gate(&self, name: &str) {
        self.gate(name).add_permits(1);
    }

    pub(crate) fn retained_peer(&self, n: usize) -> Peer<RoleServer> {
        self.retained_peers.lock().unwrap()[n].clone()
    }

    pub(crate) fn handler(self: &Arc<Self>) -> RmcpHandler<FixtureServer> {
        let control = Arc::clone(self);
        RmcpHandler::new(move || FixtureServer::new(&control))
    }
}

pub(crate) struct FixtureServer {
    control: Arc<ServerControl>,
    /// Session state that the tool `count` returns.
    count: AtomicUsize,
    /// The tool that was called last.
    last_tool: Mutex<String>,
}

impl FixtureServer {
    fn new(control: &Arc<ServerControl>) -> Self {
        control.created.fetch_add(1, Ordering::Relaxed);
        FixtureServer {
            control: Arc::clone(control),
            count: AtomicUsize::new(0),
            last_tool: Mutex::default(),
        }
    }
}

fn text_result(text: impl Into<String>) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text.into())]).into()
}

fn name_form() -> ElicitRequestParams {
    let schema = ElicitationSchema::builder().required_string("name").build();
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "Who?".to_owned(),
        requested_schema: schema.expect("a plain schema"),
    }
}

pub(crate) fn log(level: LoggingLevel, data: Value) -> LoggingMessageNotificationParam {
    LoggingMessageNotificationParam::new(level, data)
}

impl ServerHandler for FixtureServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_completions()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("fixture", "1.2.3"))
            .with_instructions("test instructions")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match &*self.control.versions.lock().unwrap() {
            Some(versions) => Cow::Owned(versions.clone()),
            None => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
        }
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let with_parts = context.extensions.get::<http::request::Parts>().is_some();
        self.control
            .record(format!("initialize {} parts {with_parts}", request.client_info.name));
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let info = context.peer.peer_info().expect("peer info after initialize");
        self.control.record(format!("initialized {}", info.protocol_version));
        if self.control.asks_in_on_initialized.load(Ordering::Relaxed)
            && let Ok(roots) = context.peer.list_roots().await
        {
            self.control.record(format!("roots at {}", roots.roots[0].uri));
        }
    }

    async fn on_cancelled(&self, params: CancelledNotificationParam, _: NotificationContext<RoleServer>) {
        self.control.record(format!("cancelled {:?}", params.request_id));
    }

    async fn on_progress(&self, params: ProgressNotificationParam, context: NotificationContext<RoleServer>) {
        assert!(
            matches!(params.progress_token.0, NumberOrString::Number(_)),
            "rmcp's own token"
        );
        let version = context.peer.peer_info().map(|info| info.protocol_version.to_string());
        let tool = self.last_tool.lock().unwrap().clone();
        self.control
            .record(format!("progress on {tool} in {}", version.unwrap_or_default()));
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        self.control.record("roots changed");
    }

    async fn on_custom_notification(&self, notification: CustomNotification, context: NotificationContext<RoleServer>) {
        let with_parts = context.extensions.get::<http::request::Parts>().is_some();
        self.control.record(format!(
            "custom {} {} parts {with_parts}",
            notification.method,
            notification.params.unwrap_or_default()
        ));
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let (method, params) = (request.method, request.params);
        let tag = context.meta.get("tag").cloned();
        Ok(CustomResult::new(
            json!({ "method": method, "params": params, "tag": tag }),
        ))
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.control.record(format!("level {:?}", request.level));
        Ok(())
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.control.record(format!("subscribe {}", request.uri));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.control.record(format!("unsubscribe {}", request.uri));
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.control
            .handles_subscriptions
            .load(Ordering::Relaxed)
            .then(|| requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.control.record("subscribed");
        let _ = context.sink().notify_tool_list_changed().await;
        context.cancelled().await;
        self.control.record("subscription ended");
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let values = vec![format!("{}!", request.argument.value)];
        Ok(CompleteResult::new(CompletionInfo::new(values).expect("few values")))
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompt = Prompt::new("greet", Some("greets"), None);
        Ok(ListPromptsResult::with_all_items(vec![prompt]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let message = PromptMessage::new_text(Role::User, format!("hello from {}", request.name));
        Ok(GetPromptResult::new(vec![message]).into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor).unwrap_or_default();
        let resource = Resource::new(format!("mem://{cursor}"), "memory");
        Ok(ListResourcesResult::with_all_items(vec![resource]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri.ends_with("missing") {
            return Err(ErrorData::resource_not_found(
                "no such resource",
                Some(json!({ "uri": request.uri })),
            ));
        }
        let contents = vec![ResourceContents::text("remember", request.uri)];
        Ok(ReadResourceResult::new(contents).into())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema =
            json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } });
        let Value::Object(schema) = schema else { unreachable!() };
        let tools = vec![Tool::new("echo", "returns its argument", Arc::new(schema))];
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let control = &self.control;
        *self.last_tool.lock().unwrap() = request.name.to_string();
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let tag = arguments["tag"].as_str().unwrap_or_default().to_owned();
        let send_failed = |error: rmcp::ServiceError| ErrorData::internal_error(format!("send failed: {error}"), None);
        match &*request.name {
            "echo" => Ok(text_result(arguments["text"].as_str().unwrap_or_default())),
            "count" => Ok(text_result(format!(
                "{}",
                self.count.fetch_add(1, Ordering::Relaxed) + 1
            ))),
            "version" => Ok(text_result(
                context.protocol_version().map(|v| v.to_string()).unwrap_or_default(),
            )),
            "fail" => Err(ErrorData::new(
                ErrorCode(-31_234),
                "on purpose",
                Some(json!({ "why": "because" })),
            )),
            "panic" => panic!("on purpose"),
            "work" => {
                let token = context.meta.get_progress_token();
                for step in 1..=3 {
                    let data = json!({ "tag": tag, "step": step });
                    context
                        .peer
                        .notify_logging_message(log(LoggingLevel::Info, data))
                        .await
                        .map_err(send_failed)?;
                    if let Some(token) = token.clone() {
                        let progress = ProgressNotificationParam::new(token, f64::from(step)).with_total(3.0);
                        context.peer.notify_progress(progress).await.map_err(send_failed)?;
                    }
                }
                let debug = log(LoggingLevel::Debug, json!({ "tag": tag, "debug": true }));
                context.peer.notify_logging_message(debug).await.map_err(send_failed)?;
                Ok(text_result(tag))
            }
            "log_at_gate" => {
                // Logs once per opened gate, `times` times.
                for n in 0..arguments["times"].as_u64().unwrap_or(1) {
                    control.gate(&tag).acquire().await.expect("gates stay open").forget();
                    let data = json!({ "tag": tag, "n": n });
                    context
                        .peer
                        .notify_logging_message(log(LoggingLevel::Info, data))
                        .await
                        .map_err(send_failed)?;
                }
                Ok(text_result(tag))
            }
            "wait" => {
                control.record(format!("waiting {tag}"));
                tokio::select! {
                    permit = async { control.gate(&tag).acquire_owned().await } => permit.expect("gates stay open").forget(),
                    () = context.ct.cancelled() => {
                        control.record(format!("stopped {tag}"));
                        return Err(ErrorData::internal_error("stopped", None));
                    }
                }
                Ok(text_result(tag))
            }
            "retain_peer" => {
                control.retained_peers.lock().unwrap().push(context.peer.clone());
                Ok(text_result(tag))
            }
            "changes" => {
                let peer = &context.peer;
                peer.notify_tool_list_changed().await.map_err(send_failed)?;
                peer.notify_prompt_list_changed().await.map_err(send_failed)?;
                peer.notify_resource_list_changed().await.map_err(send_failed)?;
                let updated = ResourceUpdatedNotificationParam::new("mem://a");
                peer.notify_resource_updated(updated).await.map_err(send_failed)?;
                let custom = CustomNotification::new("notifications/fixture/custom", Some(json!({ "tag": tag })));
                peer.send_notification(custom.into()).await.map_err(send_failed)?;
                Ok(text_result(tag))
            }
            "request_parts" => {
                let parts = context.extensions.get::<http::request::Parts>().expect("request parts");
                let marker = parts.extensions.get::<LayerMarker>().map(|marker| marker.0);
                let custom = parts.headers.get("x-custom").and_then(|value| value.to_str().ok());
                let summary = format!("{} {} {custom:?} {marker:?}", parts.method, parts.uri.path());
                Ok(text_result(summary))
            }
            "elicit" => {
                let answer = context.peer.create_elicitation(name_form()).await;
                let answer = answer.map_err(|error| ErrorData::internal_error(format!("no answer: {error}"), None))?;
                Ok(text_result(format!(
                    "{:?} {}",
                    answer.action,
                    answer.content.unwrap_or_default()
                )))
            }
            "elicit_timeout" => {
                let timeout = Some(Duration::from_millis(50));
                match context.peer.create_elicitation_with_timeout(name_form(), timeout).await {
                    Ok(_) => Ok(text_result("an answer")),
                    Err(error) => Ok(text_result(error.to_string())),
                }
            }
            "sample" => {
                let message = SamplingMessage::user_text("Say hi");
                let answer = context
                    .peer
                    .create_message(CreateMessageRequestParams::new(vec![message], 10))
                    .await;
                let answer = answer.map_err(|error| ErrorData::internal_error(format!("no answer: {error}"), None))?;
                Ok(text_result(answer.model))
            }
            "roots" => {
                let roots = context.peer.list_roots().await;
                let roots = roots.map_err(|error| ErrorData::internal_error(format!("no answer: {error}"), None))?;
                Ok(text_result(roots.roots[0].uri.clone()))
            }
            "input_required" => match (&request.input_responses, &request.request_state) {
                (None, _) => {
                    let question = ElicitRequest::new(name_form());
                    let requests = BTreeMap::from([("who".to_owned(), InputRequest::Elicitation(question))]);
                    let meta = MetaObject(serde_json::Map::from_iter([("from".to_owned(), json!("the fixture"))]));
                    let required = InputRequiredResult::new(Some(requests), Some("handler state".to_owned()));
                    Ok(required.with_meta(meta).into())
                }
                (Some(responses), state) => Ok(text_result(format!(
                    "{} {:?}",
                    responses["who"]["content"]["name"],
                    state.as_deref()
                ))),
            },
            other => Err(ErrorData::invalid_params(format!("no such tool: {other}"), None)),
        }
    }
}
