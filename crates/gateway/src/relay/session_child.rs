//! The child of one session: started with it, restarted after a crash, ended with it.

use super::child_slot::{self, ChildSlot, RunningChild};
use super::{raw_json, unavailable_error, with_timeout};
use crate::child::{ChildConnection, ChildPermit, ChildSpawner, OverflowPolicy, UnsolicitedMessage, bounded};
use crate::metrics;
use crate::settings::RestoreSetting;
use bytes::Bytes;
use rethread::{Peer, PreviousState, RpcError};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long a session outlives its child with `restore = expire`. Its calls get their errors in that time.
const EXPIRE_GRACE: Duration = Duration::from_millis(500);

/// The child of one session.
pub(super) struct SessionChild {
    spawner: ChildSpawner,
    peer: Peer,
    /// The `params` of the client's `initialize`. Every child of this session gets them.
    initialize_params: Bytes,
    slot: Mutex<ChildSlot<RunningChild>>,
}

impl SessionChild {
    pub(super) fn new(spawner: ChildSpawner, peer: Peer, initialize_params: Bytes) -> Arc<Self> {
        Arc::new(SessionChild {
            spawner,
            peer,
            initialize_params,
            slot: Mutex::default(),
        })
    }

    /// Starts the first child of a new session. Returns its result of `initialize`.
    pub(super) async fn open(&self, permit: ChildPermit) -> Result<Bytes, RpcError> {
        let (child, initialize_result) = self.start(permit, None).await?;
        self.slot.lock().await.fill(Ok(child))?;
        Ok(initialize_result)
    }

    /// The connection to the child, which is restarted if it has exited.
    pub(super) async fn connection(&self) -> Result<Arc<ChildConnection>, RpcError> {
        let mut slot = self.slot.lock().await;
        if slot.stopped {
            return Err(session_ended_error());
        }
        if let Some(child) = slot.live_child() {
            return Ok(Arc::clone(&child.connection));
        }
        if slot.child().is_some() && self.expires() {
            // `receive` ends the session.
            return Err(unavailable_error("its process is gone, and the session with it"));
        }
        slot.prepare_start().await?;
        let previous = self.peer.state();
        let permit = self.spawner.acquire_permit().await.map_err(unavailable_error)?;
        let started = self.start(permit, Some(&previous)).await;
        let child = slot.fill(started.map(|(child, _)| child))?;
        Ok(Arc::clone(&child.connection))
    }

    /// The connection to the child, if it is alive.
    pub(super) async fn live_connection(&self) -> Option<Arc<ChildConnection>> {
        let slot = self.slot.lock().await;
        slot.live_child().map(|child| Arc::clone(&child.connection))
    }

    /// Ends the child, and waits for its exit.
    pub(super) async fn stop(&self) {
        child_slot::stop(&self.slot).await;
    }

    /// Whether the session ends when its child exits.
    fn expires(&self) -> bool {
        self.spawner.server.restore == RestoreSetting::Expire
    }

    /// Starts a child and initializes it. With `previous` it is brought to the state of the session.
    async fn start(
        &self,
        permit: ChildPermit,
        previous: Option<&PreviousState>,
    ) -> Result<(RunningChild, Bytes), RpcError> {
        let started = Instant::now();
        let (connection, messages) =
            ChildConnection::start(&self.spawner, permit, OverflowPolicy::Wait).map_err(unavailable_error)?;
        let receive_task = tokio::spawn(receive(
            Arc::clone(&connection),
            messages,
            self.peer.clone(),
            self.expires(),
        ));
        let child = RunningChild::new(Arc::clone(&connection), receive_task);
        let limit = self.spawner.server.start_timeout;
        let initialize = async {
            let request = connection.request("initialize", &self.initialize_params);
            let result = with_timeout(limit, "answer `initialize`", request).await?;
            if let Some(previous) = previous {
                with_timeout(limit, "take up the session", replay(&connection, previous)).await?;
            }
            metrics::child_ready(&self.spawner.server.name, started.elapsed());
            Ok(result)
        };
        tokio::select! {
            initialized = initialize => initialized.map(|result| (child, result)),
            // The permit is free again at once.
            () = self.peer.ended() => Err(session_ended_error()),
        }
    }
}

pub(super) fn session_ended_error() -> RpcError {
    RpcError::internal("the session has ended")
}

/// Repeats to a new child the state that its predecessor got from the client.
async fn replay(connection: &Arc<ChildConnection>, previous: &PreviousState) -> Result<(), RpcError> {
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
    connection: Arc<ChildConnection>,
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
