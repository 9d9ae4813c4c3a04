//! A session: the conversation that owns streams, running calls, open questions and waiting messages.

use crate::call::Running;
use crate::context::{Ended, Level};
use crate::hub::Hub;
use crate::node::Node;
use crate::outbox::{Close, Stream};
use crate::tail::{Start, Tail};
use bytes::Bytes;
use parking_lot::Mutex;
use rethread_proto::clock::{Mono, Wall};
use rethread_proto::event_id::{EventId, Seq, StreamKind};
use rethread_proto::jsonrpc::{Answer, RequestId, write_notification};
use rethread_proto::refusal::Reason;
use rethread_proto::session::Ordinals;
use rethread_proto::session::coordinator::{Coordinator, Settled};
use rethread_proto::session::push::{Collapse, PushLimits};
use rethread_proto::session::stream::{Plan, plan};
use rethread_proto::sse::{self, Draft};
use rethread_proto::{Ordinal, SessionId, Version};
use rethread_store::{Facts, List, SessionKey, SessionRecord, StoreError, StreamKey, Summary};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, oneshot};

/// One who waits for the client's answer.
pub(crate) type Waiter = oneshot::Sender<Result<Bytes, Bytes>>;

pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) version: Version,
    pub(crate) epoch: u64,
    pub(crate) client: ClientCapabilities,
    pub(crate) node: Arc<Node>,
    pub(crate) hub: Hub,
    pub(crate) questions: Mutex<Coordinator<Waiter>>,
    hello: Bytes,
    state: Mutex<State>,
    /// Open connections and running calls.
    uses: AtomicUsize,
    last_used: AtomicU64,
    ended: AtomicBool,
    /// Told when the client is ready, and when the session ends.
    changed: Notify,
}

#[derive(Default)]
struct State {
    ordinals: Ordinals,
    streams: HashMap<Ordinal, Arc<Stream>>,
    /// Push streams that nobody reads, oldest first.
    abandoned: VecDeque<(Mono, Ordinal)>,
    calls: HashMap<RequestId, Arc<Running>>,
    log_level: Option<Level>,
    subscriptions: BTreeSet<Box<str>>,
}

/// How a GET begins.
pub(crate) struct Opened {
    pub(crate) tail: Tail,
    /// The oldest event that is kept, if some after the cursor are gone.
    pub(crate) gap: Option<String>,
}

impl Session {
    pub(crate) fn new(node: &Arc<Node>, key: SessionKey, version: Version, hello: Bytes) -> Arc<Self> {
        let limits = &node.limits;
        Arc::new(Session {
            client: ClientCapabilities::read(&hello),
            hub: Hub::new(PushLimits {
                messages: limits.waiting_messages_per_session,
                bytes: limits.waiting_bytes_per_session,
            }),
            questions: Mutex::new(Coordinator::new(1, limits.questions_per_session)),
            last_used: AtomicU64::new(node.clock.now().as_millis()),
            node: Arc::clone(node),
            epoch: 1,
            key,
            version,
            hello,
            state: Mutex::default(),
            uses: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            changed: Notify::new(),
        })
    }

    // ---- its record ----

    pub(crate) fn record(&self) -> SessionRecord {
        let initialized = self.hub.has_begun();
        let state = self.state.lock();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SessionRecord {
            version: self.version,
            hello: self.hello.clone(),
            initialized,
            log_level: state.log_level.map(|level| level.as_str().into()),
            subscriptions: state.subscriptions.clone(),
            high_water: state.ordinals.high_water(),
            epoch: self.epoch,
            touched: Wall::from_millis(since.as_millis() as u64),
        }
    }

    /// Writes the record; a store that takes its time is not waited for.
    fn save(&self) {
        let saving = self.node.store.update(&self.key, self.epoch, self.record());
        if let Err(later) = saving.now() {
            tokio::spawn(later);
        }
    }

    // ---- its life ----

    /// The session is used right now.
    pub(crate) fn touch(&self) {
        self.last_used
            .store(self.node.clock.now().as_millis(), Ordering::Relaxed);
    }

    /// Something that lasts uses the session until the guard is dropped.
    pub(crate) fn in_use(self: &Arc<Self>) -> InUse {
        self.uses.fetch_add(1, Ordering::Relaxed);
        InUse {
            session: Arc::clone(self),
            connection: false,
        }
    }

