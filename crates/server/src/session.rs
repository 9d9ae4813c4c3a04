//! A session: the state that owns streams, running calls, open questions and waiting messages.

pub(crate) mod activity;
pub(crate) mod admission;
mod admissions;
mod call_table;
mod complete_stream;
pub(crate) mod connections;
mod ending;
mod expiry;
mod facts;
pub(crate) mod get_connection;
pub(crate) mod handshake;
mod notifications;
pub(crate) mod notifier;
pub(crate) mod orphan;
mod persistence;
pub(crate) mod previous_state;
pub(crate) mod push;
mod push_commands;
mod push_queue;
mod record;
pub(crate) mod registry;
mod remote_streams;
pub(crate) mod session_locks;
mod shared_push;
mod stage;
mod streams;
pub(crate) mod subscriptions;
mod summary;
mod unload;
pub(crate) mod unloaded_sessions;
pub(crate) mod view;

pub(crate) use complete_stream::CompleteStream;
pub(crate) use notifications::{list_changed, resource_updated};
pub(crate) use persistence::PendingEnd;

use crate::node::Node;
use crate::node::server_info::declares;
use crate::stream::Stream;
use crate::stream::remote_reader::RemoteReader;
use admissions::Admissions;
use bytes::Bytes;
use call_table::CallTable;
use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};
use persistence::{Persistence, RecordChange};
use push::SessionPush;
use push_commands::SharedPush;
use rethread_proto::ClientCapabilities;
use rethread_proto::LogLevel;
use rethread_proto::Ordinals;
use rethread_proto::clock::Mono;
use rethread_proto::jsonrpc::{Answer, RequestId};
use rethread_proto::push::PushLimits;
use rethread_proto::questions::{AnswerOutcome, Questions};
use rethread_proto::refusal::Reason;
use rethread_proto::stream::Framing;
use rethread_proto::subscription::covers;
use rethread_proto::{Ordinal, StreamKind, Tag, Version};
use rethread_store::{Incarnation, SessionKey, SessionRecord, SessionView, StoredQueue};
use serde_json::Value;
use stage::Stage;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// The session's handle of a running call.
pub(crate) trait CancelHandle: Send + Sync {
    /// Cancels the call. It will send no answer.
    fn cancel(&self);

    /// The method of the call, for operators.
    fn method(&self) -> &str;
}

/// Receives the client's answer to a question.
pub(crate) type Waiter = oneshot::Sender<Result<Bytes, Bytes>>;

pub(crate) struct Session {
    pub(crate) key: SessionKey,
    /// Its name for operators.
    tag: Tag,
    /// When this process opened or restored it.
    opened: Mono,
    pub(crate) transport: Transport,
    pub(crate) epoch: u64,
    /// The result of `initialize`.
    negotiated: OnceLock<Negotiated>,
    /// The one stream of a connection-bound session.
    live: OnceLock<Weak<Stream>>,
    pub(crate) node: Arc<Node>,
    pub(crate) push: SessionPush,
    shared_push: SharedPush,
    pub(crate) questions: Mutex<Questions<Waiter>>,
    state: Mutex<State>,
    /// Number of open connections and running calls.
    uses: AtomicUsize,
    last_used: AtomicU64,
    began: Mono,
    /// The latest expiry of its owner's tokens, in milliseconds of the wall clock. Zero without an authenticator.
    identity_expires: AtomicU64,
    /// Its client has sent a request after `initialize`, or has opened a stream.
    was_used: AtomicBool,
    ended: AtomicBool,
    /// It has ended in this process only: the store keeps it.
    suspended: AtomicBool,
    admissions: Admissions,
    persistence: Persistence,
    /// The node that holds the handler state, as this view knows it.
    owner: RwLock<Option<Incarnation>>,
    drawing_ordinals: AtomicBool,
    /// Connections of this node that read streams of other nodes.
    remote_readers: Mutex<Vec<Arc<RemoteReader>>>,
    /// Held while a connection adopts a push stream without a reader, because a stream has one writer.
    adopting: tokio::sync::Mutex<()>,
    /// Notified when the client is initialized, and when the session ends.
    changed: Notify,
}

#[derive(Default)]
struct State {
    stage: Stage,
    ordinals: Ordinals,
    streams: HashMap<Ordinal, Arc<Stream>, RandomState>,
    /// Push streams without a reader, oldest first.
    abandoned: VecDeque<(Mono, Ordinal)>,
    calls: CallTable<dyn CancelHandle>,
    log_level: Option<LogLevel>,
    subscriptions: BTreeSet<Box<str>>,
}

/// The version and params of `initialize`.
struct Negotiated {
    version: Version,
    client: ClientCapabilities,
    initialize_params: Bytes,
    /// The capabilities of the server in this session, if they differ from the general ones.
    declared: Option<Box<Value>>,
}

/// The transport of a session. A session of one transport does not exist on the endpoint of another (LEG-04).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The endpoint of Streamable HTTP.
    Streamable,
    /// 2024-11-05: one connection that carries all messages and lives as long as the session.
    HttpSse,
    /// Lines on a pair of byte streams, such as stdin and stdout, which live as long as the session.
    Lines,
}

