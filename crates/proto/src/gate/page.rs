//! Recognizes a person who opens the URL of an endpoint in a browser.

use super::accept::names;
use super::head::header::LAST_EVENT_ID;
use http::header::ORIGIN;
use http::{HeaderMap, Method};

/// Whether a request is the navigation of a browser, which a page may answer.
///
/// Only a GET that names `text/html` in `Accept` is. A client of MCP never does, and a request that also names a media type
/// or a header of MCP is not the navigation of a person. Neither is one with `Origin`, which scripts send.
pub fn is_page_request(method: &Method, headers: &HeaderMap) -> bool {
    let is_mcp = |name: &str| name.starts_with("mcp-");
    *method == Method::GET
        && names(headers, "text", "html")
        && !names(headers, "text", "event-stream")
        && !names(headers, "application", "json")
        && !headers.contains_key(ORIGIN)
        && !headers.contains_key(&LAST_EVENT_ID)
        && !headers.keys().any(|name| is_mcp(name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http::header::{ACCEPT, HeaderName};

    /// The value of current Chromium and Firefox.
    const CHROMIUM: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
    const FIREFOX: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

    fn is_page(method: &Method, headers: &[(&'static str, &'static str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        is_page_request(method, &headers.collect())
    }

    #[test]
    fn navigations_of_browsers_get_a_page() {
        for accept in [
            CHROMIUM,
            FIREFOX,
            "text/html",
            "TEXT/HTML; charset=utf-8",
            "*/*;q=0.1, text/html;q=0.2",
        ] {
            assert!(is_page(&Method::GET, &[("accept", accept)]), "{accept}");
        }
    }

    #[test]
    fn other_requests_get_no_page() {
        assert!(!is_page(&Method::GET, &[]));
        for accept in [
            "*/*",
            "text/*",
            "",
            "text/event-stream",
            "application/json, text/event-stream",
            "text/html;q=0",
            "text/html, text/event-stream",
            "text/html, application/json",
            "text/htmlx",
            "application/xhtml+xml, */*",
        ] {
            assert!(!is_page(&Method::GET, &[("accept", accept)]), "{accept}");
        }
        for method in [Method::POST, Method::HEAD, Method::DELETE, Method::OPTIONS] {
            assert!(!is_page(&method, &[(ACCEPT.as_str(), CHROMIUM)]), "{method}");
        }
        for name in [
            "mcp-session-id",
            "mcp-protocol-version",
            "mcp-method",
            "last-event-id",
            "origin",
        ] {
            assert!(!is_page(&Method::GET, &[("accept", CHROMIUM), (name, "x")]), "{name}");
        }
    }
}
