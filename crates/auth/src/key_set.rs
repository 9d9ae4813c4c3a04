//! The public keys of an issuer (RFC 7517).

use crate::algorithm::{Algorithm, KeyFamily};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rethread_proto::auth::AuthOutcome;
use serde::Deserialize;
use serde_json::Value;

/// Further keys of a set are ignored.
const MAX_KEYS: usize = 256;
const MIN_RSA_BITS: usize = 2048;
const MAX_RSA_BITS: usize = 8192;

/// The keys of one issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet {
    keys: Vec<PublicKey>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PublicKey {
    kid: Option<String>,
    /// The only algorithm that the key is for.
    algorithm: Option<Algorithm>,
    /// `None`: the key is published, but must not verify anything (AUTH-12).
    material: Option<KeyMaterial>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyMaterial {
    family: KeyFamily,
    /// In the encoding that the verification takes.
    bytes: Vec<u8>,
}

/// The text is not a key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON Web Key Set")]
pub struct NotAKeySet;

/// A key that fits a token, or the reason why none does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyChoice<'a> {
    /// The encoded key.
    Key(&'a [u8]),
    /// Another set may have the key.
    UnknownKid,
    Refused(AuthOutcome),
}

#[derive(Deserialize)]
struct RawSet {
    keys: Vec<Value>,
}

impl KeySet {
    /// Parses a key set. Keys of unknown kinds are ignored, as the RFC requires.
    pub fn parse(json: &[u8]) -> Result<Self, NotAKeySet> {
        let set: RawSet = serde_json::from_slice(json).map_err(|_| NotAKeySet)?;
        let keys = set.keys.iter().take(MAX_KEYS).filter_map(PublicKey::read);
        Ok(KeySet { keys: keys.collect() })
    }

    /// The number of usable keys.
    pub fn len(&self) -> usize {
        self.keys.iter().filter(|key| key.material.is_some()).count()
    }

    /// Whether no key is usable.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key of a token. Without a `kid`, the only key that fits the algorithm.
    pub(crate) fn choose(&self, kid: Option<&str>, algorithm: Algorithm) -> KeyChoice<'_> {
        let fits = |key: &&PublicKey| key.fits(algorithm).is_ok();
        let Some(kid) = kid else {
            let mut fitting = self.keys.iter().filter(fits);
            return match (fitting.next(), fitting.next()) {
                (Some(only), None) => only.choice(algorithm),
                _ => KeyChoice::Refused(AuthOutcome::Key),
            };
        };
        let mut named = self.keys.iter().filter(|key| key.kid.as_deref() == Some(kid));
        // A set may have several keys of one name, one for each algorithm.
        match named.clone().find(fits).or_else(|| named.next()) {
            Some(key) => key.choice(algorithm),
            None => KeyChoice::UnknownKid,
        }
    }
}

impl PublicKey {
    fn read(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok();
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => rsa(&bytes("n")?, &bytes("e")?),
            ("EC", Some("P-256")) => point(KeyFamily::P256, 32, &bytes("x")?, &bytes("y")?),
            ("EC", Some("P-384")) => point(KeyFamily::P384, 48, &bytes("x")?, &bytes("y")?),
            ("OKP", Some("Ed25519")) => Some((KeyFamily::Ed25519, bytes("x")?)).filter(|(_, x)| x.len() == 32),
            ("oct", _) => None,
            _ => return None,
        };
        let is_for_signatures = value.get("use").is_none_or(|usage| usage == "sig");
        let verifies = value.get("key_ops").and_then(Value::as_array);
        let verifies = verifies.is_none_or(|operations| operations.iter().any(|operation| operation == "verify"));
        // An algorithm that is not known here makes the key unusable, not usable for any.
        let algorithm = match value.get("alg") {
            None => Ok(None),
            Some(name) => name.as_str().unwrap_or_default().parse().map(Some),
        };
        let is_usable = is_for_signatures && verifies && algorithm.is_ok();
        Some(PublicKey {
            kid: text("kid").map(str::to_owned),
            algorithm: algorithm.unwrap_or(None),
            material: material
                .filter(|_| is_usable)
                .map(|(family, bytes)| KeyMaterial { family, bytes }),
        })
    }

    fn fits(&self, algorithm: Algorithm) -> Result<&[u8], AuthOutcome> {
        let material = self.material.as_ref().ok_or(AuthOutcome::Key)?;
        let is_own = self.algorithm.is_none_or(|own| own == algorithm);
        if material.family == algorithm.family() && is_own {
            Ok(&material.bytes)
        } else {
            Err(AuthOutcome::Algorithm)
        }
    }

    fn choice(&self, algorithm: Algorithm) -> KeyChoice<'_> {
        match self.fits(algorithm) {
            Ok(key) => KeyChoice::Key(key),
            Err(outcome) => KeyChoice::Refused(outcome),
        }
    }
}

/// The DER encoding of an RSA key, if it is long enough.
fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<(KeyFamily, Vec<u8>)> {
    let modulus = without_zeros(modulus);
    let exponent = without_zeros(exponent);
    let bits = modulus.len() * 8 - modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
    let fits = (MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits) && !exponent.is_empty();
    fits.then(|| {
        let content = [der(0x02, &unsigned(modulus)), der(0x02, &unsigned(exponent))].concat();
        (KeyFamily::Rsa, der(0x30, &content))
    })
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let first = number.iter().position(|byte| *byte != 0);
    &number[first.unwrap_or(number.len())..]
}

/// A positive integer of DER: the first bit is the sign.
fn unsigned(number: &[u8]) -> Vec<u8> {
    let needs_zero = number.first().is_none_or(|byte| byte & 0x80 != 0);
    let zero = if needs_zero { &[0][..] } else { &[] };
    [zero, number].concat()
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut encoded = vec![tag];
    if length < 0x80 {
        encoded.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let bytes = without_zeros(&bytes);
        encoded.push(0x80 | bytes.len() as u8);
        encoded.extend_from_slice(bytes);
    }
    encoded.extend_from_slice(content);
    encoded
}

/// An uncompressed point of a curve.
fn point(family: KeyFamily, size: usize, x: &[u8], y: &[u8]) -> Option<(KeyFamily, Vec<u8>)> {
    (x.len() == size && y.len() == size).then(|| (family, [&[4][..], x, y].concat()))
}
