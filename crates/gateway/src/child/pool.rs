//! All children of one server: who may run, who must make room, and the spares (GW-20 to GW-22).
//!
//! [`ChildPool::start`] gives a child, which counts against `max_children` until its process is reaped. Its user initializes it
//! and then calls [`ChildPool::attach`] with its [`ChildOwner`]. From then on the pool stops the child through this owner: after
//! its idle limit, or because another start needs its place. `state.rs` has all decisions, this file performs them.
//!
//! A request holds an [`UpstreamUse`](crate::upstream::UpstreamUse) while it uses a child. The owner hands them out under the
//! same lock under which it gives a child up, so no request gets a child that is being stopped.

mod state;

pub(crate) use state::{ChildId, PoolCounts};

use super::connection::{ChildConnection, SpawnedChild};
use super::kind::ChildKind;
use super::restart_backoff::RestartBackoff;
use super::router::OverflowPolicy;
use super::spawner::ChildSpawner;
use crate::task;
use crate::upstream::{StopCause, UnsolicitedMessage, Upstream, bounded};
use parking_lot::Mutex;
use rethread::Principal;
use state::{Action, Need, PoolLimits, PoolState, Refused, Start, WaiterId};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// The owner of a running child: it knows who needs the child, and can release it.
pub(crate) trait ChildOwner: Send + Sync {
    /// `None` if the child is needed now, otherwise the last moment in which it was needed.
    fn unneeded_since(&self) -> Option<Instant>;

    /// Releases the child and stops it, unless it is needed after all. Returns whether it is stopped.
    fn release(&self, cause: StopCause) -> bool;
}

/// A child to be started.
#[derive(Clone, Debug)]
pub(crate) struct ChildStart {
    pub(crate) kind: ChildKind,
    pub(crate) principal: Principal,
    pub(crate) overflow: OverflowPolicy,
    /// Nobody needs the child for this long: the pool stops it. `None`: only its owner stops it, or a start that needs its
    /// place.
    pub(crate) idle_limit: Option<Duration>,
}

/// A child that has got no message yet.
pub(crate) struct StartedChild {
    pub(crate) id: ChildId,
    pub(crate) connection: Arc<dyn Upstream>,
    /// Messages that belong to no call. The child ends when this is dropped.
    pub(crate) messages: bounded::Receiver<UnsolicitedMessage>,
}

impl From<SpawnedChild> for StartedChild {
    fn from(spawned: SpawnedChild) -> Self {
        StartedChild {
            id: spawned.connection.child_id(),
            connection: spawned.connection,
            messages: spawned.messages,
        }
    }
}

/// Why no child was started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// Every child is needed (GW-21).
    #[error("{limit} children of {server} are running already, and all of them are needed; try again later")]
    Busy { limit: usize, server: String },
    #[error(transparent)]
    Spawn(#[from] io::Error),
}

/// The children of one server.
#[derive(Clone)]
pub(crate) struct ChildPool(Arc<PoolShared>);

struct PoolShared {
    spawner: ChildSpawner,
    /// The time base of `state`.
    created: Instant,
    state: Mutex<PoolEntries>,
    /// Something happened that the next decision depends on.
    changed: Arc<Notify>,
    /// A child did not answer its first request as the last probe says.
    initialize_failed: Arc<Notify>,
}

struct PoolEntries {
    state: PoolState<Principal>,
    waiters: HashMap<WaiterId, oneshot::Sender<Result<Grant, Refused>>>,
    running: HashMap<ChildId, RunningEntry>,
    spares: HashMap<ChildId, SpawnedChild>,
    spare_backoff: RestartBackoff,
}

struct RunningEntry {
    connection: Weak<dyn Upstream>,
    owner: Weak<dyn ChildOwner>,
}

/// A running child, with what still exists of it.
type RunningChildParts = (ChildId, Option<Arc<dyn Upstream>>, Option<Arc<dyn ChildOwner>>);

enum Grant {
    Permit(ChildPermit),
    Spare(SpawnedChild),
}

/// A place below `max_children`. Free again when dropped, so the process is reaped first.
pub(crate) struct ChildPermit {
    id: ChildId,
    pool: Weak<PoolShared>,
}

impl ChildPermit {
    pub(super) fn id(&self) -> ChildId {
        self.id
    }
}

impl Drop for ChildPermit {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            let mut entries = pool.state.lock();
            entries.state.release(self.id);
            let running = entries.running.remove(&self.id);
            drop(entries);
            drop(running); // outside of the lock: it may be the last reference
            pool.changed.notify_one();
        }
    }
}

impl std::fmt::Debug for ChildPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChildPermit")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Withdraws a start whose client has left.
struct WaitingStart<'a> {
    pool: &'a PoolShared,
    id: WaiterId,
}

