//! How many connections one peer may have. Beyond: 429, and the connection is closed.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Refusals that are being written at a time. Beyond: a connection is closed without a word.
const MAX_REFUSALS: usize = 64;
/// How long a refused client may take to read the refusal.
const REFUSAL_GRACE: Duration = Duration::from_secs(1);

const REFUSAL: &str = "HTTP/1.1 429 Too Many Requests\r\n\
    content-type: text/plain; charset=utf-8\r\n\
    cache-control: no-store\r\n\
    retry-after: 1\r\n\
    connection: close\r\n\
    content-length: 79\r\n\
    \r\n\
    too many connections from this address; the limit is max_connections_per_peer.\n";

/// The open connections of each peer: an IPv4 address, or the /64 network of an IPv6 address.
#[derive(Debug)]
pub(crate) struct Peers {
    /// Zero: no limit.
    limit: AtomicUsize,
    open: Mutex<HashMap<IpAddr, Count>>,
    refusals: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Count {
    connections: usize,
    /// The log names a peer once, until all its connections are closed.
    warned: bool,
}

/// One connection of a peer, counted while this lives.
#[derive(Debug)]
pub(super) struct Entry {
    peers: Arc<Peers>,
    peer: IpAddr,
}

impl Peers {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Peers {
            limit: AtomicUsize::new(limit),
            open: Mutex::default(),
            refusals: Arc::new(Semaphore::new(MAX_REFUSALS)),
        })
    }

    /// Changes the limit for connections to come.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Counts a connection, unless its peer has as many as it may.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Entry> {
        let (peer, limit) = (peer_of(address), self.limit.load(Ordering::Relaxed));
        let first_refusal = {
            let mut open = self.open.lock();
            let count = open.entry(peer).or_default();
            if limit == 0 || count.connections < limit {
                count.connections += 1;
                let peers = Arc::clone(self);
                return Some(Entry { peers, peer });
            }
            !std::mem::replace(&mut count.warned, true)
        };
        if first_refusal {
            tracing::warn!(%peer, limit, "peer has too many connections; more are refused with 429");
        }
        None
    }

    /// Tells a client why it is not served, without waiting for its request.
    pub(super) fn refuse(&self, mut socket: TcpStream) {
        let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() else {
            return;
        };
        tokio::spawn(async move {
            let told = async {
                socket.write_all(REFUSAL.as_bytes()).await?;
                socket.shutdown().await?;
                // A socket that is closed with unread bytes is reset, and the client may lose what was written.
                let mut unread = [0; 1024];
                while socket.read(&mut unread).await? > 0 {}
                Ok::<_, std::io::Error>(())
            };
            let _ = tokio::time::timeout(REFUSAL_GRACE, told).await;
            drop(permit);
        });
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut open = self.peers.open.lock();
        if let Some(count) = open.get_mut(&self.peer) {
            count.connections -= 1;
            if count.connections == 0 {
                open.remove(&self.peer);
            }
        }
    }
}

/// Whoever has one IPv6 address usually has all of its /64 network.
fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// SEC-06.
    #[test]
    fn sec_06_connections_of_a_peer_are_bounded() {
        let peers = Peers::new(2);
        let enter = |text: &str| peers.enter(address(text));
        let first = enter("192.0.2.1");
        let second = enter("::ffff:192.0.2.1");
        assert!(first.is_some() && second.is_some());
        assert!(enter("192.0.2.1").is_none());
        assert!(enter("192.0.2.2").is_some(), "another peer");
        drop(first);
        assert!(enter("192.0.2.1").is_some());
        peers.set_limit(1);
        assert!(enter("192.0.2.1").is_none());
        peers.set_limit(0);
        let unlimited: Vec<_> = (0..100).map(|_| enter("192.0.2.1").unwrap()).collect();
        drop((unlimited, second));
        assert!(peers.open.lock().is_empty(), "nothing is kept of a peer that left");
    }

    #[test]
    fn sec_06_addresses_of_one_ipv6_network_are_one_peer() {
        assert_eq!(peer_of(address("2001:db8::1")), peer_of(address("2001:db8::ffff:2")));
        assert_ne!(peer_of(address("2001:db8::1")), peer_of(address("2001:db8:0:1::1")));
    }

    #[test]
    fn the_refusal_says_how_long_it_is() {
        let (head, body) = REFUSAL.split_once("\r\n\r\n").unwrap();
        let length = format!("content-length: {}", body.len());
        assert!(head.ends_with(&length), "{length}");
    }
}
