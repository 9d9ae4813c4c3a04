//! The snapshot of the gateway as JSON (O7): the snapshots of its servers, with names, children and providers.

use super::Admin;
use crate::auth::ProviderKeys;
use crate::child::{ChildCounts, ChildFacts, ChildTable};
use crate::gateway::Gateway;
use crate::settings::{AuthSettings, Settings};
use rethread::{ClientSnapshot, Principal, Query, SessionSnapshot, SessionState, StreamSnapshot, Tag, Totals, Wall};
use rethread_auth::STATIC_PROVIDER;
use rethread_proto::rfc3339::Rfc3339;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of the format.
const VERSION: u32 = 1;
const MAX_LIMIT: usize = 1000;
const DEFAULT_LIMIT: usize = 100;
/// Bytes of the text of a filter. Beyond: 400.
const MAX_FILTER_BYTES: usize = 256;

/// The query of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SnapshotQuery {
    server: Option<String>,
    query: Query,
}

impl SnapshotQuery {
    /// Reads `server`, `principal`, `state`, `q`, `limit` and `after`. An empty value is an absent one.
    pub(super) fn parse(query: &str) -> Result<Self, &'static str> {
        let mut parsed = SnapshotQuery::default();
        parsed.query.limit = DEFAULT_LIMIT;
        for (name, value) in pairs(query)? {
            if value.is_empty() {
                continue;
            }
            if value.len() > MAX_FILTER_BYTES {
                return Err("a value of the query is too long");
            }
            match name.as_str() {
                "server" => parsed.server = Some(value),
                "principal" => parsed.query.subject = Some(value),
                "state" => {
                    parsed.query.state = Some(match value.as_str() {
                        "active" => SessionState::Active,
                        "idle" => SessionState::Idle,
                        _ => return Err("`state` is `active` or `idle`"),
                    });
                }
                "q" => parsed.query.text = Some(value),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| *limit > 0);
                    let limit: usize = limit.ok_or("`limit` is a number above 0; a page has at most 1000 sessions")?;
                    parsed.query.limit = limit.min(MAX_LIMIT);
                }
                "after" => parsed.query.after = Some(Tag::parse(&value).ok_or("`after` is a tag")?),
                _ => return Err("the query takes server, principal, state, q, limit and after"),
            }
        }
        Ok(parsed)
    }

    /// The query for one server. `None` if none of its sessions matches.
    fn for_server(&self, server: &str) -> Option<Query> {
        if self.server.as_deref().is_some_and(|wanted| wanted != server) {
            return None;
        }
        let mut query = self.query.clone();
        let text = query.text.as_deref().map(str::to_lowercase);
        if text.is_some_and(|text| server.to_lowercase().contains(&text)) {
            query.text = None; // the name of the server matches, so all of its sessions do
        }
        Some(query)
    }
}

/// The names and values of a query.
fn pairs(query: &str) -> Result<Vec<(String, String)>, &'static str> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        Some((decode(name)?, decode(value)?))
    };
    parts
        .map(|part| pair(part).ok_or("the query is not percent-encoded UTF-8"))
        .collect()
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[derive(Serialize)]
pub(super) struct GatewaySnapshot<'a> {
    version: u32,
    node: String,
    rethread: &'static str,
    started: Rfc3339,
    now: Rfc3339,
    state: &'static str,
    totals: GatewayTotals,
    servers: Vec<ServerRow>,
    providers: Vec<ProviderKeys>,
    sessions: Vec<SessionRow>,
    errors: &'a VecDeque<super::refusals::RefusalRow>,
    next: Option<Tag>,
}

/// The totals of all servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct GatewayTotals {
    sessions: usize,
    calls: usize,
    connections: usize,
    children: usize,
    parks: usize,
    listens: usize,
}

#[derive(Serialize)]
struct ServerRow {
    name: String,
    eras: String,
    sessions: usize,
    children: ServerChildren,
}

#[derive(Serialize)]
struct ServerChildren {
    running: usize,
    limit: usize,
    #[serde(flatten)]
    counts: ChildCounts,
}

