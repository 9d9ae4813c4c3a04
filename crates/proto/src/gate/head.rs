//! The first half of the gate: everything that can be decided before a byte of body is read.

use super::accept::{admits, admits_both, is_json_content_type};
use super::header_index::{HeaderIndex, HeaderLine};
use super::origin::{HostPolicy, OriginPolicy};
use crate::principal::SessionId;
use crate::refusal::{Reason, Refusal};
use crate::version::{Era, Revisions, Version};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

/// The header names that MCP adds to HTTP. Revisions differ in the case they write them in; HTTP does not care.
pub mod header {
    use http::HeaderName;

    /// `Mcp-Session-Id`: which session a request belongs to (SES-01).
    pub static MCP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
    /// `MCP-Protocol-Version`: which revision a request speaks (VER-02, VER-04).
    pub static MCP_PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
    /// `Last-Event-ID`: the last event that a reconnecting client has seen (RES-04).
    pub static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
}

/// What the first half of the gate lets in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeadPolicy {
    /// Whose pages may call (SEC-01).
    pub origins: OriginPolicy,
    /// Under which names we may be called (SEC-02).
    pub hosts: HostPolicy,
    /// The most bytes that all headers may take together (SEC-06).
    pub max_header_bytes: usize,
    /// The most headers that a request may have (SEC-06).
    pub max_headers: usize,
    /// The revisions served. Without a session-era one there is neither GET nor DELETE.
    pub revisions: Revisions,
    /// Whether GET is offered.
    pub push: bool,
    /// Whether DELETE is offered (SES-05).
    pub delete: bool,
    /// What a refused caller may do about it.
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

/// What the caller wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Send a message.
    Post,
    /// Open or resume a stream.
    Get,
    /// End the session.
    Delete,
    /// Ask, as a browser, whether a page of an allowed origin may call (HTTP-14).
    Options,
}

/// What a request's headers said, once they were let in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Head {
    /// What the caller wants to do.
    pub verb: Verb,
    /// Which session it is about.
    pub session: SessionHeader,
    /// Which revision it speaks.
    pub version: VersionHeader,
    /// The last event seen. Text that cannot be an event id is the empty string, which no format reads as one: an id
    /// we do not recognise is never an error of the request (RES-07).
    pub last_event_id: Option<String>,
    /// The page that calls, if a page does. It is allowed to, so an answer may name it (HTTP-14).
    pub origin: Option<HeaderValue>,
}

/// What `Mcp-Session-Id` said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionHeader {
    /// Nothing.
    Absent,
    /// Something that may be the id of a session.
    Id(SessionId),
    /// Something that cannot be the id of any session, so it means an unknown one (SES-04).
    Malformed,
}

/// What `MCP-Protocol-Version` said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionHeader {
    /// Nothing.
    Absent,
    /// A revision there is, served or not.
    Known(Version),
    /// Something else, verbatim; lines that disagree are joined by `, `.
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

    /// The stateless revision that was named, if one was.
    pub fn modern(&self) -> Option<Version> {
        match self {
            VersionHeader::Known(version) if version.era() == Era::Modern => Some(*version),
            _ => None,
        }
    }
}

/// Lets a request in by its head, or says why not. Nothing is asked of a stranger before `Host` and `Origin` have let
/// them pass, so that no later refusal tells them anything (SEC-01).
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

/// SEC-02. Hands on the host if it was really checked. HTTP/2 has the name in the URI; HTTP/1 has it in `Host`.
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

/// SEC-01. Hands on the origin if there is one.
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

/// A refused header as a refusal names it.
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
        // Only browsers preflight, and they say from where. It is no method of the endpoint, so `Allow` is silent.
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
    // VER-09: who speaks a stateless revision has no session to listen to or to end, whatever else we serve.
    if matches!(verb, Verb::Get | Verb::Delete) && version.modern().is_some() {
        return Err(Reason::Method { allow: "POST" });
    }
    Ok(verb)
}

/// HTTP-02, HTTP-03. A POST must take both forms of an answer, because which one it gets is decided while it runs.
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

/// What a header that should stand once holds.
enum Single<'a> {
    Absent,
    One(&'a [u8]),
    /// Several lines that disagree.
    Several,
}

/// Lines that agree are one line: proxies repeat headers.
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
