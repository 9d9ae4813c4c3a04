use super::super::head::Verb;
use super::*;
use crate::jsonrpc::{Limits, code, parse};
use crate::principal::SessionId;
use bytes::Bytes;

const L: Revisions = Revisions::LEGACY;
const B: Revisions = Revisions::BOTH;
const M: Revisions = Revisions::MODERN;

fn head(version: Option<&str>, session: Option<&str>) -> Head {
    Head {
        verb: Verb::Post,
        session: session.map_or(SessionHeader::Absent, |id| {
            SessionHeader::Id(SessionId::parse(id).unwrap())
        }),
        version: version.map_or(VersionHeader::Absent, |text| {
            text.parse()
                .map_or_else(|_| VersionHeader::Unknown(text.to_owned()), VersionHeader::Known)
        }),
        last_event_id: None,
        origin: None,
    }
}

fn payload(json: &str) -> Payload {
    parse(&Bytes::copy_from_slice(json.as_bytes()), &Limits::default()).unwrap()
}

fn request(method: &str, meta: Option<&str>) -> String {
    let params = meta.map_or("{}".to_owned(), |version| {
        format!(r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}"}}}}"#)
    });
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#)
}

/// The outcome of a POST: its class, or the error code and whether the refusal has the id.
#[derive(Debug, PartialEq)]
enum Fate {
    Handshake,
    Legacy,
    Modern,
    /// 400 with this code and the request's id.
    No(i64),
    /// 400 with this code and no id.
    NoId(i64),
}
use Fate::{Handshake, Legacy, Modern, No, NoId};

const MISMATCH: i64 = code::HEADER_MISMATCH;
const UNSUPPORTED: i64 = code::UNSUPPORTED_VERSION;
const NO_META: i64 = code::INVALID_PARAMS;
const INVALID: i64 = code::INVALID_REQUEST;

fn fate(head: &Head, json: &str, served: Revisions) -> Fate {
    match admit(head, payload(json), served) {
        Ok(Admitted::Initialize(request)) => {
            assert_eq!(request.method.as_str(), "initialize");
            Handshake
        }
        Ok(Admitted::Legacy(_)) => Legacy,
        Ok(Admitted::Notification(_)) => Modern,
        Ok(Admitted::Modern { version, .. }) => {
            assert_eq!(head.version, VersionHeader::Known(version));
            Modern
        }
        Err(refusal) => {
            assert_eq!(refusal.status().as_u16(), 400);
            let code = refusal.error().code;
            match refusal.id {
                Some(id) => {
                    assert_eq!(id.to_string(), "7");
                    No(code)
                }
                None => NoId(code),
            }
        }
    }
}

const OLD: Option<&str> = Some("2025-11-25");
const NEW: Option<&str> = Some("2026-07-28");
const ODD: Option<&str> = Some("2099-01-01");

/// VER-04, T-08, T-09, T-22. The columns: row, H, M, method, and the outcome on an endpoint that serves the legacy era, both
/// eras, the stateless era.
#[test]
fn ver_04_every_row_on_every_kind_of_endpoint() {
    let table = [
        (
            1,
            None,
            NEW,
            "tools/list",
            [No(UNSUPPORTED), No(MISMATCH), No(MISMATCH)],
        ),
        (
            1,
            None,
            NEW,
            "initialize",
            [No(UNSUPPORTED), No(MISMATCH), No(MISMATCH)],
        ),
        (1, None, ODD, "tools/list", [No(MISMATCH), No(MISMATCH), No(MISMATCH)]),
        (1, None, OLD, "tools/list", [No(MISMATCH), No(MISMATCH), No(MISMATCH)]),
        (2, OLD, NEW, "tools/list", [No(UNSUPPORTED), No(MISMATCH), No(MISMATCH)]),
        (2, NEW, OLD, "tools/list", [No(UNSUPPORTED), No(MISMATCH), No(MISMATCH)]),
        (2, NEW, ODD, "tools/list", [No(UNSUPPORTED), No(MISMATCH), No(MISMATCH)]),
        (2, OLD, ODD, "tools/list", [No(MISMATCH), No(MISMATCH), No(MISMATCH)]),
        (2, ODD, NEW, "tools/list", [No(UNSUPPORTED), No(MISMATCH), No(MISMATCH)]),
        (
            3,
            ODD,
            ODD,
            "tools/list",
            [No(UNSUPPORTED), No(UNSUPPORTED), No(UNSUPPORTED)],
        ),
        (
            3,
            OLD,
            OLD,
            "tools/list",
            [No(UNSUPPORTED), No(UNSUPPORTED), No(UNSUPPORTED)],
        ),
        (4, NEW, NEW, "tools/list", [No(UNSUPPORTED), Modern, Modern]),
        (4, NEW, NEW, "initialize", [No(UNSUPPORTED), Modern, Modern]),
        (5, NEW, None, "tools/list", [No(UNSUPPORTED), No(NO_META), No(NO_META)]),
        (5, NEW, None, "initialize", [Handshake, No(NO_META), No(NO_META)]),
        (5, None, None, "server/discover", [Legacy, No(NO_META), No(NO_META)]),
        (
            5,
            None,
            None,
            "subscriptions/listen",
            [Legacy, No(NO_META), No(NO_META)],
        ),
        (6, None, None, "initialize", [Handshake, Handshake, No(UNSUPPORTED)]),
        (6, OLD, None, "initialize", [Handshake, Handshake, No(UNSUPPORTED)]),
        (6, ODD, None, "initialize", [Handshake, Handshake, No(UNSUPPORTED)]),
        (7, OLD, None, "tools/list", [Legacy, Legacy, No(NO_META)]),
        (7, OLD, None, "server/discover", [Legacy, Legacy, No(NO_META)]),
        (7, None, None, "tools/list", [Legacy, Legacy, No(NO_META)]),
        (
            8,
            ODD,
            None,
            "tools/list",
            [No(UNSUPPORTED), No(UNSUPPORTED), No(UNSUPPORTED)],
        ),
        (
            8,
            Some(""),
            None,
            "tools/list",
            [No(UNSUPPORTED), No(UNSUPPORTED), No(UNSUPPORTED)],
        ),
    ];
    for (row, h, m, method, fates) in table {
        for (served, expected) in [L, B, M].into_iter().zip(fates) {
            let found = fate(&head(h, None), &request(method, m), served);
            assert_eq!(found, expected, "row {row}: H {h:?}, M {m:?}, {method}, {served:?}");
        }
    }
}

