//! The state of a session for operators. Everything is read when it is asked for; nothing is maintained for it.

use super::{Session, Transport};
use crate::node::clock::wall_now;
use crate::node::snapshot::{ClientSnapshot, Query, SessionSnapshot, SessionState, StreamSnapshot};
use crate::stream::Stream;
use rethread_proto::clock::{Mono, Wall};
use rethread_proto::event_id::Seq;
use rethread_proto::{Ordinal, Principal, StreamKind, Tag};
use rethread_store::StreamStatus;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Characters of a client's name and version that are shown.
const MAX_SHOWN_CHARS: usize = 128;

impl Session {
    /// The name of the session for operators.
    pub(crate) fn tag(&self) -> Tag {
        self.tag
    }

    /// Its owner, unless it is anonymous.
    pub(crate) fn owner_identity(&self) -> Option<Principal> {
        let principal = &self.key.principal;
        (!principal.is_anonymous()).then(|| principal.clone())
    }

    /// Whether a snapshot lists the session.
    pub(crate) fn is_listed(&self) -> bool {
        !self.has_ended() && !self.is_suspended()
    }

    /// Whether the session matches a query, its page aside.
    pub(crate) fn matches(&self, query: &Query) -> bool {
        let is_active = self.uses.load(Ordering::Relaxed) > 0;
        let state = if is_active {
            SessionState::Active
        } else {
            SessionState::Idle
        };
        let subject = self.key.principal.subject();
        query.state.is_none_or(|wanted| wanted == state)
            && query.subject.as_deref().is_none_or(|wanted| wanted == subject)
            && query.text.as_deref().is_none_or(|text| self.has_text(text))
    }

    fn has_text(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let contains = |value: &str| value.to_lowercase().contains(&text);
        contains(&self.tag.to_string())
            || contains(self.key.principal.subject())
            || contains(&self.client_program().name)
    }

    /// A number that changes when an operator would see a difference. Needs no allocation without streams.
    pub(crate) fn fingerprint(&self, hasher: &impl BuildHasher) -> u64 {
        let (calls, abandoned, streams) = {
            let state = self.state.lock();
            let streams: Vec<_> = state.streams.values().cloned().collect();
            (state.calls.len(), state.abandoned.len(), streams)
        };
        // The order of a table may change, and the sum does not.
        let streams = streams.iter();
        let streams = streams.map(|stream| hasher.hash_one((stream.key.ordinal.0, stream.summary())));
        let streams = streams.fold(0u64, u64::wrapping_add);
        hasher.hash_one((self.uses.load(Ordering::Relaxed), calls, abandoned, streams))
    }

    pub(crate) fn snapshot(&self) -> SessionSnapshot {
        let (now, wall) = (self.node.clock.now(), wall_now());
        let at = |moment: Mono| Wall::from_millis(wall.as_millis().saturating_sub(millis(now.since(moment))));
        let used = Mono::from_millis(self.last_used.load(Ordering::Relaxed));
        let is_used = self.uses.load(Ordering::Relaxed) > 0;
        let (calls, live, abandoned) = {
            let state = self.state.lock();
            let method = |stream: &Stream| {
                let call = stream.params.info.calls.iter().find_map(|id| state.calls.get(id));
                call.map(|call| call.method().to_owned())
            };
            let live: Vec<_> = state.streams.values().map(|s| (Arc::clone(s), method(s))).collect();
            let is_live = |ordinal: &Ordinal| state.streams.contains_key(ordinal);
            let abandoned = state.abandoned.iter().map(|(_, ordinal)| *ordinal);
            let abandoned: Vec<_> = abandoned.filter(|ordinal| !is_live(ordinal)).collect();
            (state.calls.len(), live, abandoned)
        };
        let live = live.into_iter().map(|(stream, method)| self.live(&stream, method));
        let abandoned = abandoned.into_iter().filter_map(|ordinal| self.abandoned(ordinal));
        let mut streams: Vec<_> = live.chain(abandoned).collect();
        streams.sort_unstable_by_key(|stream| stream.ordinal);
        SessionSnapshot {
            tag: self.tag,
            principal: self.owner_identity(),
            revision: self.version(),
            transport: match self.transport {
                Transport::Streamable => "streamable",
                Transport::HttpSse => "sse",
                Transport::Lines => "stdio",
            },
            client: self.client_program(),
            since: at(self.opened),
            used: at(used),
            expires: (!is_used).then(|| at(used) + self.node.timing.session_idle),
            calls,
            streams,
        }
    }

    fn live(&self, stream: &Stream, method: Option<String>) -> StreamSnapshot {
        let summary = stream.summary();
        let ordinal = stream.key.ordinal;
        let mut snapshot = StreamSnapshot {
            ordinal: ordinal.0,
            kind: self.kind_of(ordinal),
            method,
            first: None,
            last: summary.last.map(number),
            cursor: summary.cursor.map(number),
            attached: summary.attached,
            sealed: summary.sealed,
            bytes: summary.bytes,
            gap: summary.unlogged,
        };
        if let Some(Some(stored)) = self.stored_status(ordinal) {
            snapshot.add_stored(&stored);
        }
        snapshot
    }

    /// A push stream whose reader may return. Only the store has it.
    fn abandoned(&self, ordinal: Ordinal) -> Option<StreamSnapshot> {
        if !self.has_stored_streams() {
            return None;
        }
        let mut snapshot = StreamSnapshot {
            ordinal: ordinal.0,
            kind: self.kind_of(ordinal),
            method: None,
            first: None,
            last: None,
            cursor: None,
            attached: false,
            sealed: false,
            bytes: 0,
            gap: false,
        };
        if let Some(stored) = self.stored_status(ordinal) {
            snapshot.add_stored(&stored?);
        }
        Some(snapshot)
    }

    /// Whether its streams are in the store.
    pub(crate) fn has_stored_streams(&self) -> bool {
        self.transport == Transport::Streamable
    }

    /// The stored status of a stream. `None` if the store does not answer at once: a snapshot does not wait. The inner value is `None`
    /// if the store does not know the stream.
    fn stored_status(&self, ordinal: Ordinal) -> Option<Option<StreamStatus>> {
        if !self.has_stored_streams() || self.node.cluster().is_some() {
            return None;
        }
        Some(self.node.store.status(&self.stream_key(ordinal)).now().ok()?.ok())
    }

    fn kind_of(&self, ordinal: Ordinal) -> &'static str {
        match (self.transport, ordinal.kind()) {
            (Transport::Streamable, StreamKind::Call) => "call",
            (Transport::Streamable, StreamKind::Push) => "push",
            (Transport::HttpSse | Transport::Lines, _) => "sse",
        }
    }

    fn client_program(&self) -> ClientSnapshot {
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct Initialize {
            #[serde(rename = "clientInfo")]
            client: Program,
        }
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct Program {
            name: String,
            version: String,
        }
        let Program { name, version } = serde_json::from_slice::<Initialize>(self.initialize_params())
            .unwrap_or_default()
            .client;
        ClientSnapshot {
            name: shortened(name),
            version: shortened(version),
        }
    }
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_SHOWN_CHARS) {
        text.truncate(end);
    }
    text
}

fn number(seq: Seq) -> u64 {
    seq.0
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
