//! The child of one session: started with it, stopped while nobody needs it, started again, ended with it.

use super::call::raw_json;
use super::child_slot::{self, ChildSlot, RunningChild};
use super::unavailable::{start_error, unavailable_error, with_timeout};
use crate::child::{ChildKind, ChildOwner, ChildPool, ChildStart, OverflowPolicy, StartError, StartedChild};
use crate::settings::RestoreSetting;
use crate::task;
use crate::upstream::{LifeEvent, StopCause, UnsolicitedMessage, Upstream, UpstreamUse, bounded};
use bytes::Bytes;
use rethread::{OpenError, Peer, PreviousState, RpcError, Tag};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long a session outlives a child that cannot be replaced. Its calls get their errors in that time.
const EXPIRE_GRACE: Duration = Duration::from_millis(500);

/// The child of one session.
pub(super) struct SessionChild {
    pool: ChildPool,
    peer: Peer,
    /// The `params` of the client's `initialize`. Every child of this session gets them.
    initialize_params: Bytes,
    /// Its lock is held while a child is started, handed out or given up.
    slot: Mutex<ChildSlot<RunningChild>>,
}

impl SessionChild {
    pub(super) fn new(pool: ChildPool, peer: Peer, initialize_params: Bytes) -> Arc<Self> {
        Arc::new(SessionChild {
            pool,
            peer,
            initialize_params,
            slot: Mutex::default(),
        })
    }

    /// Starts the first child of a new session. Returns its result of `initialize`.
    pub(super) async fn open(self: &Arc<Self>) -> Result<Bytes, OpenError> {
        let child = self.start_process().await.map_err(|error| match error {
            Some(StartError::Busy { .. }) => OpenError::Unavailable(error.map_or_else(String::new, |e| e.to_string())),
            Some(error) => unavailable_error(error).into(),
            None => session_ended_error().into(),
        })?;
        let (child, initialize_result) = self.initialize(child, None).await?;
        let mut slot = self.slot.lock().await;
        self.attach(slot.fill(Ok(child))?);
        Ok(initialize_result)
    }

    /// The connection to the child, which is started if it does not run.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<UpstreamUse, RpcError> {
        let mut slot = self.slot.lock().await;
        if slot.stopped {
            return Err(session_ended_error());
        }
        if let Some(child) = slot.live_child() {
            return Ok(child.use_child());
        }
        if slot.child().is_some() && self.expires() {
            // `receive` ends the session.
            return Err(unavailable_error("its process is gone, and the session with it"));
        }
        slot.prepare_start().await?;
        let previous = self.peer.state();
        // A missing place is not a crash, so it does not count for the backoff.
        let child = match self.start_process().await {
            Ok(child) => child,
            Err(Some(error @ StartError::Busy { .. })) => return Err(start_error(error)),
            Err(Some(error)) => return slot.fill(Err(start_error(error))).map(RunningChild::use_child),
            Err(None) => return Err(session_ended_error()),
        };
        let started = self.initialize(child, Some(&previous)).await;
        let child = slot.fill(started.map(|(child, _)| child))?;
        self.attach(child);
        Ok(child.use_child())
    }

    /// The connection to the child, if it is alive.
    pub(super) async fn live_connection(&self) -> Option<UpstreamUse> {
        let slot = self.slot.lock().await;
        slot.live_child().map(RunningChild::use_child)
    }

    /// Whether the session lives on without a process.
    pub(super) fn is_hibernated(&self) -> bool {
        self.slot.try_lock().is_ok_and(|slot| slot.child().is_none())
    }

    /// Whether no process runs or stops, and none is started: the session has no messages to expect.
    pub(super) fn has_no_process(&self) -> bool {
        self.slot
            .try_lock()
            .is_ok_and(|slot| slot.live_child().is_none() && slot.has_received_all())
    }

    /// Ends the child, and waits for its exit.
    pub(super) async fn stop(&self) {
        child_slot::stop(&self.slot).await;
    }

    /// Whether the session ends when its child exits.
    fn expires(&self) -> bool {
        self.pool.spawner().server.restore == RestoreSetting::Expire
    }

    /// Gets a process. `None` in the error means that the session has ended meanwhile.
    async fn start_process(&self) -> Result<StartedChild, Option<StartError>> {
        let start = ChildStart {
            kind: ChildKind::Session,
            principal: self.peer.principal().clone(),
            overflow: OverflowPolicy::Wait,
            idle_limit: self.pool.spawner().server.child_idle,
        };
        tokio::select! {
            started = self.pool.start(start) => started.map_err(Some),
            () = self.peer.ended() => Err(None), // the place is free again at once
        }
    }

    fn attach(self: &Arc<Self>, child: &RunningChild) {
        let owner: Arc<dyn ChildOwner> = Arc::clone(self) as Arc<dyn ChildOwner>;
        self.pool.attach(child.id, &child.connection, Arc::downgrade(&owner));
    }

    /// Initializes a child. With `previous` it is brought to the state of the session.
    async fn initialize(
        &self,
        child: StartedChild,
        previous: Option<&PreviousState>,
    ) -> Result<(RunningChild, Bytes), RpcError> {
        let began = Instant::now();
        let StartedChild {
            id,
            connection,
            messages,
        } = child;
        connection.record(LifeEvent::ServesSession(Tag::of_session(self.peer.id())));
        let receive_task = task::spawn(receive(
            Arc::clone(&connection),
            messages,
            self.peer.clone(),
            self.expires(),
        ));
        let child = RunningChild::new(id, Arc::clone(&connection), receive_task);
        let limit = self.pool.spawner().server.start_timeout;
        let initialize = async {
            let request = connection.request("initialize", &self.initialize_params);
            let result = with_timeout(limit, "answer `initialize`", request).await;
            let result = result.inspect_err(|_| self.pool.report_failed_initialize())?;
            if let Some(previous) = previous {
                self.check_version(&result)?;
                with_timeout(limit, "take up the session", replay(&connection, previous)).await?;
            }
            connection.record(LifeEvent::Started {
                replayed: previous.is_some(),
                took: began.elapsed(),
                running: self.pool.counts().running,
            });
            Ok(result)
        };
        tokio::select! {
            initialized = initialize => initialized.map(|result| (child, result)),
            // The place is free again at once.
            () = self.peer.ended() => Err(session_ended_error()),
        }
    }

    /// A child that speaks another version cannot continue the session: the client must initialize again.
    fn check_version(&self, initialize_result: &Bytes) -> Result<(), RpcError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Negotiated {
            protocol_version: String,
        }
        let negotiated = serde_json::from_slice::<Negotiated>(initialize_result);
        if negotiated.is_ok_and(|negotiated| negotiated.protocol_version == self.peer.version().as_str()) {
            return Ok(());
        }
        tracing::warn!("restarted child speaks another protocol version; its session ends");
        let peer = self.peer.clone();
        task::spawn(async move {
            tokio::time::sleep(EXPIRE_GRACE).await;
            peer.end();
        });
        Err(session_ended_error())
    }

    /// `None` if the child is needed (GW-20), otherwise the last moment in which it was.
    fn unneeded_since(&self, child: &RunningChild) -> Option<Instant> {
        let activity = self.peer.activity();
        if activity.is_in_use() || activity.subscriptions > 0 || activity.is_connection_bound {
            return None;
        }
        let last_used = Instant::now().checked_sub(activity.unused_for);
        child
            .connection
            .unused_since()
            .map(|since| last_used.map_or(since, |last| since.max(last)))
    }
}

