//! The second half of the gate: with the message in hand, version and era are settled, once.

use super::head::{Head, SessionHeader, VersionHeader};
use super::mirror::Stateless;
use crate::jsonrpc::{Message, Notification, Params, Payload, Request};
use crate::refusal::{Reason, Refusal};
use crate::version::{Era, Revisions, Version};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// The `_meta` keys that every stateless request carries.
const REQUIRED_META: [&str; 2] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
];

/// A POST that was let in, and what it was let in as.
#[derive(Clone, Debug)]
pub enum Admitted {
    /// The handshake that opens a session. A session header beside it means nothing (SES-07).
    Initialize(Request),
    /// Traffic of the session era. A batch is known to be no odd mix; whether the session's revision takes batches at
    /// all is for whoever knows the session (HTTP-10), and so is whether a session is named (SES-03).
    Legacy(Payload),
    /// A stateless request. Header and `_meta` agree on the version. All else that it must fulfil (VER-05: capabilities,
    /// `Mcp-Method` and the other mirrored headers) is checked on the modern path.
    Modern {
        /// The revision it speaks, which is served.
        version: Version,
        /// The request.
        request: Request,
        /// What its params say, cut once for this table and for all that comes after; or why they cannot be read.
        parts: Result<Box<Stateless>, Reason>,
    },
    /// A stateless notification.
    Notice(Notification),
}

/// Settles what a POST is, or says why it is nothing we take (VER-04).
///
/// H is the version header, M the version in `_meta`; the first row that fits decides.
///
/// | # | condition | outcome |
/// |---|---|---|
/// | 1 | M, no H | `HeaderMismatch` |
/// | 2 | M, H differs | `HeaderMismatch`, even if M is unknown |
/// | 3 | H = M, not a stateless revision we serve | `UnsupportedVersion` |
/// | 4 | H = M, served | [`Admitted::Modern`], also for `initialize` |
/// | 5 | no M, H stateless; or no M, H or session, and a method only stateless revisions have | `MissingMeta` |
/// | 6 | no M, `initialize` | [`Admitted::Initialize`], whatever else H says (VER-03, T-09, T-22) |
/// | 7 | no M, H absent or of the session era | [`Admitted::Legacy`] |
/// | 8 | no M, H unknown | `UnsupportedVersion` |
///
/// What only requests carry cannot be missed elsewhere: in row 5 a notification is let in on its header alone, since
/// the schema of 2026-07-28 gives notifications no version in `_meta`, and an answer is an `InvalidRequest` (HTTP-06).
///
/// An endpoint without the stateless era refuses its revision as `UnsupportedVersion` before all rows, in H as in M,
/// except that an `initialize` without M is a handshake still. An endpoint without the session era has no rows 6 and
/// 7: `initialize` is told which versions there are (VER-08), the rest gets row 5.
///
/// A batch has no M. It is an array of requests and notifications, or one of answers (HTTP-09).
pub fn admit(head: &Head, payload: Payload, served: Revisions) -> Result<Admitted, Refusal> {
    match payload {
        Payload::One(message) => {
            let parts = match &message {
                Message::Request(request) if head.version.modern().is_some() => Some(read_parts(request)),
                _ => None,
            };
            match classify(head, &message, parts.as_ref(), served) {
                Err(reason) => Err(Refusal::new(reason).about(message.request_id())),
                Ok(Path::Modern(version)) => match message {
                    Message::Request(request) => Ok(Admitted::Modern {
                        version,
                        parts: parts.unwrap_or_else(|| read_parts(&request)),
                        request,
                    }),
                    Message::Notification(notification) => Ok(Admitted::Notice(notification)),
                    Message::Answer(_) => Err(no_answers().into()),
                },
                Ok(Path::Legacy) => Ok(match message {
                    Message::Request(request) if is_handshake(&request) => Admitted::Initialize(request),
                    message => Admitted::Legacy(Payload::One(message)),
                }),
            }
        }
        Payload::Batch(messages) => {
            check_batch(head, &messages, served)?;
            Ok(Admitted::Legacy(Payload::Batch(messages)))
        }
    }
}

