//! JSON Web Tokens: parsed first, then matched with a provider and a key, then verified (AUTH-07 to AUTH-12).

use crate::algorithm::Algorithm;
use crate::identity::{Audience, Identity};
use crate::key_set::{KeyChoice, KeySet};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rethread_proto::Principal;
use rethread_proto::auth::{AuthOutcome, ImpliedScopes, Scope, Scopes};
use rethread_proto::clock::Wall;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Longer tokens are not examined.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// The rules of one provider of JWTs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtRules {
    /// The name of the provider.
    pub name: Arc<str>,
    /// Compared byte for byte with `iss`.
    pub issuer: Arc<str>,
    /// Accepted audiences, normalized. `None`: the URLs of the called server.
    pub audience: Option<Arc<[String]>>,
    /// Accepted algorithms.
    pub algorithms: Vec<Algorithm>,
}

/// A token that has the form of a JWT. Nothing in it is verified.
#[derive(Clone)]
pub struct UnverifiedJwt<'a> {
    header: JwtHeader,
    claims: Map<String, Value>,
    /// Header and payload as they were signed.
    signed: &'a str,
    signature: Vec<u8>,
}

/// The token is a secret: `Debug` output hides it.
impl std::fmt::Debug for UnverifiedJwt<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UnverifiedJwt(…)")
    }
}

/// The members of a header that matter. `jku`, `x5u` and `jwk` are not among them: nothing is fetched because of a token.
#[derive(Clone, Deserialize)]
struct JwtHeader {
    alg: Option<Value>,
    kid: Option<Value>,
    typ: Option<Value>,
    crit: Option<Value>,
}

/// The result of a verification with the keys of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// The token is verified, or refused for good.
    Done(Result<Box<Identity>, AuthOutcome>),
    /// The key is not in the set. A newer set may have it.
    UnknownKid,
}

impl<'a> UnverifiedJwt<'a> {
    /// Parses a compact JWS. Anything else is an unknown token.
    pub fn parse(token: &'a str) -> Result<Self, AuthOutcome> {
        let unknown = AuthOutcome::Unknown;
        let (signed, signature) = token.rsplit_once('.').ok_or(unknown)?;
        let (header, payload) = signed.split_once('.').ok_or(unknown)?;
        if token.len() > MAX_TOKEN_BYTES || payload.contains('.') {
            return Err(unknown);
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| unknown);
        let object = |part: &str| serde_json::from_slice::<Map<String, Value>>(&decode(part)?).map_err(|_| unknown);
        let header = serde_json::from_value(Value::Object(object(header)?)).map_err(|_| unknown)?;
        Ok(UnverifiedJwt {
            header,
            claims: object(payload)?,
            signed,
            signature: decode(signature)?,
        })
    }

