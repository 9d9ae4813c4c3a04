//! The feed of the admin API: what has changed, as server-sent events (O7).
//!
//! While somebody reads, one task looks at all servers four times a second and sends the differences. So changes are merged for
//! each object, and nothing is maintained when nobody reads. A reader that is too slow gets `reset`; nothing waits for it.

mod reader;

pub(super) use reader::FeedBody;

use super::refusals::{RefusalRow, Refusals};
use super::snapshot::{GatewayTotals, PrincipalRow, RowMaker, SessionRow};
use crate::child::ChildFacts;
use crate::gateway::Gateway;
use bytes::Bytes;
use parking_lot::Mutex;
use reader::{Reader, comment, event};
use rethread::{ChangeCursor, StreamSnapshot, Tag};
use rethread_proto::rfc3339::Rfc3339;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The pause between two looks: four for each object in a second.
const INTERVAL: Duration = Duration::from_millis(250);
/// The pause between two comments on a silent feed, so that proxies keep it open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Readers at the same time. Beyond: 503.
const MAX_READERS: usize = 32;

/// The feed of one gateway.
pub(super) struct Feed {
    gateway: Weak<Gateway>,
    refusals: Arc<Refusals>,
    readers: Mutex<Vec<Weak<Reader>>>,
    /// Notified when a reader comes.
    opened: Notify,
}

impl Feed {
    pub(super) fn new(gateway: &Arc<Gateway>) -> Arc<Self> {
        Arc::new(Feed {
            gateway: Arc::downgrade(gateway),
            refusals: Arc::clone(&gateway.refusals),
            readers: Mutex::default(),
            opened: Notify::new(),
        })
    }

    pub(super) fn refusals(&self) -> VecDeque<RefusalRow> {
        self.refusals.all()
    }

    /// A new reader. `None` if there are too many.
    pub(super) fn open(&self) -> Option<FeedBody> {
        let reader = Arc::new(Reader::default());
        let mut readers = self.readers.lock();
        readers.retain(|reader| reader.strong_count() > 0);
        if readers.len() >= MAX_READERS {
            return None;
        }
        readers.push(Arc::downgrade(&reader));
        drop(readers);
        reader.push(&[comment()]); // the response begins at once
        self.opened.notify_one();
        Some(FeedBody(reader))
    }

    fn readers(&self) -> Vec<Arc<Reader>> {
        let mut readers = self.readers.lock();
        readers.retain(|reader| reader.strong_count() > 0);
        readers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Looks at the gateway while there are readers.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            if self.readers().is_empty() {
                self.opened.notified().await;
                continue;
            }
            self.run_while_read().await;
        }
    }

    async fn run_while_read(&self) {
        let Some(gateway) = self.gateway.upgrade() else { return };
        let mut look = Look::begin(&gateway, self.refusals.count());
        drop(gateway);
        let mut next = Instant::now();
        let mut keep_alive = next + KEEP_ALIVE;
        loop {
            next = (next + INTERVAL).max(Instant::now());
            tokio::time::sleep_until(next).await;
            let readers = self.readers();
            let Some(gateway) = self.gateway.upgrade().filter(|_| !readers.is_empty()) else {
                return;
            };
            let mut events = look.changes(&gateway, &self.refusals).await;
            if Instant::now() >= keep_alive {
                keep_alive = Instant::now() + KEEP_ALIVE;
                events.push(comment());
            }
            let opening = look.opening();
            for reader in readers {
                if reader.is_new() {
                    reader.push(&opening);
                }
                reader.push(&events);
            }
        }
    }
}

/// The objects as they were at the last look.
struct Look {
    servers: BTreeMap<String, ServerLook>,
    children: BTreeMap<u32, (Arc<str>, Option<Tag>)>,
    totals: GatewayTotals,
    state: &'static str,
    refusals: u64,
}

#[derive(Default)]
struct ServerLook {
    cursor: ChangeCursor,
    /// The streams of sessions that have changed once, by ordinal. It has no entry for a session that was never used.
    streams: HashMap<Tag, BTreeMap<u64, StreamSnapshot>>,
}

#[derive(Serialize)]
struct SessionEvent<'a> {
    tag: Tag,
    state: &'static str,
    server: &'a str,
    principal: Option<PrincipalRow>,
    /// The whole session, when it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a SessionRow>,
    #[serde(flatten)]
    usage: Option<Usage>,
}

/// The parts of a session that change.
#[derive(Serialize)]
struct Usage {
    calls: usize,
    used: Rfc3339,
    expires: Option<Rfc3339>,
    /// The ordinals of its streams. The others have ended.
    streams: Vec<u64>,
}

#[derive(Serialize)]
struct StreamEvent<'a> {
    tag: Tag,
    server: &'a str,
    #[serde(flatten)]
    stream: &'a StreamSnapshot,
}

#[derive(Serialize)]
struct ChildEvent<'a> {
    pid: u32,
    state: &'static str,
    server: &'a str,
    session: Option<Tag>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Rfc3339>,
}

#[derive(Serialize)]
struct StateEvent {
    state: &'static str,
}

