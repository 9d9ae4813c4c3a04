//! Bounds the connections of one peer. Beyond: 429, and the connection closes.

use crate::auth::Network;
use crate::task;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Refusals in progress at the same time. Beyond: the connection closes without a response.
const MAX_PENDING_REFUSALS: usize = 64;
/// How long a refused client may take to read the response. Beyond: the connection closes.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

const REFUSAL_RESPONSE: &str = "HTTP/1.1 429 Too Many Requests\r\n\
    content-type: text/plain; charset=utf-8\r\n\
    cache-control: no-store\r\n\
    retry-after: 1\r\n\
    connection: close\r\n\
    content-length: 79\r\n\
    \r\n\
    too many connections from this address; the limit is max_connections_per_peer.\n";

/// The open connections of each peer: an IPv4 address, or the /64 network of an IPv6 address.
#[derive(Debug)]
pub(crate) struct PeerLimiter {
    /// Zero means no limit.
    limit: AtomicUsize,
    open: Mutex<HashMap<IpAddr, PeerCount>>,
    /// Proxies have the connections of many clients, and no limit.
    trusted: RwLock<Vec<Network>>,
    refusals: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct PeerCount {
    connections: usize,
    /// Whether the log has named the peer since its first open connection.
    warned: bool,
}

/// One counted connection. Dropping it ends the count.
#[derive(Debug)]
pub(super) struct PeerPermit {
    limiter: Arc<PeerLimiter>,
    peer: IpAddr,
}

impl PeerLimiter {
    pub(crate) fn new(limit: usize, trusted: Vec<Network>) -> Arc<Self> {
        Arc::new(PeerLimiter {
            limit: AtomicUsize::new(limit),
            open: Mutex::default(),
            trusted: RwLock::new(trusted),
            refusals: Arc::new(Semaphore::new(MAX_PENDING_REFUSALS)),
        })
    }

    /// Changes the limit for new connections.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Changes the proxies without a limit, for new connections.
    pub(crate) fn set_trusted(&self, trusted: Vec<Network>) {
        *self.trusted.write() = trusted;
    }

    /// Counts a new connection. `None` at the limit.
    pub(super) fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<PeerPermit> {
        let is_trusted = || self.trusted.read().iter().any(|network| network.contains(address));
        let (peer, mut limit) = (peer_of(address), self.limit.load(Ordering::Relaxed));
        if limit != 0 && is_trusted() {
            limit = 0;
        }
        let first_refusal = {
            let mut open = self.open.lock();
            let count = open.entry(peer).or_default();
            if limit == 0 || count.connections < limit {
                count.connections += 1;
                let limiter = Arc::clone(self);
                return Some(PeerPermit { limiter, peer });
            }
            !std::mem::replace(&mut count.warned, true)
        };
        if first_refusal {
            tracing::warn!(%peer, limit, "peer has too many connections; refusing more with 429");
        }
        None
    }

    /// Sends 429 without waiting for the request.
    pub(super) fn refuse(&self, mut socket: TcpStream) {
        let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() else {
            return;
        };
        task::spawn(async move {
            let refusal = async {
                socket.write_all(REFUSAL_RESPONSE.as_bytes()).await?;
                socket.shutdown().await?;
                // Closing with unread bytes would reset the connection, and the client could lose the response.
                let mut unread = [0; 1024];
                while socket.read(&mut unread).await? > 0 {}
                Ok::<_, std::io::Error>(())
            };
            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refusal).await;
            drop(permit);
        });
    }
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let mut open = self.limiter.open.lock();
        if let Some(count) = open.get_mut(&self.peer) {
            count.connections -= 1;
            if count.connections == 0 {
                open.remove(&self.peer);
            }
        }
    }
}

/// The counted address. A client with one IPv6 address usually has its whole /64 network.
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

    #[test]
    fn sec_06_limiter_bounds_connections_of_a_peer() {
        let peers = PeerLimiter::new(2, vec!["10.0.0.0/8".parse().unwrap()]);
        let acquire = |text: &str| peers.acquire(address(text));
        let first = acquire("192.0.2.1");
        let second = acquire("::ffff:192.0.2.1");
        assert!(first.is_some() && second.is_some());
        assert!(acquire("192.0.2.1").is_none());
        assert!(acquire("192.0.2.2").is_some(), "another peer");
        drop(first);
        assert!(acquire("192.0.2.1").is_some());
        peers.set_limit(1);
        assert!(acquire("192.0.2.1").is_none());
        peers.set_limit(0);
        let unlimited: Vec<_> = (0..100).map(|_| acquire("192.0.2.1").unwrap()).collect();
        peers.set_limit(1);
        let proxied: Vec<_> = (0..9).map(|_| acquire("10.1.2.3").unwrap()).collect();
        peers.set_trusted(Vec::new());
        assert!(acquire("10.1.2.3").is_none(), "no longer a proxy");
        drop((unlimited, second, proxied));
        assert!(
            peers.open.lock().is_empty(),
            "no entry remains of a peer without connections"
        );
    }

    #[test]
    fn sec_06_limiter_counts_an_ipv6_network_as_one_peer() {
        assert_eq!(peer_of(address("2001:db8::1")), peer_of(address("2001:db8::ffff:2")));
        assert_ne!(peer_of(address("2001:db8::1")), peer_of(address("2001:db8:0:1::1")));
    }

    #[test]
    fn refusal_states_its_content_length() {
        let (head, body) = REFUSAL_RESPONSE.split_once("\r\n\r\n").unwrap();
        let length = format!("content-length: {}", body.len());
        assert!(head.ends_with(&length), "{length}");
    }
}
