//! Reads how many references to an rmcp `Peer` exist, and how many messages it has sent.
//!
//! A `Peer` holds a channel sender, and rmcp has no accessor for its sender count. `Debug` shows both numbers, so this
//! module parses its output. If a later version prints them differently, the count is `None`. Loops are then never reused
//! (see `peer_pool.rs`), and no message can reach the wrong call. A test below fails in that case.

use rmcp::{Peer, RoleServer};
use std::fmt::{self, Write};
use std::sync::atomic::{Ordering, fence};

/// Number of references to the peer, including this one.
pub(crate) fn references(peer: &Peer<RoleServer>) -> Option<usize> {
    DebugScan::find(peer, "tx_count")
}

/// Number of messages sent through the peer since its creation.
pub(crate) fn messages_sent(peer: &Peer<RoleServer>) -> Option<usize> {
    // A dropped reference may have sent before its drop. This order makes its message visible.
    fence(Ordering::Acquire);
    DebugScan::find(peer, "tail_position")
}

/// Finds the number after `key` in `Debug` output, then stops formatting.
struct DebugScan {
    key: &'static str,
    key_seen: bool,
    found: Option<usize>,
}

impl DebugScan {
    fn find(peer: &Peer<RoleServer>, key: &'static str) -> Option<usize> {
        let mut scan = DebugScan {
            key,
            key_seen: false,
            found: None,
        };
        let _ = write!(scan, "{peer:?}"); // the scan stops with an error
        scan.found
    }
}

impl Write for DebugScan {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.key_seen {
            let number = text.trim_matches([' ', ':']);
            if number.is_empty() {
                return Ok(());
            }
            self.found = number.parse().ok();
            return Err(fmt::Error);
        }
        self.key_seen = text.trim_matches([' ', ',']) == self.key;
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

    struct EmptyServer;

    impl ServerHandler for EmptyServer {}

    /// Discards every message and never receives one.
    struct SinkTransport;

    impl Transport<RoleServer> for SinkTransport {
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

    /// Guards the assumption of this module. If a new rmcp or tokio fails it, find another way to count: loops are no
    /// longer reused, and handlers can retain fewer peers.
    #[tokio::test]
    async fn debug_output_shows_references_and_messages() {
        let running = serve_directly(EmptyServer, SinkTransport, None);
        let peer = running.peer();
        let base = references(peer).expect("the reference count is shown");
        let other = peer.clone();
        assert_eq!(references(peer), Some(base + 1));
        assert_eq!(messages_sent(peer), Some(0));
        other.notify_tool_list_changed().await.unwrap();
        other.notify_prompt_list_changed().await.unwrap();
        assert_eq!(messages_sent(peer), Some(2));
        drop(other);
        assert_eq!(references(peer), Some(base));
        for _ in 0..100 {
            peer.notify_tool_list_changed().await.unwrap();
        }
        assert_eq!((references(peer), messages_sent(peer)), (Some(base), Some(102)));
    }
}
