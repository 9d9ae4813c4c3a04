//! Tokens: nothing that was not signed is ever accepted, and no token makes the parser or the verifier panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rethread_auth::{Algorithm, JwtRules, KeySet, StaticTokens, TokenDigest, UnverifiedJwt, Verification, parse_token_file};
use rethread_proto::auth::ImpliedScopes;
use rethread_proto::clock::Wall;
use std::sync::LazyLock;
use std::time::Duration;

const NOW: Wall = Wall::from_millis(1_800_000_000_000);

/// Keys whose private halves nobody has: the base point of P-256, and a point of Ed25519.
const KEYS: &str = r#"{"keys":[
    {"kty":"EC","crv":"P-256","kid":"a","x":"axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY","y":"T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"},
    {"kty":"OKP","crv":"Ed25519","kid":"b","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
    {"kty":"oct","kid":"c","k":"c2VjcmV0"}]}"#;

static SET: LazyLock<KeySet> = LazyLock::new(|| KeySet::parse(KEYS.as_bytes()).unwrap_or_default());
static RULES: LazyLock<JwtRules> = LazyLock::new(|| JwtRules {
    name: "fuzz".into(),
    issuer: "https://i".into(),
    audience: None,
    algorithms: vec![Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::EdDSA],
});

fuzz_target!(|input: (&str, &str, &str, &[u8])| {
    let (header, payload, signature, raw) = input;
    // Valid base64 around any text, so that the fuzzer reaches the JSON; and the text itself.
    let jwt = format!("{}.{}.{}", encode(header.as_bytes()), encode(payload.as_bytes()), encode(signature.as_bytes()));
    for token in [jwt.as_str(), header] {
        check(token, &SET);
        if let Ok(keys) = KeySet::parse(raw) {
            check(token, &keys);
        }
        let tokens = StaticTokens::default();
        let found = tokens.look_up(&TokenDigest::of(token), &ImpliedScopes::default(), Duration::ZERO, NOW);
        assert!(found.is_none(), "an empty table knows no token");
    }
    let _ = parse_token_file(payload);
});

fn check(token: &str, keys: &KeySet) {
    let Ok(jwt) = UnverifiedJwt::parse(token) else { return };
    let verified = jwt.verify(&RULES, keys, &ImpliedScopes::default(), Duration::from_secs(30), NOW);
    assert!(!matches!(verified, Verification::Done(Ok(_))), "a token without a signature was accepted: {token}");
}

/// Base64 for URLs, without padding.
fn encode(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0_u32, |word, at| word << 8 | u32::from(chunk.get(at).copied().unwrap_or(0)));
        for digit in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(word >> (18 - 6 * digit)) as usize & 63]));
        }
    }
    text
}