    /// A connection uses the session until the guard is dropped.
    pub(crate) fn connected(self: &Arc<Self>) -> InUse {
        self.node.connections.enter(usize::MAX);
        self.uses.fetch_add(1, Ordering::Relaxed);
        InUse {
            session: Arc::clone(self),
            connection: true,
        }
    }

    pub(crate) fn is_idle(&self, now: Mono) -> bool {
        let used = Mono::from_millis(self.last_used.load(Ordering::Relaxed));
        self.uses.load(Ordering::Relaxed) == 0 && now.since(used) >= self.node.timing.session_idle
    }

    /// The client said `notifications/initialized`.
    pub(crate) fn begin(&self) {
        self.hub.begin();
        self.changed.notify_waiters();
        self.save();
    }

    /// Waits until the client is ready to be asked (SES-08), or the session ends.
    pub(crate) async fn ready(&self) {
        loop {
            let changed = self.changed.notified();
            if self.hub.has_begun() || self.has_ended() {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Ends the session: streams get EOF, questions fail, calls are cancelled, nothing is kept (SES-05).
    pub(crate) fn end(&self) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let (streams, calls) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.streams), std::mem::take(&mut state.calls))
        };
        for stream in streams.into_values() {
            stream.stop();
        }
        for call in calls.into_values() {
            call.cancel();
        }
        drop(self.questions.lock().abandon_all().collect::<Vec<_>>());
        self.changed.notify_waiters();
        let (end, forget) = (
            self.node.store.end(&self.key),
            self.node.store.forget_session(&self.key),
        );
        for later in [end.now(), forget.now()].into_iter().filter_map(Result::err) {
            tokio::spawn(later);
        }
    }

    // ---- its calls ----

    /// Takes note of a running call. `None` if its id is in flight already (SES-10); an error if there are too many.
    pub(crate) fn start_call(&self, id: &RequestId, call: &Arc<Running>) -> Result<bool, Reason> {
        let mut state = self.state.lock();
        if self.has_ended() {
            return Err(Reason::UnknownSession);
        }
        if state.calls.contains_key(id) {
            return Ok(false);
        }
        if state.calls.len() >= self.node.limits.calls_per_session {
            return Err(Reason::TooMany("calls running in this session"));
        }
        state.calls.insert(id.clone(), Arc::clone(call));
        Ok(true)
    }

    /// A call is over. Only the call itself may say so: its id may be in use again.
    pub(crate) fn end_call(&self, id: &RequestId, call: &Running) {
        let mut state = self.state.lock();
        if state
            .calls
            .get(id)
            .is_some_and(|running| std::ptr::eq(&**running, call))
        {
            state.calls.remove(id);
            if state.calls.is_empty() {
                state.calls = HashMap::new();
            }
        }
    }

    /// The client cancels a call (CAN-01). Unknown ids are none of our business.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let call = self.state.lock().calls.get(id).cloned();
        if let Some(call) = call {
            call.cancel();
        }
    }

    /// The client answers a question (S2C-03, S2C-04).
    pub(crate) fn answer(&self, answer: Answer) -> Result<(), Reason> {
        let settled = self.questions.lock().settle(&answer.id);
        match settled {
            Settled::Waiter(waiter) => {
                let _ = waiter.send(answer.outcome); // nobody waits any more: as good as late
                Ok(())
            }
            Settled::Late => Ok(()),
            Settled::NeverAsked => Err(Reason::UnknownQuestion),
        }
    }

    // ---- its streams ----

    /// A new stream for the answers to `calls`.
    pub(crate) fn open_call_stream(self: &Arc<Self>, calls: Vec<RequestId>) -> Arc<Stream> {
        self.open_stream(StreamKind::Call, calls)
    }

    fn open_stream(self: &Arc<Self>, kind: StreamKind, calls: Vec<RequestId>) -> Arc<Stream> {
        let ordinal = self.state.lock().ordinals.issue(kind);
        let facts = Facts {
            kind,
            calls: calls.iter().map(RequestId::detached).collect(),
            node: self.node.name.clone(),
        };
        let stream = Stream::open(self, ordinal, facts);
        self.keep(&stream);
        stream
    }

    fn keep(&self, stream: &Arc<Stream>) {
        let mut state = self.state.lock();
        state.streams.insert(stream.key.ordinal, Arc::clone(stream));
        let ended = self.has_ended();
        drop(state);
        if ended {
            stream.stop(); // opened while the session ended
        }
    }

    /// A stream has ended: the store has what is left of it.
    pub(crate) fn stream_over(&self, ordinal: Ordinal) {
        self.state.lock().streams.remove(&ordinal);
    }

    /// Nobody reads a push stream any more. It is kept for a while, for its reader's return.
    pub(crate) fn push_stream_abandoned(&self, stream: &Arc<Stream>) {
        let ordinal = stream.key.ordinal;
        let kept = stream.is_stored() && !stream.is_over();
        let mut state = self.state.lock();
        state.streams.remove(&ordinal);
        if !kept || self.has_ended() {
            return;
        }
        state.abandoned.push_back((self.node.clock.now(), ordinal));
        let over = state.abandoned.len() > self.node.limits.abandoned_push_streams_per_session;
        let oldest = if over { state.abandoned.pop_front() } else { None };
        drop(state);
        if let Some((_, ordinal)) = oldest {
            self.forget_stream(ordinal);
        }
    }

    /// Forgets push streams whose readers did not come back, and passes over a listener that does not read.
    pub(crate) fn sweep(&self, now: Mono) {
        self.hub.pass_over_stalled(now, self.node.timing.stall);
        let mut aged = Vec::new();
        {
            let mut state = self.state.lock();
            while let Some(&(at, ordinal)) = state.abandoned.front() {
                if now.since(at) < self.node.retention.age {
                    break;
                }
                state.abandoned.pop_front();
                aged.push(ordinal);
            }
        }
        for ordinal in aged {
            self.forget_stream(ordinal);
        }
    }

    fn forget_stream(&self, ordinal: Ordinal) {
        if let Err(later) = self.node.store.forget_stream(&self.stream_key(ordinal)).now() {
            tokio::spawn(later);
        }
    }

    fn stream_key(&self, ordinal: Ordinal) -> StreamKey {
        StreamKey {
            session: self.key.clone(),
            ordinal,
        }
    }

    /// Opens a connection for a GET: a new push stream, or the stream that `last_event_id` belongs to.
    pub(crate) async fn open_get(self: &Arc<Self>, last_event_id: Option<&str>) -> Result<Opened, Reason> {
        let id = last_event_id.and_then(|text| self.node.ids.parse(&self.key.session, text));
        let (issued, live) = match id {
            Some(EventId { ordinal, .. }) => {
                let state = self.state.lock();
                (state.ordinals.issued(ordinal), state.streams.get(&ordinal).cloned())
            }
            None => (false, None),
        };
        let found = match id.filter(|_| issued) {
            Some(id) => self.look_up(id.ordinal).await?,
            None => None,
        };
        match plan(id, issued, found.as_ref()) {
            Plan::Forgotten => Err(Reason::StreamForgotten),
            Plan::Ended => Err(Reason::StreamEnded),
            Plan::Fresh { refresh } => Ok(self.fresh_push_stream(refresh)),
            Plan::Tail { after, gap, refresh } => {
                let (Some(id), Some(found)) = (id, found) else {
                    return Err(Reason::StreamForgotten);
                };
                crate::telemetry::resumed(gap);
                self.resume(id.ordinal, after, gap, refresh, live, found)
            }
        }
    }

    async fn look_up(&self, ordinal: Ordinal) -> Result<Option<Summary>, Reason> {
        match self.node.store.summary(&self.stream_key(ordinal)).await {
            Ok(summary) => Ok(Some(summary)),
            Err(StoreError::UnknownStream | StoreError::SessionGone) => Ok(None),
            Err(_) => Err(Reason::StoreUnavailable),
        }
    }

    fn resume(
        self: &Arc<Self>,
        ordinal: Ordinal,
        after: Seq,
        gap: bool,
        refresh: bool,
        live: Option<Arc<Stream>>,
        found: Summary,
    ) -> Result<Opened, Reason> {
        let kind = ordinal.kind();
        let oldest = found.first_kept;
        let stream = match live {
            Some(stream) => stream,
            None if kind == StreamKind::Call && !found.sealed => return Err(Reason::StreamForgotten),
            None => {
                let stream = Stream::adopt(self, ordinal, found);
                if !stream.is_over() {
                    self.state.lock().abandoned.retain(|(_, o)| *o != ordinal);
                    self.keep(&stream);
                }
                stream
            }
        };
        let gap = gap.then(|| oldest.map_or_else(|| stream.prefix.id(after), |seq| stream.prefix.id(seq)));
        let start = Start {
            cursor: after,
            preamble: if refresh { self.refresh() } else { None },
            resumed: true,
            gap_told: gap.is_some(),
            takes_push: kind == StreamKind::Push && !stream.is_over(),
        };
        self.limit_listeners(start.takes_push);
        Ok(Opened {
            tail: Tail::open(self, stream, start),
            gap,
        })
    }

    fn fresh_push_stream(self: &Arc<Self>, refresh: bool) -> Opened {
        let stream = self.open_stream(StreamKind::Push, Vec::new());
        let start = Start {
            cursor: Seq::PRIMING,
            preamble: None,
            resumed: false,
            gap_told: false,
            takes_push: true,
        };
        self.limit_listeners(true);
        let tail = Tail::open(self, Arc::clone(&stream), start);
        stream.flush();
        if refresh {
            for (draft, _) in self.refresh_drafts() {
                let _ = stream.say(draft, rethread_store::Pin::None, false); // over only if the session is
            }
        }
        Opened { tail, gap: None }
    }

    /// Too many GETs at once: the oldest make room, and may come back (T-17).
    fn limit_listeners(&self, opening: bool) {
        let streams = self.hub.streams();
        let limit = self.node.limits.push_streams_per_session.max(1);
        let over = (streams.len() + usize::from(opening)).saturating_sub(limit);
        for stream in streams.iter().take(over) {
            stream.close_reader(self.close());
        }
    }

    pub(crate) fn close(&self) -> Close {
        Close {
            retry: self.node.timing.retry.as_millis() as u64,
        }
    }

    /// The streams that are live right now.
    pub(crate) fn live_streams(&self) -> Vec<Arc<Stream>> {
        self.state.lock().streams.values().cloned().collect()
    }

    // ---- what it is told ----

    /// Tells the client to look again at all it may have missed: the refresh that plain MCP has (design D4).
    fn refresh(&self) -> Option<Bytes> {
        let mut block = Vec::new();
        for (draft, _) in self.refresh_drafts() {
            sse::write_unnumbered(&mut block, draft.payload());
        }
        (!block.is_empty()).then(|| block.into())
    }

    fn refresh_drafts(&self) -> Vec<(Draft, Collapse)> {
        let declared = |list: &List| self.node.info.declares(&format!("{}.listChanged", list.capability()));
        let lists = List::ALL.into_iter().filter(declared).map(list_changed);
        let subscriptions = self.state.lock().subscriptions.clone();
        let resources = subscriptions.iter().map(|uri| resource_updated(uri));
        lists.chain(resources).collect()
    }

    /// Offers everything that may have changed: signals were lost.
    pub(crate) fn offer_refresh(&self) {
        for (draft, collapse) in self.refresh_drafts() {
            self.hub.offer(draft, collapse, self.node.clock.now());
        }
    }

    pub(crate) fn offer(&self, (draft, collapse): (Draft, Collapse)) {
        self.hub.offer(draft, collapse, self.node.clock.now());
    }

    // ---- what it has set ----

    pub(crate) fn log_level(&self) -> Option<Level> {
        self.state.lock().log_level
    }

    pub(crate) fn set_log_level(&self, level: Level) {
        self.state.lock().log_level = Some(level);
        self.save();
    }

    /// False if there are too many subscriptions already.
    pub(crate) fn subscribe(&self, uri: &str) -> bool {
        let mut state = self.state.lock();
        let fits = state.subscriptions.len() < self.node.limits.subscriptions_per_session;
        let subscribed = state.subscriptions.contains(uri) || (fits && state.subscriptions.insert(uri.into()));
        drop(state);
        self.save();
        subscribed
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        self.state.lock().subscriptions.remove(uri);
        self.save();
    }

    /// The subscription that an update of `uri` belongs to: the same URI, or one above it (T-26).
    pub(crate) fn is_subscribed(&self, uri: &str) -> bool {
        let state = self.state.lock();
        let above = |subscribed: &str| {
            uri.strip_prefix(subscribed)
                .is_some_and(|rest| rest.is_empty() || subscribed.ends_with('/') || rest.starts_with(['/', '?', '#']))
        };
        state.subscriptions.contains(uri) || state.subscriptions.iter().any(|s| above(s))
    }
}

