//! A server that does what tests ask of it, written as rmcp users write servers.

use crate::support::Layered;
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

/// What all servers of one test share with it.
#[derive(Default)]
pub(crate) struct Script {
    noted: Mutex<Vec<String>>,
    changed: Notify,
    gates: Mutex<HashMap<String, Arc<Semaphore>>>,
    pub(crate) kept: Mutex<Vec<Peer<RoleServer>>>,
    pub(crate) made: AtomicUsize,
    pub(crate) versions: Mutex<Option<Vec<ProtocolVersion>>>,
    /// Servers implement rmcp's own `listen`.
    pub(crate) listens: AtomicBool,
    /// Servers ask for the roots when they hear that the client is ready.
    pub(crate) asks_early: AtomicBool,
}

impl Script {
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.noted.lock().unwrap().push(what.into());
        self.changed.notify_waiters();
    }

    pub(crate) fn noted(&self) -> Vec<String> {
        self.noted.lock().unwrap().clone()
    }

    /// Waits until a server has noted `what`.
    pub(crate) async fn until(&self, what: &str) {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if self.noted().iter().any(|noted| noted == what) {
                    return;
                }
                changed.await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        assert!(waited.is_ok(), "nobody noted {what}: {:?}", self.noted());
    }

    fn gate(&self, name: &str) -> Arc<Semaphore> {
        let mut gates = self.gates.lock().unwrap();
        let gate = gates
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(0)));
        Arc::clone(gate)
    }

    /// Lets one call go on that waits at the gate.
    pub(crate) fn open(&self, name: &str) {
        self.gate(name).add_permits(1);
    }

    pub(crate) fn kept(&self, n: usize) -> Peer<RoleServer> {
        self.kept.lock().unwrap()[n].clone()
    }

    pub(crate) fn handler(self: &Arc<Self>) -> RmcpHandler<Stage> {
        let script = Arc::clone(self);
        RmcpHandler::new(move || Stage::new(&script))
    }
}

pub(crate) struct Stage {
    script: Arc<Script>,
    /// The state of a session.
    count: AtomicUsize,
    /// The tool that asked last.
    asked: Mutex<String>,
}

impl Stage {
    fn new(script: &Arc<Script>) -> Self {
        script.made.fetch_add(1, Ordering::Relaxed);
        Stage {
            script: Arc::clone(script),
            count: AtomicUsize::new(0),
            asked: Mutex::default(),
        }
    }
}

fn said(text: impl Into<String>) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text.into())]).into()
}

