//! The host names of this endpoint, and the origins whose pages may call it.
//!
//! Both checks protect against web pages. A page whose name was rebound to a local address still sends its own name as `Host`
//! (SEC-02), and a browser sends the `Origin` of a page that calls another site (SEC-01). Both checks are on unless they are
//! turned off by name (T-34).

use std::net::{Ipv4Addr, Ipv6Addr};

/// The names under which this endpoint may be reached (SEC-02).
///
/// Loopback names are always allowed: `localhost`, every address in `127.0.0.0/8` and `[::1]`, on any port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPolicy {
    /// Loopback names and these.
    Listed(Vec<HostEntry>),
    /// Any `Host`. Open to DNS rebinding, unless a proxy in front of this server checks it.
    Any,
}

/// An allowed host: on one port, or on every port if the entry has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry(Site<String>);

/// The pages that may call this endpoint (SEC-01).
///
/// A request without an `Origin` is always allowed, because browsers always send one. Loopback origins and the origin of the
/// endpoint itself are allowed too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginPolicy {
    /// Loopback origins, the endpoint's own, and these.
    Listed(Vec<OriginEntry>),
    /// Any `Origin`. Any web page that the user visits may then call this server.
    Any,
}

/// An allowed origin: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginEntry(Origin<String>);

/// An invalid entry of an allow-list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadEntry {
    /// Not a host.
    #[error("`{0}` is not a host; write `name` or `name:port`")]
    Host(String),
    /// Not an origin.
    #[error("`{0}` is not an origin; write `https://name` or `https://name:port`, without a path")]
    Origin(String),
}

impl Default for HostPolicy {
    fn default() -> Self {
        HostPolicy::Listed(Vec::new())
    }
}

impl HostPolicy {
    /// Adds `name` or `name:port`. Has no effect on [`HostPolicy::Any`].
    pub fn allow(&mut self, host: &str) -> Result<(), BadEntry> {
        let site = Site::parse(host).ok_or_else(|| BadEntry::Host(host.to_owned()))?;
        if let HostPolicy::Listed(entries) = self {
            entries.push(HostEntry(site.to_owned()));
        }
        Ok(())
    }

    /// Whether a request to `host` is allowed. It is the value of `Host`, or the authority of the URI.
    pub fn admits(&self, host: &str) -> bool {
        match self {
            HostPolicy::Any => true,
            HostPolicy::Listed(entries) => Site::parse(host).is_some_and(|site| {
                site.name.is_loopback()
                    || entries
                        .iter()
                        .any(|HostEntry(e)| e.name.same(&site.name) && (e.port.is_none() || e.port == site.port))
            }),
        }
    }
}

impl Default for OriginPolicy {
    fn default() -> Self {
        OriginPolicy::Listed(Vec::new())
    }
}

impl OriginPolicy {
    /// Adds an origin such as `https://app.example` or `https://app.example:8443`. The default port of the scheme may be
    /// omitted. Has no effect on [`OriginPolicy::Any`].
    pub fn allow(&mut self, origin: &str) -> Result<(), BadEntry> {
        let parsed = Origin::parse(origin).ok_or_else(|| BadEntry::Origin(origin.to_owned()))?;
        if let OriginPolicy::Listed(entries) = self {
            entries.push(OriginEntry(parsed.to_owned()));
        }
        Ok(())
    }

    /// Whether a page at `origin` may call. `host` is the host of the request, **if it was checked**: a rebound page has the
    /// same origin as the name it was rebound from, so an unchecked host proves nothing.
    pub fn admits(&self, origin: &str, host: Option<&str>) -> bool {
        let OriginPolicy::Listed(entries) = self else {
            return true;
        };
        let Some(origin) = Origin::parse(origin) else {
            return false;
        };
        (origin.is_web() && origin.name.is_loopback())
            || entries.iter().any(|OriginEntry(entry)| entry.same(&origin))
            || host.and_then(Site::parse).is_some_and(|host| origin.is_of(&host))
    }
}

/// A host and an optional port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Site<S> {
    name: Name<S>,
    port: Option<u16>,
}

/// Addresses are compared as addresses, since one address has many spellings.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name<S> {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    Dns(S),
}

/// Scheme, host and port of a page. Without a port, the default port of the scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin<S> {
    scheme: S,
    name: Name<S>,
    port: Option<u16>,
}