impl Transport {
    fn framing(self) -> Framing {
        match self {
            Transport::Streamable => Framing::Numbered,
            Transport::HttpSse => Framing::Named,
            Transport::Lines => Framing::Line,
        }
    }
}

impl Session {
    /// A view of a session that the store has (RST-01). Its capabilities are set later. `began` is known if the session had only left
    /// the memory.
    pub(crate) fn from_view(
        node: &Arc<Node>,
        (key, began): (SessionKey, Option<Mono>),
        view: &SessionView,
        queue: StoredQueue,
    ) -> Arc<Self> {
        let began = began.unwrap_or_else(|| node.clock.now());
        let session = Self::build(node, key, Transport::Streamable, view.record.epoch, began);
        session.push.restore(node, queue);
        session.mark_used(); // a request needs it
        session.set_view(view);
        session.apply_record(&view.record);
        session
    }

    /// The store has the session: `view` is the view of this process.
    pub(crate) fn set_view(&self, view: &SessionView) {
        self.persistence.set_revision(view.revision);
        self.set_owner(view.owner.clone());
        self.state.lock().ordinals = Ordinals::new(view.ordinals);
    }

    /// A session before `initialize` is answered.
    pub(crate) fn new(node: &Arc<Node>, key: SessionKey, transport: Transport) -> Arc<Self> {
        Self::build(node, key, transport, 1, node.clock.now())
    }

    fn build(node: &Arc<Node>, key: SessionKey, transport: Transport, epoch: u64, began: Mono) -> Arc<Self> {
        let limits = &node.limits;
        Arc::new(Session {
            transport,
            negotiated: OnceLock::new(),
            live: OnceLock::new(),
            push: SessionPush::new(PushLimits::new(
                limits.waiting_messages_per_session(),
                limits.waiting_bytes_per_session(),
            )),
            shared_push: SharedPush::default(),
            questions: Mutex::new(Questions::new(epoch, limits.questions_per_session())),
            last_used: AtomicU64::new(node.clock.now().as_millis()),
            began,
            identity_expires: AtomicU64::new(0),
            node: Arc::clone(node),
            epoch,
            tag: Tag::of_session(&key.session),
            opened: began,
            key,
            state: Mutex::default(),
            uses: AtomicUsize::new(0),
            was_used: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            suspended: AtomicBool::new(false),
            admissions: Admissions::default(),
            persistence: Persistence::new(node.clock.now()),
            owner: RwLock::default(),
            drawing_ordinals: AtomicBool::new(false),
            remote_readers: Mutex::default(),
            adopting: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Stores the result of `initialize`. Called once, because only one [handshake](Handshake) succeeds.
    pub(crate) fn set_negotiated(&self, version: Version, initialize_params: Bytes, declared: Option<Value>) {
        let client = ClientCapabilities::of_initialize(&initialize_params);
        let negotiated = Negotiated {
            version,
            client,
            initialize_params,
            declared: declared.map(Box::new),
        };
        // A view that becomes the owner of its session has it from the record already.
        let _ = self.negotiated.set(negotiated);
    }

    /// The same from a record, for a view whose handler state is on another node.
    pub(crate) fn set_negotiated_from(&self, record: SessionRecord) {
        let declared = record.declared.and_then(|json| serde_json::from_slice(&json).ok());
        self.set_negotiated(record.version, record.initialize_params, declared);
    }

    /// Whether the server declared `capability`, such as `tools.listChanged`, in this session.
    pub(crate) fn declares(&self, capability: &str) -> bool {
        match self
            .negotiated
            .get()
            .and_then(|negotiated| negotiated.declared.as_deref())
        {
            Some(declared) => declares(declared, capability),
            None => self.node.info.declares(capability),
        }
    }

    /// The capabilities of the server in this session as JSON, if they differ from the general ones.
    fn declared_json(&self) -> Option<Bytes> {
        let declared = self.negotiated.get()?.declared.as_deref()?;
        Some(declared.to_string().into())
    }

    /// The negotiated revision. Before `initialize`, the revision whose transport needs no negotiation.
    pub(crate) fn version(&self) -> Version {
        self.negotiated
            .get()
            .map_or(Version::V2024_11_05, |negotiated| negotiated.version)
    }

    pub(crate) fn set_live_stream(&self, stream: &Arc<Stream>) {
        let _ = self.live.set(Arc::downgrade(stream)); // set once, by the GET that created the session
    }

    /// Whether calls run whose answers go to the push stream.
    pub(crate) fn answers_on_its_push_stream(&self) -> bool {
        self.transport != Transport::Streamable && !self.state.lock().calls.is_empty()
    }

    /// The pause between two keep-alive comments. Lines have no comments.
    pub(crate) fn keep_alive(&self) -> Option<Duration> {
        (self.transport != Transport::Lines).then_some(self.node.timing.keep_alive)
    }

    pub(crate) fn live_stream(&self) -> Option<Arc<Stream>> {
        self.live.get()?.upgrade()
    }

    pub(crate) fn client(&self) -> ClientCapabilities {
        self.negotiated
            .get()
            .map(|negotiated| negotiated.client)
            .unwrap_or_default()
    }

    pub(crate) fn initialize_params(&self) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        self.negotiated
            .get()
            .map_or(&NONE, |negotiated| &negotiated.initialize_params)
    }

    // ---- life ----

    /// Records that the session is in use now.
    pub(crate) fn touch(&self) {
        self.last_used.store(self.node.clock.coarse_millis(), Ordering::Relaxed);
    }

    pub(crate) fn is_idle(&self, now: Mono) -> bool {
        let used = Mono::from_millis(self.last_used.load(Ordering::Relaxed));
        self.uses.load(Ordering::Relaxed) == 0 && now.since(used) >= self.node.timing.session_idle
    }

    /// The client sends a request after `initialize`, or opens a stream.
    pub(crate) fn mark_used(&self) {
        self.was_used.store(true, Ordering::Relaxed);
    }

    /// How long nobody has used the session; `None` while it is in use, and if it ends with its connection.
    pub(crate) fn unused_for(&self, now: Mono) -> Option<Duration> {
        let is_free = self.uses.load(Ordering::Relaxed) == 0 && self.transport == Transport::Streamable;
        let used = Mono::from_millis(self.last_used.load(Ordering::Relaxed));
        is_free.then(|| now.since(used))
    }

    /// The client sent `notifications/initialized`.
    pub(crate) async fn mark_initialized(&self) {
        self.begin_push();
        self.save(RecordChange::Initialized).await;
    }

    /// The client is initialized: messages may be pushed to it.
    fn begin_push(&self) {
        self.push.begin();
        self.changed.notify_waiters();
    }

    /// Waits until the client is initialized (SES-08), or the session ends.
    pub(crate) async fn ready(&self) {
        loop {
            let changed = self.changed.notified();
            if self.push.has_begun() || self.has_ended() {
                return;
            }
            changed.await;
        }
    }

    // ---- calls ----

    /// Registers a running call. False if its id is in flight already (SES-10), an error if there are too many calls.
    pub(crate) fn start_call(&self, id: &RequestId, call: &Arc<dyn CancelHandle>) -> Result<bool, Reason> {
        let mut state = self.state.lock();
        if self.has_ended() {
            // A view that is suspended has lost its lease: a view that is closed has no request.
            return Err(if self.is_over() {
                Reason::UnknownSession
            } else {
                Reason::StoreUnavailable
            });
        }
        if state.calls.get(id).is_some() {
            return Ok(false);
        }
        if state.calls.len() >= self.node.limits.calls_per_session() {
            return Err(Reason::TooMany("calls running in this session"));
        }
        // Each running call may open a stream, which needs an ordinal at once.
        if state.ordinals.left(StreamKind::Call) <= state.calls.len() as u64 {
            return Err(Reason::StoreUnavailable);
        }
        state.calls.insert(id, call);
        Ok(true)
    }

    /// Unregisters a call that has ended. Compares the call, because its id may be in use again.
    pub(crate) fn end_call(&self, id: &RequestId, call: &(dyn CancelHandle + 'static)) {
        self.state.lock().calls.remove(id, call);
    }

    /// The client cancels a call (CAN-01). Unknown ids are ignored.
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
            AnswerOutcome::Waiter(waiter) => {
                let _ = waiter.send(answer.outcome); // an error means that the call no longer waits, so the answer is too late
                Ok(())
            }
            AnswerOutcome::Late => Ok(()),
            AnswerOutcome::NeverAsked => Err(Reason::UnknownQuestion),
        }
    }

    // ---- settings ----

    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        self.state.lock().log_level
    }

