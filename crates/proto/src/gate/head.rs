//! The first half of the gate: all checks that need no body.

use super::accept::{admits, admits_both, is_json_content_type};
use super::header_index::{HeaderIndex, HeaderLine};
use super::origin::{HostPolicy, OriginPolicy};
use crate::principal::SessionId;
use crate::refusal::{Reason, Refusal};
use crate::version::{Era, Revisions, Version};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

/// The header names that MCP adds to HTTP. Revisions write them in different case, which HTTP ignores.
pub mod header {
    use http::HeaderName;

    /// `Mcp-Session-Id`: the session of a request (SES-01).
    pub static MCP_SESSION_ID: HeaderName = HeaderName::from_static(name::MCP_SESSION_ID);
    /// `MCP-Protocol-Version`: the revision of a request (VER-02, VER-04).
    pub static MCP_PROTOCOL_VERSION: HeaderName = HeaderName::from_static(name::MCP_PROTOCOL_VERSION);
    /// `Last-Event-ID`: the last event that a reconnecting client has seen (RES-04).
    pub static LAST_EVENT_ID: HeaderName = HeaderName::from_static(name::LAST_EVENT_ID);

    /// The same names as text.
    pub(crate) mod name {
        pub(crate) const MCP_SESSION_ID: &str = "mcp-session-id";
        pub(crate) const MCP_PROTOCOL_VERSION: &str = "mcp-protocol-version";
        pub(crate) const LAST_EVENT_ID: &str = "last-event-id";
    }
}

/// The policy of the first half of the gate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeadPolicy {
    /// The origins whose pages may call (SEC-01).
    pub origins: OriginPolicy,
    /// The hosts under which this endpoint may be called (SEC-02).
    pub hosts: HostPolicy,
    /// Maximum bytes of all headers together (SEC-06).
    pub max_header_bytes: usize,
    /// Maximum number of headers of a request (SEC-06).
    pub max_headers: usize,
    /// The served revisions. Without one of the legacy era there is neither GET nor DELETE.
    pub revisions: Revisions,
    /// Whether GET is offered.
    pub push: bool,
    /// Whether DELETE is offered (SES-05).
    pub delete: bool,
    /// Texts for refusals that name the setting to change.
    pub hints: AccessHints,
}

/// How the operator of an endpoint allows a host or an origin, for the texts of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessHints {
    /// How an origin is allowed: a verb in the imperative and its object, such as "add it with `--allow-origin`".
    pub origin: &'static str,
    /// How a host is allowed.
    pub host: &'static str,
}

impl AccessHints {
    /// Hints in the words of a program's own options.
    pub const fn new(origin: &'static str, host: &'static str) -> Self {
        AccessHints { origin, host }
    }
}

impl Default for AccessHints {
    /// Names the methods of the library's builder.
    fn default() -> Self {
        AccessHints::new("add it with `allow_origin`", "add it with `allow_host`")
    }
}

impl Default for HeadPolicy {
    fn default() -> Self {
        HeadPolicy {
            origins: OriginPolicy::default(),
            hosts: HostPolicy::default(),
            max_header_bytes: 32 * 1024,
            max_headers: 100,
            revisions: Revisions::BOTH,
            push: true,
            delete: true,
            hints: AccessHints::default(),
        }
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Send a message.
    Post,
    /// Open or resume a stream.
    Get,
    /// End the session.
    Delete,
    /// A preflight request of a browser for a page of an allowed origin (HTTP-14).
    Options,
}

/// The admitted headers of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Head {
    /// The operation.
    pub verb: Verb,
    /// The session.
    pub session: SessionHeader,
    /// The revision.
    pub version: VersionHeader,
    /// The last event seen. A text that cannot be an event id becomes the empty string, which no format accepts: an unknown
    /// id is never an error of the request (RES-07).
    pub last_event_id: Option<String>,
    /// The origin of the calling page, if a page calls. It is allowed, so a response may name it (HTTP-14).
    pub origin: Option<HeaderValue>,
}

/// The content of `Mcp-Session-Id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionHeader {
    /// No header.
    Absent,
    /// A possible session id.
    Id(SessionId),
    /// A text that cannot be a session id. It counts as an unknown session (SES-04).
    Malformed,
}