impl<'a> Site<&'a str> {
    /// Parses `name`, `name:port`, `[v6]` or `[v6]:port`, and nothing else: no user, no path, no empty port.
    fn parse(text: &'a str) -> Option<Self> {
        let (name, rest) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (address, rest) = bracketed.split_once(']')?;
                (Name::V6(address.parse().ok()?), rest)
            }
            None => {
                let (name, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
                (Name::parse(name)?, rest)
            }
        };
        let port = match rest.strip_prefix(':') {
            // `u16::from_str` accepts a sign, which a port must not have.
            Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => Some(port.parse().ok()?),
            Some(_) => return None,
            None if rest.is_empty() => None,
            None => return None,
        };
        Some(Site { name, port })
    }

    fn to_owned(&self) -> Site<String> {
        Site {
            name: self.name.to_owned(),
            port: self.port,
        }
    }
}

impl<'a> Name<&'a str> {
    fn parse(text: &'a str) -> Option<Self> {
        if let Ok(address) = text.parse() {
            return Some(Name::V4(address));
        }
        // Refuses empty labels, and the trailing dot that gives one name two spellings.
        let label = |label: &str| {
            let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            !label.is_empty() && label.bytes().all(letter)
        };
        text.split('.').all(label).then_some(Name::Dns(text))
    }

    fn to_owned(&self) -> Name<String> {
        match self {
            Name::V4(address) => Name::V4(*address),
            Name::V6(address) => Name::V6(*address),
            Name::Dns(name) => Name::Dns(name.to_ascii_lowercase()),
        }
    }
}

impl<S: AsRef<str>> Name<S> {
    fn is_loopback(&self) -> bool {
        match self {
            Name::V4(address) => address.is_loopback(),
            Name::V6(address) => address.is_loopback(),
            Name::Dns(name) => name.as_ref().eq_ignore_ascii_case("localhost"),
        }
    }

    fn same<T: AsRef<str>>(&self, other: &Name<T>) -> bool {
        match (self, other) {
            (Name::V4(a), Name::V4(b)) => a == b,
            (Name::V6(a), Name::V6(b)) => a == b,
            (Name::Dns(a), Name::Dns(b)) => a.as_ref().eq_ignore_ascii_case(b.as_ref()),
            _ => false,
        }
    }
}

impl<'a> Origin<&'a str> {
    /// Parses `scheme://host` or `scheme://host:port`. `null` is none of these and matches no entry (SEC-01).
    fn parse(text: &'a str) -> Option<Self> {
        let (scheme, site) = text.split_once("://")?;
        let letters = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.bytes().all(letters) {
            return None;
        }
        let Site { name, port } = Site::parse(site)?;
        Some(Origin {
            scheme,
            name,
            port: port.or(implied_port(scheme)),
        })
    }

    fn to_owned(&self) -> Origin<String> {
        Origin {
            scheme: self.scheme.to_ascii_lowercase(),
            name: self.name.to_owned(),
            port: self.port,
        }
    }

    /// Whether this is the origin of pages served by `host`. `Host` does not contain the scheme, so without a port it matches
    /// http and https.
    fn is_of(&self, host: &Site<&str>) -> bool {
        let port = host.port.or(implied_port(self.scheme));
        self.is_web() && self.port == port && self.name.same(&host.name)
    }
}

impl<S: AsRef<str>> Origin<S> {
    /// Only web schemes give a host name its usual meaning: `chrome-extension://localhost` is not local.
    fn is_web(&self) -> bool {
        implied_port(self.scheme.as_ref()).is_some()
    }

    fn same<T: AsRef<str>>(&self, other: &Origin<T>) -> bool {
        self.scheme.as_ref().eq_ignore_ascii_case(other.scheme.as_ref())
            && self.port == other.port
            && self.name.same(&other.name)
    }
}

