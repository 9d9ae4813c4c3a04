//! Subscriptions of 2026-07-28 that a server handles itself with rmcp's `listen`.
//!
//! The server notifies its subscribers through their sinks. A change sent through the peer of another call, such as
//! `notify_resource_updated`, also reaches the same caller's subscriptions. This matches subscriptions that the transport handles.

use crate::convert::number_or_string;
use parking_lot::Mutex;
use rethread::{Context, ListKind, Principal};
use rmcp::model::{NotificationMetaObject, SubscriptionFilter};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    Tools,
    Prompts,
    Resources,
    Updated(String),
}

impl From<ListKind> for Change {
    fn from(list: ListKind) -> Self {
        match list {
            ListKind::Tools => Change::Tools,
            ListKind::Prompts => Change::Prompts,
            ListKind::Resources => Change::Resources,
        }
    }
}

impl Change {
    fn matches(&self, filter: &SubscriptionFilter) -> bool {
        match self {
            Change::Tools => filter.tools_list_changed == Some(true),
            Change::Prompts => filter.prompts_list_changed == Some(true),
            Change::Resources => filter.resources_list_changed == Some(true),
            Change::Updated(uri) => filter.resource_subscriptions.iter().flatten().any(|known| known == uri),
        }
    }

    fn method(&self) -> &'static str {
        match self {
            Change::Tools => ListKind::Tools.changed(),
            Change::Prompts => ListKind::Prompts.changed(),
            Change::Resources => ListKind::Resources.changed(),
            Change::Updated(_) => "notifications/resources/updated",
        }
    }
}

/// Open subscriptions by the id of their peer loop. Each is a call, so the limit of running calls bounds them.
#[derive(Default)]
pub(crate) struct ServerSubscriptions(Mutex<HashMap<u64, Arc<Subscriber>>>);

struct Subscriber {
    cx: Context,
    caller: Principal,
    filter: SubscriptionFilter,
    /// Changes to send; equal changes merge (SUB-08). `None` while no task sends.
    pending: Mutex<Option<BTreeSet<Change>>>,
}

impl ServerSubscriptions {
    pub(crate) fn insert(&self, loop_id: u64, cx: &Context, filter: SubscriptionFilter) {
        let subscriber = Subscriber {
            cx: cx.clone(),
            caller: cx.principal(),
            filter,
            pending: Mutex::default(),
        };
        self.0.lock().insert(loop_id, Arc::new(subscriber));
    }

    pub(crate) fn remove(&self, loop_id: u64) {
        self.0.lock().remove(&loop_id);
    }

    /// Notifies the subscriptions of `caller` whose filter matches.
    pub(crate) fn notify(&self, caller: &Principal, change: &Change) {
        let subscribers = self.0.lock();
        let matching = subscribers
            .values()
            .filter(|s| s.caller == *caller && change.matches(&s.filter));
        for subscriber in matching {
            let mut pending = subscriber.pending.lock();
            match &mut *pending {
                Some(waiting) => drop(waiting.insert(change.clone())),
                idle => {
                    *idle = Some(BTreeSet::from([change.clone()]));
                    tokio::spawn(Arc::clone(subscriber).send_pending());
                }
            }
        }
    }
}

impl Subscriber {
    /// Sends the pending changes one at a time, because the reader may be slow.
    async fn send_pending(self: Arc<Self>) {
        let mut meta = NotificationMetaObject::new();
        meta.set_subscription_id(number_or_string(self.cx.request_id().as_json()));
        loop {
            let change = {
                let mut pending = self.pending.lock();
                match pending.as_mut().and_then(BTreeSet::pop_first) {
                    Some(change) => change,
                    None => {
                        *pending = None;
                        return;
                    }
                }
            };
            let mut params: Value = json!({ "_meta": meta });
            if let Change::Updated(uri) = &change {
                params["uri"] = json!(uri);
            }
            if self.cx.notify(change.method(), params).await.is_err() {
                return; // the subscription has ended
            }
        }
    }
}