#[test]
fn ver_04_row_5_a_session_header_makes_a_modern_method_session_era() {
    let listen = request("subscriptions/listen", None);
    assert_eq!(fate(&head(None, Some("abc")), &listen, B), Legacy);
    assert_eq!(fate(&head(None, Some("abc")), &listen, M), No(NO_META));
    let malformed = Head {
        session: SessionHeader::Malformed,
        ..head(None, None)
    };
    assert_eq!(fate(&malformed, &listen, B), Legacy);
}

#[test]
fn ver_04_row_5_names_missing_fields_and_for_initialize_the_versions() {
    let text = |h, json: &str, served| {
        let refusal = admit(&head(h, None), payload(json), served).unwrap_err();
        refusal.error().message.into_owned()
    };
    assert_eq!(
        text(NEW, &request("tools/list", None), B),
        "`_meta` lacks io.modelcontextprotocol/protocolVersion and io.modelcontextprotocol/clientCapabilities"
    );
    let with_capabilities = r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":
        {"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    assert_eq!(
        text(NEW, with_capabilities, B),
        "`_meta` lacks io.modelcontextprotocol/protocolVersion"
    );
    let initialize = text(NEW, &request("initialize", None), B);
    assert!(initialize.contains("protocolVersion"), "{initialize}");
    assert!(
        initialize.ends_with("served here: 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05"),
        "{initialize}"
    );
}

#[test]
fn ver_07_legacy_version_in_meta_gets_the_stateless_ones() {
    let refusal = admit(&head(OLD, None), payload(&request("server/discover", OLD)), B).unwrap_err();
    let data = refusal.error().data.unwrap();
    assert_eq!(
        data,
        serde_json::json!({"supported": ["2026-07-28"], "requested": "2025-11-25"})
    );
}

#[test]
fn ver_08_a_stateless_endpoint_names_its_versions_in_every_error_to_initialize() {
    let initialize = |asked: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"initialize","params":{{"protocolVersion":"{asked}"}}}}"#)
    };
    for (h, json, code, requested) in [
        (None, initialize("2025-11-25"), UNSUPPORTED, Some("2025-11-25")),
        (ODD, initialize("2025-06-18"), UNSUPPORTED, Some("2025-06-18")),
        (OLD, request("initialize", None), UNSUPPORTED, Some("2025-11-25")),
        (None, request("initialize", None), UNSUPPORTED, Some("")),
        (None, initialize("2026-07-28"), NO_META, None),
        (NEW, initialize("2025-11-25"), NO_META, None),
    ] {
        let error = admit(&head(h, None), payload(&json), M).unwrap_err().error();
        assert_eq!(error.code, code, "{h:?} {json}");
        match requested {
            Some(requested) => {
                let expected = serde_json::json!({"supported": ["2026-07-28"], "requested": requested});
                assert_eq!(error.data, Some(expected), "{h:?} {json}");
            }
            None => assert!(error.message.contains("2026-07-28"), "{}", error.message),
        }
    }
}

