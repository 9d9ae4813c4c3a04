//! The console page: three files, without data. The page asks the API for everything, with the token of the operator.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;

const HTML: &[u8] = include_bytes!("page/index.html");
const STYLE: &[u8] = include_bytes!("page/console.css");
const SCRIPT: &[u8] = include_bytes!("page/console.js");

/// Nothing of another origin, nothing inline, no form, no frame (OPS-13).
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The response to a path of the page. `None` for any other path.
pub(super) fn respond(method: &Method, path: &str) -> Option<Response<Full<Bytes>>> {
    let (content_type, body) = match path {
        "/" => ("text/html; charset=utf-8", HTML),
        "/console.css" => ("text/css; charset=utf-8", STYLE),
        "/console.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/favicon.ico" => ("image/x-icon", &[][..]), // browsers ask for it, and would report a 401
        _ => return None,
    };
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let body = if is_read {
        body
    } else {
        b"method not allowed; this path takes GET and HEAD\n"
    };
    let mut response = Response::new(Full::from(Bytes::from_static(body)));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"), // a new version must not meet an old script
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !is_read {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        let headers = response.headers_mut();
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OPS-13: the page needs nothing that its policy forbids, and sets text only as text.
    #[test]
    fn ops_13_page_has_no_inline_code_and_no_foreign_address() {
        let html = std::str::from_utf8(HTML).unwrap();
        let script = std::str::from_utf8(SCRIPT).unwrap();
        let style = std::str::from_utf8(STYLE).unwrap();
        for text in [html, script, style] {
            for forbidden in ["http://", "https://", "//cdn", "@import", "url("] {
                assert!(
                    !text.replace("http://www.w3.org/2000/svg", "").contains(forbidden),
                    "{forbidden}"
                );
            }
        }
        for forbidden in ["style=", "<style", "onclick", "onload", "javascript:"] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "localStorage",
            "document.cookie",
        ] {
            assert!(!script.contains(forbidden), "{forbidden}");
        }
        assert_eq!(html.matches("<script").count(), 1);
    }
}
