//! A request that another node shall serve.

use crate::session::orphan::OrphanCause;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Method, header};
use rethread_proto::jsonrpc::{RequestId, error_message};
use rethread_proto::sse::write_unnumbered;

/// A request that another node shall serve.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    /// Whether its response ends by itself. A GET and a subscription do not.
    pub(super) has_end: bool,
    /// The end of a body whose serving node dies. Empty if the client resumes the stream.
    pub(super) on_death: Bytes,
}

/// Headers that are checked by the receiving node and are secrets, or that belong to one connection.
const KEPT_BACK: [HeaderName; 7] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::PROXY_AUTHORIZATION,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::CONTENT_LENGTH,
    header::UPGRADE,
];

impl Outgoing {
    /// A request with this head.
    pub(crate) fn new(parts: &Parts) -> Self {
        let headers = parts.headers.iter().filter(|(name, _)| !KEPT_BACK.contains(name));
        let headers =
            headers.filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())));
        Outgoing {
            method: parts.method.as_str().to_owned(),
            target: parts
                .uri
                .path_and_query()
                .map_or("/", |target| target.as_str())
                .to_owned(),
            headers: headers.collect(),
            has_end: parts.method != Method::GET,
            on_death: Bytes::new(),
        }
    }

    /// The same request, whose response does not end by itself.
    pub(crate) fn without_end(&self) -> Self {
        Outgoing {
            has_end: false,
            ..self.clone()
        }
    }

    /// The same request, which gets an error on its id if the serving node dies while it streams.
    pub(crate) fn with_error_on_death(&self, id: &RequestId) -> Self {
        let mut event = Vec::new();
        let error = OrphanCause::Restarted.error();
        write_unnumbered(&mut event, &error_message(Some(id), &error));
        Outgoing {
            on_death: event.into(),
            ..self.clone()
        }
    }
}