/// "This list changed", ready to be offered.
pub(crate) fn list_changed(list: List) -> (Draft, Collapse) {
    let method = list.changed();
    (notification(method, &()), Collapse::List(method))
}

/// "This resource changed", ready to be offered.
pub(crate) fn resource_updated(uri: &str) -> (Draft, Collapse) {
    let draft = notification("notifications/resources/updated", &json!({ "uri": uri }));
    (draft, Collapse::Resource(uri.into()))
}

fn notification(method: &str, params: &impl Serialize) -> Draft {
    Draft::new(96, |out| {
        write_notification(out, method, params).expect("these params are plain JSON");
    })
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.key.session)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Keeps a session from being taken for idle.
pub(crate) struct InUse {
    session: Arc<Session>,
    connection: bool,
}

impl InUse {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if self.connection {
            self.session.node.connections.leave();
        }
        self.session.touch();
        self.session.uses.fetch_sub(1, Ordering::Relaxed);
        self.session.node.grew_quieter();
    }
}

/// The client at the other end of a session, as a handler sees it.
#[derive(Clone, Debug)]
pub struct Peer(pub(crate) Arc<Session>);

impl Peer {
    /// Sends a notification that belongs to no call: to one of the session's GET streams, or to the next one that is
    /// opened. It is kept for replay. Fails only when the session has ended.
    pub fn push(&self, method: &str, params: impl Serialize) -> Result<(), Ended> {
        if self.0.has_ended() {
            return Err(Ended);
        }
        let mut problem = None;
        let draft = Draft::new(128, |out| problem = write_notification(out, method, &params).err());
        if let Some(error) = problem {
            tracing::error!(target: crate::telemetry::TARGET, %error, method, "notification dropped: its params are not JSON");
            return Ok(());
        }
        self.0.offer((draft, Collapse::Never));
        Ok(())
    }

