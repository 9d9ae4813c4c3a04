//! The handler that passes everything on: one child for each session, and the child's words back to its client.

mod crashes;
mod schemas;
mod seat;
mod shared;

use crate::child::{Calling, Ground, Question, Said, read_error, wire};
use crate::settings::RestoreSetting;
use bytes::Bytes;
use parking_lot::Mutex;
use rethread::{
    Answer, AskError, Call, Context, Handler, HeaderParams, InitializeReply, Notification, OpenError, Peer, Principal,
    Reply, RpcError, ServerInfo, SessionId, SessionStart,
};
use seat::Seat;
use serde_json::json;
use serde_json::value::RawValue;
use shared::Shared;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// One server behind the gateway.
#[derive(Clone)]
pub(crate) struct Relay(Arc<Inner>);

struct Inner {
    ground: Ground,
    info: ServerInfo,
    idle: Duration,
    seats: Mutex<HashMap<SessionId, Arc<Seat>>>,
    /// The one child of all stateless requests of a caller (GW-07). Callers do not share: what a child logs cannot be told
    /// apart by request, and must not reach another.
    shared: Mutex<HashMap<Principal, Arc<Shared>>>,
    draining: watch::Sender<bool>,
}

impl Relay {
    /// A child that no stateless request has used for `idle` is ended.
    pub(crate) fn new(ground: Ground, info: ServerInfo, idle: Duration) -> Self {
        Relay(Arc::new(Inner {
            shared: Mutex::default(),
            draining: watch::Sender::new(false),
            ground,
            info,
            idle,
            seats: Mutex::default(),
        }))
    }

    fn seat(&self, session: &SessionId) -> Option<Arc<Seat>> {
        self.0.seats.lock().get(session).cloned()
    }

    /// The place of a stateless caller. Not every one has a child, but there are at most twice as many as children.
    fn shared(&self, caller: &Principal) -> Result<Arc<Shared>, RpcError> {
        let mut all = self.0.shared.lock();
        if let Some(shared) = all.get(caller) {
            return Ok(Arc::clone(shared));
        }
        // A newcomer makes room: a request must not cost more for every caller there is.
        all.retain(|_, shared| !shared.is_deserted());
        let most = self.0.ground.server.max_children.saturating_mul(2);
        if all.len() >= most {
            all.retain(|_, shared| !shared.is_vacant());
        }
        if all.len() >= most {
            return Err(unavailable(format_args!(
                "{most} callers are served already; try again later"
            )));
        }
        let shared = Shared::new(self.0.ground.clone(), self.0.idle);
        all.insert(caller.clone(), Arc::clone(&shared));
        Ok(shared)
    }

    /// Ends what would never end by itself: subscriptions.
    pub(crate) fn drain(&self) {
        self.0.draining.send_replace(true);
    }

    /// Ends every child, each in bounded time and all at once.
    pub(crate) async fn stop(&self) {
        let seats = std::mem::take(&mut *self.0.seats.lock());
        let mut stopping = JoinSet::new();
        for seat in seats.into_values() {
            stopping.spawn(async move { seat.stop().await });
        }
        let shared = std::mem::take(&mut *self.0.shared.lock());
        for shared in shared.into_values() {
            stopping.spawn(async move { shared.stop().await });
        }
        stopping.join_all().await;
    }
}

impl Handler for Relay {
    fn info(&self) -> ServerInfo {
        self.0.info.clone()
    }

    fn relays(&self) -> bool {
        true
    }

    /// GW-05: the child itself answers `initialize`. A session that comes back waits for its child only with what the child
    /// must answer: what is stored is there at once, and a server may take long to start.
    async fn open(&self, opening: &SessionStart) -> Result<InitializeReply, OpenError> {
        if opening.earlier().is_some() {
            let seat = Seat::new(self.0.ground.clone(), opening.peer().clone(), opening.params().clone());
            self.0
                .seats
                .lock()
                .insert(opening.peer().id().clone(), Arc::clone(&seat));
            tokio::spawn(async move {
                if let Err(error) = seat.link().await {
                    tracing::warn!(%error, "child of a session that came back does not start; its next call tries again");
                }
            });
            return Ok(InitializeReply::standard());
        }
        let room = self.0.ground.room().await;
        let room = room.map_err(|full| OpenError::Unavailable(full.to_string()))?;
        let id = opening.peer().id().clone();
        let seat = Seat::new(self.0.ground.clone(), opening.peer().clone(), opening.params().clone());
        let welcome = seat.begin(room).await?;
        self.0.seats.lock().insert(id, seat);
        Ok(InitializeReply::raw(welcome))
    }

    fn on_session_closed(&self, session: &SessionId) {
        let seat = self.0.seats.lock().remove(session);
        if let Some(seat) = seat {
            tokio::spawn(async move { seat.stop().await });
        }
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        let params = Bytes::copy_from_slice(call.raw_params().as_json());
        let Some(session) = cx.session() else {
            let link = self.shared(&cx.principal())?.link().await?;
            let calling = link.call(call.method(), &params).await?;
            if call.method() == "subscriptions/listen" {
                return listen(calling, cx, self.0.draining.subscribe()).await;
            }
            return pass_on(calling, cx).await;
        };
        let ended = || RpcError::internal("the session has ended");
        let seat = self.seat(session.id()).ok_or_else(ended)?;
        let link = seat.link().await?;
        pass_on(link.call(call.method(), &params).await?, cx).await
    }