/// The content of `MCP-Protocol-Version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionHeader {
    /// No header.
    Absent,
    /// A known revision, served or not.
    Known(Version),
    /// Any other text, verbatim. Different lines are joined by `, `.
    Unknown(String),
}

impl VersionHeader {
    /// The text, if there was any.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            VersionHeader::Absent => None,
            VersionHeader::Known(version) => Some(version.as_str()),
            VersionHeader::Unknown(text) => Some(text),
        }
    }

    /// The stateless revision in the header, if it has one.
    pub fn modern(&self) -> Option<Version> {
        match self {
            VersionHeader::Known(version) if version.era() == Era::Modern => Some(*version),
            _ => None,
        }
    }
}

/// Admits a request by its head, or returns a refusal. `Host` and `Origin` are checked first, so that later refusals reveal
/// nothing to other callers (SEC-01).
pub fn admit(method: &Method, uri: &Uri, headers: &HeaderMap, policy: &HeadPolicy) -> Result<Head, Refusal> {
    let lines = HeaderIndex::find(headers);
    if headers.len() > policy.max_headers || lines.bytes > policy.max_header_bytes {
        return Err(Reason::HeadersTooLarge.into()); // SEC-06
    }
    let host = check_host(uri, lines.host, policy)?;
    let origin = check_origin(lines.origin, host, policy)?;
    let version = read_version(headers, lines.version);
    let verb = check_method(method, origin.is_some(), &version, policy)?;
    check_media_types(verb, headers, &lines)?;
    Ok(Head {
        verb,
        session: read_session(headers, lines.session),
        version,
        last_event_id: read_last_event_id(headers, lines.last_event_id),
        origin: origin.cloned(),
    })
}

/// SEC-02. Returns the host if it was checked. HTTP/2 has the name in the URI, HTTP/1 in `Host`.
fn check_host<'a>(uri: &'a Uri, line: HeaderLine<'a>, policy: &HeadPolicy) -> Result<Option<&'a str>, Reason> {
    if policy.hosts == HostPolicy::Any {
        return Ok(None);
    }
    let host = match line.first {
        Some(_) => line.only().and_then(|only| only.to_str().ok()),
        None => uri.authority().map(http::uri::Authority::as_str),
    };
    match host {
        Some(host) if policy.hosts.admits(host) => Ok(Some(host)),
        host => Err(Reason::Host {
            host: host.map_or_else(|| shown(line), shortened),
            hint: policy.hints.host,
        }),
    }
}

/// SEC-01. Returns the origin if there is one.
fn check_origin<'a>(
    line: HeaderLine<'a>,
    host: Option<&str>,
    policy: &HeadPolicy,
) -> Result<Option<&'a HeaderValue>, Reason> {
    match line.first {
        None => Ok(None),
        first if policy.origins == OriginPolicy::Any => Ok(first),
        first => {
            let admits = |origin: &HeaderValue| origin.to_str().is_ok_and(|origin| policy.origins.admits(origin, host));
            let admitted = line.only().is_some_and(admits);
            admitted.then_some(first).ok_or_else(|| Reason::Origin {
                origin: shown(line),
                hint: policy.hints.origin,
            })
        }
    }
}

/// The longest part of a refused header that a refusal repeats, in characters.
const MAX_SHOWN_CHARS: usize = 128;

/// A refused header in the text of a refusal.
fn shown(line: HeaderLine<'_>) -> Box<str> {
    match line.first {
        None => "(none)".into(),
        Some(_) if line.repeated => "(several)".into(),
        Some(value) => shortened(&String::from_utf8_lossy(value.as_bytes())),
    }
}

fn shortened(text: &str) -> Box<str> {
    text.chars().take(MAX_SHOWN_CHARS).collect::<String>().into()
}

