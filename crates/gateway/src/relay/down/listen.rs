//! The one subscription of a session at a modern server: list changes, and the URIs of the client.
//!
//! To change it, the new one is opened first and the old one is closed after that, so that no change is missed.

use crate::relay::call::raw_json;
use crate::relay::shared_child::SharedChild;
use crate::relay::unavailable::with_timeout;
use crate::task::{self, AbortOnDrop};
use crate::upstream::{UpstreamCall, UpstreamMessage, UpstreamUse, parse_upstream_error};
use parking_lot::Mutex as SyncMutex;
use rethread::store::ListKind;
use rethread::{Peer, RpcError};
use rethread_proto::bridge::down::{self, SessionMeta};
use rethread_proto::bridge::up;
use rethread_proto::jsonrpc::code;
use rethread_proto::subscription::{Change, Filter};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
/// How long the server may take to acknowledge a subscription.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses before a subscription that the server ended is opened again. It doubles from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// How often a subscription looks whether its session needs the child.
const NEED_CHECK: Duration = Duration::from_secs(2);

/// The subscription of one session.
pub(super) struct Listen {
    shared: Arc<ListenShared>,
    open: Mutex<OpenListen>,
}

struct ListenShared {
    upstream: Arc<SharedChild>,
    peer: Peer,
    meta: SessionMeta,
    /// While a new subscription takes over: the changes that the old one has delivered since then.
    delivered: SyncMutex<Option<HashSet<Change>>>,
}

struct OpenListen {
    /// Lists, and the URIs that the client has subscribed to.
    filter: Filter,
    /// `None` before the first opening, and for a filter that matches nothing.
    task: Option<AbortOnDrop>,
}

impl Listen {
    /// `lists` are those whose changes the server reports.
    pub(super) fn new(upstream: Arc<SharedChild>, peer: Peer, meta: SessionMeta, lists: Filter) -> Self {
        let shared = ListenShared {
            upstream,
            peer,
            meta,
            delivered: SyncMutex::default(),
        };
        let open = OpenListen {
            filter: lists,
            task: None,
        };
        Listen {
            shared: Arc::new(shared),
            open: Mutex::new(open),
        }
    }

    /// Opens the subscription if it is not open.
    pub(super) async fn ensure(&self) {
        let Ok(mut open) = self.open.try_lock() else {
            return; // it is being changed
        };
        if open.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let mut filter = open.filter.clone();
        let known = self.shared.peer.state().subscriptions;
        filter.uris = known.into_iter().collect();
        if is_empty(&filter) {
            return;
        }
        open.filter = filter.clone();
        let shared = Arc::clone(&self.shared);
        open.task = Some(AbortOnDrop::new(task::spawn(async move {
            let first = shared.open(&filter).await;
            shared.run(first.map(|(call, _)| call), filter).await;
        })));
    }

    /// Adds a URI. Fails if the server does not acknowledge it.
    pub(super) async fn subscribe(&self, uri: Box<str>) -> Result<(), RpcError> {
        let mut open = self.open.lock().await;
        let mut filter = self.current(&open);
        if !filter.uris.contains(&uri) {
            filter.uris.push(uri.clone());
        }
        *self.shared.delivered.lock() = Some(HashSet::new());
        let opened = self.shared.open(&filter).await;
        let (call, acknowledged) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                *self.shared.delivered.lock() = None;
                return Err(error);
            }
        };
        if !acknowledged.iter().any(|known| **known == *uri) {
            *self.shared.delivered.lock() = None;
            let message = "the server does not report changes of this resource";
            return Err(RpcError::invalid_params(message).with_data(json!({ "uri": uri })));
        }
        self.replace(&mut open, call, filter);
        Ok(())
    }

    /// Removes a URI.
    pub(super) async fn unsubscribe(&self, uri: &str) {
        let mut open = self.open.lock().await;
        let mut filter = self.current(&open);
        filter.uris.retain(|known| **known != *uri);
        if is_empty(&filter) {
            open.filter = filter;
            open.task = None;
            return;
        }
        *self.shared.delivered.lock() = Some(HashSet::new());
        match self.shared.open(&filter).await {
            Ok((call, _)) => self.replace(&mut open, call, filter),
            // The old one stays. The transport drops updates of a URI that is not subscribed.
            Err(error) => {
                *self.shared.delivered.lock() = None;
                tracing::debug!(%error, "subscription cannot be narrowed");
            }
        }
    }

    /// The lists, and the URIs in the session's record.
    fn current(&self, open: &OpenListen) -> Filter {
        let mut filter = open.filter.clone();
        filter.uris = self.shared.peer.state().subscriptions.into_iter().collect();
        filter
    }

    fn replace(&self, open: &mut OpenListen, call: UpstreamCall, filter: Filter) {
        open.task = None; // closes the old one; the new one is acknowledged
        let delivered = self.shared.delivered.lock().take().unwrap_or_default();
        let (shared, kept) = (Arc::clone(&self.shared), filter.clone());
        open.task = Some(AbortOnDrop::new(task::spawn(async move {
            let mut call = call;
            shared.skip_duplicates(&mut call, delivered).await;
            shared.run(Ok(call), kept).await;
        })));
        open.filter = filter;
    }
}

