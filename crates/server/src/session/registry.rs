//! All sessions of this node: find, open, end, expire.

use crate::node::session_end::SessionEnd;
use crate::node::{LimitedCount, Node};
use crate::session::session_locks::SessionLocks;
use crate::session::subscriptions::Subscriptions;
use crate::session::unloaded_sessions::{UnloadedSession, UnloadedSessions};
use crate::session::{PendingEnd, Session, Transport};
use crate::stream::Stream;
use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};
use rethread_proto::auth::PrincipalCounts;
use rethread_proto::clock::Mono;
use rethread_proto::gate::SessionHeader;
use rethread_proto::refusal::Reason;
use rethread_proto::{Principal, SessionId, Tag};
use rethread_store::{SessionKey, StoreError};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

/// Locks of the table of sessions. Requests of sessions in the same shard wait for each other.
const SHARDS: usize = 64;

/// Ended sessions that are kept for operators.
const MAX_ENDED: usize = 256;

/// The tag of a session, and its owner.
pub(crate) type EndedSession = (Tag, Option<Principal>);

type Shard = HashMap<SessionId, Arc<Session>, RandomState>;

/// The sessions in shards, so that a lookup never waits for the opening of another session.
pub(crate) struct Registry {
    shards: [RwLock<Shard>; SHARDS],
    hasher: RandomState,
    live: LimitedCount,
    /// A session is restored once, even if many requests need it.
    pub(crate) restoring: SessionLocks,
    /// Open `subscriptions/listen` streams, which belong to no session.
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// Push streams of the time before the lease ended. Their connections stay open until this node has joined again.
    suspended: Mutex<Vec<Arc<Stream>>>,
    /// The last sessions that have ended, and their number in all: a look at the table misses those that live shortly.
    ended: Mutex<(u64, VecDeque<EndedSession>)>,
    /// Sessions that are only in the store now.
    unloaded: Mutex<UnloadedSessions>,
    /// The number of sessions of each principal, except the anonymous one.
    per_principal: Mutex<PrincipalCounts>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Registry {
            shards: std::array::from_fn(|_| RwLock::default()),
            hasher: RandomState::default(),
            live: LimitedCount::default(),
            restoring: SessionLocks::default(),
            subscriptions: Arc::default(),
            suspended: Mutex::default(),
            ended: Mutex::default(),
            unloaded: Mutex::default(),
            per_principal: Mutex::default(),
        }
    }

    fn shard(&self, id: &SessionId) -> &RwLock<Shard> {
        &self.shards[self.hasher.hash_one(id) as usize % SHARDS]
    }

    /// The session with this id, if this process has it.
    pub(crate) fn known(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.shard(id).read().get(id).cloned()
    }

    /// Whether this process has the session, and it has not ended.
    pub(crate) fn has(&self, key: &SessionKey) -> bool {
        self.known(&key.session)
            .is_some_and(|session| session.key == *key && !session.has_ended())
    }

    /// The session of a request, if it belongs to `principal`. To others it does not exist (SES-04, SES-06). `None` if this
    /// process does not know it.
    pub(crate) fn find(
        &self,
        header: &SessionHeader,
        principal: &Principal,
        transport: Transport,
    ) -> Result<Option<Arc<Session>>, Reason> {
        let id = match header {
            SessionHeader::Absent => return Err(Reason::MissingSession),
            SessionHeader::Malformed => return Err(Reason::UnknownSession),
            SessionHeader::Id(id) => id,
        };
        let Some(session) = self.known(id) else { return Ok(None) };
        if session.is_suspended() {
            return Ok(None); // the store has it
        }
        if session.key.principal != *principal || session.transport != transport || session.is_over() {
            return Err(Reason::UnknownSession);
        }
        session.touch();
        Ok(Some(session))
    }

    /// Reserves a session of `principal` before it is created. Dropping the reservation releases it.
    pub(crate) fn reserve(&self, node: &Node, principal: &Principal) -> Result<Reservation<'_>, Reason> {
        let enter = || self.live.enter(node.limits.sessions());
        let has_entered = enter() || (self.end_longest_unused(node, None) && enter());
        if !has_entered {
            return Err(Reason::Overloaded("sessions"));
        }
        let limit = node.limits.sessions_per_principal();
        let enter = || self.per_principal.lock().enter(principal, limit);
        let has_entered = enter() || (self.end_longest_unused(node, Some(principal)) && enter());
        if !has_entered {
            self.live.leave();
            return Err(Reason::TooMany("sessions of this caller"));
        }
        Ok(Reservation {
            sessions: self,
            principal: principal.clone(),
            filled: false,
        })
    }

    /// Ends the session that was longest without use, if that is long enough (GW-23). With `of`, a session of this principal.
    fn end_longest_unused(&self, node: &Node, of: Option<&Principal>) -> bool {
        let Some(least) = node.unused.may_end_after() else {
            return false;
        };
        let now = node.clock.now();
        let mut longest = None;
        self.for_each(|session| {
            let is_candidate = of.is_none_or(|principal| session.key.principal == *principal);
            let unused = session
                .unused_for(now)
                .filter(|unused| is_candidate && *unused >= least);
            if let Some(unused) = unused
                && longest.as_ref().is_none_or(|(most, _)| unused > *most)
            {
                longest = Some((unused, Arc::clone(session)));
            }
        });
        let Some((_, session)) = longest else { return false };
        self.end(&session, SessionEnd::Unused).detach();
        true
    }

    fn release(&self, principal: &Principal) {
        self.live.leave();
        self.per_principal.lock().leave(principal);
    }

    /// Closes the view of this node. The session lives on in the store.
    pub(crate) fn close_view(&self, session: &Session, end: SessionEnd) {
        session.suspend().into_iter().for_each(|stream| stream.stop());
        session.close_view();
        self.remove(session, end);
    }

    /// Removes a session from the memory. It lives on in the store, so it has not ended.
    pub(crate) fn unload(&self, session: &Session) {
        session.suspend().into_iter().for_each(|stream| stream.stop());
        session.close_view();
        self.unloaded.lock().insert(session); // before it is removed: nobody must see it nowhere
        if self.take(session) {
            session.unloaded();
        }
    }

    /// Whether a session has left the memory, and lives on in the store.
    pub(crate) fn is_unloaded(&self, tag: Tag) -> bool {
        self.unloaded.lock().has(tag)
    }

    /// When a session that has left the memory began.
    pub(crate) fn began(&self, key: &SessionKey) -> Option<Mono> {
        self.unloaded.lock().began(key)
    }

    /// A session that had left the memory is back, or has ended. `None` if it was none of these.
    pub(crate) fn forget_unloaded(&self, key: &SessionKey) -> Option<UnloadedSession> {
        self.unloaded.lock().remove(key)
    }

    /// Reports the end of sessions that had left the memory and that the store has forgotten. Returns their number.
    ///
    /// With several nodes another one may have used and ended such a session, and has reported it.
    pub(crate) async fn report_expired(&self, node: &Node) -> usize {
        let is_shared = node.cluster().is_some();
        let due = self
            .unloaded
            .lock()
            .due(node.clock.now(), node.timing.forgotten_after());
        let mut reported = 0;
        for key in due {
            let is_gone = matches!(node.store.load(&key).await, Err(StoreError::SessionGone));
            if is_gone || is_shared {
                let session = self.unloaded.lock().remove(&key);
                if let Some(session) = session.filter(|_| is_gone && !is_shared) {
                    session.ended(node);
                    reported += 1;
                }
            }
        }
        reported
    }

    /// Drops every view: another node may act for this one.
    pub(crate) fn suspend_all(&self) {
        let mut sessions = Vec::new();
        self.for_each(|session| sessions.push(Arc::clone(session)));
        for session in &sessions {
            match session.transport {
                Transport::Streamable => {
                    let push_streams = session.suspend();
                    self.suspended.lock().extend(push_streams);
                    self.remove(session, SessionEnd::LeaseLost);
                }
                // Other nodes forward its messages to an incarnation that is dead. Its client reconnects after the EOF.
                Transport::HttpSse => self.end(session, SessionEnd::LeaseLost).detach(),
                Transport::Lines => {} // the store does not know it
            }
        }
    }

    /// Closes the connections that stayed open when the lease ended. Their clients resume them.
    pub(crate) fn close_suspended(&self) {
        let suspended = std::mem::take(&mut *self.suspended.lock());
        for stream in suspended {
            stream.stop();
        }
    }

    /// Ends a session.
    pub(crate) fn end(&self, session: &Session, end: SessionEnd) -> PendingEnd {
        let id = &session.key.session;
        // After a restore, the restored session is registered under the same id.
        let is_it = |found: &Arc<Session>| std::ptr::eq(&**found, session);
        if !self.shard(id).read().get(id).is_some_and(is_it) {
            return PendingEnd::default();
        }
        // The session ends before it is removed, so that the handler closes it before it opens the restored one.
        let pending_end = session.end();
        self.remove(session, end);
        pending_end
    }

    /// Removes a session that has ended here, unless another one is registered under its id.
    fn remove(&self, session: &Session, end: SessionEnd) {
        if self.take(session) {
            self.note_ended(session);
            session.ended(end);
        }
    }

    /// Takes a session out of the table. False if another one is registered under its id.
    fn take(&self, session: &Session) -> bool {
        let id = &session.key.session;
        let removed = {
            let mut shard = self.shard(id).write();
            let is_it = shard.get(id).is_some_and(|found| std::ptr::eq(&**found, session));
            if is_it { shard.remove(id) } else { None }
        };
        if removed.is_some() {
            self.release(&session.key.principal);
        }
        removed.is_some()
    }

    fn note_ended(&self, session: &Session) {
        let (count, ended) = &mut *self.ended.lock();
        *count += 1;
        if ended.len() == MAX_ENDED {
            ended.pop_front();
        }
        ended.push_back((session.tag(), session.owner_identity()));
    }

    /// The sessions that have ended after the first `seen`, as far as they are kept, and their number in all.
    pub(crate) fn ended_after(&self, seen: u64) -> (u64, Vec<EndedSession>) {
        let (count, ended) = &*self.ended.lock();
        let new = usize::try_from(count - seen).unwrap_or(usize::MAX).min(ended.len());
        (*count, ended.range(ended.len() - new..).cloned().collect())
    }

    /// Calls `each` for every session. No lock is held.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&Arc<Session>)) {
        for shard in &self.shards {
            let sessions: Vec<_> = shard.read().values().cloned().collect();
            sessions.iter().for_each(&mut each);
        }
    }

    /// The sessions of one shard, or `None` after the last shard. For work that yields in between.
    pub(crate) fn shard_sessions(&self, shard: usize) -> Option<Vec<Arc<Session>>> {
        Some(self.shards.get(shard)?.read().values().cloned().collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.live.now()
    }
}

