//! A session in front of a modern server (requirements 4.2).
//!
//! All sessions of a caller use one child. The record of a session has its data: client info, capabilities, log level and
//! subscribed URIs. So a session needs no child, and is restored without a replay.

mod listen;

use super::bridge_metrics;
use super::call::{RelayedNotification, raw_json, relay_messages};
use super::shared_child::SharedChild;
use bytes::Bytes;
use listen::Listen;
use rethread::{AskError, Call, ClientCapabilities, Context, InputMethod, Peer, Reply, RpcError, SessionStart};
use rethread_proto::bridge::down::{self, InputRequired, RoundAnswer, SessionMeta};
use rethread_proto::bridge::{Dropped, Translation};
use rethread_proto::{LogLevel, Version};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// The pauses before a call is sent again that only waits. The last one repeats.
const RETRY_DELAYS: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_secs(1),
];
/// How long a call may only wait for the server, without a question to its client.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// A session of a legacy client.
pub(super) struct DownSession {
    server: Arc<str>,
    upstream: Arc<SharedChild>,
    peer: Peer,
    meta: SessionMeta,
    version: Version,
    /// The level of a session that has set none.
    log_default: Option<LogLevel>,
    listen: Listen,
}

impl DownSession {
    pub(super) fn new(
        server: &str,
        upstream: Arc<SharedChild>,
        opening: &SessionStart,
        log_default: Option<LogLevel>,
        capabilities: &Value,
    ) -> Arc<Self> {
        let version = opening.version();
        let meta = SessionMeta::of_initialize(opening.params(), version);
        let lists = down::offered_lists(capabilities);
        Arc::new(DownSession {
            server: server.into(),
            listen: Listen::new(Arc::clone(&upstream), opening.peer().clone(), meta.clone(), lists),
            upstream,
            peer: opening.peer().clone(),
            meta,
            version,
            log_default,
        })
    }

    /// The client is ready for messages of no call.
    pub(super) async fn listen(&self) {
        self.listen.ensure().await;
    }

    fn count(&self, what: Dropped) {
        bridge_metrics::dropped(&self.server, Translation::Down, what);
    }

    /// Handles a notification of the client. A modern server gets none.
    pub(super) async fn handle_notification(&self, method: &str) {
        match method {
            "notifications/initialized" => self.listen().await,
            _ => self.count(Dropped::Notification),
        }
    }

    pub(super) async fn call(&self, call: &Call, params: Bytes, cx: &Context) -> Result<Reply, RpcError> {
        #[derive(Deserialize)]
        struct SetLevel {
            #[serde(rename = "level")]
            _level: LogLevel,
        }
        #[derive(Deserialize)]
        struct Subscription {
            uri: Box<str>,
        }
        match call.method() {
            "logging/setLevel" => {
                call.params::<SetLevel>()?; // the transport keeps it in the record
                Ok(Reply::empty())
            }
            "resources/subscribe" => {
                self.listen.subscribe(call.params::<Subscription>()?.uri).await?;
                Ok(Reply::empty())
            }
            "resources/unsubscribe" => {
                self.listen.unsubscribe(&call.params::<Subscription>()?.uri).await;
                Ok(Reply::empty())
            }
            method => {
                if self.peer.state().initialized {
                    self.listen().await; // its child may have been stopped meanwhile
                }
                let result = self.run(method, params, cx).await?;
                let (result, is_lossy) = down::result(method, &result, self.version);
                if is_lossy {
                    self.count(Dropped::Content);
                }
                Ok(Reply::raw(result))
            }
        }
    }

