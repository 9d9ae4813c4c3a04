use super::*;
use http::header::{CONTENT_TYPE, HOST};

const BOTH_TYPES: &str = "application/json, text/event-stream";

/// A valid request with `changes`. A header in them replaces the default one, and an empty list of values removes it.
fn try_to(method: &str, changes: &[(&'static str, &[&str])], policy: &HeadPolicy) -> Result<Head, Refusal> {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_static("localhost:8080"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(http::header::ACCEPT, HeaderValue::from_static(BOTH_TYPES));
    for (name, values) in changes {
        headers.remove(*name);
        for value in *values {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
    }
    admit(&method.parse().unwrap(), &Uri::from_static("/mcp"), &headers, policy)
}

fn status(result: &Result<Head, Refusal>) -> u16 {
    result
        .as_ref()
        .map_or_else(|refusal| refusal.status().as_u16(), |_| 200)
}

fn reason(result: Result<Head, Refusal>) -> Reason {
    result.unwrap_err().reason
}

const EVERY_VERB: [&str; 4] = ["POST", "GET", "DELETE", "OPTIONS"];

#[test]
fn sec_01_origin_is_checked_on_every_verb() {
    let mut policy = HeadPolicy::default();
    policy.hosts.allow("mcp.example").unwrap();
    policy.origins.allow("https://app.example").unwrap();
    let table: [(&str, &[&str], bool); 15] = [
        ("localhost", &["https://evil.example"], false),
        ("localhost", &["null"], false),
        ("localhost", &["gar bage"], false),
        ("localhost", &[""], false),
        ("localhost", &["http://b\u{fc}cher.example"], false),
        ("localhost", &["http://localhost:3000"], true),
        ("localhost", &["https://127.0.0.1"], true),
        ("localhost", &["http://[::1]:5173"], true),
        ("localhost", &["https://app.example"], true),
        ("localhost", &["https://app.example:443"], true),
        ("localhost", &["http://app.example"], false),
        ("mcp.example", &["https://mcp.example"], true),
        ("localhost", &["https://mcp.example"], false),
        ("localhost", &["http://localhost", "https://evil.example"], false),
        ("localhost", &["http://localhost", "http://localhost"], false),
    ];
    for verb in EVERY_VERB {
        for (host, origins, admitted) in table {
            let result = try_to(verb, &[("host", &[host]), ("origin", origins)], &policy);
            if admitted {
                assert_eq!(result.unwrap().origin.unwrap(), origins[0], "{verb} {origins:?}");
            } else {
                assert_eq!(status(&result), 403, "{verb} {origins:?}");
                assert!(matches!(reason(result), Reason::Origin { .. }), "{verb} {origins:?}");
            }
        }
    }
    for verb in ["POST", "GET", "DELETE"] {
        assert_eq!(try_to(verb, &[], &policy).unwrap().origin, None);
    }
}

#[test]
fn sec_01_unchecked_host_allows_no_origin() {
    let mut policy = HeadPolicy {
        hosts: HostPolicy::Any,
        ..HeadPolicy::default()
    };
    let rebound: [(&str, &[&str]); 2] = [("host", &["evil.example"]), ("origin", &["http://evil.example"])];
    let refused = reason(try_to("POST", &rebound, &policy));
    assert!(matches!(refused, Reason::Origin { .. }), "{refused:?}");
    policy.origins = OriginPolicy::Any;
    assert_eq!(status(&try_to("POST", &rebound, &policy)), 200);
    assert_eq!(status(&try_to("POST", &[("origin", &["null"])], &policy)), 200);
}

#[test]
fn sec_02_host_is_checked_on_every_verb_and_before_all_else() {
    let default = HeadPolicy::default();
    let any = HeadPolicy {
        hosts: HostPolicy::Any,
        ..HeadPolicy::default()
    };
    let table: [(&[&str], bool); 9] = [
        (&["localhost:8080"], true),
        (&["127.0.0.1"], true),
        (&["[::1]:8080"], true),
        (&["evil.example"], false),
        (&["localhost."], false),
        (&["user@localhost"], false),
        (&[""], false),
        (&["localhost", "evil.example"], false),
        (&[], false),
    ];
    for verb in EVERY_VERB {
        let origin: (&str, &[&str]) = ("origin", &["http://localhost"]);
        for (hosts, admitted) in table {
            let result = try_to(verb, &[("host", hosts), origin], &default);
            assert_eq!(status(&result), if admitted { 200 } else { 403 }, "{verb} {hosts:?}");
            assert_eq!(
                status(&try_to(verb, &[("host", hosts), origin], &any)),
                200,
                "{verb} {hosts:?}"
            );
        }
    }
    let wrong_in_every_way: [(&str, &[&str]); 4] = [
        ("host", &["evil.example"]),
        ("origin", &["null"]),
        ("accept", &["text/html"]),
        ("content-type", &[]),
    ];
    let first = reason(try_to("PUT", &wrong_in_every_way, &default));
    assert!(matches!(first, Reason::Host { .. }), "{first:?}");
    let second = reason(try_to("PUT", &wrong_in_every_way[1..], &default));
    assert!(matches!(second, Reason::Origin { .. }), "{second:?}");
}

/// SEC-01, SEC-02: the operator reads this text, and must learn what to allow and how.
#[test]
fn sec_01_refusal_names_the_refused_value_and_the_option_that_allows_it() {
    let policy = HeadPolicy {
        hints: AccessHints::new("add it with `--allow-origin`", "add it with `--allow-host`"),
        ..HeadPolicy::default()
    };
    let long = "x".repeat(10_000);
    let table: [(&str, &[&str], &str); 5] = [
        (
            "origin",
            &["https://evil.example"],
            "origin `https://evil.example` is not allowed; add it with `--allow-origin` if",
        ),
        ("origin", &["null", "null"], "origin `(several)` is not allowed;"),
        (
            "host",
            &["evil.example:1"],
            "host `evil.example:1` is not allowed; add it with `--allow-host` if",
        ),
        ("host", &[], "host `(none)` is not allowed;"),
        ("host", &[&long], "host `xxx"),
    ];
    for (name, values, expected) in table {
        let refusal = try_to("POST", &[(name, values)], &policy).unwrap_err();
        let message = refusal.error().message;
        assert!(message.contains(expected) && message.len() < 300, "{message}");
    }
}

#[test]
fn sec_02_without_a_host_header_the_authority_counts() {
    for (uri, host, admitted) in [
        ("https://localhost:8443/mcp", None, true),
        ("https://evil.example/mcp", None, false),
        ("https://user@localhost/mcp", None, false),
        ("/mcp", None, false),
        ("https://localhost/mcp", Some("evil.example"), false),
    ] {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(HOST, HeaderValue::from_static(host));
        }
        let result = admit(&Method::GET, &Uri::from_static(uri), &headers, &HeadPolicy::default());
        assert_eq!(result.is_ok(), admitted, "{uri} {host:?}");
    }
}

#[test]
fn sec_06_header_count_and_size_are_bounded_before_anything_is_read() {
    let policy = HeadPolicy::default();
    let fill = "x".repeat(32 * 1024);
    let evil: (&str, &[&str]) = ("host", &["evil.example"]);
    assert_eq!(status(&try_to("POST", &[("x", &[&fill]), evil], &policy)), 431);
    // Three headers are there already.
    let many = ["y"; 98];
    assert_eq!(status(&try_to("POST", &[("x", &many)], &policy)), 431);
    assert_eq!(status(&try_to("POST", &[("x", &many[1..])], &policy)), 200);

    let changes: [(&str, &[&str]); 4] = [
        ("host", &["localhost"]),
        ("accept", &[]),
        ("content-type", &[]),
        ("x", &["1"]),
    ];
    let exact = "host: localhost\r\nx: 1\r\n".len();
    for (max_header_bytes, expected) in [(exact, 200), (exact - 1, 431)] {
        let policy = HeadPolicy {
            max_header_bytes,
            ..HeadPolicy::default()
        };
        assert_eq!(status(&try_to("GET", &changes, &policy)), expected);
    }
}

#[test]
fn http_01_other_methods_are_405_and_allow_lists_the_offered_ones() {
    for (push, delete, revisions, allow) in [
        (true, true, Revisions::BOTH, "GET, POST, DELETE"),
        (true, true, Revisions::LEGACY, "GET, POST, DELETE"),
        (true, false, Revisions::BOTH, "GET, POST"),
        (false, true, Revisions::BOTH, "POST, DELETE"),
        (false, false, Revisions::BOTH, "POST"),
        (true, true, Revisions::MODERN, "POST"),
    ] {
        let policy = HeadPolicy {
            push,
            delete,
            revisions,
            ..HeadPolicy::default()
        };
        for method in [
            "PUT", "PATCH", "HEAD", "TRACE", "OPTIONS", "BREW", "post", "GET", "DELETE", "POST",
        ] {
            let result = try_to(method, &[], &policy);
            if allow.split(", ").any(|offered| offered == method) {
                assert!(result.is_ok(), "{method} of {allow}");
                continue;
            }
            assert_eq!(status(&result), 405, "{method} of {allow}");
            assert_eq!(result.unwrap_err().allow(), Some(allow), "{method}");
        }
    }
}

#[test]
fn http_01_verbs() {
    let policy = HeadPolicy::default();
    let origin: (&str, &[&str]) = ("origin", &["http://localhost"]);
    let expected = [Verb::Post, Verb::Get, Verb::Delete, Verb::Options];
    for (method, verb) in EVERY_VERB.into_iter().zip(expected) {
        assert_eq!(try_to(method, &[origin], &policy).unwrap().verb, verb);
    }
    // HTTP-14: a preflight has no body and names no media type.
    let preflight: [(&str, &[&str]); 3] = [origin, ("accept", &["text/html"]), ("content-type", &[])];
    assert!(try_to("OPTIONS", &preflight, &policy).is_ok());
}

#[test]
fn http_02_post_must_accept_json_and_streams_and_get_streams() {
    let table: [(&[&str], u16, u16); 9] = [
        (&[], 200, 200),
        (&["*/*"], 200, 200),
        (&[BOTH_TYPES], 200, 200),
        (&["application/json", "text/event-stream"], 200, 200),
        (&["application/*, text/event-stream;q=0.5"], 200, 200),
        (&["application/json"], 406, 406),
        (&["application/*"], 406, 406),
        (&["text/event-stream"], 406, 200),
        (&["application/json, text/event-stream;q=0"], 406, 406),
    ];
    for (accept, post, get) in table {
        for (verb, expected) in [("POST", post), ("GET", get), ("DELETE", 200)] {
            let result = try_to(verb, &[("accept", accept)], &HeadPolicy::default());
            assert_eq!(status(&result), expected, "{verb} {accept:?}");
        }
    }
}

#[test]
fn http_03_a_post_must_be_json() {
    let table: [(&[&str], u16); 6] = [
        (&["application/json"], 200),
        (&["application/json; charset=utf-8"], 200),
        (&["text/plain"], 415),
        (&[""], 415),
        (&[], 415),
        (&["application/json", "text/plain"], 415),
    ];
    for (types, expected) in table {
        let policy = HeadPolicy::default();
        assert_eq!(
            status(&try_to("POST", &[("content-type", types)], &policy)),
            expected,
            "{types:?}"
        );
        assert_eq!(
            status(&try_to("GET", &[("content-type", types)], &policy)),
            200,
            "{types:?}"
        );
    }
}

/// SES-02, SES-04: an id that cannot be ours is an unknown session, not a bad request.
#[test]
fn ses_02_malformed_session_header_is_admitted_as_malformed() {
    let long = "a".repeat(SessionId::MAX_BYTES + 1);
    let id = |text| SessionHeader::Id(SessionId::parse(text).unwrap());
    let table: [(&[&str], SessionHeader); 9] = [
        (&[], SessionHeader::Absent),
        (&["abc"], id("abc")),
        (&[" abc\t"], id("abc")),
        (&["abc", "abc"], id("abc")),
        (&["abc", "abd"], SessionHeader::Malformed),
        (&["a c"], SessionHeader::Malformed),
        (&["\u{e4}"], SessionHeader::Malformed),
        (&[""], SessionHeader::Malformed),
        (&[&long], SessionHeader::Malformed),
    ];
    for (lines, expected) in table {
        let head = try_to("POST", &[("mcp-session-id", lines)], &HeadPolicy::default()).unwrap();
        assert_eq!(head.session, expected, "{lines:?}");
    }
}

#[test]
fn ver_02_head_reads_the_version_header_without_checking_it() {
    let unknown = |text: &str| VersionHeader::Unknown(text.to_owned());
    let table: [(&[&str], VersionHeader); 9] = [
        (&[], VersionHeader::Absent),
        (&["2025-11-25"], VersionHeader::Known(Version::V2025_11_25)),
        (&[" 2026-07-28 "], VersionHeader::Known(Version::V2026_07_28)),
        (
            &["2025-06-18", "2025-06-18 "],
            VersionHeader::Known(Version::V2025_06_18),
        ),
        (&["2025-06-18", "2025-11-25"], unknown("2025-06-18, 2025-11-25")),
        (&["2025-06-18, 2025-11-25"], unknown("2025-06-18, 2025-11-25")),
        (&["foo"], unknown("foo")),
        (&[""], unknown("")),
        (&["\u{e4}"], unknown("\u{e4}")),
    ];
    for (lines, expected) in table {
        let head = try_to("POST", &[("mcp-protocol-version", lines)], &HeadPolicy::default()).unwrap();
        assert_eq!(head.version, expected, "{lines:?}");
    }
}

#[test]
fn ver_09_a_stateless_revision_has_neither_get_nor_delete() {
    for revisions in [Revisions::LEGACY, Revisions::BOTH, Revisions::MODERN] {
        let policy = HeadPolicy {
            revisions,
            ..HeadPolicy::default()
        };
        for verb in ["GET", "DELETE"] {
            let refusal = try_to(verb, &[("mcp-protocol-version", &["2026-07-28"])], &policy).unwrap_err();
            assert_eq!((refusal.status().as_u16(), refusal.allow()), (405, Some("POST")));
            let session_era = try_to(verb, &[("mcp-protocol-version", &["2025-11-25"])], &policy);
            assert_eq!(session_era.is_ok(), revisions.serves_era(Era::Legacy), "{verb}");
        }
        let post = try_to("POST", &[("mcp-protocol-version", &["2026-07-28"])], &policy);
        assert_eq!(post.unwrap().version.modern(), Some(Version::V2026_07_28));
    }
}

#[test]
fn res_07_invalid_last_event_id_counts_as_unknown() {
    let (longest, too_long) = ("1".repeat(MAX_EVENT_ID_BYTES), "1".repeat(MAX_EVENT_ID_BYTES + 1));
    let table: [(&[&str], Option<&str>); 9] = [
        (&[], None),
        (&[""], None),
        (&["  "], None),
        (&["3-17"], Some("3-17")),
        (&[&longest], Some(&longest)),
        (&[&too_long], Some("")),
        (&["3 17"], Some("")),
        (&["\u{e4}"], Some("")),
        (&["3-17", "3-18"], Some("")),
    ];
    for (lines, expected) in table {
        let head = try_to("GET", &[("last-event-id", lines)], &HeadPolicy::default()).unwrap();
        assert_eq!(head.last_event_id.as_deref(), expected, "{lines:?}");
    }
}
