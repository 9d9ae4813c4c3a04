//! From where the admin listener may be used (OPS-08). Pure.

use http::{HeaderMap, header};
use rethread_proto::gate::HostPolicy;
use std::net::SocketAddr;

/// The hosts and origins of the listener.
pub(super) struct AccessRules<'a> {
    pub(super) bound: SocketAddr,
    pub(super) public_url: Option<&'a str>,
}

/// Why a request is refused, with or without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessRefusal {
    /// DNS rebinding: a name that is not the listener's own.
    Host,
    /// A page of another site.
    Origin,
}

impl AccessRules<'_> {
    /// `Host` must be the listener's own address, a loopback name, or the host of the public URL. `Origin` must be absent or the
    /// listener's own.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Result<(), AccessRefusal> {
        let host = only(headers, header::HOST).ok_or(AccessRefusal::Host)?;
        if !self.is_own_host(host) {
            return Err(AccessRefusal::Host);
        }
        if !headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        let origin = only(headers, header::ORIGIN).ok_or(AccessRefusal::Origin)?;
        if self.is_own_origin(origin, host) {
            Ok(())
        } else {
            Err(AccessRefusal::Origin)
        }
    }

    fn is_own_host(&self, host: &str) -> bool {
        let mut policy = HostPolicy::default(); // loopback names
        let bound = self.bound.to_string();
        let public = self.public_url.and_then(authority);
        let ip = self.bound.ip();
        let own = (!ip.is_unspecified()).then_some(bound.as_str());
        // An address cannot be rebound, so a listener on all addresses accepts each of them.
        let is_address = ip.is_unspecified() && host.parse::<SocketAddr>().is_ok();
        own.into_iter().chain(public).all(|own| policy.allow(own).is_ok()) && (policy.admits(host) || is_address)
    }

    /// The origin of a page that this listener has served, under the host that the request names, or under the public URL.
    fn is_own_origin(&self, origin: &str, host: &str) -> bool {
        let Some((scheme, site)) = origin.split_once("://") else {
            return false; // `null`, for example
        };
        let is_public = self.public_url.is_some_and(|url| {
            let public = url.split_once("://").zip(authority(url));
            public.is_some_and(|((public_scheme, _), public)| {
                scheme.eq_ignore_ascii_case(public_scheme)
                    && without_default_port(scheme, site).eq_ignore_ascii_case(without_default_port(scheme, public))
            })
        });
        let is_web = matches!(scheme, "http" | "https");
        let same = without_default_port(scheme, site).eq_ignore_ascii_case(without_default_port(scheme, host));
        is_public || (is_web && same)
    }
}

fn without_default_port<'a>(scheme: &str, site: &'a str) -> &'a str {
    let port = if scheme == "https" { ":443" } else { ":80" };
    site.strip_suffix(port).unwrap_or(site)
}

/// The only header of this name, if it is text.
fn only(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok()
}

/// The host and port of a URL.
fn authority(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.split('/').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn admit(bound: &str, public_url: Option<&str>, headers: &[(&str, &str)]) -> Result<(), AccessRefusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let rules = AccessRules {
            bound: bound.parse().unwrap(),
            public_url,
        };
        rules.admit(&map)
    }

    #[test]
    fn ops_08_only_own_hosts_and_origins_are_admitted() {
        use AccessRefusal::{Host, Origin};
        const LOCAL: &str = "127.0.0.1:9465";
        const URL: Option<&str> = Some("https://console.example/ops");
        for (bound, url, headers, expected) in [
            (LOCAL, None, &[("host", LOCAL)][..], Ok(())),
            (LOCAL, None, &[("host", "localhost:9465")], Ok(())),
            (LOCAL, None, &[("host", "localhost:1234")], Ok(())), // an SSH tunnel
            (LOCAL, None, &[("host", "[::1]:9465")], Ok(())),
            (LOCAL, None, &[], Err(Host)),
            (LOCAL, None, &[("host", "evil.example")], Err(Host)),
            (LOCAL, None, &[("host", "evil.example:9465")], Err(Host)),
            (LOCAL, None, &[("host", "127.0.0.1.evil.example")], Err(Host)),
            (LOCAL, None, &[("host", LOCAL), ("host", "evil.example")], Err(Host)),
            (LOCAL, None, &[("host", "console.example")], Err(Host)),
            (LOCAL, URL, &[("host", "console.example")], Ok(())),
            (LOCAL, URL, &[("host", "console.example.evil")], Err(Host)),
            ("192.0.2.7:9465", None, &[("host", "192.0.2.7:9465")], Ok(())),
            ("192.0.2.7:9465", None, &[("host", "192.0.2.8:9465")], Err(Host)),
            ("0.0.0.0:9465", None, &[("host", "192.0.2.8:9465")], Ok(())),
            ("0.0.0.0:9465", None, &[("host", "evil.example:9465")], Err(Host)),
            // Origins.
            (
                LOCAL,
                None,
                &[("host", LOCAL), ("origin", "http://127.0.0.1:9465")],
                Ok(()),
            ),
            (
                LOCAL,
                None,
                &[("host", LOCAL), ("origin", "https://127.0.0.1:9465")],
                Ok(()),
            ),
            (
                LOCAL,
                None,
                &[("host", "localhost"), ("origin", "http://localhost:80")],
                Ok(()),
            ),
            (
                LOCAL,
                None,
                &[("host", LOCAL), ("origin", "http://localhost:9465")],
                Err(Origin),
            ),
            (
                LOCAL,
                None,
                &[("host", LOCAL), ("origin", "http://127.0.0.1:3000")],
                Err(Origin),
            ),
            (
                LOCAL,
                None,
                &[("host", LOCAL), ("origin", "https://evil.example")],
                Err(Origin),
            ),
            (LOCAL, None, &[("host", LOCAL), ("origin", "null")], Err(Origin)),
            (LOCAL, None, &[("host", LOCAL), ("origin", "")], Err(Origin)),
            (
                LOCAL,
                None,
                &[("host", LOCAL), ("origin", "ftp://127.0.0.1:9465")],
                Err(Origin),
            ),
            (
                LOCAL,
                None,
                &[
                    ("host", LOCAL),
                    ("origin", "http://127.0.0.1:9465"),
                    ("origin", "http://evil.example"),
                ],
                Err(Origin),
            ),
            (
                LOCAL,
                URL,
                &[("host", LOCAL), ("origin", "https://console.example")],
                Ok(()),
            ),
            (
                LOCAL,
                URL,
                &[("host", "console.example"), ("origin", "https://console.example:443")],
                Ok(()),
            ),
            (
                LOCAL,
                URL,
                &[("host", "console.example"), ("origin", "https://evil.example")],
                Err(Origin),
            ),
        ] {
            assert_eq!(admit(bound, url, headers), expected, "{bound} {url:?} {headers:?}");
        }
    }
}