/// A session, with the data that only the gateway has.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SessionRow {
    pub(super) tag: Tag,
    pub(super) server: Arc<str>,
    pub(super) principal: Option<PrincipalRow>,
    revision: &'static str,
    transport: &'static str,
    client: ClientSnapshot,
    since: Rfc3339,
    pub(super) used: Rfc3339,
    pub(super) expires: Option<Rfc3339>,
    pub(super) calls: usize,
    child: Option<ChildRow>,
    pub(super) streams: Vec<StreamSnapshot>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct PrincipalRow {
    provider: Option<String>,
    issuer: String,
    subject: String,
}

#[derive(Clone, Debug, Serialize)]
struct ChildRow {
    pid: u32,
    since: Rfc3339,
}

/// One child with its last lines, for the console.
#[derive(Serialize)]
pub(super) struct ChildDetail {
    pid: u32,
    server: Arc<str>,
    session: Option<Tag>,
    since: Rfc3339,
    crashes: u64,
    stderr: VecDeque<String>,
}

impl ChildDetail {
    pub(super) fn new(table: &ChildTable, facts: ChildFacts) -> Self {
        ChildDetail {
            crashes: table.counts(&facts.server).crashes,
            pid: facts.pid,
            server: facts.server,
            session: facts.session,
            since: Rfc3339(facts.since),
            stderr: facts.stderr,
        }
    }
}

/// Makes rows of sessions: it knows children by session, and providers by issuer.
pub(super) struct RowMaker<'a> {
    children: HashMap<Tag, ChildRow>,
    auth: Option<&'a AuthSettings>,
}

impl<'a> RowMaker<'a> {
    pub(super) fn new(settings: &'a Settings, children: &[ChildFacts]) -> Self {
        let rows = children.iter().filter_map(|facts| {
            let row = ChildRow {
                pid: facts.pid,
                since: Rfc3339(facts.since),
            };
            Some((facts.session?, row))
        });
        RowMaker {
            children: rows.collect(),
            auth: settings.auth.as_ref(),
        }
    }

    pub(super) fn principal(&self, principal: &Principal) -> PrincipalRow {
        let issuer = principal.issuer();
        let is_issuer = |name: &str| name == issuer;
        let jwt = self.auth.and_then(|auth| {
            let provider = auth.jwt.iter().find(|jwt| is_issuer(&jwt.rules.issuer));
            provider.map(|jwt| jwt.rules.name.to_string())
        });
        PrincipalRow {
            provider: jwt.or_else(|| (issuer == STATIC_PROVIDER).then(|| STATIC_PROVIDER.to_owned())),
            issuer: issuer.to_owned(),
            subject: principal.subject().to_owned(),
        }
    }

    pub(super) fn row(&self, server: &Arc<str>, session: SessionSnapshot) -> SessionRow {
        SessionRow {
            tag: session.tag,
            server: Arc::clone(server),
            principal: session.principal.as_ref().map(|principal| self.principal(principal)),
            revision: session.revision.as_str(),
            transport: session.transport,
            client: session.client,
            since: Rfc3339(session.since),
            used: Rfc3339(session.used),
            expires: session.expires.map(Rfc3339),
            calls: session.calls,
            child: self.children.get(&session.tag).cloned(),
            streams: session.streams,
        }
    }
}

impl GatewayTotals {
    pub(super) fn add(&mut self, totals: &Totals) {
        self.sessions += totals.sessions;
        self.calls += totals.calls;
        self.connections += totals.connections;
        self.parks += totals.parks;
        self.listens += totals.listens;
    }

    /// The totals now.
    pub(super) fn of(gateway: &Gateway, children: usize) -> Self {
        let mut totals = GatewayTotals {
            children,
            ..GatewayTotals::default()
        };
        let nothing = Query::default().with(|query| query.limit = 0);
        for mount in gateway.mounts() {
            totals.add(&mount.mcp.snapshot(&nothing).totals);
        }
        totals
    }
}

