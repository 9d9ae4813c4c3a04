//! Bad tokens of each peer (AUTH-24).

use rethread_proto::auth::{Bucket, Rate};
use rethread_proto::clock::Mono;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Peers that are remembered. Beyond: those without recent failures are forgotten, and then all.
const MAX_PEERS: usize = 16_384;

/// The failures of all peers.
#[derive(Debug, Default)]
pub struct Failures {
    peers: HashMap<IpAddr, Bucket>,
}

impl Failures {
    /// Whether a token of this peer is examined. The error is the time until it is.
    pub fn admit(&self, peer: IpAddr, rate: Rate, now: Mono) -> Result<(), Duration> {
        self.peers
            .get(&network(peer))
            .map_or(Ok(()), |bucket| bucket.wait(rate, now))
    }

    /// Counts a bad token.
    pub fn count(&mut self, peer: IpAddr, rate: Rate, now: Mono) {
        if self.peers.len() >= MAX_PEERS {
            self.peers.retain(|_, bucket| !bucket.is_full(now));
            if self.peers.len() >= MAX_PEERS {
                self.peers.clear();
            }
        }
        let bucket = self.peers.entry(network(peer)).or_default();
        let _ = bucket.take(rate, now); // empty already: the peer is slowed
    }
}

/// The part of an address that one customer has: a /64 of IPv6.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_24_peers_are_slowed_apart_and_the_table_is_bounded() {
        let rate = Rate::new(3, Duration::from_secs(3)).unwrap();
        let now = Mono::from_millis(1000);
        let mut failures = Failures::default();
        let peer = |text: &str| text.parse::<IpAddr>().unwrap();
        for _ in 0..5 {
            failures.count(peer("192.0.2.1"), rate, now);
            failures.count(peer("2001:db8::1"), rate, now);
        }
        for slowed in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::2"] {
            assert_eq!(
                failures.admit(peer(slowed), rate, now),
                Err(Duration::from_secs(1)),
                "{slowed}"
            );
        }
        for other in ["192.0.2.2", "2001:db8:0:1::1"] {
            assert_eq!(failures.admit(peer(other), rate, now), Ok(()), "{other}");
        }
        assert_eq!(
            failures.admit(peer("192.0.2.1"), rate, now + Duration::from_secs(1)),
            Ok(())
        );
        for n in 0..3 * MAX_PEERS as u32 {
            failures.count(IpAddr::V4(n.into()), rate, now);
        }
        assert!(failures.peers.len() <= MAX_PEERS);
    }
}
