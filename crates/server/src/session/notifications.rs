//! Change notifications of a session.

use super::Session;
use bytes::Bytes;
use rethread_proto::jsonrpc::write_notification;
use rethread_proto::push::Collapse;
use rethread_proto::sse::{self, Draft};
use rethread_store::{ListKind, Signal};
use serde::Serialize;
use serde_json::json;

impl Session {
    /// List changes and resource updates for everything that the client may have missed (D4).
    pub(super) fn refresh(&self) -> Option<Bytes> {
        let mut block = Vec::new();
        for (draft, _) in self.refresh_drafts() {
            sse::write_unnumbered(&mut block, draft.payload());
        }
        (!block.is_empty()).then(|| block.into())
    }

    pub(super) fn refresh_drafts(&self) -> Vec<(Draft, Collapse)> {
        let declared = |list: &ListKind| self.declares(&format!("{}.listChanged", list.capability()));
        let lists = ListKind::ALL.into_iter().filter(declared).map(list_changed);
        let subscriptions = self.state.lock().subscriptions.clone();
        let resources = subscriptions.iter().map(|uri| resource_updated(uri));
        lists.chain(resources).collect()
    }

    /// The message of a signal for this session. `None` if it does not concern the session.
    pub(crate) fn signal_message(&self, signal: &Signal) -> Option<(Draft, Collapse)> {
        match signal {
            Signal::ListChanged(list) => {
                let is_declared = self.node.info.declares(&format!("{}.listChanged", list.capability()));
                is_declared.then(|| list_changed(*list))
            }
            Signal::ResourceUpdated(uri) => self.is_subscribed(uri).then(|| resource_updated(uri)),
            Signal::Broadcast(message) => Some((Draft::copy_of(message), Collapse::Never)),
            _ => None,
        }
    }
}

/// A `list_changed` notification and its collapse key.
pub(crate) fn list_changed(list: ListKind) -> (Draft, Collapse) {
    let method = list.changed();
    (notification(method, &()), Collapse::List(method.into()))
}

/// A `resources/updated` notification and its collapse key.
pub(crate) fn resource_updated(uri: &str) -> (Draft, Collapse) {
    let draft = notification("notifications/resources/updated", &json!({ "uri": uri }));
    (draft, Collapse::Resource(uri.into()))
}

fn notification(method: &str, params: &impl Serialize) -> Draft {
    Draft::new(96, |out| {
        write_notification(out, method, params).expect("these params are plain JSON");
    })
}