    /// Sends a call until it has a complete result. Each round of questions goes to the client on the stream of the call.
    async fn run(&self, method: &str, params: Bytes, cx: &Context) -> Result<Bytes, RpcError> {
        let level = self.peer.state().log_level.and_then(|level| LogLevel::parse(&level));
        let original = self.meta.request_params(&params, level.or(self.log_default));
        let mut params = original.clone();
        let mut rounds = 0;
        let mut waited = Waited::default();
        let mut urls = OpenUrls::default();
        loop {
            let connection = self.upstream.connection().await?;
            let child_call = connection.call(method, &params).await?;
            let result = relay_messages(child_call, cx, |notification| self.translate(notification)).await;
            let result = result.map_err(down::error)?;
            drop(connection);
            let Some(required) = down::input_required(&result) else {
                urls.complete(cx, |_| false).await;
                return Ok(result);
            };
            let required = required?;
            urls.complete(cx, |url| {
                required
                    .requests
                    .iter()
                    .any(|(_, _, params)| url_of(params).as_deref() == Some(url))
            })
            .await;
            let responses = if required.requests.iter().all(|(_, _, params)| urls.is_open(params)) {
                // Nothing new to ask: the server waits for something else.
                waited.wait(cx).await?;
                let accepted = Bytes::from_static(b"{\"action\":\"accept\"}");
                let keys = required
                    .requests
                    .iter()
                    .map(|(key, ..)| (key.clone(), accepted.clone()));
                keys.collect()
            } else {
                rounds += 1;
                if rounds > down::MAX_ROUNDS {
                    return Err(RpcError::internal("this call asked for input too many times"));
                }
                waited = Waited::default();
                self.ask(&required, cx, &mut urls).await?
            };
            params = down::retry_params(&original, &responses, required.state.as_ref());
        }
    }

    fn translate(&self, mut notification: RelayedNotification) -> Option<RelayedNotification> {
        notification.params = down::notification_params(&notification.params);
        Some(notification)
    }

    /// Asks all questions of a round at once. Returns the answers of this round.
    async fn ask(
        &self,
        required: &InputRequired,
        cx: &Context,
        urls: &mut OpenUrls,
    ) -> Result<Vec<(String, Bytes)>, RpcError> {
        let client = self.peer.capabilities();
        let mut asking = JoinSet::new();
        let mut responses: Vec<(String, Option<Bytes>)> = Vec::with_capacity(required.requests.len());
        let mut opened = HashMap::new();
        for (position, (key, method, params)) in required.requests.iter().enumerate() {
            responses.push((key.clone(), None));
            if urls.is_open(params) {
                responses[position].1 = Some(Bytes::from_static(b"{\"action\":\"accept\"}"));
                continue;
            }
            let elicitation_id = urls.new_id();
            let asked = self.question(*method, params, client, &elicitation_id);
            let asked = asked.inspect_err(|_| self.count(Dropped::Question))?;
            if let Some(url) = url_of(params) {
                opened.insert(position, (url, elicitation_id));
            }
            let (cx, method) = (cx.clone(), *method);
            asking.spawn(async move {
                let answer = cx.request(method.as_str(), raw_json(&asked)).await;
                let answer = answer.map(|answer| Bytes::copy_from_slice(answer.raw()));
                (position, method, answer)
            });
        }
        loop {
            let answered = tokio::select! {
                answered = asking.join_next() => answered,
                () = cx.cancelled() => return Err(RpcError::internal("cancelled")),
            };
            let Some(answered) = answered else { break };
            let (position, method, answer) = answered.map_err(|error| RpcError::internal(error.to_string()))?;
            match down::answer(method, answer.map_err(answer_error)) {
                RoundAnswer::Fails(error) => return Err(error), // dropping `asking` withdraws the others
                RoundAnswer::Response(response) => {
                    if let Some((url, id)) = opened.remove(&position).filter(|_| is_accepted(&response)) {
                        urls.opened(url, id);
                    }
                    responses[position].1 = Some(response);
                }
            }
        }
        Ok(responses
            .into_iter()
            .filter_map(|(key, response)| Some((key, response?)))
            .collect())
    }

