//! Snapshots of an endpoint: pages of sessions by tag, and the differences between two looks.

use super::server::Server;
use crate::endpoint::service::McpService;
use crate::node::clock::wall_now;
use crate::node::session_end::SessionEnd;
use crate::node::snapshot::{Changes, Query, SessionSnapshot, Snapshot, Totals, VERSION};
use crate::node::stats::Stats;
use crate::session::Session;
use foldhash::fast::RandomState;
use rethread_proto::{Ordinal, Principal, Tag};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Streams whose status is asked for at the same time.
const MAX_STATUS_REQUESTS: usize = 1024;
/// How long the store may take for all of them.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

impl McpService {
    /// The state of this endpoint for operators: its totals, and the sessions that `query` asks for.
    ///
    /// It reads the table of sessions one part after the other, and never holds a lock over two of them.
    pub fn snapshot(&self, query: &Query) -> Snapshot {
        let (page, has_more) = page(&self.inner, query);
        Snapshot {
            version: VERSION,
            now: wall_now(),
            totals: totals(self.stats()),
            next: page.last_key_value().map(|(tag, _)| *tag).filter(|_| has_more),
            sessions: page.values().map(|session| session.snapshot()).collect(),
        }
    }

    /// The differences since the last call with this cursor, for a page that follows an endpoint. With a new cursor every session
    /// counts as opened.
    ///
    /// The cost is one short lock for each session and stream, and nothing between two calls.
    pub fn changes(&self, cursor: &mut ChangeCursor) -> Changes {
        let mut changes = Changes::default();
        cursor.look += 1;
        let mut shard = 0;
        while let Some(sessions) = self.inner.sessions.shard_sessions(shard) {
            shard += 1;
            for session in sessions.iter().filter(|session| session.is_listed()) {
                let fingerprint = session.fingerprint(&cursor.hasher);
                let look = cursor.look;
                let seen = cursor.seen.get_mut(&session.tag());
                match seen {
                    Some(seen) if seen.fingerprint == fingerprint => seen.look = look,
                    Some(seen) => {
                        (seen.look, seen.fingerprint) = (look, fingerprint);
                        changes.changed.push(session.snapshot());
                    }
                    None => {
                        let owner = session.owner_identity();
                        cursor.seen.insert(
                            session.tag(),
                            Seen {
                                look,
                                fingerprint,
                                owner,
                            },
                        );
                        changes.opened.push(session.snapshot());
                    }
                }
            }
        }
        // After the table and before the known sessions are forgotten: each end is then reported once.
        let (ended, recent) = self.inner.sessions.ended_after(cursor.ended);
        if cursor.look > 1 {
            let is_brief = |(tag, _): &(Tag, _)| !cursor.seen.contains_key(tag);
            changes.brief = recent.into_iter().filter(is_brief).collect();
        }
        cursor.ended = ended;
        let (look, sessions) = (cursor.look, &self.inner.sessions);
        cursor.seen.retain(|tag, seen| {
            let is_here = seen.look == look || sessions.is_unloaded(*tag);
            if !is_here {
                changes.ended.push((*tag, seen.owner.take()));
            }
            is_here
        });
        changes
    }

    /// Asks the store for what a snapshot of these sessions lacks: [`snapshot`](Self::snapshot) and [`changes`](Self::changes) do not
    /// wait, and the store of several nodes does not answer at once. Returns at once with any other store.
    ///
    /// At most 1,024 streams are asked for, for at most a second. The others stay as they are.
    pub async fn read_stored(&self, sessions: &mut [SessionSnapshot]) {
        let node = &self.inner.node;
        if node.cluster().is_none() {
            return;
        }
        let places: HashMap<Tag, usize> = sessions.iter().enumerate().map(|(at, s)| (s.tag, at)).collect();
        let mut requests = JoinSet::new();
        self.inner.sessions.for_each(|session| {
            let Some(&place) = places.get(&session.tag()).filter(|_| session.has_stored_streams()) else {
                return;
            };
            for (at, stream) in sessions[place].streams.iter().enumerate() {
                if requests.len() < MAX_STATUS_REQUESTS {
                    let status = node.store.status(&session.stream_key(Ordinal(stream.ordinal)));
                    requests.spawn(async move { (place, at, status.await) });
                }
            }
        });
        let deadline = Instant::now() + STATUS_TIMEOUT;
        // Dropping the set ends the requests that are too slow.
        while let Ok(Some(answered)) = timeout_at(deadline, requests.join_next()).await {
            if let Ok((place, at, Ok(status))) = answered {
                sessions[place].streams[at].add_stored(&status);
            }
        }
    }

    /// Ends the session with this tag, as its client could. False if there is none.
    pub async fn end_session(&self, tag: Tag) -> bool {
        let mut found = None;
        self.inner.sessions.for_each(|session| {
            if session.tag() == tag && session.is_listed() {
                found = Some(Arc::clone(session));
            }
        });
        let Some(session) = found else { return false };
        let pending_end = self.inner.sessions.end(&session, SessionEnd::Operator);
        let _ = pending_end.wait().await; // it has ended here; an unreachable store forgets it by its age
        true
    }
}

/// The sessions that a caller of [`McpService::changes`] knows.
#[derive(Default)]
pub struct ChangeCursor {
    seen: HashMap<Tag, Seen>,
    hasher: RandomState,
    look: u64,
    /// How many sessions had ended.
    ended: u64,
}

impl std::fmt::Debug for ChangeCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChangeCursor({} sessions)", self.seen.len())
    }
}

struct Seen {
    look: u64,
    fingerprint: u64,
    owner: Option<Principal>,
}

/// The first sessions of a query by tag, and whether there are more.
fn page(server: &Server, query: &Query) -> (BTreeMap<Tag, Arc<Session>>, bool) {
    let (mut page, mut has_more, mut shard) = (BTreeMap::new(), false, 0);
    while let Some(sessions) = server.sessions.shard_sessions(shard) {
        shard += 1;
        for session in sessions {
            let tag = session.tag();
            let is_wanted =
                query.after.is_none_or(|after| tag > after) && session.is_listed() && session.matches(query);
            if !is_wanted {
                continue;
            }
            page.insert(tag, session);
            if page.len() > query.limit {
                page.pop_last();
                has_more = true;
            }
        }
    }
    (page, has_more)
}

fn totals(stats: Stats) -> Totals {
    Totals {
        sessions: stats.sessions,
        calls: stats.running_calls,
        connections: stats.connections,
        parks: stats.parked_calls,
        listens: stats.subscriptions,
    }
}