    /// The issuer that the token claims to have.
    pub fn issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }

    /// Checks everything but the audience, which depends on the server. `rules` are those of [`issuer`](Self::issuer), and `keys`
    /// are the keys of that issuer and of no other.
    pub fn verify(
        &self,
        rules: &JwtRules,
        keys: &KeySet,
        implied: &ImpliedScopes,
        leeway: Duration,
        now: Wall,
    ) -> Verification {
        let (algorithm, kid) = match self.check_header(rules) {
            Ok(header) => header,
            Err(outcome) => return Verification::Done(Err(outcome)),
        };
        let verified = match keys.choose(kid, algorithm) {
            KeyChoice::Key(key) => algorithm.verify(key, self.signed.as_bytes(), &self.signature),
            KeyChoice::UnknownKid => return Verification::UnknownKid,
            KeyChoice::Refused(outcome) => return Verification::Done(Err(outcome)),
        };
        Verification::Done(match verified {
            true => self.identity(rules, implied, leeway, now).map(Box::new),
            false => Err(AuthOutcome::Signature),
        })
    }

    /// The principal of a token that [`verify`](Self::verify) has refused with `outcome`. `None` if the signature was not verified by
    /// then: anyone can write such a token.
    pub fn verified_principal(&self, rules: &JwtRules, outcome: AuthOutcome) -> Option<Principal> {
        let is_verified = matches!(outcome, AuthOutcome::Expired | AuthOutcome::Early);
        let subject = self.subject().filter(|_| is_verified)?;
        Some(Principal::new(Arc::clone(&rules.issuer), subject))
    }

    fn subject(&self) -> Option<&str> {
        let subject = self.claims.get("sub").and_then(Value::as_str);
        subject.filter(|subject| !subject.is_empty())
    }

    fn check_header(&self, rules: &JwtRules) -> Result<(Algorithm, Option<&str>), AuthOutcome> {
        let JwtHeader { alg, kid, typ, crit } = &self.header;
        if self.issuer() != Some(&*rules.issuer) {
            return Err(AuthOutcome::Issuer);
        }
        let is_known_type = |typ: &Value| {
            let names = ["JWT", "at+jwt", "application/at+jwt"];
            typ.as_str()
                .is_some_and(|typ| names.iter().any(|name| name.eq_ignore_ascii_case(typ)))
        };
        if crit.is_some() || !typ.as_ref().is_none_or(is_known_type) {
            return Err(AuthOutcome::Algorithm);
        }
        let algorithm = alg.as_ref().and_then(Value::as_str).and_then(|alg| alg.parse().ok());
        let algorithm = algorithm.filter(|algorithm| rules.algorithms.contains(algorithm));
        let algorithm = algorithm.ok_or(AuthOutcome::Algorithm)?;
        match kid {
            None => Ok((algorithm, None)),
            Some(Value::String(kid)) => Ok((algorithm, Some(kid))),
            Some(_) => Err(AuthOutcome::Key),
        }
    }

    fn identity(
        &self,
        rules: &JwtRules,
        implied: &ImpliedScopes,
        leeway: Duration,
        now: Wall,
    ) -> Result<Identity, AuthOutcome> {
        let expires = self.moment("exp").flatten().ok_or(AuthOutcome::Expired)? + leeway;
        if expires <= now {
            return Err(AuthOutcome::Expired);
        }
        for name in ["nbf", "iat"] {
            let is_early = |moment: Option<Wall>| moment.is_none_or(|moment| moment > now + leeway);
            if self.moment(name).is_some_and(is_early) {
                return Err(AuthOutcome::Early);
            }
        }
        let subject = self.subject().ok_or(AuthOutcome::Subject)?;
        let principal = Principal::new(Arc::clone(&rules.issuer), subject);
        let mut identity = Identity::new(principal, Arc::clone(&rules.name), self.scopes(implied), Some(expires));
        identity.audience = Some(Audience {
            claimed: texts(self.claims.get("aud")).map(str::to_owned).collect(),
            accepted: rules.audience.clone(),
        });
        Ok(identity)
    }

    /// A moment in seconds. `None` if the claim is absent, `Some(None)` if it is not a number. Null is not a number.
    fn moment(&self, name: &str) -> Option<Option<Wall>> {
        let claim = self.claims.get(name)?;
        // Out of range is the nearest value: such a token expires never, or is expired.
        Some(
            claim
                .as_f64()
                .map(|seconds| Wall::from_millis((seconds * 1000.0) as u64)),
        )
    }

    fn scopes(&self, implied: &ImpliedScopes) -> Scopes {
        let claims = [self.claims.get("scope"), self.claims.get("scp")];
        let words = claims.into_iter().flat_map(texts).flat_map(|text| text.split(' '));
        implied.extend(words.filter_map(Scope::parse).collect())
    }
}

/// A text, or the texts of a list.
fn texts(claim: Option<&Value>) -> impl Iterator<Item = &str> {
    let list = match claim {
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    list.iter().filter_map(Value::as_str)
}
