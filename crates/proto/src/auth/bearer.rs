//! The token of a request: one `Authorization` header with the scheme `Bearer` (RFC 6750, section 2.1).

use http::{HeaderMap, Uri, header};

/// The credentials of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Credentials<'a> {
    /// None, or those of another scheme.
    Absent,
    /// A bearer token.
    Token(&'a str),
}

/// The token is a secret: `Debug` output hides it.
impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credentials::Absent => "Absent",
            Credentials::Token(_) => "Token(…)",
        })
    }
}

/// The form of the credentials is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedAuthorization;

/// A bearer token of a request whose form is not checked yet. A token that was accepted before had the right form, so a cache
/// that knows all its bytes need not check them again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PresentedToken<'a>(&'a [u8]);

impl<'a> PresentedToken<'a> {
    /// All bytes behind the scheme.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The token, if it is one `b64token`.
    pub fn check(self) -> Result<&'a str, MalformedAuthorization> {
        match std::str::from_utf8(self.0) {
            Ok(text) if is_b64token(self.0) => Ok(text),
            _ => Err(MalformedAuthorization),
        }
    }
}

/// The token is a secret: `Debug` output hides it.
impl std::fmt::Debug for PresentedToken<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PresentedToken(…)")
    }
}

/// Finds the token of a request (AUTH-05, AUTH-06). A token in the query is refused even beside a good header: URLs are logged.
pub fn credentials<'a>(uri: &Uri, headers: &'a HeaderMap) -> Result<Credentials<'a>, MalformedAuthorization> {
    match presented_token(uri, headers)? {
        Some(token) => token.check().map(Credentials::Token),
        None => Ok(Credentials::Absent),
    }
}

/// The same without a check of the form of the token. `None` if there is none, or one of another scheme.
pub fn presented_token<'a>(
    uri: &Uri,
    headers: &'a HeaderMap,
) -> Result<Option<PresentedToken<'a>>, MalformedAuthorization> {
    if uri.query().is_some_and(has_access_token) {
        return Err(MalformedAuthorization);
    }
    let mut lines = headers.get_all(header::AUTHORIZATION).iter();
    let (line, further) = (lines.next(), lines.next());
    let Some(line) = line else { return Ok(None) };
    if further.is_some() {
        return Err(MalformedAuthorization);
    }
    let line = line.as_bytes();
    let (scheme, rest) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()));
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer");
    Ok(is_bearer.then(|| PresentedToken(rest.trim_ascii_start())))
}

/// `b64token` of RFC 6750: the padding is at the end only.
fn is_b64token(token: &[u8]) -> bool {
    let padding = token.iter().rev().take_while(|byte| **byte == b'=').count();
    let body = &token[..token.len() - padding];
    // Without branches, so that the compiler compares many bytes at once: every request has a token.
    let fits = |byte: u8| {
        let is_letter = (byte | 0x20).wrapping_sub(b'a') < 26;
        let is_sign_or_digit = byte.wrapping_sub(b'-') <= b'9' - b'-'; // - . / and digits
        is_letter | is_sign_or_digit | (byte == b'+') | (byte == b'_') | (byte == b'~')
    };
    !body.is_empty() && body.iter().fold(true, |fit, byte| fit & fits(*byte))
}

/// Whether a query has a parameter `access_token`, also if its name is percent-encoded.
fn has_access_token(query: &str) -> bool {
    query.split(['&', ';']).any(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        decodes_to(name.as_bytes(), b"access_token")
    })
}

fn decodes_to(mut encoded: &[u8], expected: &[u8]) -> bool {
    let hex = |byte: u8| char::from(byte).to_digit(16);
    for byte in expected {
        let (decoded, rest) = match encoded {
            [b'%', high, low, rest @ ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, rest),
                _ => return false,
            },
            [plain, rest @ ..] => (u32::from(*plain), rest),
            [] => return false,
        };
        if decoded != u32::from(*byte) {
            return false;
        }
        encoded = rest;
    }
    encoded.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn find(lines: &[&str], target: &str) -> Result<Option<String>, MalformedAuthorization> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::AUTHORIZATION, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        credentials(&target.parse().unwrap(), &headers).map(|found| match found {
            Credentials::Absent => None,
            Credentials::Token(token) => Some(token.to_owned()),
        })
    }

    #[test]
    fn auth_05_exactly_one_header_with_one_b64token() {
        let token = |text: &str| Ok(Some(text.to_owned()));
        for (lines, expected) in [
            (&[][..], Ok(None)),
            (&["Basic YTpi"], Ok(None)),
            (&["Bearerx abc"], Ok(None)),
            (&[""], Ok(None)),
            (&["Bearer abc"], token("abc")),
            (&["bEaReR abc"], token("abc")),
            (&["Bearer   abc"], token("abc")),
            (&["Bearer a-._~+/9=="], token("a-._~+/9==")),
            (&["Bearer"], Err(MalformedAuthorization)),
            (&["Bearer "], Err(MalformedAuthorization)),
            (&["Bearer =="], Err(MalformedAuthorization)),
            (&["Bearer a=b"], Err(MalformedAuthorization)),
            (&["Bearer a b"], Err(MalformedAuthorization)),
            (&["Bearer a,b"], Err(MalformedAuthorization)),
            (&["Bearer a "], Err(MalformedAuthorization)),
            (&["Bearer \"a\""], Err(MalformedAuthorization)),
            (&["Bearer ä"], Err(MalformedAuthorization)),
            (&["Bearer a", "Bearer a"], Err(MalformedAuthorization)),
            (&["Bearer a", "Basic YTpi"], Err(MalformedAuthorization)),
        ] {
            assert_eq!(find(lines, "/mcp"), expected, "{lines:?}");
        }
    }

    #[test]
    fn auth_06_token_in_the_query_is_refused_beside_a_good_header() {
        for query in [
            "access_token=abc",
            "access_token",
            "a=b&access_token=",
            "a=b;access_token=x",
            "%61ccess_token=abc",
            "access%5Ftoken=abc",
            "access%5ftoken=abc",
        ] {
            let target = format!("/mcp?{query}");
            assert_eq!(find(&["Bearer abc"], &target), Err(MalformedAuthorization), "{query}");
            assert_eq!(find(&[], &target), Err(MalformedAuthorization), "{query}");
        }
        for query in [
            "sessionId=access_token",
            "access_tokens=a",
            "xaccess_token=a",
            "access%5",
            "access%zztoken=",
        ] {
            assert!(find(&["Bearer abc"], &format!("/mcp?{query}")).is_ok(), "{query}");
        }
    }

    #[test]
    fn sec_07_debug_output_does_not_reveal_the_token() {
        assert!(!format!("{:?}", Credentials::Token("secret")).contains("secret"));
        assert!(!format!("{:?}", PresentedToken(b"secret")).contains("secret"));
    }
}
