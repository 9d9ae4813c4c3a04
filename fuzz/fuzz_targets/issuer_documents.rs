//! Documents of an issuer: metadata and key sets. Nothing panics, and keys of a secure issuer are never fetched without TLS.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rethread_auth::{AllowEntry, KeySet, ToolPattern, key_set_url, metadata_urls, parse_date};

fuzz_target!(|input: (&str, &[u8], &str)| {
    let (issuer, document, uri) = input;
    if let Ok(keys) = KeySet::parse(document) {
        assert_eq!(keys.is_empty(), keys.len() == 0);
        assert_eq!(KeySet::parse(document), Ok(keys), "the same text is the same set");
    }
    let metadata = serde_json::json!({ "issuer": issuer, "jwks_uri": uri }).to_string();
    for document in [document, metadata.as_bytes()] {
        if let Some(url) = key_set_url(issuer, document) {
            assert!(url.starts_with("https://") || issuer.starts_with("http://"), "{issuer} {url}");
        }
    }
    for url in metadata_urls(issuer) {
        let (scheme, _) = issuer.split_once("://").unwrap_or_default();
        assert!(url.starts_with(scheme) && url.contains("/.well-known/"), "{url}");
    }
    let _ = (parse_date(uri), AllowEntry::parse(uri), ToolPattern::parse(uri));
});