/// Settles whether a GET or a DELETE speaks a revision we serve (VER-02). That stateless revisions have neither was
/// settled by the head (VER-09).
pub fn admit_bodyless(head: &Head, served: Revisions) -> Result<(), Refusal> {
    Ok(check_version(&head.version, served)?)
}

fn check_version(header: &VersionHeader, served: Revisions) -> Result<(), Reason> {
    match header {
        VersionHeader::Absent => Ok(()),
        VersionHeader::Known(version) if served.serves(*version) => Ok(()),
        VersionHeader::Known(version) => Err(unsupported(version.as_str(), served)),
        VersionHeader::Unknown(text) => Err(unsupported(text, served)),
    }
}

enum Path {
    Legacy,
    Modern(Version),
}

type Parts = Result<Box<Stateless>, Reason>;

fn read_parts(request: &Request) -> Parts {
    Stateless::read(&request.params).map(Box::new)
}

fn classify(head: &Head, message: &Message, parts: Option<&Parts>, served: Revisions) -> Result<Path, Reason> {
    if let Some(Ok(parts)) = parts
        && let Some(named) = parts.version.as_str()
    {
        return classify_with_meta(&head.version, named, served);
    }
    let params = match message {
        Message::Request(request) => Some(&request.params),
        Message::Notification(notification) => Some(&notification.params),
        Message::Answer(_) => None,
    };
    match params.and_then(Params::meta_protocol_version) {
        Some(named) => classify_with_meta(&head.version, &named, served),
        None => classify_without_meta(head, message, served),
    }
}

/// Rows 1 to 4.
fn classify_with_meta(header: &VersionHeader, named: &str, served: Revisions) -> Result<Path, Reason> {
    if !served.serves_era(Era::Modern) {
        let is_modern = |text: &str| text.parse().is_ok_and(|version: Version| version.era() == Era::Modern);
        if let Some(modern) = [Some(named), header.as_str()]
            .into_iter()
            .flatten()
            .find(|text| is_modern(text))
        {
            return Err(unsupported(modern, served));
        }
    }
    match header.as_str() {
        None => Err(Reason::HeaderMismatch(
            "`MCP-Protocol-Version` is missing: it must repeat the version in `_meta`".into(),
        )),
        Some(text) if text != named => Err(Reason::HeaderMismatch(
            "`MCP-Protocol-Version` differs from the version in `_meta`".into(),
        )),
        Some(_) => match header.modern() {
            Some(version) if served.serves(version) => Ok(Path::Modern(version)),
            _ => Err(unsupported(named, served)),
        },
    }
}

/// Rows 5 to 8.
fn classify_without_meta(head: &Head, message: &Message, served: Revisions) -> Result<Path, Reason> {
    let handshake = match message {
        Message::Request(request) if is_handshake(request) => Some(request),
        _ => None,
    };
    if let Some(version) = head.version.modern() {
        return match message {
            // T-09: a handshake asks for versions; what we do not serve may stand in it.
            _ if !served.serves(version) && handshake.is_some() => Ok(Path::Legacy),
            _ if !served.serves(version) => Err(unsupported(version.as_str(), served)),
            Message::Request(request) => Err(missing_meta(&request.params, handshake.is_some(), served)),
            Message::Notification(_) => Ok(Path::Modern(version)),
            Message::Answer(_) => Err(no_answers()),
        };
    }
    let bare = head.version == VersionHeader::Absent && head.session == SessionHeader::Absent;
    if let Message::Request(request) = message
        && bare
        && served.serves_era(Era::Modern)
        && matches!(request.method.as_str(), "server/discover" | "subscriptions/listen")
    {
        return Err(missing_meta(&request.params, false, served));
    }
    let has_sessions = served.serves_era(Era::Legacy);
    if let Some(request) = handshake {
        return if has_sessions {
            Ok(Path::Legacy)
        } else {
            Err(no_handshake(head, request, served))
        };
    }
    if has_sessions || matches!(head.version, VersionHeader::Unknown(_)) {
        return check_version(&head.version, served).map(|()| Path::Legacy);
    }
    Err(match message {
        Message::Request(request) => missing_meta(&request.params, false, served),
        Message::Notification(notification) => missing_meta(&notification.params, false, served),
        Message::Answer(_) => no_answers(),
    })
}

