//! Lines that are used again.
//!
//! A line is taken for a call and given back at its end. If a handler kept the peer, the line stays its own: it leads to
//! the session from then on. Only a line that nobody holds is given to another call (see `probe.rs`), so what is said
//! through a peer can never be taken for what another call says.

use crate::ears::{Ears, Hold};
use crate::line::{Line, Place};
use crate::listening::Listening;
use crate::tokens::Tokens;
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{ClientNotification, GetExtensions, InitializeRequestParams, RequestMetaObject};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// How many kept lines are looked at, whenever one is taken or given back, to see whether they are free by now.
const LOOK: usize = 2;

/// What the lines of a pool have in common beside the pool.
#[derive(Clone)]
pub(crate) enum Ledger {
    /// They lead to one client: the calls of its session that report progress.
    Session(Arc<Tokens>),
    /// They lead to many: the subscriptions that servers serve.
    Stateless(Arc<Listening>),
}

pub(crate) struct Pool {
    lines: Mutex<Lines>,
    ledger: Ledger,
    ears: Ears,
    /// How many lines handlers may keep. Beyond: the one kept longest is closed.
    keep: usize,
}

#[derive(Default)]
struct Lines {
    /// Free lines.
    idle: Vec<Line>,
    /// Lines that a handler holds beyond the call, the one kept longest first.
    kept: VecDeque<Line>,
    /// The kept line that is looked at next.
    look: usize,
    in_use: usize,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(keep: usize, ledger: Ledger, ears: Ears) -> Arc<Self> {
        Arc::new(Pool {
            lines: Mutex::default(),
            ledger,
            ears,
            keep,
        })
    }

    /// A line to `place`, for a client that is known as `info`.
    pub(crate) fn take(self: &Arc<Self>, place: Place, info: impl FnOnce() -> InitializeRequestParams) -> Lease {
        let idle = {
            let mut lines = self.lines.lock();
            lines.in_use += 1;
            lines.idle.pop().or_else(|| lines.freed())
        };
        let line = match idle {
            Some(line) => {
                line.lead_to(place.clone());
                line
            }
            None => Line::open(place.clone(), info(), self.ledger.clone(), self.ears.clone()),
        };
        Lease {
            pool: Arc::clone(self),
            line: Some(line),
            place,
        }
    }

    /// The calls that report progress, if the lines are of one session.
    pub(crate) fn tokens(&self) -> Option<&Arc<Tokens>> {
        match &self.ledger {
            Ledger::Session(tokens) => Some(tokens),
            Ledger::Stateless(_) => None,
        }
    }

    fn give_back(&self, line: Line) {
        let free = line.is_free();
        if free {
            line.clear();
        }
        let mut lines = self.lines.lock();
        lines.in_use -= 1;
        let mut closing = Vec::new();
        match (free, lines.closed) {
            (_, true) => closing.push(line),
            (true, false) => lines.idle.push(line),
            (false, false) => {
                lines.kept.push_back(line);
                if lines.kept.len() > self.keep {
                    closing.extend(lines.kept.pop_front());
                } else {
                    closing.extend(lines.freed());
                }
            }
        }
        // As many spare lines as calls run: a burst leaves nothing behind.
        let spare = lines.in_use.max(1);
        if lines.idle.len() > spare {
            closing.extend(lines.idle.drain(spare..));
        }
        drop(lines);
        drop(closing);
    }

    /// What was agreed on with the client, for those who hold its peer.
    pub(crate) fn tell(&self, info: &InitializeRequestParams) {
        let lines = self.lines.lock();
        for line in lines.idle.iter().chain(&lines.kept) {
            line.peer().set_peer_info(info.clone());
        }
    }

    /// Closes every line: the session has ended.
    pub(crate) fn close(&self) {
        let mut lines = self.lines.lock();
        lines.closed = true;
        let (idle, kept) = (std::mem::take(&mut lines.idle), std::mem::take(&mut lines.kept));
        drop(lines);
        drop((idle, kept));
    }

    /// How many lines there are: idle, kept, in use.
    #[cfg(test)]
    pub(crate) fn count(&self) -> (usize, usize, usize) {
        let lines = self.lines.lock();
        (lines.idle.len(), lines.kept.len(), lines.in_use)
    }
}

impl Lines {
    /// A kept line that nobody holds any more. Only a few are looked at, so that keeping many costs a call nothing.
    fn freed(&mut self) -> Option<Line> {
        for _ in 0..LOOK.min(self.kept.len()) {
            self.look = if self.look + 1 < self.kept.len() {
                self.look + 1
            } else {
                0
            };
            if self.kept[self.look].is_free() {
                let line = self.kept.remove(self.look)?;
                line.clear();
                return Some(line);
            }
        }
        None
    }
}