fn who() -> ElicitRequestParams {
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

impl ServerHandler for Stage {
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
            .with_server_info(Implementation::new("stage", "1.2.3"))
            .with_instructions("break a leg")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match &*self.script.versions.lock().unwrap() {
            Some(versions) => Cow::Owned(versions.clone()),
            None => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
        }
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let with_head = context.extensions.get::<http::request::Parts>().is_some();
        self.script
            .note(format!("initialize {} head {with_head}", request.client_info.name));
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let info = context.peer.peer_info().expect("the client is known");
        self.script.note(format!("initialized {}", info.protocol_version));
        if self.script.asks_early.load(Ordering::Relaxed)
            && let Ok(roots) = context.peer.list_roots().await
        {
            self.script.note(format!("rooted in {}", roots.roots[0].uri));
        }
    }

    async fn on_cancelled(&self, note: CancelledNotificationParam, _: NotificationContext<RoleServer>) {
        self.script.note(format!("cancelled {:?}", note.request_id));
    }

    async fn on_progress(&self, note: ProgressNotificationParam, context: NotificationContext<RoleServer>) {
        assert!(
            matches!(note.progress_token.0, NumberOrString::Number(_)),
            "as rmcp counted it"
        );
        let version = context.peer.peer_info().map(|info| info.protocol_version.to_string());
        let asked = self.asked.lock().unwrap().clone();
        self.script
            .note(format!("progress on {asked} in {}", version.unwrap_or_default()));
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        self.script.note("roots changed");
    }

    async fn on_custom_notification(&self, note: CustomNotification, context: NotificationContext<RoleServer>) {
        let head = context.extensions.get::<http::request::Parts>().is_some();
        self.script.note(format!(
            "custom {} {} head {head}",
            note.method,
            note.params.unwrap_or_default()
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
        self.script.note(format!("level {:?}", request.level));
        Ok(())
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.script.note(format!("subscribe {}", request.uri));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.script.note(format!("unsubscribe {}", request.uri));
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.script.listens.load(Ordering::Relaxed).then(|| requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.script.note("listening");
        let _ = context.sink().notify_tool_list_changed().await;
        context.cancelled().await;
        self.script.note("no longer listening");
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
                "no such memory",
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
        let tools = vec![Tool::new("echo", "says it again", Arc::new(schema))];
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let script = &self.script;
        *self.asked.lock().unwrap() = request.name.to_string();
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let tag = arguments["tag"].as_str().unwrap_or_default().to_owned();
        let broken = |error: rmcp::ServiceError| ErrorData::internal_error(format!("said in vain: {error}"), None);
        match &*request.name {
            "echo" => Ok(said(arguments["text"].as_str().unwrap_or_default())),
            "count" => Ok(said(format!("{}", self.count.fetch_add(1, Ordering::Relaxed) + 1))),
            "version" => Ok(said(
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
                        .map_err(broken)?;
                    if let Some(token) = token.clone() {
                        let progress = ProgressNotificationParam::new(token, f64::from(step)).with_total(3.0);
                        context.peer.notify_progress(progress).await.map_err(broken)?;
                    }
                }
                let whisper = log(LoggingLevel::Debug, json!({ "tag": tag, "whispered": true }));
                context.peer.notify_logging_message(whisper).await.map_err(broken)?;
                Ok(said(tag))
            }
            "chat" => {
                // Says something whenever its gate is opened, until it is opened as often as it was told to.
                for n in 0..arguments["times"].as_u64().unwrap_or(1) {
                    script.gate(&tag).acquire().await.expect("gates stay").forget();
                    let data = json!({ "tag": tag, "n": n });
                    context
                        .peer
                        .notify_logging_message(log(LoggingLevel::Info, data))
                        .await
                        .map_err(broken)?;
                }
                Ok(said(tag))
            }
            "wait" => {
                script.note(format!("waiting {tag}"));
                tokio::select! {
                    permit = async { script.gate(&tag).acquire_owned().await } => permit.expect("gates stay").forget(),
                    () = context.ct.cancelled() => {
                        script.note(format!("stopped {tag}"));
                        return Err(ErrorData::internal_error("stopped", None));
                    }
                }
                Ok(said(tag))
            }
            "keep" => {
                script.kept.lock().unwrap().push(context.peer.clone());
                Ok(said(tag))
            }
            "changes" => {
                let peer = &context.peer;
                peer.notify_tool_list_changed().await.map_err(broken)?;
                peer.notify_prompt_list_changed().await.map_err(broken)?;
                peer.notify_resource_list_changed().await.map_err(broken)?;
                let updated = ResourceUpdatedNotificationParam::new("mem://a");
                peer.notify_resource_updated(updated).await.map_err(broken)?;
                let note = CustomNotification::new("notifications/stage/custom", Some(json!({ "tag": tag })));
                peer.send_notification(note.into()).await.map_err(broken)?;
                Ok(said(tag))
            }
            "head" => {
                let parts = context
                    .extensions
                    .get::<http::request::Parts>()
                    .expect("the head is there");
                let layered = parts.extensions.get::<Layered>().map(|layered| layered.0);
                let custom = parts.headers.get("x-custom").and_then(|value| value.to_str().ok());
                let line = format!("{} {} {custom:?} {layered:?}", parts.method, parts.uri.path());
                Ok(said(line))
            }
            "elicit" => {
                let answer = context.peer.create_elicitation(who()).await;
                let answer = answer.map_err(|error| ErrorData::internal_error(format!("no answer: {error}"), None))?;
                Ok(said(format!(
                    "{:?} {}",
                    answer.action,
                    answer.content.unwrap_or_default()
                )))
            }
            "impatient" => {
                let patience = Some(Duration::from_millis(50));
                match context.peer.create_elicitation_with_timeout(who(), patience).await {
                    Ok(_) => Ok(said("an answer")),
                    Err(error) => Ok(said(error.to_string())),
                }
            }
            "sample" => {
                let message = SamplingMessage::user_text("Say hi");
                let answer = context
                    .peer
                    .create_message(CreateMessageRequestParams::new(vec![message], 10))
                    .await;
                let answer = answer.map_err(|error| ErrorData::internal_error(format!("no answer: {error}"), None))?;
                Ok(said(answer.model))
            }
            "roots" => {
                let roots = context.peer.list_roots().await;
                let roots = roots.map_err(|error| ErrorData::internal_error(format!("no answer: {error}"), None))?;
                Ok(said(roots.roots[0].uri.clone()))
            }
            "wish" => match (&request.input_responses, &request.request_state) {
                (None, _) => {
                    let ask = ElicitRequest::new(who());
                    let requests = BTreeMap::from([("who".to_owned(), InputRequest::Elicitation(ask))]);
                    let meta = MetaObject(serde_json::Map::from_iter([("from".to_owned(), json!("the stage"))]));
                    let wish = InputRequiredResult::new(Some(requests), Some("my own state".to_owned()));
                    Ok(wish.with_meta(meta).into())
                }
                (Some(responses), state) => Ok(said(format!(
                    "{} {:?}",
                    responses["who"]["content"]["name"],
                    state.as_deref()
                ))),
            },
            other => Err(ErrorData::invalid_params(format!("no such tool: {other}"), None)),
        }
    }
}