impl ChildOwner for SessionChild {
    fn unneeded_since(&self) -> Option<Instant> {
        let slot = self.slot.try_lock().ok()?;
        self.unneeded_since(slot.live_child()?)
    }

    fn release(&self, cause: StopCause) -> bool {
        let Ok(mut slot) = self.slot.try_lock() else {
            return false; // a request has just got the child
        };
        let is_unneeded = slot
            .live_child()
            .is_some_and(|child| self.unneeded_since(child).is_some());
        if !is_unneeded {
            return false;
        }
        if let Some(child) = slot.child() {
            let running = self.pool.counts().running;
            child.connection.record(LifeEvent::Hibernated { cause, running });
        }
        slot.hibernate();
        true
    }
}

pub(super) fn session_ended_error() -> RpcError {
    RpcError::internal("the session has ended")
}

/// Repeats to a new child the state that its predecessor got from the client.
async fn replay(connection: &Arc<dyn Upstream>, previous: &PreviousState) -> Result<(), RpcError> {
    if previous.initialized {
        connection.notify("notifications/initialized", b"").await?;
    }
    let mut requests = Vec::new();
    if let Some(level) = &previous.log_level {
        requests.push(("logging/setLevel", json!({ "level": level })));
    }
    for uri in &previous.subscriptions {
        requests.push(("resources/subscribe", json!({ "uri": uri })));
    }
    for (method, params) in requests {
        if let Err(error) = connection.request(method, &params.to_string().into()).await {
            if !connection.is_alive() {
                return Err(error);
            }
            // A resource may no longer exist. The session continues without it.
            tracing::warn!(method, %error, "restarted child refuses a replayed request");
        }
    }
    Ok(())
}

/// Passes messages that belong to no call to the client. With `expires` the session ends after the child.
async fn receive(
    connection: Arc<dyn Upstream>,
    mut messages: bounded::Receiver<UnsolicitedMessage>,
    peer: Peer,
    expires: bool,
) {
    while let Some(message) = messages.recv().await {
        match message {
            UnsolicitedMessage::Notification { method, params } => {
                if peer.push(&method, raw_json(&params)).is_err() {
                    return; // the session has ended
                }
            }
            UnsolicitedMessage::Question(question) => {
                let (peer, params) = (peer.clone(), raw_json(&question.params));
                let method = question.method.clone();
                connection.answer_question(question, async move { peer.request(&method, params).await });
            }
            UnsolicitedMessage::QuestionCancelled(id) => connection.cancel_question(&id),
        }
    }
    // The child has exited before the session: the end of a session aborts this task.
    if expires {
        tokio::time::sleep(EXPIRE_GRACE).await;
        peer.end();
    }
}