/// A line in use. Dropping it gives the line back.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    line: Option<Line>,
    place: Place,
}

impl Lease {
    pub(crate) fn peer(&self) -> rmcp::Peer<RoleServer> {
        self.line().peer().clone()
    }

    /// Without a session a line serves one client after the other: this is the next.
    pub(crate) fn introduce(&self, meta: &RequestMetaObject) {
        self.line().introduce(meta);
    }

    /// Lets the server behind the line hear a notification. What is held by it is held until then, the lease too.
    pub(crate) async fn hear(self, mut note: ClientNotification, permit: OwnedSemaphorePermit) {
        let line = Arc::clone(self.line().shared());
        let (hold, begun) = Hold::new(Some(self), permit);
        note.extensions_mut().insert(hold);
        line.hear(note, begun).await;
    }

    fn line(&self) -> &Line {
        self.line.as_ref().expect("a lease has its line until it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(line) = self.line.take() else { return };
        if let Ledger::Stateless(listening) = &self.pool.ledger {
            listening.ended(line.number());
        }
        line.lead_to(self.place.afterwards());
        self.pool.give_back(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{ClientCapabilities, Implementation};
    use std::future::Future;

    fn pool(keep: usize) -> Arc<Pool> {
        Pool::new(keep, Ledger::Session(Arc::default()), Ears::default())
    }

    fn take(pool: &Arc<Pool>) -> Lease {
        pool.take(Place::Nowhere, || {
            InitializeRequestParams::new(ClientCapabilities::default(), Implementation::new("c", "1"))
        })
    }

    async fn eventually(condition: impl Fn() -> bool) {
        let waiting = async {
            while !condition() {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await;
        waited.expect("it happens within 30 seconds");
    }

    #[tokio::test]
    async fn a_line_that_nobody_holds_is_used_again() {
        let pool = pool(4);
        for _ in 0..10 {
            let lease = take(&pool);
            let number = lease.line().number();
            drop((lease.peer(), lease));
            assert_eq!(pool.count(), (1, 0, 0));
            assert_eq!(take(&pool).line().number(), number);
        }
    }

    #[tokio::test]
    async fn a_line_is_not_used_again_while_its_peer_is_held() {
        let pool = pool(4);
        let lease = take(&pool);
        let (number, peer) = (lease.line().number(), lease.peer());
        drop(lease);
        assert_eq!(pool.count(), (0, 1, 0));
        for _ in 0..5 {
            assert_ne!(take(&pool).line().number(), number);
        }
        drop(peer);
        let (one, two) = (take(&pool), take(&pool));
        assert!(
            [one.line().number(), two.line().number()].contains(&number),
            "now it is"
        );
    }

    /// What was said and not yet routed would come out in the next call.
    #[tokio::test]
    async fn a_line_is_not_used_again_while_something_is_on_its_way() {
        let pool = pool(4);
        let lease = take(&pool);
        let number = lease.line().number();
        {
            let peer = lease.peer();
            let mut saying = std::pin::pin!(peer.notify_tool_list_changed());
            // Given up half way: the message is in the channel, and this thread does not let the loop take it.
            let begun = std::future::poll_fn(|cx| std::task::Poll::Ready(saying.as_mut().poll(cx))).await;
            assert!(begun.is_pending());
        }
        drop(lease);
        assert_eq!(pool.count(), (0, 1, 0));
        let next = take(&pool);
        assert_ne!(next.line().number(), number);
        eventually(|| pool.lines.lock().kept.iter().all(Line::is_free)).await;
        assert_eq!(take(&pool).line().number(), number, "it has gone its way");
    }

    #[tokio::test]
    async fn a_burst_leaves_one_line_behind() {
        let pool = pool(4);
        let burst: Vec<_> = (0..20).map(|_| take(&pool)).collect();
        assert_eq!(pool.count(), (0, 0, 20));
        drop(burst);
        assert_eq!(pool.count().0, 1);
    }

    #[tokio::test]
    async fn the_line_that_was_kept_longest_makes_room() {
        let pool = pool(4);
        let peers: Vec<_> = (0..6).map(|_| take(&pool).peer()).collect();
        eventually(|| peers[1].is_transport_closed()).await;
        let closed: Vec<_> = peers.iter().map(rmcp::Peer::is_transport_closed).collect();
        assert_eq!(closed, [true, true, false, false, false, false]);
        pool.close();
        eventually(|| peers.iter().all(rmcp::Peer::is_transport_closed)).await;
        assert_eq!(pool.count(), (0, 0, 0));
    }
}
