//! Tokens that the answer table refuses with `invalid_token`, each with its outcome.

use crate::answer_table::{PUBLIC, claims};
use rethread_testkit::issuer::{Issuer, SigningKey, encode, now_seconds};
use serde_json::{Value, json};

/// The issuers and keys of the rows.
pub(crate) struct InvalidTokens {
    pub(crate) issuer: Issuer,
    /// Another provider of the gateway.
    second: Issuer,
    /// Nothing may be fetched from it.
    pub(crate) trap: Issuer,
    /// The key of good tokens.
    pub(crate) key: SigningKey,
    /// Has the `kid` of the good key.
    stranger: SigningKey,
    other: SigningKey,
    foreign: SigningKey,
    /// Published for `PS256` only.
    rsa: SigningKey,
}

/// One row.
pub(crate) struct InvalidToken {
    pub(crate) row: &'static str,
    /// The label of `rethread_auth_total`.
    pub(crate) outcome: &'static str,
    pub(crate) token: String,
}

impl InvalidTokens {
    pub(crate) async fn start() -> Self {
        let table = InvalidTokens {
            issuer: Issuer::start().await,
            second: Issuer::start().await,
            trap: Issuer::start().await,
            key: SigningKey::es256("a"),
            stranger: SigningKey::es256("a"),
            other: SigningKey::es256("other"),
            foreign: SigningKey::es256("foreign"),
            rsa: SigningKey::rsa("r"),
        };
        table.second.publish(&[&table.foreign]);
        let mut encryption = SigningKey::ed25519("enc").jwk();
        encryption["use"] = json!("enc");
        let mut pinned = table.rsa.jwk();
        pinned["alg"] = json!("PS256");
        let oct = json!({ "kty": "oct", "kid": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA" });
        let weak = json!({ "kty": "RSA", "kid": "weak", "n": "wQ".repeat(113), "e": "AQAB" });
        let spare = SigningKey::es256("spare");
        table
            .issuer
            .publish_raw(vec![table.key.jwk(), spare.jwk(), pinned, encryption, oct, weak]);
        table
    }

    /// The configuration of the second provider.
    pub(crate) fn second_provider(&self) -> String {
        format!("[auth.jwt.second]\nissuer = '{}'\ncooldown = '1h'", self.second.url())
    }

    /// All rows.
    pub(crate) fn rows(&self) -> Vec<InvalidToken> {
        let good = claims(&self.issuer, json!({}));
        let now = now_seconds();
        let change = |changes: Value| self.key.token(&claims(&self.issuer, changes));
        let head = |header: Value| self.key.token_with(header, &good);
        let jwe = [
            json!({ "alg": "RSA-OAEP", "enc": "A256GCM" }),
            json!(1),
            json!(2),
            json!(3),
            json!(4),
        ];
        let jwe = jwe.map(|part| encode(&part)).join(".");
        let hmac_with_public_key = {
            // The classic confusion: the public key as the secret of an HMAC.
            let signed = format!("{}.{}", encode(&json!({ "alg": "HS256", "kid": "r" })), encode(&good));
            let secret = hmac(self.rsa.jwk()["n"].as_str().unwrap().as_bytes(), signed.as_bytes());
            format!("{signed}.{secret}")
        };
        let rows = [
            ("unknown", "unknown", "rt_unknown-0123456789".to_owned()),
            ("two parts", "unknown", "a.b".to_owned()),
            ("empty parts", "unknown", "..".to_owned()),
            (
                "not an object",
                "unknown",
                format!("{}.{}.AA", encode(&json!([])), encode(&good)),
            ),
            (
                "payload is a list",
                "unknown",
                format!("{}.{}.AA", encode(&json!({ "alg": "ES256" })), encode(&json!([]))),
            ),
            ("JWE", "unknown", jwe),
            ("signature", "signature", self.stranger.token(&good)),
            (
                "cut signature",
                "signature",
                self.key.token(&good)[..self.key.token(&good).len() - 2].to_owned(),
            ),
            (
                "none",
                "algorithm",
                format!("{}.{}.", encode(&json!({ "alg": "none" })), encode(&good)),
            ),
            ("None", "algorithm", head(json!({ "alg": "None" }))),
            ("HS256 with the public key", "algorithm", hmac_with_public_key),
            (
                "HS256 with an oct key",
                "algorithm",
                head(json!({ "alg": "HS256", "kid": "oct" })),
            ),
            ("oct key", "key", head(json!({ "kid": "oct" }))),
            ("alg of another family", "algorithm", head(json!({ "alg": "RS256" }))),
            ("alg is not the key's own", "algorithm", self.rsa.token(&good)),
            ("alg not in the list", "algorithm", head(json!({ "alg": "ES384" }))),
            ("no alg", "algorithm", head(json!({ "alg": null }))),
            ("crit", "algorithm", head(json!({ "crit": ["exp"] }))),
            ("typ", "algorithm", head(json!({ "typ": "dpop+jwt" }))),
            ("key for encryption", "key", SigningKey::ed25519("enc").token(&good)),
            ("key of another provider", "key", self.foreign.token(&good)),
            ("unknown kid", "key", self.other.token(&good)),
            ("kid is a URL", "key", head(json!({ "kid": self.trap.jwks_url() }))),
            ("kid is a path", "key", head(json!({ "kid": "../../../../dev/null" }))),
            ("kid is a query", "key", head(json!({ "kid": "a' OR '1'='1" }))),
            ("kid is a number", "key", head(json!({ "kid": 1 }))),
            ("kid is a list", "key", head(json!({ "kid": ["a"] }))),
            ("no kid, and two keys fit", "key", head(json!({ "kid": null }))),
            (
                "RSA of 1808 bits",
                "key",
                self.rsa.token_with(json!({ "kid": "weak" }), &good),
            ),
            (
                "jku",
                "signature",
                self.stranger.token_with(json!({ "jku": self.trap.jwks_url() }), &good),
            ),
            (
                "x5u",
                "signature",
                self.stranger.token_with(json!({ "x5u": self.trap.jwks_url() }), &good),
            ),
            (
                "jwk",
                "signature",
                self.stranger.token_with(json!({ "jwk": self.stranger.jwk() }), &good),
            ),
            ("expired", "expired", change(json!({ "exp": now - 40 }))),
            (
                "exp is text",
                "expired",
                change(json!({ "exp": (now + 60).to_string() })),
            ),
            ("no exp", "expired", change(json!({ "exp": null }))),
            ("nbf", "early", change(json!({ "nbf": now + 120 }))),
            ("iat", "early", change(json!({ "iat": now + 120 }))),
            (
                "aud of another server",
                "audience",
                change(json!({ "aud": format!("{PUBLIC}/servers/other/mcp") })),
            ),
            (
                "aud is a prefix",
                "audience",
                change(json!({ "aud": format!("{PUBLIC}/servers/only") })),
            ),
            (
                "aud is longer",
                "audience",
                change(json!({ "aud": format!("{PUBLIC}/servers/only/mcp/x") })),
            ),
            ("aud is a number", "audience", change(json!({ "aud": 1 }))),
            ("no aud", "audience", change(json!({ "aud": null }))),
            ("iss", "issuer", change(json!({ "iss": self.trap.url() }))),
            (
                "iss with a slash",
                "issuer",
                change(json!({ "iss": format!("{}/", self.issuer.url()) })),
            ),
            ("no iss", "issuer", change(json!({ "iss": null }))),
            ("no sub", "subject", change(json!({ "sub": null }))),
            ("empty sub", "subject", change(json!({ "sub": "" }))),
            ("sub is a number", "subject", change(json!({ "sub": 7 }))),
            (
                "long",
                "unknown",
                format!("{}.{}.{}", "a".repeat(3000), "b".repeat(3000), "c".repeat(3000)),
            ),
        ];
        let row = |(row, outcome, token)| InvalidToken { row, outcome, token };
        rows.map(row).into()
    }
}

/// HMAC-SHA-256, as a token has it.
fn hmac(secret: &[u8], message: &[u8]) -> String {
    use base64::Engine as _;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, message))
}
