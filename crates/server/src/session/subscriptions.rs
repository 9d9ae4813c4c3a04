//! `subscriptions/listen`: a stream of changes, filtered, stamped and collapsed (SUB-01 to SUB-08).

use crate::node::Node;
use crate::node::stats::ConnectionKind;
use crate::stream::events::Messages;
use bytes::Bytes;
use parking_lot::Mutex;
use rethread_proto::Principal;
use rethread_proto::auth::PrincipalCounts;
use rethread_proto::clock::Wall;
use rethread_proto::jsonrpc::RequestId;
use rethread_proto::refusal::Reason;
use rethread_proto::sse::Draft;
use rethread_proto::stream::ConnectionId;
use rethread_proto::subscription::{self, Change, Filter, Pending};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// All open subscriptions of this node.
#[derive(Default)]
pub(crate) struct Subscriptions(Mutex<Table>);

#[derive(Default)]
struct Table {
    open: HashMap<u64, Arc<Subscription>>,
    per_principal: PrincipalCounts,
}

/// One open subscription.
struct Subscription {
    filter: Filter,
    principal: Principal,
    /// The end of the token that opened it.
    expires: Option<Wall>,
    state: Mutex<State>,
}

struct State {
    pending: Pending,
    closing: bool,
    waker: Option<Waker>,
}

impl Subscription {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Subscriptions {
    /// Opens a subscription. It gets every change from now on, and an acknowledgement first (SUB-02).
    pub(crate) fn open(
        self: &Arc<Self>,
        node: &Arc<Node>,
        id: RequestId,
        filter: Filter,
        (principal, expires): (Principal, Option<Wall>),
    ) -> Result<SubscriptionStream, Reason> {
        let mut table = self.0.lock();
        if table.open.len() >= node.limits.subscriptions() {
            return Err(Reason::Overloaded("subscriptions"));
        }
        let limit = node.limits.subscriptions_per_principal();
        if !table.per_principal.enter(&principal, limit) {
            return Err(Reason::TooMany("subscriptions of this caller"));
        }
        let first = filter.acknowledgement(&id).into_payload();
        let listener = Arc::new(Subscription {
            filter,
            principal,
            expires,
            state: Mutex::new(State {
                pending: Pending::new(node.limits.filter()),
                closing: false,
                waker: None,
            }),
        });
        let ConnectionId(connection) = node.next_connection();
        table.open.insert(connection, Arc::clone(&listener));
        node.connections.enter(ConnectionKind::Listen);
        Ok(SubscriptionStream {
            node: Arc::clone(node),
            table: Arc::clone(self),
            listener,
            connection,
            id,
            first: Some(first),
            ended: false,
        })
    }

    /// A change, for `principal` or for all principals: every matching stream gets its own copy (SUB-05, T-11).
    pub(crate) fn announce(&self, change: &Change, principal: Option<&Principal>) {
        for listener in self.all() {
            let concerned = principal.is_none_or(|principal| *principal == listener.principal);
            if concerned && listener.filter.matches(change) {
                listener.change(|state| {
                    state.pending.add(&listener.filter, change);
                });
            }
        }
    }

    /// Signals were lost: everything may have changed.
    pub(crate) fn announce_everything(&self) {
        for listener in self.all() {
            let filter = &listener.filter;
            let lists = [Change::Tools, Change::Prompts, Change::Resources];
            let uris = filter.uris.iter().map(|uri| Change::Updated(Arc::from(&**uri)));
            listener.change(|state| {
                for change in lists.into_iter().chain(uris) {
                    state.pending.add(filter, &change);
                }
            });
        }
    }

    /// Ends subscriptions whose token has expired, each with its result (AUTH-21).
    pub(crate) fn close_expired(&self, now: Wall) {
        self.close_if(|listener| listener.expires.is_some_and(|expires| expires <= now));
    }

    /// Ends the subscriptions of a principal, each with its result.
    pub(crate) fn close_those_of(&self, principal: &Principal) {
        self.close_if(|listener| listener.principal == *principal);
    }

    fn close_if(&self, ends: impl Fn(&Subscription) -> bool) {
        for listener in self.all() {
            if ends(&listener) {
                listener.change(|state| state.closing = true);
            }
        }
    }

    /// Ends every subscription, each with its result (SUB-06).
    pub(crate) fn close_all(&self) {
        for listener in self.all() {
            listener.change(|state| state.closing = true);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().open.len()
    }

    fn all(&self) -> Vec<Arc<Subscription>> {
        self.0.lock().open.values().cloned().collect()
    }
}

impl std::fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Subscriptions({})", self.len())
    }
}

/// The connection of one subscription. Dropping it ends the subscription (SUB-07).
pub(crate) struct SubscriptionStream {
    node: Arc<Node>,
    table: Arc<Subscriptions>,
    listener: Arc<Subscription>,
    connection: u64,
    id: RequestId,
    first: Option<Bytes>,
    ended: bool,
}

impl Messages for SubscriptionStream {
    fn poll_messages(&mut self, cx: &mut Context<'_>) -> Poll<Option<VecDeque<Bytes>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(VecDeque::from([first])));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        let mut state = self.listener.state.lock();
        let changes = state.pending.take();
        let closing = state.closing;
        if changes.is_empty() && !closing {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        let matching = changes
            .iter()
            .map(|change| subscription::notification(change, &self.id));
        let mut messages: VecDeque<_> = matching.map(Draft::into_payload).collect();
        if closing {
            let info = self.node.info.implementation();
            messages.push_back(subscription::closing(&self.id, Some(&info)).into_payload());
            self.ended = true;
        }
        Poll::Ready(Some(messages))
    }
}

impl Drop for SubscriptionStream {
    fn drop(&mut self) {
        {
            let mut table = self.table.0.lock();
            table.open.remove(&self.connection);
            table.per_principal.leave(&self.listener.principal);
        }
        self.node.connections.leave(ConnectionKind::Listen);
        self.node.notify_drain();
    }
}
