//! The one child for all stateless requests of a caller: the protocol keeps nothing between them, so neither does the
//! child (GW-07).

use super::crashes::Crashes;
use super::schemas::{self, Schemas};
use super::{unavailable, within};
use crate::child::{Aside, Ground, Link, Said, bounded};
use rethread::{HeaderParams, RpcError};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

pub(crate) struct Shared {
    ground: Ground,
    place: Mutex<Place>,
    born: Instant,
    idle: Duration,
    used: AtomicU64,
}

#[derive(Default)]
struct Place {
    child: Option<Occupant>,
    crashes: Crashes,
    stopped: bool,
}

struct Occupant {
    link: Arc<Link>,
    since: Instant,
    listening: AbortHandle,
    /// Holds the gateway's own subscription.
    watching: AbortHandle,
    /// What its tools want in headers; forgotten when its list of tools changes.
    schemas: Arc<Mutex<Option<Arc<Schemas>>>>,
}

impl Drop for Occupant {
    fn drop(&mut self) {
        self.listening.abort();
        self.watching.abort();
    }
}

impl Occupant {
    /// Whether nobody waits for anything, the gateway itself aside.
    fn is_idle(&self) -> bool {
        self.link.calls() <= usize::from(!self.watching.is_finished())
    }
}

impl Shared {
    pub(crate) fn new(ground: Ground, idle: Duration) -> Arc<Self> {
        let shared = Arc::new(Shared {
            ground,
            place: Mutex::default(),
            born: Instant::now(),
            idle,
            used: AtomicU64::new(0),
        });
        tokio::spawn(end_when_idle(Arc::downgrade(&shared)));
        shared
    }

    fn unused_for(&self) -> Duration {
        let used = Duration::from_millis(self.used.load(Ordering::Relaxed));
        self.born.elapsed().saturating_sub(used)
    }

    /// Whether it has not been used for so long that it can be forgotten.
    pub(crate) fn is_deserted(&self) -> bool {
        self.unused_for() >= self.idle * 2 && self.is_vacant()
    }

    /// Whether it has no child, nor is about to.
    pub(crate) fn is_vacant(&self) -> bool {
        self.place.try_lock().is_ok_and(|place| place.child.is_none())
    }

    /// The child, started if need be.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, RpcError> {
        self.occupant(|occupant| Arc::clone(&occupant.link)).await
    }

    async fn occupant<T>(&self, take: impl FnOnce(&Occupant) -> T) -> Result<T, RpcError> {
        let now = self.born.elapsed().as_millis() as u64;
        self.used.store(now, Ordering::Relaxed);
        let mut place = self.place.lock().await;
        if place.stopped {
            return Err(unavailable("the gateway is shutting down"));
        }
        if let Some(occupant) = &place.child {
            if occupant.link.is_alive() {
                return Ok(take(occupant));
            }
            let lived = occupant.since.elapsed();
            place.crashes.crashed(self.born.elapsed(), lived);
            place.child = None;
        }
        let pause = place.crashes.bearable(self.born.elapsed()).map_err(unavailable)?;
        tokio::time::sleep(pause).await;
        let started = self.start().await;
        if started.is_err() {
            place.crashes.crashed(self.born.elapsed(), Duration::ZERO);
        }
        let occupant = started.map_err(unavailable)?;
        let taken = take(&occupant);
        place.child = Some(occupant);
        Ok(taken)
    }

    async fn start(&self) -> std::io::Result<Occupant> {
        let (link, asides) = Link::start(&self.ground, self.ground.room().await?, true)?;
        let schemas = Arc::default();
        let listening = tokio::spawn(refuse(Arc::clone(&link), asides));
        let watching = tokio::spawn(watch_tools(Arc::downgrade(&link), Arc::clone(&schemas)));
        Ok(Occupant {
            link,
            since: Instant::now(),
            listening: listening.abort_handle(),
            watching: watching.abort_handle(),
            schemas,
        })
    }

    /// What a tool wants mirrored in headers. A child that does not tell has no such tools.
    pub(crate) async fn header_params(&self, tool: &str) -> Option<Arc<HeaderParams>> {
        let known = self.occupant(|o| (Arc::clone(&o.link), Arc::clone(&o.schemas))).await;
        let (link, schemas) = known.ok()?;
        let mut schemas = schemas.lock().await;
        if schemas.is_none() {
            let fetched = within(
                self.ground.server.start_timeout,
                "list its tools",
                schemas::fetch(&link),
            );
            *schemas = fetched.await.ok().map(Arc::new);
        }
        schemas.as_ref()?.get(tool).cloned()
    }

    /// Ends the child, and waits until it is gone.
    pub(crate) async fn stop(&self) {
        let child = {
            let mut place = self.place.lock().await;
            place.stopped = true;
            place.child.take()
        };
        if let Some(occupant) = child {
            let link = Arc::clone(&occupant.link);
            drop(occupant);
            link.ended().await;
        }
    }
}

/// Ends the child when nobody has asked it anything for a while, and nobody waits for anything.
async fn end_when_idle(shared: Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        let pause = shared.idle.saturating_sub(shared.unused_for()).max(shared.idle / 10);
        if shared.unused_for() >= shared.idle {
            let mut place = shared.place.lock().await;
            if place.child.as_ref().is_some_and(Occupant::is_idle) {
                place.child = None;
            }
        }
        drop(shared);
        tokio::time::sleep(pause.max(Duration::from_millis(50))).await;
    }
}

/// Nothing of this era belongs to no request: a child that asks all the same is told so.
async fn refuse(link: Arc<Link>, mut asides: bounded::Receiver<Aside>) {
    while let Some(aside) = asides.recv().await {
        if let Aside::Asked(question) = aside {
            let error = RpcError::method_not_found(&question.method);
            link.answer(&question.id, Err(&error)).await;
        }
    }
}

/// Forgets the schemas whenever the child says that its tools have changed.
async fn watch_tools(link: Weak<Link>, schemas: Arc<Mutex<Option<Arc<Schemas>>>>) {
    let params = json!({ "_meta": schemas::meta(), "notifications": { "toolsListChanged": true } });
    let calling = match link.upgrade() {
        Some(link) => link.call("subscriptions/listen", &params.to_string().into()).await,
        None => return,
    };
    let Ok(mut calling) = calling else { return };
    while let Some(said) = calling.next().await {
        match said {
            Said::Notified { method, .. } if method == "notifications/tools/list_changed" => {
                *schemas.lock().await = None;
            }
            Said::Answered(_) | Said::Ended => return,
            _ => {}
        }
    }
}