impl Drop for WaitingStart<'_> {
    fn drop(&mut self) {
        let mut entries = self.pool.state.lock();
        entries.state.withdraw(self.id);
        entries.waiters.remove(&self.id);
    }
}

impl ChildPool {
    /// Needs a runtime: a task of its own stops children that nobody needs.
    pub(crate) fn new(spawner: ChildSpawner) -> Self {
        let server = &spawner.server;
        let limits = PoolLimits {
            max_children: server.max_children,
            spare: 0,
            start_timeout: server.start_timeout,
            evicts: server.child_idle.is_some(),
        };
        let shared = Arc::new(PoolShared {
            created: Instant::now(),
            state: Mutex::new(PoolEntries {
                state: PoolState::new(limits),
                waiters: HashMap::new(),
                running: HashMap::new(),
                spares: HashMap::new(),
                spare_backoff: RestartBackoff::default(),
            }),
            changed: Arc::new(Notify::new()),
            initialize_failed: Arc::new(Notify::new()),
            spawner,
        });
        task::spawn(run(Arc::downgrade(&shared), Arc::clone(&shared.changed)));
        ChildPool(shared)
    }

    pub(crate) fn spawner(&self) -> &ChildSpawner {
        &self.0.spawner
    }

    /// A child did not answer `initialize` or `server/discover`: the server may have changed (GW-25).
    pub(crate) fn report_failed_initialize(&self) {
        self.0.initialize_failed.notify_one();
    }

    /// Notified after each such report.
    pub(crate) fn initialize_failed(&self) -> Arc<Notify> {
        Arc::clone(&self.0.initialize_failed)
    }

    /// Starts the spares of the server (GW-22).
    pub(crate) fn start_spares(&self) {
        let spare = self.0.spawner.server.spare;
        self.0.state.lock().state.set_spares(spare);
        self.0.changed.notify_one();
    }

    /// Starts a child or claims a spare. Waits in order for a place, at most `start_timeout`.
    pub(crate) async fn start(&self, start: ChildStart) -> Result<StartedChild, StartError> {
        let pool = &*self.0;
        loop {
            let receiver = {
                let asked = Start {
                    kind: start.kind,
                    principal: Some(start.principal.clone()).filter(|principal| !principal.is_anonymous()),
                    idle_limit: start.idle_limit,
                };
                let mut entries = pool.state.lock();
                let id = entries.state.ask(asked, pool.now()).map_err(|_| self.busy())?;
                let (sender, receiver) = oneshot::channel();
                entries.waiters.insert(id, sender);
                (receiver, WaitingStart { pool, id })
            };
            let (receiver, waiting) = receiver;
            PoolShared::decide(&self.0);
            pool.changed.notify_one(); // if it waits, the task looks again soon
            let grant = receiver.await.unwrap_or(Err(Refused::Busy));
            drop(waiting);
            match grant {
                Ok(Grant::Permit(place)) => {
                    let spawner = pool.spawner.for_caller(&start.principal);
                    return Ok(ChildConnection::start(&spawner, place, start.kind, start.overflow)?.into());
                }
                Ok(Grant::Spare(spare)) if spare.connection.is_alive() => {
                    spare.connection.claim(start.kind, start.overflow);
                    return Ok(spare.into());
                }
                Ok(Grant::Spare(_)) => {} // it has just exited
                Err(_) => return Err(self.busy()),
            }
        }
    }

    fn busy(&self) -> StartError {
        let server = &self.0.spawner.server;
        super::telemetry::start_refused(&server.name);
        StartError::Busy {
            limit: server.max_children,
            server: server.name.clone(),
        }
    }

    /// The child is initialized, and belongs to `owner`. From now on the pool may stop it.
    pub(crate) fn attach(&self, id: ChildId, connection: &Arc<dyn Upstream>, owner: Weak<dyn ChildOwner>) {
        let mut entries = self.0.state.lock();
        entries.state.started(id, self.0.now());
        let connection = Arc::downgrade(connection);
        entries.running.insert(id, RunningEntry { connection, owner });
        drop(entries);
        self.0.changed.notify_one();
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        self.0.state.lock().state.counts()
    }

    /// Starts nothing from now on, and ends the spares. Waits for their exit.
    pub(crate) async fn close(&self) {
        let spares: Vec<_> = {
            let mut entries = self.0.state.lock();
            entries.state.close();
            entries.spares.drain().map(|(_, spare)| spare).collect()
        };
        PoolShared::decide(&self.0);
        for spare in spares {
            let connection = Arc::clone(&spare.connection);
            drop(spare);
            connection.exited().await;
        }
    }
}

/// Decides whenever something happened, and when time has passed. Ends with the pool.
async fn run(pool: Weak<PoolShared>, changed: Arc<Notify>) {
    loop {
        let Some(shared) = pool.upgrade() else { return };
        PoolShared::decide(&shared);
        let pause = shared.next_decision();
        drop(shared);
        tokio::select! {
            () = changed.notified() => {}
            () = tokio::time::sleep(pause.unwrap_or(MAX_PAUSE)) => {}
        }
    }
}

