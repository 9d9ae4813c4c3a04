//! A request of a modern client in front of a legacy server (requirements 4.1).

use super::NamedParams;
use super::call::{raw_json, token_expired};
use super::lease::{Lease, LeaseUse, REQUEST_TIMEOUT};
use super::unavailable::with_timeout;
use crate::task;
use crate::upstream::{Upstream, UpstreamCall, UpstreamMessage, UpstreamQuestion, codec, parse_upstream_error};
use bytes::Bytes;
use rethread::{Answer, AskError, Call, Context, Reply, Revisions, RpcError};
use rethread_proto::bridge::Dropped;
use rethread_proto::bridge::up::{self, ClientFacts, ErrorReply, tasks};
use rethread_proto::jsonrpc::{Params, RequestId};
use rethread_proto::mrtr::{InputMethod, allows_input_required};
use rethread_proto::subscription::{Change, Filter, FilterLimits};
use serde_json::{Value, json};
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The state of a call that waits for URLs to be opened (requirements 4.1.2). Nothing of the call is kept here.
const OPENS_URLS: &[u8] = b"urls";
/// The transport has checked the filter of a subscription against its own limits.
const ANY_FILTER: FilterLimits = FilterLimits::new(usize::MAX, usize::MAX);
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// GW-19: a legacy server has no state of its own, so a state that the transport did not open is invalid.
pub(super) fn check_state(call: &Call, facts: &ClientFacts) -> Result<(), RpcError> {
    if facts.has_state && call.inputs().state().is_none() {
        return Err(RpcError::invalid_params("requestState expired or already used"));
    }
    Ok(())
}

/// Answers `server/discover`.
pub(super) async fn discover(lease: &Arc<Lease>) -> Result<Reply, RpcError> {
    let mut leased = lease.child(false).await?;
    leased.finish();
    let result = up::discover_result(&leased.child.initialize_result, Revisions::BOTH.newest_first());
    Ok(Reply::raw(result))
}

/// Sends a call to a child of the lease. `params` are those of the client. `alone` if it may ask.
pub(super) async fn call(
    lease: &Arc<Lease>,
    method: &str,
    params: &Bytes,
    facts: &ClientFacts,
    alone: bool,
    cx: &Context,
) -> Result<Reply, RpcError> {
    let leased = tokio::select! {
        leased = lease.child(alone) => leased?,
        () = cx.cancelled() => return Err(RpcError::internal("cancelled")),
    };
    let _level = leased.set_level(facts.log_level).await;
    let call = UpCall {
        lease,
        leased,
        method,
        facts,
        cx,
        questions: Questions::default(),
    };
    let params = up::request_params(params);
    let tool = (method == "tools/call").then(|| tool_name(&params)).flatten();
    match tool {
        Some(tool) if call.leased.requires_task(&tool).await? => call.run_task(&params).await,
        _ => call.run(&params).await,
    }
}

fn tool_name(params: &[u8]) -> Option<String> {
    serde_json::from_slice::<NamedParams>(params).ok()?.name
}

/// A call at a child.
struct UpCall<'a> {
    lease: &'a Arc<Lease>,
    leased: LeaseUse,
    method: &'a str,
    facts: &'a ClientFacts,
    cx: &'a Context,
    questions: Questions,
}

/// The outcome of one step of a call.
enum Step<T> {
    /// A message was relayed.
    Relayed,
    /// The call has its response.
    Response(Result<Bytes, RpcError>),
    /// The other future is ready.
    Other(T),
}