fn implied_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("http") {
        Some(80)
    } else if scheme.eq_ignore_ascii_case("https") {
        Some(443)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_A_HOST: [&str; 22] = [
        "",
        ":80",
        "localhost:",
        "localhost:http",
        "localhost:+80",
        "localhost:65536",
        "localhost:80:80",
        "localhost.",
        "127.0.0.1.",
        ".localhost",
        "a..b",
        "user@localhost",
        "evil.example:80@localhost",
        "localhost/",
        "localhost?x",
        "local host",
        " localhost",
        "::1",
        "[::1",
        "[::1]80",
        "[localhost]",
        "b\u{fc}cher.example",
    ];

    #[test]
    fn sec_02_loopback_names_are_hosts_by_default() {
        let policy = HostPolicy::default();
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1",
            "127.9.8.7:1",
            "[::1]",
            "[::1]:8080",
            "[0:0::1]",
        ] {
            assert!(policy.admits(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "127.1",
            "2130706433",
            "0.0.0.0",
            "192.168.0.1",
            "[::2]",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(!policy.admits(host), "{host}");
        }
    }

    #[test]
    fn sec_02_hosts_are_allowed_by_name_with_or_without_a_port() {
        let mut policy = HostPolicy::default();
        for entry in ["Mcp.Example", "api.example:8443", "10.0.0.1", "[2001:db8::1]:80"] {
            policy.allow(entry).unwrap();
        }
        for (host, admitted) in [
            ("mcp.example", true),
            ("MCP.EXAMPLE:1234", true),
            ("x.mcp.example", false),
            ("mcp.example.", false),
            ("api.example:8443", true),
            ("api.example", false),
            ("api.example:443", false),
            ("10.0.0.1:9", true),
            ("[2001:DB8:0::1]:80", true),
            ("[2001:db8::1]", false),
            ("localhost:1", true),
            ("evil.example", false),
        ] {
            assert_eq!(policy.admits(host), admitted, "{host}");
        }
    }

    #[test]
    fn sec_02_invalid_host_is_refused_and_cannot_be_allowed() {
        let mut policy = HostPolicy::default();
        for bad in NOT_A_HOST {
            assert!(!policy.admits(bad), "{bad:?}");
            assert_eq!(policy.allow(bad), Err(BadEntry::Host(bad.to_owned())), "{bad:?}");
            assert!(HostPolicy::Any.admits(bad), "{bad:?}");
        }
        assert_eq!(policy, HostPolicy::default());
    }

    /// SEC-01, T-34.
    #[test]
    fn sec_01_loopback_and_the_endpoints_own_origin_are_allowed_by_default() {
        let policy = OriginPolicy::default();
        for (origin, host, admitted) in [
            ("http://localhost", None, true),
            ("https://localhost:3000", None, true),
            ("http://127.0.0.1:8080", Some("mcp.example"), true),
            ("http://[::1]:8080", None, true),
            ("HTTP://LOCALHOST", None, true),
            ("http://evil.example", None, false),
            ("http://evil.example", Some("localhost:8080"), false),
            ("http://localhost.evil.example", None, false),
            ("chrome-extension://localhost", None, false),
            ("https://mcp.example", Some("mcp.example"), true),
            ("http://mcp.example", Some("mcp.example"), true),
            ("https://mcp.example", Some("MCP.example:443"), true),
            ("https://mcp.example:8443", Some("mcp.example:8443"), true),
            ("https://mcp.example:8443", Some("mcp.example"), false),
            ("http://mcp.example", Some("mcp.example:443"), false),
            ("app://mcp.example", Some("mcp.example"), false),
            ("https://x.mcp.example", Some("mcp.example"), false),
            ("https://mcp.example", None, false),
        ] {
            assert_eq!(policy.admits(origin, host), admitted, "{origin} at {host:?}");
        }
    }

    #[test]
    fn sec_01_origins_are_allowed_by_scheme_host_and_port() {
        let mut policy = OriginPolicy::default();
        for entry in [
            "https://App.example",
            "http://b.example:80",
            "https://c.example:8443",
            "vscode-webview://panel",
        ] {
            policy.allow(entry).unwrap();
        }
        for (origin, admitted) in [
            ("https://app.example", true),
            ("https://app.example:443", true),
            ("HTTPS://APP.EXAMPLE", true),
            ("http://app.example", false),
            ("http://app.example:443", false),
            ("https://app.example:8443", false),
            ("https://sub.app.example", false),
            ("https://app.example.evil.example", false),
            ("http://b.example", true),
            ("https://c.example", false),
            ("https://c.example:8443", true),
            ("vscode-webview://panel", true),
            ("vscode-webview://panel:80", false),
            ("http://panel", false),
            ("http://localhost", true),
        ] {
            assert_eq!(policy.admits(origin, None), admitted, "{origin}");
        }
    }

    #[test]
    fn sec_01_invalid_origin_is_refused_and_cannot_be_allowed() {
        let mut policy = OriginPolicy::default();
        let with_a_bad_host = NOT_A_HOST.map(|host| format!("http://{host}"));
        let others = [
            "null",
            "",
            "localhost",
            "//localhost",
            "://localhost",
            "1http://localhost",
            "ht tp://localhost",
            "http:/localhost",
            "http:localhost",
            "http://localhost http://localhost",
            "http://localhost, http://localhost",
        ];
        for bad in with_a_bad_host.iter().map(String::as_str).chain(others) {
            assert!(!policy.admits(bad, Some("localhost")), "{bad:?}");
            assert_eq!(policy.allow(bad), Err(BadEntry::Origin(bad.to_owned())), "{bad:?}");
            assert!(OriginPolicy::Any.admits(bad, None), "{bad:?}");
        }
        assert_eq!(policy, OriginPolicy::default());
    }
}
