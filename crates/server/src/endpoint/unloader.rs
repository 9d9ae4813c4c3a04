//! Removes sessions that nobody uses from memory. The store keeps them (GW-23).

use crate::call::any_handler::AnyHandler;
use crate::call::peer::Peer;
use crate::node::unused_sessions::UnusedDecision;
use crate::session::Session;
use crate::session::registry::Registry;
use rethread_proto::clock::Mono;
use std::sync::{Arc, Weak};
use tokio::task::JoinHandle;

/// The sessions that leave the memory. One task at a time removes them, so that a slow store delays it and tasks do not
/// accumulate.
pub(super) struct Unloader {
    sessions: Weak<Registry>,
    handler: Weak<dyn AnyHandler>,
    found: Vec<Arc<Session>>,
    task: Option<JoinHandle<()>>,
}

impl Unloader {
    pub(super) fn new(sessions: &Arc<Registry>, handler: &Arc<dyn AnyHandler>) -> Self {
        Unloader {
            sessions: Arc::downgrade(sessions),
            handler: Arc::downgrade(handler),
            found: Vec::new(),
            task: None,
        }
    }

    /// Whether the session leaves the memory with the next [`start`](Self::start).
    pub(super) fn takes(&mut self, session: &Arc<Session>, now: Mono) -> bool {
        let is_busy = self.task.as_ref().is_some_and(|task| !task.is_finished());
        let may_leave = || {
            let handler = self.handler.upgrade();
            handler.is_some_and(|handler| handler.may_unload(&Peer(Arc::clone(session))))
        };
        let is_taken = !is_busy && session.unused_decision(now) == UnusedDecision::Unload && may_leave();
        if is_taken {
            self.found.push(Arc::clone(session));
        }
        is_taken
    }

    /// Removes the sessions that were found.
    pub(super) fn start(&mut self) {
        if self.found.is_empty() {
            return;
        }
        let (sessions, handler) = (self.sessions.clone(), self.handler.clone());
        let found = std::mem::take(&mut self.found);
        self.task = Some(tokio::spawn(async move {
            for session in found {
                let (Some(sessions), Some(handler)) = (sessions.upgrade(), handler.upgrade()) else {
                    return;
                };
                unload(&sessions, &*handler, &session).await;
            }
        }));
    }
}

/// Removes one session, unless a request has used it meanwhile.
async fn unload(sessions: &Registry, handler: &dyn AnyHandler, session: &Arc<Session>) {
    // A request that arrives now is admitted, and the session stays; or it waits for the lock and restores the session.
    let _alone = sessions.restoring.wait(&session.key.session).await;
    if !session.begin_unload() {
        return;
    }
    if !handler.may_unload(&Peer(Arc::clone(session))) || !release(session).await {
        return session.abort_close();
    }
    sessions.unload(session);
}

/// With several nodes the owner releases the session: the next request claims it, on any node.
async fn release(session: &Session) -> bool {
    match session.node.cluster().filter(|_| session.is_owned_here()) {
        Some(cluster) => cluster.release(&session.key).await.is_ok(),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::context::Context;
    use crate::call::handler::Handler;
    use crate::call::reply::Reply;
    use crate::call::request::Call;
    use crate::{McpService, UnusedSessions};
    use rethread_proto::SessionId;
    use rethread_proto::jsonrpc::RpcError;
    use rethread_store::MemoryStore;
    use rethread_testkit::client::Client;
    use rethread_testkit::flaky::FlakyStore;
    use serde_json::json;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    struct Echo;

    impl Handler for Echo {
        async fn handle(&self, _: Call, _: &Context) -> Result<Reply, RpcError> {
            tokio::task::yield_now().await;
            Ok(Reply::empty())
        }
    }

    /// GW-23: a request that waits for the store is admitted, so its session stays. Otherwise its stream would end at once.
    #[tokio::test]
    async fn gw_23_request_that_waits_for_the_store_keeps_its_session() {
        let store = FlakyStore::new(MemoryStore::default());
        let switches = store.switches();
        let service = McpService::builder(Echo)
            .store(store)
            .unused_sessions(UnusedSessions::Unload(Duration::ZERO))
            .build();
        let outside = Client::new(service.clone()).open("2025-11-25").await;
        let mut events = outside.get(None).await.events();
        assert!(events.block().await.is_some(), "the stream begins");
        let cursor = events.cursor().to_owned();
        drop(events);
        let (sessions, handler) = (&service.inner.sessions, &service.inner.handler);
        let id = SessionId::parse(&outside.id).expect("a session id");
        let session = sessions.known(&id).expect("it is in memory");
        switches.delay_status(Duration::from_millis(300));
        let (reply, ()) = tokio::join!(outside.get(Some(&cursor)), async {
            tokio::time::sleep(Duration::from_millis(100)).await; // the GET waits for the status of its stream
            unload(sessions, &**handler, &session).await;
            assert!(!session.has_ended(), "a request uses it");
        });
        assert_eq!(reply.status, 200);
        drop(reply);
        unload(sessions, &**handler, &session).await;
        assert!(session.has_ended(), "nobody uses it");
    }

    /// GW-23: a request that arrives while its session leaves the memory is served. It is admitted before, or it restores the
    /// session.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn gw_23_request_during_the_unload_is_served() {
        const CLIENTS: u64 = 4;
        const UNLOADS: usize = 200;
        let store = FlakyStore::new(MemoryStore::default());
        store.switches().delay_sessions(Duration::from_micros(10)); // a restore yields
        let service = McpService::builder(Echo)
            .store(store)
            .unused_sessions(UnusedSessions::Unload(Duration::ZERO))
            .build();
        let outside = Client::new(service.clone()).open("2025-11-25").await;
        let id = SessionId::parse(&outside.id).expect("a session id");
        let is_over = Arc::new(AtomicBool::new(false));
        let clients = (0..CLIENTS).map(|client| {
            let (session, is_over) = (outside.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut id = client;
                while !is_over.load(Ordering::Relaxed) {
                    id += CLIENTS;
                    let reply = session.call(id, "tools/list", json!({})).await;
                    assert_eq!(reply.status, 200, "request {id}");
                    assert_eq!(reply.json().await["id"], id);
                    if id.is_multiple_of(50) {
                        let reply = session.get(None).await;
                        assert_eq!(reply.status, 200);
                        let mut events = reply.events();
                        assert!(events.block().await.is_some(), "the stream begins");
                    }
                    // A session that is always in use is never unloaded.
                    tokio::time::sleep(Duration::from_millis(id % 4)).await;
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        let (sessions, handler) = (&service.inner.sessions, &service.inner.handler);
        let mut unloads = 0;
        while unloads < UNLOADS && !clients.iter().any(tokio::task::JoinHandle::is_finished) {
            if let Some(session) = sessions.known(&id) {
                unload(sessions, &**handler, &session).await;
                unloads += usize::from(session.has_ended());
            }
            tokio::task::yield_now().await;
        }
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.expect("every request is served");
        }
        assert_eq!((unloads, sessions.len() <= 1), (UNLOADS, true));
    }
}
