//! The `Authorization` header and the query: the parser never panics, finds at most one token, and finds only what was sent.
#![no_main]

use http::{HeaderMap, HeaderValue, Uri, header};
use libfuzzer_sys::fuzz_target;
use rethread_proto::auth::{Challenge, ChallengeError, Credentials, Scopes, accepts_audience, credentials, normalized_url};

fuzz_target!(|input: (Vec<Vec<u8>>, &str, &str)| {
    let (lines, query, text) = input;
    let mut headers = HeaderMap::new();
    for line in lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok()) {
        headers.append(header::AUTHORIZATION, line);
    }
    let uri = Uri::builder().path_and_query(format!("/mcp?{query}")).build();
    let uri = uri.unwrap_or_else(|_| Uri::from_static("/mcp"));
    if let Ok(Credentials::Token(token)) = credentials(&uri, &headers) {
        assert_eq!(headers.get_all(header::AUTHORIZATION).iter().count(), 1);
        let line = headers[header::AUTHORIZATION].as_bytes();
        assert!(line.ends_with(token.as_bytes()) && line[..6].eq_ignore_ascii_case(b"bearer"));
        assert!(token.bytes().all(|byte| byte.is_ascii_graphic()));
        assert!(!uri.query().unwrap_or_default().contains("access_token="));
    }

    // A challenge is one valid header whatever the configuration has, with balanced quotes.
    for error in [None, Some(ChallengeError::InvalidToken)] {
        let challenge = Challenge::new(Scopes::from_words(query), Some(text.into())).header(error);
        let quotes = challenge.as_bytes().iter().filter(|byte| **byte == b'"').count();
        assert_eq!(quotes % 2, 0, "{challenge:?}");
    }

    // An audience is accepted exactly if both are equal after normalization.
    let normal = normalized_url(text);
    assert_eq!(accepts_audience(std::slice::from_ref(&normal), [query]), normalized_url(query) == normal);
});
