//! Shutdown: refuse new work, let calls finish until the deadline, then close (T-38).

use crate::call::parked_calls::ParkedCalls;
use crate::node::Node;
use crate::session::registry::Registry;
use rethread_proto::StreamKind;
use rethread_proto::stream::Close;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// The time for closed connections to be written out after the deadline.
const FLUSH_TIME: Duration = Duration::from_millis(250);

pub(crate) async fn drain(node: &Node, sessions: &Registry, parked: &ParkedCalls, deadline: Duration) {
    let deadline = Instant::now() + deadline;
    node.draining.store(true, Ordering::Relaxed);
    sessions.subscriptions.close_all(); // SUB-06
    let mut spread = Spread::new(node);
    sessions.for_each(|session| {
        for stream in session.live_streams() {
            // The connection of a 2024-11-05 session is the session: it stays while calls run.
            if stream.key.ordinal.kind() == StreamKind::Push && !session.answers_on_its_push_stream() {
                stream.close_reader(spread.next());
            }
        }
    });
    // A parked call waits for a person, not for us.
    let quiet = || node.calls.at_work() == 0 && node.connections.now() == 0;
    until(node, deadline, quiet).await;
    parked.clear();
    node.closing.send_replace(true);
    sessions.for_each(|session| {
        for stream in session.live_streams() {
            stream.close_reader(spread.next());
        }
    });
    until(node, Instant::now() + FLUSH_TIME, || node.connections.now() == 0).await;
}

async fn until(node: &Node, deadline: Instant, quiet: impl Fn() -> bool) {
    loop {
        let work_ended = node.work_ended.notified();
        if quiet() {
            return;
        }
        tokio::select! {
            () = work_ended => {}
            () = tokio::time::sleep_until(deadline) => return,
        }
    }
}

/// Reconnection delays, spread so that not everybody comes back at once.
struct Spread {
    base: u64,
    width: u64,
    at: u64,
}

impl Spread {
    fn new(node: &Node) -> Self {
        Spread {
            base: node.timing.retry.as_millis() as u64,
            width: node.timing.retry_spread.as_millis() as u64,
            at: 0,
        }
    }

    fn next(&mut self) -> Close {
        // Steps of the golden ratio fill the range evenly, however many there are.
        self.at = self.at.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let within = (u128::from(self.at) * u128::from(self.width)) >> 64;
        Close {
            retry: self.base + within as u64,
        }
    }
}
