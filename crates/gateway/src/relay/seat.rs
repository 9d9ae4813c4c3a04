//! The child of one session: started with it, started again when it is gone, ended with it.

use super::crashes::Crashes;
use super::{raw, replays, unavailable, within};
use crate::child::{Aside, Ground, Link, Room, bounded};
use bytes::Bytes;
use rethread::{Peer, PreviousState, RpcError};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

/// What the callers of a child that is gone get to learn of it, before their session ends.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A session's place at the gateway.
pub(crate) struct Seat {
    ground: Ground,
    peer: Peer,
    /// The `params` of the client's `initialize`: what every child of this session is told first.
    hello: Bytes,
    /// Taken while a child is being started, so that there is never more than one.
    child: Mutex<Place>,
    born: Instant,
}

#[derive(Default)]
struct Place {
    occupant: Option<Occupant>,
    crashes: Crashes,
    closed: bool,
}

struct Occupant {
    link: Arc<Link>,
    since: Instant,
    listening: AbortHandle,
}

impl Drop for Occupant {
    fn drop(&mut self) {
        self.listening.abort(); // nobody listens to it any more: it is ended
    }
}

impl Seat {
    pub(crate) fn new(ground: Ground, peer: Peer, hello: Bytes) -> Arc<Self> {
        Arc::new(Seat {
            ground,
            peer,
            hello,
            child: Mutex::default(),
            born: Instant::now(),
        })
    }

    /// The first child of a new session. Returns its answer to `initialize`.
    pub(crate) async fn begin(&self, room: Room) -> Result<Bytes, RpcError> {
        let (occupant, welcome) = self.start(room, None).await?;
        self.child.lock().await.occupant = Some(occupant);
        Ok(welcome)
    }

    /// The child, started again if it is gone.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, RpcError> {
        let mut place = self.child.lock().await;
        if place.closed {
            return Err(RpcError::internal("the session has ended"));
        }
        if let Some(occupant) = &place.occupant {
            if occupant.link.is_alive() {
                return Ok(Arc::clone(&occupant.link));
            }
            if !replays(self.ground.server.restore) {
                // The session is about to end: whoever listens to the child sees to that.
                return Err(unavailable("its process is gone, and the session with it"));
            }
            let lived = occupant.since.elapsed();
            place.crashes.crashed(self.born.elapsed(), lived);
            place.occupant = None;
        }
        let pause = place.crashes.bearable(self.born.elapsed()).map_err(unavailable)?;
        tokio::time::sleep(pause).await;
        let earlier = self.peer.state();
        let room = self.ground.room().await.map_err(unavailable)?;
        let started = self.start(room, Some(&earlier)).await;
        if started.is_err() {
            place.crashes.crashed(self.born.elapsed(), Duration::ZERO);
        }
        let (occupant, _) = started?;
        let link = Arc::clone(&occupant.link);
        place.occupant = Some(occupant);
        Ok(link)
    }

    /// The child, if it is there.
    pub(crate) async fn link_if_alive(&self) -> Option<Arc<Link>> {
        let place = self.child.lock().await;
        let link = &place.occupant.as_ref()?.link;
        link.is_alive().then(|| Arc::clone(link))
    }

    /// Ends the child, and waits until it is gone.
    pub(crate) async fn stop(&self) {
        let occupant = {
            let mut place = self.child.lock().await;
            place.closed = true;
            place.occupant.take()
        };
        if let Some(occupant) = occupant {
            let link = Arc::clone(&occupant.link);
            drop(occupant);
            link.ended().await;
        }
    }

    /// Starts a child, and brings it to where the session is: `initialize`, and if the session has come further, what a
    /// client would have told it since.
    async fn start(&self, room: Room, earlier: Option<&PreviousState>) -> Result<(Occupant, Bytes), RpcError> {
        let (link, asides) = Link::start(&self.ground, room, false).map_err(unavailable)?;
        let listening = tokio::spawn(listen(
            Arc::clone(&link),
            asides,
            self.peer.clone(),
            !replays(self.ground.server.restore),
        ));
        let occupant = Occupant {
            listening: listening.abort_handle(),
            since: Instant::now(),
            link: Arc::clone(&link),
        };
        let limit = self.ground.server.start_timeout;
        let starting = async {
            let welcome = within(limit, "answer `initialize`", link.ask("initialize", &self.hello)).await?;
            if let Some(earlier) = earlier {
                within(limit, "take up the session", replay(&link, earlier)).await?;
            }
            Ok(welcome)
        };
        tokio::select! {
            started = starting => started.map(|welcome| (occupant, welcome)),
            // Its client has gone: so does the child, and makes room.
            () = self.peer.ended() => Err(RpcError::internal("the session has ended")),
        }
    }
}

/// Tells a new child what its predecessor knew.
async fn replay(link: &Arc<Link>, earlier: &PreviousState) -> Result<(), RpcError> {
    if earlier.initialized {
        link.notify("notifications/initialized", b"").await?;
    }
    let mut told = Vec::new();
    if let Some(level) = &earlier.log_level {
        told.push(("logging/setLevel", json!({ "level": level })));
    }
    for uri in &earlier.subscriptions {
        told.push(("resources/subscribe", json!({ "uri": uri })));
    }
    for (method, params) in told {
        let answered = link.ask(method, &params.to_string().into()).await;
        if let Err(error) = answered {
            if !link.is_alive() {
                return Err(error);
            }
            // A resource may be gone by now. The session goes on without it.
            tracing::warn!(method, %error, "child does not take up what its predecessor had agreed to");
        }
    }
    Ok(())
}

/// Passes on what a child says that belongs to no call.
async fn listen(link: Arc<Link>, mut asides: bounded::Receiver<Aside>, peer: Peer, expires: bool) {
    while let Some(aside) = asides.recv().await {
        match aside {
            Aside::Notified { method, params } => {
                if peer.push(&method, raw(&params)).is_err() {
                    return; // the session has ended, and the child is about to
                }
            }
            Aside::Asked(question) => {
                let (peer, params) = (peer.clone(), raw(&question.params));
                let method = question.method.clone();
                link.put(question, async move { peer.request(&method, params).await });
            }
            Aside::Withdrawn(id) => link.withdraw(&id),
        }
    }
    // The child is gone: had the session ended first, nobody would be listening any more.
    if expires {
        tokio::time::sleep(LAST_WORDS).await;
        peer.end();
    }
}
