//! SEC-01, SEC-02: no header makes the gate panic, and the gate admits no foreign origin and no foreign host.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use libfuzzer_sys::{arbitrary, fuzz_target};
use rethread_proto::gate::{HeadPolicy, head};
use std::net::IpAddr;

const OUR_NAME: &str = "mcp.example";
const ALLOWED_ORIGIN: &str = "https://app.example";

#[derive(arbitrary::Arbitrary, Debug)]
struct Input {
    method: u8,
    uri: u8,
    headers: Vec<(Name, Vec<Piece>)>,
}

#[derive(arbitrary::Arbitrary, Clone, Copy, Debug)]
enum Name {
    Host,
    Origin,
    Accept,
    ContentType,
    Session,
    Version,
    LastEventId,
}

/// Values are built from likely words, so that most of them are nearly valid.
#[derive(arbitrary::Arbitrary, Debug)]
enum Piece {
    Word(u8),
    Byte(u8),
    Bytes(Vec<u8>),
}

const WORDS: [&str; 32] = [
    "http://",
    "https://",
    "localhost",
    "127.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "0.0.0.0",
    "evil.example",
    OUR_NAME,
    "app.example",
    ":",
    ":80",
    ":443",
    ":8080",
    "@",
    "/",
    ".",
    "#",
    "?",
    "null",
    "HTTPS://",
    "chrome-extension://",
    "application/json",
    "text/event-stream",
    "*/*",
    ";q=0",
    ", ",
    "; charset=utf-8",
    "2025-11-25",
    "2026-07-28",
    "1-1",
    " ",
];

fuzz_target!(|input: Input| {
    let mut policy = HeadPolicy::default();
    policy.hosts.allow(OUR_NAME).expect("a host");
    policy.origins.allow(ALLOWED_ORIGIN).expect("an origin");
    let method = match input.method % 5 {
        0 => Method::GET,
        1 => Method::DELETE,
        2 => Method::OPTIONS,
        3 => Method::PUT,
        _ => Method::POST,
    };
    let uri = Uri::from_static(match input.uri % 4 {
        0 => "http://mcp.example/mcp",
        1 => "http://evil.example/mcp",
        2 => "http://localhost:8080/mcp",
        _ => "/mcp",
    });
    let headers = headers(&input.headers);
    let Ok(admitted) = head::admit(&method, &uri, &headers, &policy) else {
        return;
    };
    let host = host(&uri, &headers);
    assert!(is_ours(&host), "admitted for the host {host}");
    match only(&headers, "origin") {
        None => assert_eq!(admitted.origin, None),
        Some(origin) => {
            let known = is_known(origin, &host);
            assert!(known, "the origin {origin} was admitted for {host}");
            assert_eq!(
                admitted.origin.as_ref().map(HeaderValue::as_bytes),
                Some(origin.as_bytes())
            );
        }
    }
});

fn headers(drawn: &[(Name, Vec<Piece>)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, pieces) in drawn.iter().take(50) {
        let name = HeaderName::from_static(match name {
            Name::Host => "host",
            Name::Origin => "origin",
            Name::Accept => "accept",
            Name::ContentType => "content-type",
            Name::Session => "mcp-session-id",
            Name::Version => "mcp-protocol-version",
            Name::LastEventId => "last-event-id",
        });
        let mut value = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Word(at) => value.extend_from_slice(WORDS[usize::from(*at) % WORDS.len()].as_bytes()),
                Piece::Byte(byte) => value.push(*byte),
                Piece::Bytes(bytes) => value.extend_from_slice(bytes),
            }
        }
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            headers.append(name, value);
        }
    }
    headers
}

/// The only value of a header. An admitted request has at most one, in visible ASCII.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?;
    assert!(lines.next().is_none(), "admitted with two lines of {name}");
    Some(first.to_str().expect("admitted with invisible characters"))
}

fn host(uri: &Uri, headers: &HeaderMap) -> String {
    let host = only(headers, "host").or(uri.authority().map(http::uri::Authority::as_str));
    host.expect("admitted without a host").to_ascii_lowercase()
}

fn is_ours(host: &str) -> bool {
    let authority: http::uri::Authority = host.parse().expect("admitted with an invalid host");
    !host.contains('@') && (is_loopback(authority.host()) || authority.host() == OUR_NAME)
}

fn is_known(origin: &str, host: &str) -> bool {
    let Ok(page) = origin.to_ascii_lowercase().parse::<Uri>() else {
        return false;
    };
    let (Some(scheme), Some(authority)) = (page.scheme_str(), page.authority()) else {
        return false;
    };
    let implied = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    let bare = origin.len() == scheme.len() + "://".len() + authority.as_str().len() && !origin.contains('@');
    let port = authority.port_u16().unwrap_or(implied);
    let here: http::uri::Authority = host.parse().expect("a host");
    let is_here = authority.host() == here.host() && port == here.port_u16().unwrap_or(implied);
    let is_allowed = scheme == "https" && authority.host() == "app.example" && port == 443;
    bare && (is_loopback(authority.host()) || is_here || is_allowed)
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