/// HTTP-06: stateless notifications need no `_meta`, answers do not exist; HTTP-05: neither refusal has an id.
#[test]
fn http_06_notifications_and_answers() {
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let note_with = |version: &str| {
        let meta = format!(r#"{{"io.modelcontextprotocol/protocolVersion":"{version}"}}"#);
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"_meta":{meta}}}}}"#)
    };
    let answer = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    let rejection = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}"#;
    let table = [
        (None, note, [Legacy, Legacy, NoId(NO_META)]),
        (OLD, note, [Legacy, Legacy, NoId(NO_META)]),
        (NEW, note, [NoId(UNSUPPORTED), Modern, Modern]),
        (ODD, note, [NoId(UNSUPPORTED), NoId(UNSUPPORTED), NoId(UNSUPPORTED)]),
        (NEW, &note_with("2026-07-28"), [NoId(UNSUPPORTED), Modern, Modern]),
        (
            NEW,
            &note_with("2025-11-25"),
            [NoId(UNSUPPORTED), NoId(MISMATCH), NoId(MISMATCH)],
        ),
        (
            None,
            &note_with("2026-07-28"),
            [NoId(UNSUPPORTED), NoId(MISMATCH), NoId(MISMATCH)],
        ),
        (None, answer, [Legacy, Legacy, NoId(INVALID)]),
        (OLD, answer, [Legacy, Legacy, NoId(INVALID)]),
        (NEW, answer, [NoId(UNSUPPORTED), NoId(INVALID), NoId(INVALID)]),
        (NEW, rejection, [NoId(UNSUPPORTED), NoId(INVALID), NoId(INVALID)]),
        (ODD, answer, [NoId(UNSUPPORTED), NoId(UNSUPPORTED), NoId(UNSUPPORTED)]),
    ];
    for (h, json, fates) in table {
        for (served, expected) in [L, B, M].into_iter().zip(fates) {
            assert_eq!(
                fate(&head(h, None), json, served),
                expected,
                "H {h:?}, {json}, {served:?}"
            );
        }
    }
}

#[test]
fn http_09_a_batch_is_of_one_kind_and_opens_no_session() {
    let (call, note) = (
        r#"{"jsonrpc":"2.0","id":7,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","method":"b"}"#,
    );
    let (answer, initialize) = (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, request("initialize", None));
    let modern_call = request("tools/list", NEW);
    let table: [(Option<&str>, &[&str], [Fate; 3]); 12] = [
        (None, &[call], [Legacy, Legacy, NoId(INVALID)]),
        (OLD, &[call, note, call], [Legacy, Legacy, NoId(UNSUPPORTED)]),
        (None, &[note], [Legacy, Legacy, NoId(INVALID)]),
        (None, &[answer, answer], [Legacy, Legacy, NoId(INVALID)]),
        (None, &[call, answer], [NoId(INVALID), NoId(INVALID), NoId(INVALID)]),
        (None, &[answer, note], [NoId(INVALID), NoId(INVALID), NoId(INVALID)]),
        (None, &[&initialize], [NoId(INVALID), NoId(INVALID), NoId(INVALID)]),
        (
            None,
            &[note, &initialize],
            [NoId(INVALID), NoId(INVALID), NoId(INVALID)],
        ),
        (NEW, &[call], [NoId(UNSUPPORTED), NoId(INVALID), NoId(INVALID)]),
        (NEW, &[&modern_call], [NoId(UNSUPPORTED), NoId(INVALID), NoId(INVALID)]),
        (None, &[&modern_call], [Legacy, Legacy, NoId(INVALID)]),
        (ODD, &[call], [NoId(UNSUPPORTED), NoId(UNSUPPORTED), NoId(UNSUPPORTED)]),
    ];
    for (h, messages, fates) in table {
        let json = format!("[{}]", messages.join(","));
        for (served, expected) in [L, B, M].into_iter().zip(fates) {
            assert_eq!(
                fate(&head(h, None), &json, served),
                expected,
                "H {h:?}, {json}, {served:?}"
            );
        }
    }
}

/// SES-07, VER-03, T-22.
#[test]
fn ver_03_initialize_takes_any_session_header_and_any_legacy_version_header() {
    let json = r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    for h in [
        None,
        Some("2024-11-05"),
        Some("2025-03-26"),
        Some("2025-06-18"),
        OLD,
        ODD,
    ] {
        for session in [None, Some("stale")] {
            for served in [L, B] {
                assert_eq!(fate(&head(h, session), json, served), Handshake, "{h:?} {session:?}");
            }
        }
    }
    // Without an id it is neither a handshake nor a request that could be answered.
    let note = r#"{"jsonrpc":"2.0","method":"initialize"}"#;
    assert_eq!(fate(&head(None, None), note, B), Legacy);
}

#[test]
fn ver_02_a_version_that_is_not_served_is_refused_without_a_body_too() {
    for (h, fates) in [
        (None, [true, true, true]),
        (Some("2025-03-26"), [true, true, false]),
        (OLD, [true, true, false]),
        (NEW, [false, true, true]),
        (ODD, [false, false, false]),
        (Some("foo"), [false, false, false]),
    ] {
        for (served, admitted) in [L, B, M].into_iter().zip(fates) {
            match admit_bodyless(&head(h, Some("abc")), served) {
                Ok(()) => assert!(admitted, "{h:?} {served:?}"),
                Err(refusal) => {
                    assert!(!admitted, "{h:?} {served:?}");
                    assert_eq!((refusal.status().as_u16(), refusal.error().code), (400, UNSUPPORTED));
                    assert_eq!(refusal.error().data.unwrap()["requested"], h.unwrap());
                }
            }
        }
    }
}