impl UpCall<'_> {
    async fn run(mut self, params: &Bytes) -> Result<Reply, RpcError> {
        let connection = self.leased.connection();
        let call = match self.leased.is_alone() {
            true => connection.call_alone(self.method, params).await?,
            false => connection.call(self.method, params).await?,
        };
        let outcome = self.response(call).await?;
        self.leased.finish();
        self.reply(outcome)
    }

    /// Runs a tool that runs only as a task: creates the task, and waits for its result.
    async fn run_task(mut self, params: &Bytes) -> Result<Reply, RpcError> {
        let connection = Arc::clone(self.leased.connection());
        let mut call = connection.open_client_call(self.leased.is_alone())?;
        let creation = call.prepare("tools/call", &tasks::task_params(params));
        // In a task of its own: a client that leaves meanwhile cancels the task, and needs its id for that.
        let mut created = task::spawn(async move { creation.await.map(|result| OpenTask::of(connection, result)) });
        let created = loop {
            if let Step::Other(created) = self.step(&mut call, &mut created).await? {
                break created.map_err(|e| RpcError::internal(e.to_string()))?;
            }
        };
        let mut task = match created {
            Err(error) => {
                self.leased.finish();
                return self.reply(Err(error));
            }
            Ok(Err(result)) => {
                self.leased.finish();
                return self.reply(Ok(result)); // the server runs it as an ordinary call
            }
            Ok(Ok(task)) => task,
        };
        call.begin("tasks/result", &tasks::task_reference(&task.id)).await?;
        let outcome = self.response(call).await?;
        task.is_finished = true;
        self.leased.finish();
        self.reply(outcome.map(|result| tasks::task_result(&result)))
    }

    /// Relays the messages of the call until its response.
    async fn response(&mut self, mut call: UpstreamCall) -> Result<Result<Bytes, RpcError>, RpcError> {
        let mut never = std::future::pending::<()>();
        loop {
            if let Step::Response(outcome) = self.step(&mut call, &mut never).await? {
                return Ok(outcome);
            }
        }
    }

    /// Relays one message of the call, unless `other` is ready.
    async fn step<T>(
        &mut self,
        call: &mut UpstreamCall,
        other: &mut (impl Future<Output = T> + Unpin),
    ) -> Result<Step<T>, RpcError> {
        let message = tokio::select! {
            message = call.next() => message,
            other = other => return Ok(Step::Other(other)),
            answered = self.questions.next() => {
                let (id, answer) = answered;
                self.leased.connection().answer(&id, answer.as_deref()).await;
                return Ok(Step::Relayed);
            }
            () = self.cx.cancelled() => {
                // The questions first, so that the child does not wait for them. Dropping `call` then cancels it.
                for (id, method) in self.questions.take_open() {
                    let answer = up::answer_expired(method);
                    self.leased.connection().answer(&id, answer.as_deref()).await;
                }
                return Err(RpcError::internal("cancelled"));
            }
        };
        match message {
            None => return Err(call.no_response_error()),
            Some(UpstreamMessage::Response(outcome)) => {
                return Ok(Step::Response(outcome.map_err(|error| parse_upstream_error(&error))));
            }
            Some(UpstreamMessage::Notification { method, params }) => self.notify(&method, &params).await?,
            Some(UpstreamMessage::Question(question)) => self.ask(question).await,
            Some(UpstreamMessage::QuestionCancelled(id)) => self.questions.withdraw(&id),
            Some(UpstreamMessage::CloseConnection | UpstreamMessage::SubscriptionEnded) => {}
        }
        Ok(Step::Relayed)
    }

    fn reply(&self, outcome: Result<Bytes, RpcError>) -> Result<Reply, RpcError> {
        let error = match outcome {
            Ok(result) => return Ok(Reply::raw(up::result(self.method, &result))),
            Err(error) => error,
        };
        match up::error(self.method, error, self.cx.client()) {
            ErrorReply::Error(error) => Err(error),
            ErrorReply::OpenUrls(requests) => Ok(Reply::input_required(requests, Some(OPENS_URLS.to_vec()))),
        }
    }

    async fn notify(&self, method: &str, params: &Bytes) -> Result<(), RpcError> {
        match method {
            "notifications/progress" => {
                // The token is the gateway's, and a retry may bring another one (MRTR-04).
                if let Some(report) = codec::remove_progress_token(params) {
                    self.cx.relay_progress(report).await?;
                }
            }
            "notifications/message" => {
                if up::wants_log(self.facts.log_level, params) {
                    self.cx.notify(method, raw_json(params)).await?;
                }
            }
            _ => self.lease.count(Dropped::Notification),
        }
        Ok(())
    }

    /// Asks the client. The call is parked until the answer comes with a retry.
    async fn ask(&mut self, question: UpstreamQuestion) {
        let UpstreamQuestion { id, method, params } = question;
        if !allows_input_required(self.method) {
            // No client can be asked during this request.
            let answer = up::answer_unsolicited(&method, self.lease.roots());
            if answer.is_err() {
                self.lease.count(Dropped::Question);
            }
            return self.leased.connection().answer(&id, answer.as_deref()).await;
        }
        match up::check_question(self.method, &method, &params, self.cx.client()) {
            Ok(asked) => self.questions.ask(self.cx.clone(), id, asked, &params),
            Err(error) => {
                self.lease.count(Dropped::Question);
                tracing::debug!(%error, "question of a child is refused");
                self.leased.connection().answer(&id, Err(&error)).await;
            }
        }
    }
}

