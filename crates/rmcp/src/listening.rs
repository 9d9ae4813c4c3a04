//! Subscriptions of 2026-07-28 that servers serve themselves (rmcp's `listen`).
//!
//! Such a server tells its subscribers through their sinks. What it says through the peer of another call of the same
//! caller, `notify_resource_updated` say, reaches them too, as it reaches subscriptions that the transport serves.

use crate::convert::number_or_string;
use parking_lot::Mutex;
use rethread::{Context, ListKind, Principal};
use rmcp::model::{NotificationMetaObject, SubscriptionFilter};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Something changed.
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
    fn is_in(&self, filter: &SubscriptionFilter) -> bool {
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

/// The open subscriptions that servers serve, by the number of their line. They are calls, so there are no more of them than
/// calls may run.
#[derive(Default)]
pub(crate) struct Listening(Mutex<HashMap<u64, Arc<Listener>>>);

struct Listener {
    cx: Context,
    caller: Principal,
    filter: SubscriptionFilter,
    /// What is yet to be told: a change that waits covers the next (SUB-08). `None` while nobody is telling.
    pending: Mutex<Option<BTreeSet<Change>>>,
}

impl Listening {
    /// A server has accepted a subscription.
    pub(crate) fn accepted(&self, line: u64, cx: &Context, filter: SubscriptionFilter) {
        let listener = Listener {
            cx: cx.clone(),
            caller: cx.principal(),
            filter,
            pending: Mutex::default(),
        };
        self.0.lock().insert(line, Arc::new(listener));
    }

    /// The call on this line has ended.
    pub(crate) fn ended(&self, line: u64) {
        self.0.lock().remove(&line);
    }

    /// Tells those subscriptions of `caller` that want to know.
    pub(crate) fn announce(&self, caller: &Principal, change: &Change) {
        let listeners = self.0.lock();
        let concerned = listeners
            .values()
            .filter(|l| l.caller == *caller && change.is_in(&l.filter));
        for listener in concerned {
            let mut pending = listener.pending.lock();
            match &mut *pending {
                Some(waiting) => drop(waiting.insert(change.clone())),
                idle => {
                    *idle = Some(BTreeSet::from([change.clone()]));
                    tokio::spawn(Arc::clone(listener).tell());
                }
            }
        }
    }
}

impl Listener {
    /// Tells all that waits, one after the other; the reader may be slow.
    async fn tell(self: Arc<Self>) {
        let mut stamp = NotificationMetaObject::new();
        stamp.set_subscription_id(number_or_string(self.cx.request_id().as_json()));
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
            let mut params: Value = json!({ "_meta": stamp });
            if let Change::Updated(uri) = &change {
                params["uri"] = json!(uri);
            }
            if self.cx.notify(change.method(), params).await.is_err() {
                return; // the subscription has ended
            }
        }
    }
}