impl ListenShared {
    /// Opens a subscription and waits for its acknowledgement. Returns the acknowledged URIs.
    async fn open(&self, filter: &Filter) -> Result<(UpstreamCall, Vec<String>), RpcError> {
        let connection = self.upstream.connection().await?;
        let params = down::listen_params(&self.meta, filter);
        let mut call = connection.call("subscriptions/listen", &params).await?;
        let acknowledged = async {
            loop {
                match call.next().await {
                    Some(UpstreamMessage::Notification { method, params }) if method == ACKNOWLEDGED => {
                        return Ok(down::acknowledged_uris(&params));
                    }
                    Some(UpstreamMessage::Response(Err(error))) => {
                        return Err(down::error(parse_upstream_error(&error)));
                    }
                    Some(UpstreamMessage::Response(Ok(_)) | UpstreamMessage::SubscriptionEnded) => {
                        return Err(RpcError::internal("the server ended the subscription at once"));
                    }
                    Some(UpstreamMessage::Notification { method, params }) => self.deliver_message(&method, &params),
                    Some(_) => {}
                    None => return Err(call.no_response_error()),
                }
            }
        };
        let uris = with_timeout(ACKNOWLEDGE_TIMEOUT, "acknowledge a subscription", acknowledged).await?;
        Ok((call, uris))
    }

    /// Delivers changes until the subscription ends, and opens it again. `first` is the opened call.
    async fn run(&self, first: Result<UpstreamCall, RpcError>, filter: Filter) {
        let mut pause = FIRST_PAUSE;
        let mut current = first;
        loop {
            match current {
                Ok(mut call) => {
                    self.receive(&mut call).await;
                    if !call.upstream().is_alive() && self.is_unneeded() {
                        return; // the next request of the session opens it again
                    }
                }
                Err(error) if error.code == code::METHOD_NOT_FOUND => return,
                Err(error) => tracing::debug!(%error, "subscription of a session does not open"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
            current = self.open(&filter).await.map(|(call, _)| call);
            if current.is_ok() {
                pause = FIRST_PAUSE;
                // Anything may have changed meanwhile.
                for change in down::all_changes(&filter) {
                    self.deliver(change);
                }
            }
        }
    }

    /// Whether nobody waits for changes: then the child may be stopped (GW-20).
    fn is_unneeded(&self) -> bool {
        let activity = self.peer.activity();
        activity.connections == 0 && activity.subscriptions == 0 && !activity.is_connection_bound
    }

    async fn receive(&self, call: &mut UpstreamCall) {
        let mut in_use = None;
        let mut check = tokio::time::interval(NEED_CHECK);
        loop {
            let message = tokio::select! {
                message = call.next() => message,
                _ = check.tick() => {
                    in_use = match self.is_unneeded() {
                        true => None,
                        false => in_use.or_else(|| Some(UpstreamUse::new(call.upstream()))),
                    };
                    continue;
                }
            };
            match message {
                Some(UpstreamMessage::Notification { method, params }) => self.deliver_message(&method, &params),
                Some(UpstreamMessage::Response(_) | UpstreamMessage::SubscriptionEnded) | None => return,
                Some(_) => {}
            }
        }
    }

    /// Reads what has arrived before the old subscription was closed, without what that one has delivered.
    async fn skip_duplicates(&self, call: &mut UpstreamCall, mut delivered: HashSet<Change>) {
        loop {
            let message = tokio::select! {
                biased;
                message = call.next() => message,
                () = std::future::ready(()) => return,
            };
            let Some(UpstreamMessage::Notification { method, params }) = message else {
                return;
            };
            let is_known = up::change(&method, &params).is_some_and(|change| delivered.remove(&change));
            if !is_known {
                self.deliver_message(&method, &params);
            }
        }
    }

    fn deliver_message(&self, method: &str, params: &bytes::Bytes) {
        match up::change(method, params) {
            Some(change) => self.deliver(change),
            None if method == ACKNOWLEDGED => {}
            None => drop(self.peer.push(method, raw_json(&down::notification_params(params)))),
        }
    }

    fn deliver(&self, change: Change) {
        match &change {
            Change::Tools => self.peer.list_changed(ListKind::Tools),
            Change::Prompts => self.peer.list_changed(ListKind::Prompts),
            Change::Resources => self.peer.list_changed(ListKind::Resources),
            Change::Updated(uri) if self.peer.is_subscribed(uri) => self.peer.resource_updated(uri),
            // The subscription is acknowledged, and its record is being written.
            Change::Updated(uri) => drop(self.peer.push(change.method(), json!({ "uri": &**uri }))),
        }
        if let Some(delivered) = &mut *self.delivered.lock() {
            delivered.insert(change);
        }
    }
}

fn is_empty(filter: &Filter) -> bool {
    *filter == Filter::default()
}