    /// GW-11: the schemas are the child's, and are known before the first call that needs them.
    async fn header_params(&self, tool: &str, caller: &Principal) -> Option<Arc<HeaderParams>> {
        self.shared(caller).ok()?.header_params(tool).await
    }

    async fn on_notification(&self, notice: Notification, peer: &Peer) {
        let Some(seat) = self.seat(peer.id()) else { return };
        // A child that is started again is told anew of what matters; it need not be started for this.
        if let Some(link) = seat.link_if_alive().await {
            let _ = link.notify(notice.method(), notice.raw_params().as_json()).await;
        }
    }
}

/// Serves one call: what the child says goes to the client, until it answers.
async fn pass_on(mut calling: Calling, cx: &Context) -> Result<Reply, RpcError> {
    loop {
        let said = tokio::select! {
            said = calling.next() => said,
            () = cx.cancelled() => return Err(RpcError::internal("cancelled")), // dropping the call tells the child
        };
        match said {
            None => return Err(calling.gone()),
            Some(Said::Answered(Ok(result))) => return Ok(Reply::raw(result)),
            Some(Said::Answered(Err(error))) => return Err(read_error(&error)),
            Some(Said::Notified { method, params }) if method == "notifications/progress" => {
                // The client's token is not the gateway's, and a retry may bring another (MRTR-04).
                if let Some(report) = wire::progress_without_token(&params) {
                    cx.relay_progress(report).await?;
                }
            }
            Some(Said::Notified { method, params }) => cx.notify(&method, raw(&params)).await?,
            Some(Said::Asked(question)) => calling.link().put(question.clone(), ask(cx.clone(), question)),
            Some(Said::Withdrawn(id)) => calling.link().withdraw(&id),
            Some(Said::Closes) => cx.close_connection().await,
            Some(Said::Ended) => {}
        }
    }
}

/// Serves one subscription, under the client's own name for it (SUB-03), until either side ends it.
async fn listen(mut calling: Calling, cx: &Context, mut draining: watch::Receiver<bool>) -> Result<Reply, RpcError> {
    let id = cx.request_id();
    loop {
        let said = tokio::select! {
            said = calling.next() => said,
            () = cx.cancelled() => return Err(RpcError::internal("cancelled")),
            _ = draining.wait_for(|draining| *draining) => None,
        };
        let result = match said {
            Some(Said::Notified { method, params }) => {
                if let Some(params) = wire::with_subscription(&params, &id) {
                    cx.notify(&method, params).await?;
                }
                continue;
            }
            Some(Said::Asked(_) | Said::Withdrawn(_) | Said::Closes) => continue,
            Some(Said::Answered(Err(error))) => return Err(read_error(&error)),
            Some(Said::Answered(Ok(result))) => result,
            // SUB-06: the child is gone or has had enough. Its clients may listen anew.
            Some(Said::Ended) | None => Bytes::from_static(b"{\"resultType\":\"complete\"}"),
        };
        let result = wire::with_subscription(&result, &id);
        return Ok(Reply::raw(
            result.map_or_else(|| "{}".to_owned(), |r| r.get().to_owned()),
        ));
    }
}

/// Asks the client on the stream of a call; on one of the session's if the call has ended before that.
async fn ask(cx: Context, question: Question) -> Result<Answer, AskError> {
    let (method, params) = (&question.method, raw(&question.params));
    let answer = cx.request(method, params.clone()).await;
    match (answer, cx.session()) {
        (Err(AskError::Ended | AskError::ClientLeft), Some(peer)) if !cx.is_cancelled() => {
            peer.request(method, params).await
        }
        (answer, _) => answer,
    }
}

/// JSON as it is; `None` where there is nothing.
fn raw(json: &Bytes) -> Option<Box<RawValue>> {
    let text = String::from_utf8(json.to_vec()).ok().filter(|text| !text.is_empty())?;
    RawValue::from_string(text).ok()
}

/// What a client is told when a child cannot be had.
fn unavailable(what: impl std::fmt::Display) -> RpcError {
    RpcError::internal(format!("the server behind the gateway is not available: {what}"))
        .with_data(json!({ "reason": "server_unavailable" }))
}

/// How a seat behaves when its child is gone.
fn replays(setting: RestoreSetting) -> bool {
    setting == RestoreSetting::Replay
}

/// Waits at most `limit` for a child to do something.
async fn within<T>(
    limit: Duration,
    what: &str,
    doing: impl Future<Output = Result<T, RpcError>>,
) -> Result<T, RpcError> {
    let late = || unavailable(format_args!("it did not {what} within {} seconds", limit.as_secs_f32()));
    tokio::time::timeout(limit, doing).await.unwrap_or_else(|_| Err(late()))
}