/// HTTP-01, VER-09.
fn check_method(
    method: &Method,
    has_origin: bool,
    version: &VersionHeader,
    policy: &HeadPolicy,
) -> Result<Verb, Reason> {
    let has_sessions = policy.revisions.serves_era(Era::Legacy);
    let (get, delete) = (policy.push && has_sessions, policy.delete && has_sessions);
    let verb = match *method {
        Method::POST => Verb::Post,
        Method::GET if get => Verb::Get,
        Method::DELETE if delete => Verb::Delete,
        // Only browsers send preflights, always with an origin. OPTIONS is not a method of the endpoint, so `Allow` does not
        // list it.
        Method::OPTIONS if has_origin => Verb::Options,
        _ => {
            let allow = match (get, delete) {
                (true, true) => "GET, POST, DELETE",
                (true, false) => "GET, POST",
                (false, true) => "POST, DELETE",
                (false, false) => "POST",
            };
            return Err(Reason::Method { allow });
        }
    };
    // VER-09: a stateless revision has no session to listen to or to end.
    if matches!(verb, Verb::Get | Verb::Delete) && version.modern().is_some() {
        return Err(Reason::Method { allow: "POST" });
    }
    Ok(verb)
}

/// HTTP-02, HTTP-03. A POST must accept both forms of a response, because the form is decided while the call runs.
fn check_media_types(verb: Verb, headers: &HeaderMap, lines: &HeaderIndex<'_>) -> Result<(), Reason> {
    let usual = lines.accept.only().is_some_and(admits_both);
    let streams = || usual || admits(headers, "text", "event-stream");
    match verb {
        Verb::Post => {
            if !lines.content_type.only().is_some_and(is_json_content_type) {
                return Err(Reason::UnsupportedMediaType);
            }
            let json = || usual || admits(headers, "application", "json");
            if !json() || !streams() {
                let needs = "application/json and text/event-stream";
                return Err(Reason::NotAcceptable { needs });
            }
        }
        Verb::Get if !streams() => {
            let needs = "text/event-stream";
            return Err(Reason::NotAcceptable { needs });
        }
        Verb::Get | Verb::Delete | Verb::Options => {}
    }
    Ok(())
}

/// The content of a header that should appear once.
enum Single<'a> {
    Absent,
    One(&'a [u8]),
    /// Several lines that differ.
    Several,
}

/// Equal lines count as one, because proxies repeat headers.
fn single<'a>(headers: &'a HeaderMap, line: HeaderLine<'a>, name: &HeaderName) -> Single<'a> {
    let trimmed = |value: &'a HeaderValue| value.as_bytes().trim_ascii();
    match line.first.map(trimmed) {
        None => Single::Absent,
        Some(first) if !line.repeated || headers.get_all(name).iter().map(trimmed).all(|other| other == first) => {
            Single::One(first)
        }
        Some(_) => Single::Several,
    }
}

fn read_session(headers: &HeaderMap, line: HeaderLine<'_>) -> SessionHeader {
    let id = match single(headers, line, &header::MCP_SESSION_ID) {
        Single::Absent => return SessionHeader::Absent,
        Single::One(bytes) => SessionId::from_header(bytes),
        Single::Several => None,
    };
    id.map_or(SessionHeader::Malformed, SessionHeader::Id)
}

fn read_version(headers: &HeaderMap, line: HeaderLine<'_>) -> VersionHeader {
    match single(headers, line, &header::MCP_PROTOCOL_VERSION) {
        Single::Absent => VersionHeader::Absent,
        Single::One(bytes) => match Version::ALL.into_iter().find(|v| v.as_str().as_bytes() == bytes) {
            Some(version) => VersionHeader::Known(version),
            None => VersionHeader::Unknown(String::from_utf8_lossy(bytes).into_owned()),
        },
        Single::Several => {
            let lines = headers.get_all(&header::MCP_PROTOCOL_VERSION).iter();
            let lines: Vec<_> = lines
                .map(|line| String::from_utf8_lossy(line.as_bytes().trim_ascii()))
                .collect();
            VersionHeader::Unknown(lines.join(", "))
        }
    }
}

/// The longest event id that is read, in bytes. A longer one counts as unknown. Ours are shorter.
const MAX_EVENT_ID_BYTES: usize = 256;

fn read_last_event_id(headers: &HeaderMap, line: HeaderLine<'_>) -> Option<String> {
    let bytes = match single(headers, line, &header::LAST_EVENT_ID) {
        Single::Absent | Single::One(b"") => return None,
        Single::One(bytes) => bytes,
        Single::Several => b"",
    };
    let readable = bytes.len() <= MAX_EVENT_ID_BYTES && bytes.iter().all(u8::is_ascii_graphic);
    let text = std::str::from_utf8(bytes).ok().filter(|_| readable);
    Some(text.unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests;