/// A task at a child. Dropping it cancels the task, unless it has finished (CAN-05).
struct OpenTask {
    connection: Arc<dyn Upstream>,
    id: String,
    is_finished: bool,
}

impl OpenTask {
    /// The task that a result has created, or the result if it has created none.
    fn of(connection: Arc<dyn Upstream>, result: Bytes) -> Result<Self, Bytes> {
        match tasks::created_task(&result) {
            Some(id) => Ok(OpenTask {
                connection,
                id,
                is_finished: false,
            }),
            None => Err(result),
        }
    }
}

impl Drop for OpenTask {
    fn drop(&mut self) {
        if self.is_finished || !self.connection.is_alive() {
            return;
        }
        let (connection, params) = (Arc::clone(&self.connection), tasks::task_reference(&self.id));
        task::spawn(async move {
            let request = connection.request("tasks/cancel", &params);
            if let Err(error) = with_timeout(REQUEST_TIMEOUT, "cancel a task", request).await {
                tracing::debug!(%error, "child does not cancel a task");
            }
        });
    }
}

/// The questions of one call that wait for the client.
#[derive(Default)]
struct Questions {
    asking: JoinSet<(RequestId, InputMethod, Result<Answer, AskError>)>,
    open: Vec<(RequestId, InputMethod, AbortHandle)>,
}

impl Questions {
    fn ask(&mut self, cx: Context, id: RequestId, method: InputMethod, params: &Bytes) {
        let (asked, params) = (id.clone(), raw_json(params));
        let task = self.asking.spawn(async move {
            let answer = cx.request(method.as_str(), params).await;
            (asked, method, answer)
        });
        self.open.push((id, method, task));
    }

    /// The next answer for the child. Never resolves without questions.
    async fn next(&mut self) -> (RequestId, Result<Bytes, RpcError>) {
        loop {
            match self.asking.join_next().await {
                Some(Ok((id, method, answer))) => {
                    self.open.retain(|(open, ..)| *open != id);
                    let answer = match answer {
                        Ok(answer) => Ok(Bytes::copy_from_slice(answer.raw())),
                        Err(AskError::Refused(error)) => Err(error),
                        Err(AskError::Ended | AskError::TimedOut | AskError::ClientLeft) => up::answer_expired(method),
                        Err(error) => Err(error.into()),
                    };
                    return (id, answer);
                }
                Some(Err(_)) => {} // withdrawn
                None => std::future::pending().await,
            }
        }
    }

    /// The child does not wait for this answer any more. The client need not answer it.
    fn withdraw(&mut self, id: &RequestId) {
        for (_, _, task) in self.open.extract_if(.., |(open, ..)| open == id) {
            task.abort();
        }
    }

    fn take_open(&mut self) -> Vec<(RequestId, InputMethod)> {
        let open = std::mem::take(&mut self.open);
        open.into_iter()
            .map(|(id, method, task)| {
                task.abort();
                (id, method)
            })
            .collect()
    }
}

/// Serves `subscriptions/listen` from the changes of all children of the lease, until one side ends it.
pub(super) async fn listen(
    lease: &Arc<Lease>,
    params: &Params,
    cx: &Context,
    mut draining: watch::Receiver<bool>,
) -> Result<Reply, RpcError> {
    let id = cx.request_id();
    let filter = Filter::read(params, ANY_FILTER)?;
    let (listening, honoured) = lease.listen(&filter).await?;
    let meta = || json!({ SUBSCRIPTION_ID: id });
    let acknowledged = json!({ "_meta": meta(), "notifications": honoured });
    cx.notify("notifications/subscriptions/acknowledged", acknowledged)
        .await?;
    let mut expired = pin!(token_expired(cx));
    loop {
        let changes = tokio::select! {
            changes = listening.subscription.next() => changes,
            () = cx.cancelled() => return Err(RpcError::internal("cancelled")),
            _ = draining.wait_for(|draining| *draining) => None,
            () = &mut expired => None,
        };
        // SUB-06: the subscription ends with a result, and the client may subscribe again.
        let Some(changes) = changes else {
            return Ok(Reply::json(json!({ "resultType": "complete", "_meta": meta() })));
        };
        for change in changes {
            let mut params: Value = json!({ "_meta": meta() });
            if let Change::Updated(uri) = &change {
                params["uri"] = json!(&**uri);
            }
            cx.notify(change.method(), params).await?;
        }
    }
}
