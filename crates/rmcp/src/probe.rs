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