/// HTTP-09, and the version header as for a single message. One error for many messages names none of them.
fn check_batch(head: &Head, messages: &[Message], served: Revisions) -> Result<(), Reason> {
    check_version(&head.version, served)?;
    if head.version.modern().is_some() || !served.serves_era(Era::Legacy) {
        return Err(Reason::InvalidRequest("batches are not part of 2026-07-28".into()));
    }
    if messages
        .iter()
        .any(|m| matches!(m, Message::Request(request) if is_handshake(request)))
    {
        return Err(Reason::InvalidRequest("`initialize` cannot be part of a batch".into()));
    }
    let answers = messages.iter().filter(|m| matches!(m, Message::Answer(_))).count();
    if answers != 0 && answers != messages.len() {
        return Err(Reason::InvalidRequest(
            "a batch holds either responses or requests and notifications, not both".into(),
        ));
    }
    Ok(())
}

fn is_handshake(request: &Request) -> bool {
    request.method.as_str() == "initialize"
}

fn unsupported(requested: &str, served: Revisions) -> Reason {
    Reason::UnsupportedVersion {
        requested: requested.to_owned(),
        served,
    }
}

fn no_answers() -> Reason {
    Reason::InvalidRequest(
        "a response cannot be sent in 2026-07-28: the server asks nothing over this connection".into(),
    )
}

/// Names the `_meta` fields that are not there, and to `initialize` the versions that are (VER-08).
fn missing_meta(params: &Params, is_handshake: bool, served: Revisions) -> Reason {
    #[derive(Deserialize)]
    struct WithMeta {
        #[serde(rename = "_meta")]
        meta: Option<BTreeMap<String, IgnoredAny>>,
    }
    let meta = params
        .read()
        .ok()
        .and_then(|WithMeta { meta }| meta)
        .unwrap_or_default();
    let missing = REQUIRED_META.into_iter().filter(|key| !meta.contains_key(*key));
    let mut text = format!("`_meta` lacks {}", missing.collect::<Vec<_>>().join(" and "));
    if is_handshake {
        let served: Vec<_> = served.newest_first().map(Version::as_str).collect();
        text = format!("{text}; versions served here: {}", served.join(", "));
    }
    Reason::MissingMeta(text.into())
}

/// VER-08: what an endpoint without sessions says to a handshake. To refuse a version as unsupported that we list as
/// supported would send the client in circles; who asks for it only lacks the `_meta` that goes with it.
fn no_handshake(head: &Head, request: &Request, served: Revisions) -> Reason {
    #[derive(Deserialize)]
    struct Asked {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    let asked = request.params.read().ok().map(|Asked { version }| version);
    let requested = asked.as_deref().or(head.version.as_str()).unwrap_or_default();
    if requested.parse().is_ok_and(|version| served.serves(version)) {
        return missing_meta(&request.params, true, served);
    }
    unsupported(requested, served)
}

#[cfg(test)]
mod tests {
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

    /// What became of a POST, in the fewest words: where it went, or the code and whether the id came back.
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
            Ok(Admitted::Notice(_)) => Modern,
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

    /// VER-04, T-08, T-09, T-22. The columns: row, H, M, method, and the fate on an endpoint that serves the session
    /// era, both eras, the stateless era.
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
    fn ver_04_row_5_names_what_is_missing_and_tells_initialize_what_is_served() {
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
    fn ver_07_a_session_era_version_in_meta_is_told_the_stateless_ones() {
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
        // Without an id it is no handshake, and nothing that could be answered.
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
}
