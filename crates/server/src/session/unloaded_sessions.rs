//! The sessions that have left the memory and live on in the store (GW-23). Leaving is not the end of a session: operators see neither
//! an end nor a second beginning.

use super::Session;
use super::facts::ClientInfo;
use crate::node::Node;
use crate::node::observe::SessionFacts;
use crate::node::session_end::SessionEnd;
use crate::node::telemetry::SessionLife;
use rethread_proto::clock::Mono;
use rethread_proto::{Tag, Version};
use rethread_store::SessionKey;
use std::collections::HashMap;
use std::time::Duration;

/// Sessions that are remembered. Beyond: a session that is used again counts as restored, and its end is not reported.
const MAX_UNLOADED: usize = 65_536;
/// Sessions whose end is looked for at once.
const MAX_LOOKUPS: usize = 256;

/// A session that has left the memory.
pub(crate) struct UnloadedSession {
    key: SessionKey,
    version: Version,
    client: ClientInfo,
    began: Mono,
    unloaded: Mono,
}

impl UnloadedSession {
    fn of(session: &Session) -> Self {
        UnloadedSession {
            key: session.key.clone(),
            version: session.version(),
            client: ClientInfo::of_initialize(session.initialize_params()),
            began: session.began(),
            unloaded: session.node.clock.now(),
        }
    }

    /// Reports the end of the session. It has expired in the store.
    pub(crate) fn ended(&self, node: &Node) {
        let (end, age) = (SessionEnd::Idle, node.clock.now().since(self.began));
        let version = self.version;
        node.metrics.session_closed(&SessionLife { version, end, age });
        let facts = SessionFacts {
            tag: Tag::of_session(&self.key.session),
            principal: &self.key.principal,
            version,
            is_restored: false,
            extensions: None,
        };
        node.metrics.session_ended(&facts, self.client.shown(), end, age);
        if let Some(observer) = &node.observer {
            observer.session_ended(&facts, end, age);
        }
    }
}

/// The sessions of this process that are only in the store, by tag.
#[derive(Default)]
pub(crate) struct UnloadedSessions(HashMap<Tag, UnloadedSession>);

impl UnloadedSessions {
    pub(super) fn insert(&mut self, session: &Session) {
        if self.0.len() < MAX_UNLOADED {
            self.0.insert(session.tag(), UnloadedSession::of(session));
        }
    }

    pub(super) fn has(&self, tag: Tag) -> bool {
        self.0.contains_key(&tag)
    }

    /// When the session with this key began, if it is here.
    pub(super) fn began(&self, key: &SessionKey) -> Option<Mono> {
        let found = self.0.get(&Tag::of_session(&key.session));
        found.filter(|found| found.key == *key).map(|found| found.began)
    }

    pub(super) fn remove(&mut self, key: &SessionKey) -> Option<UnloadedSession> {
        self.0.remove(&Tag::of_session(&key.session))
    }

    /// Sessions that the store may have forgotten by now.
    pub(super) fn due(&self, now: Mono, after: Duration) -> Vec<SessionKey> {
        let is_due = |session: &&UnloadedSession| now.since(session.unloaded) >= after;
        let due = self.0.values().filter(is_due).take(MAX_LOOKUPS);
        due.map(|session| session.key.clone()).collect()
    }
}