    /// Whether the client subscribed to `uri`, or to something above it.
    pub fn is_subscribed(&self, uri: &str) -> bool {
        self.0.is_subscribed(uri)
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.0.key.session
    }

    /// The negotiated revision.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// What the client can do.
    pub fn capabilities(&self) -> &ClientCapabilities {
        &self.0.client
    }

    /// The raw params of the client's `initialize`.
    pub fn hello(&self) -> &[u8] {
        &self.0.hello
    }
}

/// What a client said it can do, as far as the transport must know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCapabilities {
    /// It answers `sampling/createMessage`.
    pub sampling: bool,
    /// Its sampling can use tools.
    pub sampling_tools: bool,
    /// It shows forms to its user.
    pub elicitation_form: bool,
    /// It sends its user to a URL.
    pub elicitation_url: bool,
    /// It answers `roots/list`.
    pub roots: bool,
}

impl ClientCapabilities {
    pub(crate) fn read(hello: &[u8]) -> Self {
        let hello: Value = serde_json::from_slice(hello).unwrap_or_default();
        let capabilities = &hello["capabilities"];
        let has = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
        let elicitation = &capabilities["elicitation"];
        ClientCapabilities {
            sampling: has(&capabilities["sampling"]),
            sampling_tools: has(&capabilities["sampling"]["tools"]),
            // An empty object is how revisions before modes, and clients after them, declare forms.
            elicitation_form: has(elicitation) && (has(&elicitation["form"]) || !has(&elicitation["url"])),
            elicitation_url: has(&elicitation["url"]),
            roots: has(&capabilities["roots"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S2C-05: the capability matrix.
    #[test]
    fn s2c_05_capabilities_are_read_as_declared() {
        let read = |capabilities: Value| {
            ClientCapabilities::read(json!({ "capabilities": capabilities }).to_string().as_bytes())
        };
        assert_eq!(read(json!({})), ClientCapabilities::default());
        assert_eq!(ClientCapabilities::read(b""), ClientCapabilities::default());
        assert!(read(json!({ "elicitation": {} })).elicitation_form);
        let url = read(json!({ "elicitation": { "url": {} } }));
        assert!(url.elicitation_url && !url.elicitation_form);
        let both = read(json!({ "elicitation": { "url": {}, "form": {} } }));
        assert!(both.elicitation_url && both.elicitation_form);
        let sampling = read(json!({ "sampling": { "tools": {} }, "roots": { "listChanged": true } }));
        assert!(sampling.sampling && sampling.sampling_tools && sampling.roots);
        assert!(!read(json!({ "sampling": {} })).sampling_tools);
    }
}