/// A pool without children looks whether it still exists.
const MAX_PAUSE: Duration = Duration::from_secs(30);

impl PoolShared {
    fn now(&self) -> Duration {
        self.created.elapsed()
    }

    fn next_decision(&self) -> Option<Duration> {
        let now = self.now();
        let next = self.state.lock().state.next_decision(now);
        next.map(|next| next.saturating_sub(now))
    }

    /// Reads the needs, decides, and performs the decisions. No lock is held while owners are asked.
    fn decide(self: &Arc<Self>) {
        let running: Vec<_> = {
            let entries = self.state.lock();
            let entry =
                |(id, entry): (&ChildId, &RunningEntry)| (*id, entry.connection.upgrade(), entry.owner.upgrade());
            entries.running.iter().map(entry).collect()
        };
        let need = |(id, connection, owner): &RunningChildParts| {
            let is_alive = connection.as_ref().is_some_and(|connection| connection.is_alive());
            let need = owner
                .as_ref()
                .filter(|_| is_alive)
                .map(|owner| match owner.unneeded_since() {
                    None => Need::Needed,
                    Some(since) => Need::UnneededSince(since.saturating_duration_since(self.created)),
                });
            (*id, need)
        };
        let needs: Vec<_> = running.iter().map(need).collect();
        drop(running);
        let actions = {
            let mut entries = self.state.lock();
            for (id, need) in needs {
                match need {
                    Some(need) => entries.state.report(id, need),
                    None => entries.state.exiting(id),
                }
            }
            entries.state.decide(self.now())
        };
        for action in actions {
            self.perform(action);
        }
    }

    fn perform(self: &Arc<Self>, action: Action) {
        match action {
            Action::Grant(waiter, id) => {
                let place = self.place(id);
                self.answer(waiter, Ok(Grant::Permit(place)));
            }
            Action::Claim(waiter, id) => {
                let spare = self.state.lock().spares.remove(&id);
                if let Some(spare) = spare {
                    self.answer(waiter, Ok(Grant::Spare(spare)));
                }
            }
            Action::Refuse(waiter, refused) => self.answer(waiter, Err(refused)),
            Action::Stop(id, cause) => {
                let owner = self.state.lock().running.get(&id).map(|entry| entry.owner.clone());
                let owner = owner.and_then(|owner| owner.upgrade());
                if owner.is_some_and(|owner| !owner.release(cause)) {
                    self.state.lock().state.stop_declined(id);
                }
            }
            Action::StartSpare(id) => {
                let place = self.place(id);
                let pool = Arc::clone(self);
                task::spawn(async move { pool.start_spare(place) });
            }
        }
    }

    fn place(self: &Arc<Self>, id: ChildId) -> ChildPermit {
        ChildPermit {
            id,
            pool: Arc::downgrade(self),
        }
    }

    fn answer(&self, waiter: WaiterId, answer: Result<Grant, Refused>) {
        let waiting = self.state.lock().waiters.remove(&waiter);
        if let Some(waiting) = waiting {
            drop(waiting.send(answer)); // a client that left gives its child back
        }
    }

    /// Spawns a process that gets no message until a client claims it.
    fn start_spare(self: &Arc<Self>, place: ChildPermit) {
        let id = place.id;
        let started = ChildConnection::start(&self.spawner, place, ChildKind::Spare, OverflowPolicy::Wait);
        let spare = match started {
            Ok(spare) => spare,
            Err(error) => return self.spare_failed(&error.to_string(), Duration::ZERO),
        };
        let (connection, since) = (Arc::clone(&spare.connection), Instant::now());
        {
            let mut entries = self.state.lock();
            entries.state.started(id, self.now());
            entries.spares.insert(id, spare);
        }
        self.changed.notify_one();
        let pool = Arc::downgrade(self);
        task::spawn(async move {
            connection.unusable().await;
            let Some(pool) = pool.upgrade() else { return };
            let spare = {
                let mut entries = pool.state.lock();
                entries.state.exiting(id);
                entries.spares.remove(&id)
            };
            if spare.is_some() {
                pool.spare_failed("it exited before a client claimed it", since.elapsed());
            }
        });
    }

    /// The next spare waits for a backoff. Only the first of a row of failures is worth a warning.
    fn spare_failed(&self, reason: &str, uptime: Duration) {
        let mut entries = self.state.lock();
        let now = self.now();
        let crashes = entries.spare_backoff.record_crash(now, uptime);
        let not_before = entries.spare_backoff.not_before();
        entries.state.spare_exited(not_before);
        drop(entries);
        if crashes == 1 {
            tracing::warn!(
                server = self.spawner.server.name,
                reason,
                "spare process exited; another one follows"
            );
        }
        self.changed.notify_one();
    }
}
