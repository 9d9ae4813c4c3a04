//! The address of a client, also behind proxies that are trusted.

use http::{Extensions, HeaderMap};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The address at the other end of the socket, in the extensions of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

/// The address of the client, in the extensions of a request. Differs from that of the socket behind a trusted proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

/// Addresses with equal first bits: `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u8,
}

/// The text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotANetwork;

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), |bits| bits.parse().map_err(|_| NotANetwork))?;
        if bits > all {
            return Err(NotANetwork);
        }
        Ok(Network { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

/// The client of a request. Only a trusted proxy may name another one: the last address in `X-Forwarded-For` that is not itself
/// a trusted proxy. The addresses in front of it come from the client and may be invented.
pub(crate) fn of_request(headers: &HeaderMap, extensions: &Extensions, trusted: &[Network]) -> Option<IpAddr> {
    let PeerAddress(peer) = *extensions.get::<PeerAddress>()?;
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if !is_trusted(peer) {
        return Some(peer);
    }
    let lines = headers.get_all("x-forwarded-for").iter();
    let lines: Vec<_> = lines.filter_map(|line| line.to_str().ok()).collect();
    let named = lines.iter().rev().flat_map(|line| line.rsplit(','));
    let mut client = peer;
    for text in named {
        // A text that is not an address ends the chain of trust.
        let Ok(address) = text.trim().parse::<IpAddr>() else {
            break;
        };
        client = address;
        if !is_trusted(address) {
            break;
        }
    }
    Some(client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[test]
    fn networks_have_an_address_and_bits() {
        for (text, address, is_inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "10.0.0.1", false),
        ] {
            let network: Network = text.parse().unwrap();
            assert_eq!(
                network.contains(address.parse().unwrap()),
                is_inside,
                "{text} {address}"
            );
        }
        for bad in ["", "10.0.0.0/33", "10.0.0.0/x", "10.0.0", "::/129", "proxy.example"] {
            assert_eq!(bad.parse::<Network>(), Err(NotANetwork), "{bad}");
        }
    }

    #[test]
    fn auth_24_only_a_trusted_proxy_names_the_client() {
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        for (peer, forwarded, client) in [
            ("192.0.2.1", &["203.0.113.9"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.1, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.1", "203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9, nonsense"], "10.0.0.1"),
        ] {
            let mut request = Request::get("/mcp");
            for line in forwarded {
                request = request.header("x-forwarded-for", *line);
            }
            let (mut head, ()) = request.body(()).unwrap().into_parts();
            head.extensions.insert(PeerAddress(peer.parse().unwrap()));
            assert_eq!(
                of_request(&head.headers, &head.extensions, &trusted),
                Some(client.parse().unwrap()),
                "{peer} {forwarded:?}"
            );
        }
    }
}