    /// The params of a question that this client can answer.
    fn question(
        &self,
        method: InputMethod,
        params: &Bytes,
        client: ClientCapabilities,
        elicitation_id: &str,
    ) -> Result<Bytes, RpcError> {
        let asked = down::question_params(method, params, self.version, elicitation_id)?;
        let value: Value = serde_json::from_slice(params).unwrap_or_default();
        match client.lacks_for(method, &value) {
            None => Ok(asked),
            Some(lacks) => Err(RpcError::internal(format!(
                "the server asked for {lacks}, which this client did not declare"
            ))),
        }
    }
}

/// A request of a host that sends no session id (GW-27). Nothing can be asked.
pub(super) async fn call_without_session(
    upstream: &Arc<SharedChild>,
    method: &str,
    params: Bytes,
    cx: &Context,
) -> Result<Reply, RpcError> {
    if method == "logging/setLevel" {
        return Ok(Reply::empty()); // nothing could be logged
    }
    let meta = SessionMeta::of_initialize(b"{}", cx.version());
    let connection = upstream.connection().await?;
    let child_call = connection.call(method, &meta.request_params(&params, None)).await?;
    let result = relay_messages(child_call, cx, |_| None).await.map_err(down::error)?;
    if down::input_required(&result).is_some() {
        return Err(RpcError::internal("the server asked for input, which needs a session"));
    }
    Ok(Reply::raw(down::result(method, &result, cx.version()).0))
}

fn answer_error(error: AskError) -> RpcError {
    match error {
        AskError::Refused(error) => error,
        error => error.into(),
    }
}

fn is_accepted(response: &[u8]) -> bool {
    let response: Value = serde_json::from_slice(response).unwrap_or_default();
    response["action"] == "accept"
}

/// The URL of an elicitation by URL.
fn url_of(params: &[u8]) -> Option<String> {
    let params: Value = serde_json::from_slice(params).unwrap_or_default();
    let url = params["url"].as_str().filter(|_| params["mode"] == "url");
    url.map(str::to_owned)
}

/// URLs that the user has accepted to open, while the server still waits for them. A second question for one of them means
/// that the user is not done: it is not asked again.
#[derive(Default)]
struct OpenUrls {
    /// The id of the elicitation for each URL.
    ids: HashMap<String, String>,
    next_id: u64,
}

impl OpenUrls {
    fn new_id(&mut self) -> String {
        self.next_id += 1;
        let mut random = [0; 8];
        // Ids only need to differ within a session, so a failed source of randomness is harmless.
        let _ = getrandom::fill(&mut random);
        format!("e{}-{:016x}", self.next_id, u64::from_le_bytes(random))
    }

    fn is_open(&self, params: &[u8]) -> bool {
        !self.ids.is_empty() && url_of(params).is_some_and(|url| self.ids.contains_key(&url))
    }

    fn opened(&mut self, url: String, id: String) {
        self.ids.insert(url, id);
    }

    /// Notifies the client which elicitations are complete: those that the server no longer asks for.
    async fn complete(&mut self, cx: &Context, is_asked: impl Fn(&str) -> bool) {
        let done: Vec<_> = self.ids.keys().filter(|url| !is_asked(url)).cloned().collect();
        for url in done {
            if let Some(id) = self.ids.remove(&url) {
                let params = json!({ "elicitationId": id });
                let _ = cx.notify("notifications/elicitation/complete", params).await; // fails if the call has ended
            }
        }
    }
}

/// The waiting of a call that has nothing to ask.
#[derive(Default)]
struct Waited {
    times: usize,
    total: Duration,
}

impl Waited {
    async fn wait(&mut self, cx: &Context) -> Result<(), RpcError> {
        let delay = RETRY_DELAYS[self.times.min(RETRY_DELAYS.len() - 1)];
        self.times += 1;
        self.total += delay;
        if self.total > MAX_WAIT {
            return Err(RpcError::internal("the server did not finish this call in time"));
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => Ok(()),
            () = cx.cancelled() => Err(RpcError::internal("cancelled")),
        }
    }
}
