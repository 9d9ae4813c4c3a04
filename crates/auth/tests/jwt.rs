//! Every row of the answer table that a JWT alone decides.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

use rethread_auth::{Algorithm, Identity, JwtRules, KeySet, UnverifiedJwt, Verification};
use rethread_proto::auth::{AuthOutcome, ImpliedScopes, Scope, Scopes};
use rethread_proto::clock::Wall;
use rethread_testkit::issuer::{SigningKey, encode};
use serde_json::{Value, json};
use std::time::Duration;

const ISSUER: &str = "https://login.example/realms/corp";
const NOW: u64 = 1_785_196_800;
const LEEWAY: u64 = 30;

fn rules() -> JwtRules {
    JwtRules {
        name: "corp".into(),
        issuer: ISSUER.into(),
        audience: None,
        algorithms: Algorithm::DEFAULT.to_vec(),
    }
}

fn key_set(keys: &[Value]) -> KeySet {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

fn claims() -> Value {
    json!({ "iss": ISSUER, "sub": "ada", "aud": "https://m/mcp", "exp": NOW + 60, "iat": NOW, "scope": "mcp files" })
}

/// The claims with some replaced. Null removes one.
fn with(changes: Value) -> Value {
    let mut claims = claims();
    let all = claims.as_object_mut().unwrap();
    all.extend(changes.as_object().unwrap().clone());
    all.retain(|_, value| !value.is_null());
    claims
}

fn check(token: &str, keys: &KeySet) -> Result<Identity, AuthOutcome> {
    let mut implied = ImpliedScopes::default();
    implied.insert(Scope::parse("files").unwrap(), &Scopes::from_words("files:read"));
    let now = Wall::from_millis(NOW * 1000);
    match UnverifiedJwt::parse(token)?.verify(&rules(), keys, &implied, Duration::from_secs(LEEWAY), now) {
        Verification::Done(done) => done.map(|identity| *identity),
        Verification::UnknownKid => Err(AuthOutcome::Key),
    }
}

#[test]
fn auth_12_each_accepted_algorithm_verifies() {
    let (ec, ed, rsa) = (
        SigningKey::es256("ec"),
        SigningKey::ed25519("ed"),
        SigningKey::rsa("rsa"),
    );
    let keys = key_set(&[ec.jwk(), ed.jwk(), rsa.jwk()]);
    for (key, header) in [
        (&ec, json!({})),
        (&ed, json!({})),
        (&rsa, json!({})),
        (&rsa, json!({ "alg": "PS256" })),
        (&ec, json!({ "typ": null })),
        (&ec, json!({ "typ": "jwt" })),
        (&ec, json!({ "typ": "application/at+jwt" })),
        (&ec, json!({ "kid": null })),
    ] {
        let found = check(&key.token_with(header.clone(), &claims()), &keys);
        let found = found.unwrap_or_else(|outcome| panic!("{header}: {outcome:?}"));
        assert_eq!((found.principal.issuer(), found.principal.subject()), (ISSUER, "ada"));
        assert_eq!(found.scopes.to_string(), "mcp files files:read", "AUTH-16");
        assert_eq!(found.expires, Some(Wall::from_millis((NOW + 60 + LEEWAY) * 1000)));
        let forged = key.token_with(header, &with(json!({ "sub": "bob" })));
        let good = key.token_with(json!({}), &claims());
        let (signed, _) = forged.rsplit_once('.').unwrap();
        let (_, signature) = good.rsplit_once('.').unwrap();
        assert_eq!(
            check(&format!("{signed}.{signature}"), &keys),
            Err(AuthOutcome::Signature)
        );
    }
}

#[test]
fn auth_12_confusion_of_algorithms_and_keys_is_refused() {
    let (ec, rsa) = (SigningKey::es256("ec"), SigningKey::rsa("rsa"));
    let marked = |key: &SigningKey, name: &str, value: &str| {
        let mut jwk = key.jwk();
        jwk[name] = json!(value);
        jwk
    };
    let weak = json!({ "kty": "RSA", "kid": "rsa", "n": "wQ".repeat(85), "e": "AQAB" });
    let oct = json!({ "kty": "oct", "kid": "ec", "k": "c2VjcmV0" });
    let both = [ec.jwk(), rsa.jwk()];
    for (key, header, keys, outcome) in [
        (&ec, json!({ "alg": "none" }), &both[..], AuthOutcome::Algorithm),
        (&ec, json!({ "alg": "None" }), &both, AuthOutcome::Algorithm),
        (&ec, json!({ "alg": "HS256" }), &both, AuthOutcome::Algorithm),
        (&ec, json!({ "alg": "es256" }), &both, AuthOutcome::Algorithm),
        (&ec, json!({ "alg": "ES384" }), &both, AuthOutcome::Algorithm),
        (&ec, json!({ "alg": null }), &both, AuthOutcome::Algorithm),
        (&ec, json!({ "alg": 7 }), &both, AuthOutcome::Algorithm),
        (&ec, json!({ "kid": "rsa" }), &both, AuthOutcome::Algorithm),
        (&rsa, json!({ "kid": "ec" }), &both, AuthOutcome::Algorithm),
        (&rsa, json!({}), &[marked(&rsa, "alg", "PS256")], AuthOutcome::Algorithm),
        (&ec, json!({ "crit": ["exp"] }), &both, AuthOutcome::Algorithm),
        (&ec, json!({ "typ": "secevent+jwt" }), &both, AuthOutcome::Algorithm),
        (&ec, json!({ "typ": "dpop+jwt" }), &both, AuthOutcome::Algorithm),
        (&ec, json!({ "typ": 1 }), &both, AuthOutcome::Algorithm),
        (&ec, json!({ "kid": 7 }), &both, AuthOutcome::Key),
        (
            &ec,
            json!({ "kid": "https://evil.example/key" }),
            &both,
            AuthOutcome::Key,
        ),
        (&ec, json!({ "kid": "../../ec" }), &both, AuthOutcome::Key),
        (&ec, json!({}), &[oct], AuthOutcome::Key),
        (&rsa, json!({}), &[weak], AuthOutcome::Key),
        (&rsa, json!({}), &[marked(&rsa, "use", "enc")], AuthOutcome::Key),
        (&rsa, json!({}), &[marked(&rsa, "alg", "RSA-OAEP")], AuthOutcome::Key),
        (
            &ec,
            json!({ "kid": null }),
            &[ec.jwk(), SigningKey::es256("x").jwk()],
            AuthOutcome::Key,
        ),
        (&ec, json!({}), &[SigningKey::es256("ec").jwk()], AuthOutcome::Signature),
        (&ec, json!({}), &[], AuthOutcome::Key),
    ] {
        let token = key.token_with(header.clone(), &claims());
        assert_eq!(check(&token, &key_set(keys)), Err(outcome), "{header} {keys:?}");
    }
    // Members that point elsewhere change nothing.
    let elsewhere = json!({ "jku": "https://evil.example", "x5u": "https://evil.example", "jwk": ec.jwk() });
    assert!(check(&ec.token_with(elsewhere.clone(), &claims()), &key_set(&both)).is_ok());
    let foreign = SigningKey::es256("ec").token_with(elsewhere, &claims());
    assert_eq!(check(&foreign, &key_set(&both)), Err(AuthOutcome::Signature));
}

#[test]
fn auth_08_times_are_required_numbers_and_have_a_leeway() {
    let key = SigningKey::ed25519("a");
    let keys = key_set(&[key.jwk()]);
    for (changes, outcome) in [
        (json!({ "exp": NOW - LEEWAY + 1 }), None),
        (json!({ "exp": NOW as f64 + 0.5 }), None),
        (json!({ "exp": 1e300 }), None),
        (json!({ "exp": NOW - LEEWAY }), Some(AuthOutcome::Expired)),
        (json!({ "exp": 0 }), Some(AuthOutcome::Expired)),
        (json!({ "exp": -1 }), Some(AuthOutcome::Expired)),
        (json!({ "exp": null }), Some(AuthOutcome::Expired)),
        (json!({ "exp": (NOW + 60).to_string() }), Some(AuthOutcome::Expired)),
        (json!({ "nbf": NOW + LEEWAY }), None),
        (json!({ "nbf": NOW + LEEWAY + 1 }), Some(AuthOutcome::Early)),
        (json!({ "nbf": "soon" }), Some(AuthOutcome::Early)),
        (json!({ "iat": NOW + LEEWAY }), None),
        (json!({ "iat": NOW + LEEWAY + 1 }), Some(AuthOutcome::Early)),
        (json!({ "iat": null }), None),
    ] {
        let found = check(&key.token(&with(changes.clone())), &keys);
        assert_eq!(found.err(), outcome, "{changes}");
    }
}

#[test]
fn auth_10_and_auth_11_issuer_and_subject_are_exact() {
    let key = SigningKey::ed25519("a");
    let keys = key_set(&[key.jwk()]);
    for (changes, outcome) in [
        (json!({ "iss": format!("{ISSUER}/") }), AuthOutcome::Issuer),
        (json!({ "iss": ISSUER.to_uppercase() }), AuthOutcome::Issuer),
        (json!({ "iss": [ISSUER] }), AuthOutcome::Issuer),
        (json!({ "iss": null }), AuthOutcome::Issuer),
        (json!({ "sub": null }), AuthOutcome::Subject),
        (json!({ "sub": "" }), AuthOutcome::Subject),
        (json!({ "sub": 7 }), AuthOutcome::Subject),
    ] {
        let found = check(&key.token(&with(changes.clone())), &keys);
        assert_eq!(found, Err(outcome), "{changes}");
    }
}

#[test]
fn auth_14_scopes_are_text_or_lists_under_two_names() {
    let key = SigningKey::ed25519("a");
    let keys = key_set(&[key.jwk()]);
    for (changes, scopes) in [
        (json!({ "scope": "a b" }), "a b"),
        (json!({ "scope": ["a", "b c"] }), "a b c"),
        (json!({ "scope": null, "scp": "a" }), "a"),
        (json!({ "scope": null, "scp": ["a", 7] }), "a"),
        (json!({ "scope": 7 }), ""),
        (json!({ "scope": null }), ""),
    ] {
        let found = check(&key.token(&with(changes.clone())), &keys).unwrap();
        assert_eq!(found.scopes.to_string(), scopes, "{changes}");
    }
}

#[test]
fn auth_07_anything_but_a_compact_jws_is_unknown() {
    let key = SigningKey::ed25519("a");
    let keys = key_set(&[key.jwk()]);
    let good = key.token(&claims());
    let parts: Vec<_> = good.split('.').collect();
    let (header, payload, signature) = (parts[0], parts[1], parts[2]);
    let text = encode(&json!("text"));
    let list = encode(&json!([1]));
    for token in [
        "",
        "abc",
        ".",
        "..",
        "a.b.c",
        &format!("{header}.{payload}"),
        &format!("{good}.x.y"),
        &format!("{good}.x"),
        &format!("{header}.{payload}.!"),
        &format!("{header}.{payload}.{signature}="),
        &format!("{text}.{payload}.{signature}"),
        &format!("{header}.{text}.{signature}"),
        &format!("{header}.{list}.{signature}"),
        &format!("{header}.{payload}.{}", "A".repeat(17_000)),
    ] {
        assert_eq!(check(token, &keys), Err(AuthOutcome::Unknown), "{token}");
    }
    // An empty signature is a form of its own, and never verifies.
    assert_eq!(
        check(&format!("{header}.{payload}."), &keys),
        Err(AuthOutcome::Signature)
    );
    assert!(!format!("{:?}", UnverifiedJwt::parse(&good).unwrap()).contains(payload));
}

proptest::proptest! {
    /// AUTH-07: no text panics, and none is accepted.
    #[test]
    fn auth_07_random_tokens_are_refused(token in "[A-Za-z0-9._-]{0,200}", json in "\\PC{0,80}") {
        let key = SigningKey::ed25519("a");
        let keys = key_set(&[key.jwk()]);
        proptest::prop_assert!(check(&token, &keys).is_err());
        let part = encode(&Value::String(json.clone()));
        let checked = check(&format!("{part}.{part}.{part}"), &keys);
        proptest::prop_assert!(checked.is_err());
        let _ = KeySet::parse(json.as_bytes());
    }
}
