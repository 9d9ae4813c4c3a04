//! The state of a running endpoint for operators. No type here can hold a session id, a token or an argument.

use rethread_proto::clock::Wall;
use rethread_proto::rfc3339::Rfc3339;
use rethread_proto::{Principal, Tag, Version};
use rethread_store::StreamStatus;
use serde::{Serialize, Serializer};

/// The version of the format.
pub(crate) const VERSION: u32 = 1;
/// The default number of sessions of one page.
const DEFAULT_LIMIT: usize = 100;

/// Which sessions a [`Snapshot`] lists, and how many. Change the default with [`with`](Self::with).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// Only sessions of callers with exactly this subject.
    pub subject: Option<String>,
    /// Only sessions in this state.
    pub state: Option<SessionState>,
    /// Only sessions with this text in their tag, client name or subject, in any case.
    pub text: Option<String>,
    /// The maximum number of sessions.
    pub limit: usize,
    /// Only sessions after this one: [`Snapshot::next`] of the page before.
    pub after: Option<Tag>,
}

impl Default for Query {
    fn default() -> Self {
        Query {
            subject: None,
            state: None,
            text: None,
            limit: DEFAULT_LIMIT,
            after: None,
        }
    }
}

impl Query {
    /// Changes the query.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// Whether a session is used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// A call runs or a connection is open.
    Active,
    /// Neither.
    Idle,
}

/// One page of the sessions of an endpoint, ordered by tag, and its totals.
///
/// Each session is read at another moment, so the page is not one consistent state. Pages neither repeat nor skip a session that
/// exists all the time.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The version of this format: 1.
    pub version: u32,
    /// The time of the snapshot.
    #[serde(serialize_with = "moment")]
    pub now: Wall,
    /// The numbers of the whole endpoint, independent of the query.
    pub totals: Totals,
    /// The sessions.
    pub sessions: Vec<SessionSnapshot>,
    /// The tag of the last session of this page. `None` on the last page.
    pub next: Option<Tag>,
}

/// The numbers of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Sessions in memory.
    pub sessions: usize,
    /// Calls that a handler executes.
    pub calls: usize,
    /// Connections that read a stream.
    pub connections: usize,
    /// Calls that wait for input (2026-07-28).
    pub parks: usize,
    /// Open `subscriptions/listen` streams.
    pub listens: usize,
}

/// A session.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SessionSnapshot {
    /// The name of the session for operators. Nobody can use the session with it.
    pub tag: Tag,
    /// The principal that opened it. `None`: anonymous.
    pub principal: Option<Principal>,
    /// The negotiated revision.
    #[serde(serialize_with = "revision")]
    pub revision: Version,
    /// `streamable`, `sse` or `stdio`.
    pub transport: &'static str,
    /// The program of the client, as it names itself.
    pub client: ClientSnapshot,
    /// Since when this process has it.
    #[serde(serialize_with = "moment")]
    pub since: Wall,
    /// When it was used last, to about a second.
    #[serde(serialize_with = "moment")]
    pub used: Wall,
    /// When it ends if it is not used. `None` while it is used.
    #[serde(serialize_with = "optional_moment")]
    pub expires: Option<Wall>,
    /// Calls that run.
    pub calls: usize,
    /// The streams that are open, or whose reader may return, lowest ordinal first.
    pub streams: Vec<StreamSnapshot>,
}

/// The name and the version of a client program. Hostile input: a client may write anything here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClientSnapshot {
    /// The name, shortened to 128 characters.
    pub name: String,
    /// The version, shortened to 128 characters.
    pub version: String,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StreamSnapshot {
    /// Its number in the session.
    pub ordinal: u64,
    /// `call`, `push`, or `sse` for the one stream of an HTTP+SSE session or of lines.
    pub kind: &'static str,
    /// The method of the call that it answers, while the call runs.
    pub method: Option<String>,
    /// The first retained event. `None` if there is none, or if the store does not answer at once: see
    /// [`McpService::read_stored`](crate::McpService::read_stored).
    pub first: Option<u64>,
    /// The last event.
    pub last: Option<u64>,
    /// The last event that the open connection has taken.
    pub cursor: Option<u64>,
    /// Whether a connection reads it.
    pub attached: bool,
    /// Whether it has ended.
    pub sealed: bool,
    /// The bytes that this process has appended.
    pub bytes: u64,
    /// Whether events after the cursor are no longer retained, or went out without ids.
    pub gap: bool,
}

impl StreamSnapshot {
    /// Adds what only the store knows.
    pub(crate) fn add_stored(&mut self, stored: &StreamStatus) {
        let purged = stored.purged.map(|seq| seq.0);
        self.first = stored.first_kept.map(|seq| seq.0);
        self.last = self.last.or(stored.last.map(|seq| seq.0));
        self.sealed |= stored.sealed;
        self.gap |= self.cursor.zip(purged).is_some_and(|(cursor, purged)| cursor < purged);
    }
}

/// The differences between two looks at an endpoint: see [`McpService::changes`](crate::McpService::changes).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Changes {
    /// Sessions that were opened or restored since.
    pub opened: Vec<SessionSnapshot>,
    /// Sessions whose calls, connections or streams have changed.
    pub changed: Vec<SessionSnapshot>,
    /// Sessions that were opened and have ended since. The last 256 are known.
    pub brief: Vec<(Tag, Option<Principal>)>,
    /// Sessions that have ended, with their principals.
    pub ended: Vec<(Tag, Option<Principal>)>,
}

fn moment<S: Serializer>(moment: &Wall, serializer: S) -> Result<S::Ok, S::Error> {
    Rfc3339(*moment).serialize(serializer)
}

fn optional_moment<S: Serializer>(moment: &Option<Wall>, serializer: S) -> Result<S::Ok, S::Error> {
    moment.map(Rfc3339).serialize(serializer)
}

fn revision<S: Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
    version.as_str().serialize(serializer)
}