impl Admin {
    /// The snapshot as JSON.
    pub(super) async fn snapshot(&self, query: &SnapshotQuery) -> serde_json::Result<Vec<u8>> {
        let gateway = &*self.gateway;
        let settings = gateway.settings();
        let children = gateway.guardian.table.all();
        let rows = RowMaker::new(&settings, &children);
        let mut totals = GatewayTotals {
            children: children.len(),
            ..GatewayTotals::default()
        };
        let (mut servers, mut sessions, mut has_more) = (Vec::new(), Vec::new(), false);
        for mount in gateway.mounts() {
            let name: Arc<str> = mount.server.name.as_str().into();
            let asked = query.for_server(&name);
            let is_listed = asked.is_some();
            let asked = asked.unwrap_or_else(|| Query::default().with(|query| query.limit = 0));
            let mut page = mount.mcp.snapshot(&asked);
            mount.mcp.read_stored(&mut page.sessions).await;
            totals.add(&page.totals);
            has_more |= is_listed && page.next.is_some();
            sessions.extend(page.sessions.into_iter().map(|session| rows.row(&name, session)));
            servers.push(ServerRow {
                eras: mount.eras.to_string(),
                sessions: page.totals.sessions,
                children: ServerChildren {
                    running: children.iter().filter(|child| child.server == name).count(),
                    limit: mount.server.max_children,
                    counts: gateway.guardian.table.counts(&name),
                },
                name: name.to_string(),
            });
        }
        sessions.sort_unstable_by_key(|session| session.tag);
        has_more |= sessions.len() > query.query.limit;
        sessions.truncate(query.query.limit);
        let errors = self.feed.refusals();
        serde_json::to_vec(&GatewaySnapshot {
            version: VERSION,
            node: node_name(&settings),
            rethread: env!("CARGO_PKG_VERSION"),
            started: Rfc3339(self.started),
            now: Rfc3339(now()),
            state: gateway.state_word(),
            totals,
            servers,
            providers: gateway.provider_keys(),
            next: sessions.last().map(|session| session.tag).filter(|_| has_more),
            sessions,
            errors: &errors,
        })
    }
}

/// The name of this gateway: that of the node, or of the machine.
fn node_name(settings: &Settings) -> String {
    let node = settings.store.redis().and_then(|redis| redis.node_id.clone());
    node.unwrap_or_else(|| {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let machine = machine.trim();
        if machine.is_empty() {
            "local".to_owned()
        } else {
            machine.to_owned()
        }
    })
}

pub(super) fn now() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_09_query_is_read_with_its_bounds() {
        let query = SnapshotQuery::parse(
            "server=files&principal=a%40b.example&state=active&q=Cur+sor&limit=7&after=00000000000000ff",
        );
        let query = query.unwrap();
        assert_eq!(query.server.as_deref(), Some("files"));
        assert_eq!(query.query.subject.as_deref(), Some("a@b.example"));
        assert_eq!(query.query.text.as_deref(), Some("Cur sor"));
        assert_eq!((query.query.limit, query.query.state), (7, Some(SessionState::Active)));
        assert_eq!(query.query.after, Tag::parse("00000000000000ff"));
        assert_eq!(SnapshotQuery::parse("").unwrap().query.limit, 100);
        assert_eq!(SnapshotQuery::parse("limit=1001").unwrap().query.limit, 1000);
        assert_eq!(
            SnapshotQuery::parse("q=&state=&after=&limit=").unwrap(),
            SnapshotQuery::parse("").unwrap()
        );
        for invalid in [
            "limit=0",
            "limit=-1",
            "limit=x",
            "state=dead",
            "after=x",
            "after=00000000000000FF",
            "q=%",
            "q=%ff",
            "x=1",
        ] {
            assert!(SnapshotQuery::parse(invalid).is_err(), "{invalid}");
        }
        assert!(SnapshotQuery::parse(&format!("q={}", "x".repeat(300))).is_err());
    }

    #[test]
    fn ops_09_text_that_names_a_server_lists_all_its_sessions() {
        let query = SnapshotQuery::parse("q=FILE").unwrap();
        assert_eq!(query.for_server("my-files").unwrap().text, None);
        assert_eq!(query.for_server("git").unwrap().text.as_deref(), Some("FILE"));
        let query = SnapshotQuery::parse("server=git").unwrap();
        assert_eq!(query.for_server("my-files"), None);
    }
}
