//! The headers that the gate reads, found in one pass. A look-up for each would hash each name.

use super::head::header;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The lines of these headers.
#[derive(Default)]
pub(super) struct HeaderIndex<'a> {
    pub(super) host: HeaderLine<'a>,
    pub(super) origin: HeaderLine<'a>,
    pub(super) content_type: HeaderLine<'a>,
    pub(super) accept: HeaderLine<'a>,
    pub(super) session: HeaderLine<'a>,
    pub(super) version: HeaderLine<'a>,
    pub(super) last_event_id: HeaderLine<'a>,
    /// Bytes of all headers on an HTTP/1 wire: `name: value` and the end of the line.
    pub(super) bytes: usize,
}

/// A header that should appear once: its first line, and whether there are more.
#[derive(Clone, Copy, Default)]
pub(super) struct HeaderLine<'a> {
    pub(super) first: Option<&'a HeaderValue>,
    pub(super) repeated: bool,
}

impl<'a> HeaderLine<'a> {
    /// The one line, if there is exactly one.
    pub(super) fn only(self) -> Option<&'a HeaderValue> {
        self.first.filter(|_| !self.repeated)
    }
}

impl<'a> HeaderIndex<'a> {
    pub(super) fn find(headers: &'a HeaderMap) -> Self {
        let mut lines = HeaderIndex::default();
        for (name, value) in headers {
            lines.bytes += name.as_str().len() + value.len() + 4;
            if let Some(line) = lines.line(name) {
                line.repeated = line.first.is_some();
                line.first.get_or_insert(value);
            }
        }
        lines
    }

    fn line(&mut self, name: &HeaderName) -> Option<&mut HeaderLine<'a>> {
        // Constants of text: the compiler compares their lengths first, which differ.
        Some(match name.as_str() {
            "host" => &mut self.host,
            "origin" => &mut self.origin,
            "content-type" => &mut self.content_type,
            "accept" => &mut self.accept,
            header::name::MCP_SESSION_ID => &mut self.session,
            header::name::MCP_PROTOCOL_VERSION => &mut self.version,
            header::name::LAST_EVENT_ID => &mut self.last_event_id,
            _ => return None,
        })
    }
}