impl Look {
    /// The first look. Everything that exists now is in the snapshot that a reader asks for.
    fn begin(gateway: &Gateway, refusals: u64) -> Self {
        let children = gateway.guardian.table.all();
        let mut servers = BTreeMap::new();
        for mount in gateway.mounts() {
            let mut look = ServerLook::default();
            let _ = mount.mcp.changes(&mut look.cursor);
            servers.insert(mount.server.name.clone(), look);
        }
        Look {
            servers,
            totals: GatewayTotals::of(gateway, children.len()),
            children: children.iter().map(by_pid).collect(),
            state: gateway.state_word(),
            refusals,
        }
    }

    /// The first events of a reader.
    fn opening(&self) -> Vec<Bytes> {
        vec![
            event("state", &StateEvent { state: self.state }),
            event("totals", &self.totals),
        ]
    }

    async fn changes(&mut self, gateway: &Gateway, refusals: &Refusals) -> Vec<Bytes> {
        let mut events = Vec::new();
        let settings = gateway.settings();
        let children = gateway.guardian.table.all();
        let rows = RowMaker::new(&settings, &children);
        let mounts = gateway.mounts();
        for mount in &mounts {
            let name: Arc<str> = mount.server.name.as_str().into();
            let look = self.servers.entry(name.to_string()).or_default();
            look.changes(&mount.mcp, &name, &rows, &mut events).await;
        }
        self.child_events(&children, &mut events);
        let (count, new) = refusals.after(self.refusals);
        self.refusals = count;
        events.extend(new.iter().map(|refusal| event("refusal", refusal)));
        let totals = GatewayTotals::of(gateway, children.len());
        if totals != self.totals {
            self.totals = totals;
            events.push(event("totals", &totals));
        }
        let state = gateway.state_word();
        if state != self.state {
            self.state = state;
            events.push(event("state", &StateEvent { state }));
        }
        events
    }

    fn child_events(&mut self, children: &[ChildFacts], events: &mut Vec<Bytes>) {
        let running: BTreeSet<u32> = children.iter().map(|child| child.pid).collect();
        for facts in children.iter().filter(|child| !self.children.contains_key(&child.pid)) {
            let started = ChildEvent {
                pid: facts.pid,
                state: "started",
                server: &facts.server,
                session: facts.session,
                since: Some(Rfc3339(facts.since)),
            };
            events.push(event("child", &started));
        }
        for (pid, (server, session)) in self.children.iter().filter(|(pid, _)| !running.contains(pid)) {
            let exited = ChildEvent {
                pid: *pid,
                state: "exited",
                server,
                session: *session,
                since: None,
            };
            events.push(event("child", &exited));
        }
        self.children = children.iter().map(by_pid).collect();
    }
}

impl ServerLook {
    async fn changes(
        &mut self,
        service: &rethread::McpService,
        name: &Arc<str>,
        rows: &RowMaker<'_>,
        events: &mut Vec<Bytes>,
    ) {
        let mut changes = service.changes(&mut self.cursor);
        service.read_stored(&mut changes.opened).await;
        service.read_stored(&mut changes.changed).await;
        let opened = changes.opened.into_iter().map(|session| (session, true));
        let changed = changes.changed.into_iter().map(|session| (session, false));
        for (session, is_new) in opened.chain(changed) {
            let row = rows.row(name, session);
            let usage = || Usage {
                calls: row.calls,
                used: row.used,
                expires: row.expires,
                streams: row.streams.iter().map(|stream| stream.ordinal).collect(),
            };
            let changed = SessionEvent {
                tag: row.tag,
                state: if is_new { "opened" } else { "changed" },
                server: name,
                principal: row.principal.clone(),
                session: is_new.then_some(&row),
                usage: (!is_new).then(usage),
            };
            events.push(event("session", &changed));
            self.stream_events(&row, events);
        }
        for (tag, owner) in &changes.brief {
            let opened = SessionEvent {
                tag: *tag,
                state: "opened",
                server: name,
                principal: owner.as_ref().map(|owner| rows.principal(owner)),
                session: None,
                usage: None,
            };
            events.push(event("session", &opened));
        }
        for (tag, owner) in changes.brief.into_iter().chain(changes.ended) {
            self.streams.remove(&tag);
            let ended = SessionEvent {
                tag,
                state: "ended",
                server: name,
                principal: owner.as_ref().map(|owner| rows.principal(owner)),
                session: None,
                usage: None,
            };
            events.push(event("session", &ended));
        }
    }

    /// Events for the streams that differ from the last look.
    fn stream_events(&mut self, row: &SessionRow, events: &mut Vec<Bytes>) {
        let before = self.streams.remove(&row.tag).unwrap_or_default();
        for stream in row
            .streams
            .iter()
            .filter(|stream| before.get(&stream.ordinal) != Some(stream))
        {
            let changed = StreamEvent {
                tag: row.tag,
                server: &row.server,
                stream,
            };
            events.push(event("stream", &changed));
        }
        if !row.streams.is_empty() {
            let streams = row.streams.iter().map(|stream| (stream.ordinal, stream.clone()));
            self.streams.insert(row.tag, streams.collect());
        }
    }
}

fn by_pid(facts: &ChildFacts) -> (u32, (Arc<str>, Option<Tag>)) {
    (facts.pid, (Arc::clone(&facts.server), facts.session))
}