/// A reservation for a session that is being created. It is released if the client leaves first.
pub(crate) struct Reservation<'a> {
    sessions: &'a Registry,
    principal: Principal,
    filled: bool,
}

impl Reservation<'_> {
    /// Registers a session that was opened or restored.
    pub(crate) fn fill(self, session: &Arc<Session>) {
        self.refill(session);
        session.node.metrics.session_registered();
    }

    /// Registers a session that had left the memory.
    pub(crate) fn refill(mut self, session: &Arc<Session>) {
        self.filled = true;
        let id = &session.key.session;
        let replaced = self.sessions.shard(id).write().insert(id.clone(), Arc::clone(session));
        if let Some(replaced) = replaced {
            self.sessions.release(&replaced.key.principal); // a view that is being closed, and no longer finds itself
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.filled {
            self.sessions.release(&self.principal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Context, Handler, McpService, Reply, RpcError};

    struct Idle;

    impl Handler for Idle {
        async fn handle(&self, _: Call, _: &Context) -> Result<Reply, RpcError> {
            Ok(Reply::empty())
        }
    }

    /// T-38: a view that is being closed is not known, and not unknown for ever.
    #[test]
    fn t_38_closed_view_is_looked_up_in_the_store() {
        let service = McpService::builder(Idle).build();
        let (node, sessions) = (&service.inner.node, &service.inner.sessions);
        let key = SessionKey {
            principal: Principal::default(),
            session: SessionId::parse("one-session").expect("a session id"),
        };
        let header = SessionHeader::Id(key.session.clone());
        let find = || {
            sessions
                .find(&header, &key.principal, Transport::Streamable)
                .map(|found| found.is_some())
        };
        let session = Session::new(node, key.clone(), Transport::Streamable);
        let fill = |session| {
            let place = sessions.reserve(node, &key.principal);
            place.unwrap_or_else(|_| panic!("there is room")).fill(session);
        };
        fill(&session);
        assert_eq!(find(), Ok(true));
        session.suspend();
        assert_eq!(find(), Ok(false), "the store has it");
        let next = Session::new(node, key.clone(), Transport::Streamable);
        fill(&next);
        sessions.close_view(&session, SessionEnd::HandedOver);
        assert_eq!((find(), sessions.len()), (Ok(true), 1), "the next view stays");
        next.end().skip();
        assert_eq!(find(), Err(Reason::UnknownSession));
    }

    /// GW-23: at a limit, the session that was longest without use ends, but none that is in use.
    #[test]
    fn gw_23_longest_unused_session_makes_room() {
        let service = McpService::builder(Idle)
            .limits(crate::Limits::default().with(|limits| {
                limits.sessions = 3;
                limits.sessions_per_principal = 2;
            }))
            .unused_sessions(crate::UnusedSessions::Unload(std::time::Duration::ZERO))
            .build();
        let (node, sessions) = (&service.inner.node, &service.inner.sessions);
        let open = |principal: &Principal, id: &str| {
            let key = SessionKey {
                principal: principal.clone(),
                session: SessionId::parse(id).expect("a session id"),
            };
            let place = sessions.reserve(node, principal)?;
            let session = Session::new(node, key, Transport::Streamable);
            place.fill(&session);
            std::thread::sleep(std::time::Duration::from_millis(2)); // the next one is younger
            Ok::<_, Reason>(session)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let _guard = runtime.enter(); // the end of a session is reported in a task
        let (ada, bob) = (Principal::new("issuer", "ada"), Principal::new("issuer", "bob"));
        let first = open(&ada, "ada-1").expect("there is room");
        let second = open(&ada, "ada-2").expect("there is room");
        let _in_use = first.in_use();
        open(&ada, "ada-3").expect("the second makes room");
        assert_eq!((first.has_ended(), second.has_ended()), (false, true));
        let of_bob = open(&bob, "bob-1").expect("there is room");
        let _of_bob = of_bob.in_use();
        open(&bob, "bob-2").expect("the third of ada makes room");
        assert_eq!((sessions.len(), of_bob.has_ended()), (3, false));
        let _of_bob_too = sessions
            .known(&SessionId::parse("bob-2").expect("an id"))
            .map(|session| session.in_use());
        assert_eq!(
            open(&ada, "ada-4").err(),
            Some(Reason::Overloaded("sessions")),
            "all are in use"
        );
    }

    /// RST-01: the end of a session does not remove the session that was restored under the same id.
    #[test]
    fn rst_01_ended_session_does_not_remove_the_restored_one() {
        let service = McpService::builder(Idle).build();
        let (node, sessions) = (&service.inner.node, &service.inner.sessions);
        let key = SessionKey {
            principal: Principal::new("issuer", "alice"),
            session: SessionId::parse("one-session").expect("a session id"),
        };
        let begin = || {
            let session = Session::new(node, key.clone(), Transport::Streamable);
            let place = sessions.reserve(node, &key.principal);
            place.unwrap_or_else(|_| panic!("there is room")).fill(&session);
            session
        };
        let first = begin();
        sessions.end(&first, SessionEnd::EndedElsewhere).skip();
        let next = begin();
        sessions.end(&first, SessionEnd::Deleted).skip();
        let found = sessions.known(&key.session);
        assert!(
            found.is_some_and(|found| Arc::ptr_eq(&found, &next)),
            "its next life is lost"
        );
        assert_eq!((sessions.len(), sessions.has(&key), next.has_ended()), (1, true, false));
        sessions.end(&next, SessionEnd::Deleted).skip();
        assert_eq!((sessions.len(), sessions.has(&key), next.has_ended()), (0, false, true));
    }
}
