//! Whether anybody still holds a `Peer`, and whether all that was said through it has been taken.
//!
//! rmcp does not say: a `Peer` is a sender of a channel inside of rmcp, and its count of senders is not public. But it is
//! shown by `Debug`, and so is how many messages were ever sent. They are read there. What cannot be read, because a later
//! version shows it differently, counts as held for ever: then lines are not used again (see `pool.rs`), and nothing is
//! ever attributed to the wrong call. A test below fails when that happens.

use rmcp::{Peer, RoleServer};
use std::fmt::{self, Write};
use std::sync::atomic::{Ordering, fence};

/// How many hold the peer, itself included.
pub(crate) fn holders(peer: &Peer<RoleServer>) -> Option<usize> {
    Scan::find(peer, "tx_count")
}

/// How many messages were ever sent through the peer.
pub(crate) fn sent(peer: &Peer<RoleServer>) -> Option<usize> {
    // Whoever let go of the peer before has sent before: both must be seen in this order.
    fence(Ordering::Acquire);
    Scan::find(peer, "tail_position")
}

/// Looks for one number in what `Debug` writes, and stops there.
struct Scan {
    key: &'static str,
    next: bool,
    found: Option<usize>,
}

impl Scan {
    fn find(peer: &Peer<RoleServer>, key: &'static str) -> Option<usize> {
        let mut scan = Scan {
            key,
            next: false,
            found: None,
        };
        let _ = write!(scan, "{peer:?}"); // an error is how the scan stops
        scan.found
    }
}

impl Write for Scan {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.next {
            let number = text.trim_matches([' ', ':']);
            if number.is_empty() {
                return Ok(());
            }
            self.found = number.parse().ok();
            return Err(fmt::Error);
        }
        self.next = text.trim_matches([' ', ',']) == self.key;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::ServerHandler;
    use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
    use rmcp::service::serve_directly;
    use rmcp::transport::Transport;
    use std::future::Future;

    struct Nobody;

    impl ServerHandler for Nobody {}

    /// Takes everything, answers nothing.
    struct Hole;

    impl Transport<RoleServer> for Hole {
        type Error = std::io::Error;

        fn send(&mut self, _: ServerJsonRpcMessage) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
            std::future::ready(Ok(()))
        }

        async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
            std::future::pending().await
        }

        async fn close(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    /// What everything here rests on. If a new version of rmcp or tokio fails it, lines are no longer used again, and handlers
    /// may keep peers for fewer calls: find another way to know.
    #[tokio::test]
    async fn holders_and_messages_of_a_peer_can_be_counted() {
        let running = serve_directly(Nobody, Hole, None);
        let peer = running.peer();
        let alone = holders(peer).expect("the number of holders is shown");
        let other = peer.clone();
        assert_eq!(holders(peer), Some(alone + 1));
        assert_eq!(sent(peer), Some(0));
        other.notify_tool_list_changed().await.unwrap();
        other.notify_prompt_list_changed().await.unwrap();
        assert_eq!(sent(peer), Some(2));
        drop(other);
        assert_eq!(holders(peer), Some(alone));
        for _ in 0..100 {
            peer.notify_tool_list_changed().await.unwrap();
        }
        assert_eq!((holders(peer), sent(peer)), (Some(alone), Some(102)));
    }
}