    pub(crate) async fn set_log_level(&self, level: LogLevel) {
        self.state.lock().log_level = Some(level);
        self.save(RecordChange::LogLevel(level)).await;
    }

    /// False if the session has too many subscriptions.
    pub(crate) async fn subscribe(&self, uri: &str) -> bool {
        let limits = &self.node.limits;
        let subscribed = {
            let subscriptions = &mut self.state.lock().subscriptions;
            let bytes = uri.len() + subscriptions.iter().map(|uri| uri.len()).sum::<usize>();
            let unsaved = self.persistence.unsaved.lock().subscriptions();
            let fits = subscriptions.len().max(unsaved) < limits.subscriptions_per_session()
                && bytes <= limits.subscription_bytes_per_session();
            subscriptions.contains(uri) || (fits && subscriptions.insert(uri.into()))
        };
        if subscribed {
            self.save(RecordChange::Subscribed(uri.into())).await;
        }
        subscribed
    }

    pub(crate) async fn unsubscribe(&self, uri: &str) {
        self.state.lock().subscriptions.remove(uri);
        self.save(RecordChange::Unsubscribed(uri.into())).await;
    }

    /// Whether an update of `uri` belongs to a subscription: to the same URI, or to one above it (T-26).
    pub(crate) fn is_subscribed(&self, uri: &str) -> bool {
        let state = self.state.lock();
        state.subscriptions.contains(uri) || state.subscriptions.iter().any(|s| covers(s, uri))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.key.session)
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}
