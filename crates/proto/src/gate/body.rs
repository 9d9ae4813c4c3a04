//! The second half of the gate: settles version and era of a parsed message, once.

use super::head::{Head, SessionHeader, VersionHeader};
use super::mirror::Stateless;
use crate::jsonrpc::{Message, Notification, Params, Payload, Request};
use crate::refusal::{Reason, Refusal};
use crate::version::{Era, Revisions, Version};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// The `_meta` keys that every stateless request must have.
const REQUIRED_META: [&str; 2] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
];

/// An admitted POST.
#[derive(Clone, Debug)]
pub enum Admitted {
    /// The handshake that opens a session. A session header beside it is ignored (SES-07).
    Initialize(Request),
    /// Messages of the legacy era. A batch contains either requests and notifications, or answers. The code that knows the
    /// session checks whether its revision has batches (HTTP-10), and whether a session is named (SES-03).
    Legacy(Payload),
    /// A stateless request. Header and `_meta` agree on the version. The modern endpoint checks the other requirements of
    /// VER-05: capabilities, `Mcp-Method` and the other mirrored headers.
    Modern {
        /// The revision of the request, which is served.
        version: Version,
        /// The request.
        request: Request,
        /// The parsed params, for this table and all later code, or the reason why they are invalid.
        parts: Result<Box<Stateless>, Reason>,
    },
    /// A stateless notification.
    Notification(Notification),
}

/// Classifies a POST, or returns the reason for its refusal (VER-04).
///
/// H is the version header, M the version in `_meta`. The first row that fits decides.
///
/// | # | condition | outcome |
/// |---|---|---|
/// | 1 | M, no H | `HeaderMismatch` |
/// | 2 | M, H differs | `HeaderMismatch`, even if M is unknown |
/// | 3 | H = M, not a stateless revision we serve | `UnsupportedVersion` |
/// | 4 | H = M, served | [`Admitted::Modern`], also for `initialize` |
/// | 5 | no M, H stateless; or no M, H or session, and a method only stateless revisions have | `MissingMeta` |
/// | 6 | no M, `initialize` | [`Admitted::Initialize`], independent of H (VER-03, T-09, T-22) |
/// | 7 | no M, H absent or of the session era | [`Admitted::Legacy`] |
/// | 8 | no M, H unknown | `UnsupportedVersion` |
///
/// Only requests must have M. In row 5 a notification is therefore admitted on its header alone, since the schema of
/// 2026-07-28 gives notifications no version in `_meta`. An answer is an `InvalidRequest` (HTTP-06).
///
/// An endpoint without the stateless era refuses that revision as `UnsupportedVersion` before all rows, in H and in M. An
/// `initialize` without M still is a handshake. An endpoint without the legacy era has no rows 6 and 7: `initialize` gets the
/// served versions (VER-08), other messages get row 5.
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
                    Message::Notification(notification) => Ok(Admitted::Notification(notification)),
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

/// Checks that a GET or a DELETE names a served revision (VER-02). The head has already refused both on stateless revisions
/// (VER-09).
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
            // T-09: a handshake negotiates, so its header may name a revision that is not served.
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

/// HTTP-09, and the version header as for a single message. One error for many messages has no id.
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

/// Names the missing `_meta` fields, and for `initialize` the served versions (VER-08).
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

/// VER-08: the refusal of a handshake by an endpoint without sessions. A refusal of a version that is also listed as
/// supported would make the client retry for ever. Such a client only lacks the `_meta` of that version.
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
mod tests;
