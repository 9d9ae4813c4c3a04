//! The sealed `requestState`. The client holds it and must return it unchanged (MRTR-05).

use super::claims::{Binding, Claims, Invalid, State, StateTooLong};
use crate::clock::Wall;
use crate::cluster::Incarnation;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305};
use std::fmt;

/// The version of the format. It is authenticated too, so that a later format cannot be passed off as this one.
const PREFIX: &str = "v1.";
/// The prefix of a relay. It distinguishes the relay's own states from those of the server behind it, also after its key has
/// changed in a restart (RST-05).
const RELAY_PREFIX: &str = "rethread-relay-v1.";
pub(super) const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// Expiry, principal, request, and the kind of the state.
const HEAD_BYTES: usize = 8 + 32 + 32 + 1;
const PARKED: u8 = 0;
const OWN: u8 = 1;

/// Seals and opens request states with one key. Nodes that share the key accept each other's states.
#[derive(Clone)]
pub struct Seal {
    pub(super) cipher: XChaCha20Poly1305,
    prefix: &'static str,
}

impl Seal {
    /// The longest sealed text, in bytes. A longer one is refused unread.
    pub const MAX_TEXT_BYTES: usize = 64 * 1024;

    /// The longest state of a handler, in bytes. A longer one is not sealed.
    pub const MAX_OWN_BYTES: usize =
        (Self::MAX_TEXT_BYTES - RELAY_PREFIX.len()) * 3 / 4 - NONCE_BYTES - TAG_BYTES - HEAD_BYTES - size_of::<u32>();

    /// A seal with a secret key.
    pub fn new(key: [u8; 32]) -> Self {
        Seal {
            cipher: XChaCha20Poly1305::new(&key.into()),
            prefix: PREFIX,
        }
    }

    /// The seal of a relay, with a secret key. Its states [look](Self::looks_sealed) different from those of a server that is
    /// not a relay.
    pub fn for_relay(key: [u8; 32]) -> Self {
        Seal {
            prefix: RELAY_PREFIX,
            ..Self::new(key)
        }
    }

    /// The same kind of seal with another secret key.
    #[must_use]
    pub fn with_key(&self, key: [u8; 32]) -> Self {
        Seal {
            prefix: self.prefix,
            ..Self::new(key)
        }
    }

    /// Whether `text` has the format of this seal. It may be forged, or sealed under another key.
    pub fn looks_sealed(&self, text: &str) -> bool {
        text.starts_with(self.prefix)
    }

    /// Seals `claims`. The nonce must be random. Its length makes collisions between nodes negligible.
    pub fn seal(&self, nonce: [u8; NONCE_BYTES], claims: &Claims<'_>) -> Result<String, StateTooLong> {
        let mut plain = Vec::with_capacity(HEAD_BYTES + 32);
        plain.extend_from_slice(&claims.expires.as_millis().to_be_bytes());
        plain.extend_from_slice(&claims.binding.principal_digest());
        plain.extend_from_slice(&claims.binding.call_digest());
        match &claims.state {
            State::Parked { id, round, node } => {
                plain.push(PARKED);
                plain.extend_from_slice(&round.to_be_bytes());
                plain.extend_from_slice(&id.to_be_bytes());
                plain.extend_from_slice(node.as_ref().map_or("", Incarnation::as_str).as_bytes());
            }
            State::Own { bytes, .. } if bytes.len() > Self::MAX_OWN_BYTES => return Err(StateTooLong),
            State::Own { round, bytes } => {
                plain.push(OWN);
                plain.extend_from_slice(&round.to_be_bytes());
                plain.extend_from_slice(bytes);
            }
        }
        let payload = Payload {
            msg: &plain,
            aad: self.prefix.as_bytes(),
        };
        let sealed = self.cipher.encrypt(&nonce.into(), payload).map_err(|_| StateTooLong)?;
        let mut text = String::with_capacity(self.prefix.len() + (NONCE_BYTES + sealed.len()).div_ceil(3) * 4);
        text.push_str(self.prefix);
        BASE64URL.encode_string([&nonce, &sealed[..]].concat(), &mut text);
        Ok(text)
    }

    /// Opens a state that was returned with the call `binding` at the moment `now`.
    pub fn open(&self, text: &str, binding: &Binding<'_>, now: Wall) -> Result<State, Invalid> {
        let plain = self.plain(text).ok_or(Invalid::Malformed)?;
        let claims = PlainClaims::read(&plain).ok_or(Invalid::Malformed)?;
        if *claims.principal_digest != binding.principal_digest() {
            return Err(Invalid::NotYours);
        }
        if *claims.call_digest != binding.call_digest() {
            return Err(Invalid::OtherRequest);
        }
        if now >= claims.expires {
            return Err(Invalid::Expired);
        }
        Ok(claims.state)
    }

    fn plain(&self, text: &str) -> Option<Vec<u8>> {
        if text.len() > Self::MAX_TEXT_BYTES {
            return None;
        }
        let bytes = BASE64URL.decode(text.strip_prefix(self.prefix)?).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload {
            msg: sealed,
            aad: self.prefix.as_bytes(),
        };
        self.cipher.decrypt(&(*nonce).into(), payload).ok()
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(…)") // SEC-07: the key is a secret
    }
}

/// The decrypted content of a state, before its binding is checked.
struct PlainClaims<'a> {
    expires: Wall,
    principal_digest: &'a [u8; 32],
    call_digest: &'a [u8; 32],
    state: State,
}

impl<'a> PlainClaims<'a> {
    fn read(plain: &'a [u8]) -> Option<Self> {
        let (expires, rest) = plain.split_first_chunk()?;
        let (principal_digest, rest) = rest.split_first_chunk()?;
        let (call_digest, rest) = rest.split_first_chunk()?;
        let (kind, rest) = rest.split_first()?;
        let (round, rest) = rest.split_first_chunk()?;
        let round = u32::from_be_bytes(*round);
        let state = match *kind {
            PARKED => {
                let (id, node) = rest.split_first_chunk()?;
                State::Parked {
                    id: u128::from_be_bytes(*id),
                    round,
                    node: match node {
                        [] => None,
                        node => Some(Incarnation::parse(std::str::from_utf8(node).ok()?)?),
                    },
                }
            }
            OWN => State::Own {
                round,
                bytes: rest.to_vec(),
            },
            _ => return None,
        };
        Some(PlainClaims {
            expires: Wall::from_millis(u64::from_be_bytes(*expires)),
            principal_digest,
            call_digest,
            state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::RpcError;
    use crate::principal::Principal;
    use proptest::prelude::*;

    const EXPIRES: Wall = Wall::from_millis(1_000);
    const NOW: Wall = Wall::from_millis(999);

    fn seal() -> Seal {
        Seal::new([7; 32])
    }

    fn alice() -> Principal {
        Principal::new("https://issuer", "alice")
    }

    fn binding(principal: &Principal) -> Binding<'_> {
        Binding {
            principal,
            method: "tools/call",
            digest: [1; 32],
        }
    }

    fn sealed(state: State) -> String {
        let alice = alice();
        let claims = Claims {
            binding: binding(&alice),
            expires: EXPIRES,
            state,
        };
        seal().seal([9; 24], &claims).unwrap()
    }

    fn parked() -> State {
        State::Parked {
            id: 5,
            round: 2,
            node: Some(Incarnation::new(3, 4)),
        }
    }

    #[test]
    fn mrtr_05_state_round_trips() {
        let empty = State::Own {
            round: 0,
            bytes: Vec::new(),
        };
        for state in [parked(), empty] {
            let text = sealed(state.clone());
            assert!(text.starts_with("v1."), "{text}");
            assert!(
                text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)),
                "{text}"
            );
            assert_eq!(seal().open(&text, &binding(&alice()), NOW), Ok(state));
        }
    }

    #[test]
    fn mrtr_05_another_principal_call_time_or_key_is_refused() {
        let text = sealed(parked());
        let alice = alice();
        let open = |binding: &Binding<'_>, now| seal().open(&text, binding, now);
        for other in [
            Principal::anonymous(),
            Principal::new("https://issuer", "bob"),
            Principal::new("https://other", "alice"),
            Principal::new("https://issuera", "lice"),
        ] {
            assert_eq!(open(&binding(&other), NOW), Err(Invalid::NotYours), "{other:?}");
        }
        let method = Binding {
            method: "prompts/get",
            ..binding(&alice)
        };
        assert_eq!(open(&method, NOW), Err(Invalid::OtherRequest));
        let arguments = Binding {
            digest: [2; 32],
            ..binding(&alice)
        };
        assert_eq!(open(&arguments, NOW), Err(Invalid::OtherRequest));
        assert_eq!(open(&binding(&alice), EXPIRES), Err(Invalid::Expired));
        assert_eq!(
            open(&binding(&alice), Wall::from_millis(u64::MAX)),
            Err(Invalid::Expired)
        );
        let other_key = Seal::new([8; 32]);
        assert_eq!(other_key.open(&text, &binding(&alice), NOW), Err(Invalid::Malformed));
    }

    /// GW-07, RST-05: a relay recognises its own states under any key, and no others.
    #[test]
    fn gw_07_state_of_a_relay_differs_from_that_of_a_server() {
        let alice = alice();
        let claims = Claims {
            binding: binding(&alice),
            expires: EXPIRES,
            state: parked(),
        };
        let relay = Seal::for_relay([7; 32]);
        let text = relay.seal([9; 24], &claims).unwrap();
        assert_eq!(relay.open(&text, &binding(&alice), NOW), Ok(parked()));
        assert!(Seal::for_relay([8; 32]).looks_sealed(&text));
        assert!(!relay.looks_sealed(&sealed(parked())) && !seal().looks_sealed(&text));
        // Neither format can be passed off as the other.
        let renamed = text.replacen(RELAY_PREFIX, PREFIX, 1);
        assert_eq!(seal().open(&renamed, &binding(&alice), NOW), Err(Invalid::Malformed));
    }

    #[test]
    fn mrtr_05_any_flipped_bit_and_any_cut_is_refused() {
        let (seal, alice) = (seal(), alice());
        let text = sealed(parked());
        let refused = |bytes: &[u8]| {
            let Ok(text) = std::str::from_utf8(bytes) else {
                return true; // never reaches us: the body is checked UTF-8
            };
            seal.open(text, &binding(&alice), NOW) == Err(Invalid::Malformed)
        };
        assert!(!refused(text.as_bytes()));
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                assert!(refused(&bytes), "character {at}, bit {bit}");
            }
            assert!(refused(&text.as_bytes()[..at]), "cut at {at}");
        }
        let raw = BASE64URL.decode(&text[PREFIX.len()..]).unwrap();
        for at in 0..raw.len() {
            for bit in 0..8 {
                let mut raw = raw.clone();
                raw[at] ^= 1 << bit;
                let text = format!("{PREFIX}{}", BASE64URL.encode(&raw));
                assert!(refused(text.as_bytes()), "byte {at}, bit {bit}");
            }
        }
        for more in ["=", "A", "AA", ".", " "] {
            assert!(refused(format!("{text}{more}").as_bytes()), "{more:?}");
        }
    }

    /// D13: the longest state that can be sealed can also be opened.
    #[test]
    fn mrtr_05_the_length_is_bounded_at_both_ends() {
        let own = |len| State::Own {
            round: 1,
            bytes: vec![3; len],
        };
        let text = sealed(own(Seal::MAX_OWN_BYTES));
        assert!(
            text.len() <= Seal::MAX_TEXT_BYTES && text.len() + RELAY_PREFIX.len() + 4 > Seal::MAX_TEXT_BYTES,
            "{}",
            text.len()
        );
        assert_eq!(
            seal().open(&text, &binding(&alice()), NOW),
            Ok(own(Seal::MAX_OWN_BYTES))
        );
        let alice = alice();
        let claims = Claims {
            binding: binding(&alice),
            expires: EXPIRES,
            state: own(Seal::MAX_OWN_BYTES + 1),
        };
        assert_eq!(seal().seal([9; 24], &claims), Err(StateTooLong));
        let long = format!("{PREFIX}{}", "A".repeat(Seal::MAX_TEXT_BYTES));
        assert_eq!(seal().open(&long, &binding(&alice), NOW), Err(Invalid::Malformed));
    }

    /// RST-05 too: one text covers every reason.
    #[test]
    fn mrtr_05_client_gets_the_same_error_for_every_reason() {
        let all = [
            Invalid::Malformed,
            Invalid::NotYours,
            Invalid::OtherRequest,
            Invalid::Expired,
            Invalid::Gone,
        ];
        let errors = all.map(RpcError::from);
        assert!(errors.iter().all(|error| *error == errors[0] && error.code == -32602));
        assert!(errors[0].message.contains("expired or already used"));
        assert!(errors[0].message.contains("restart"));
        let labels: std::collections::HashSet<_> = all.map(Invalid::label).into();
        assert_eq!(labels.len(), all.len(), "two refusals have the same label");
    }

    #[test]
    fn sec_07_neither_the_key_nor_the_state_can_be_read() {
        assert_eq!(format!("{:?}", seal()), "Seal(…)");
        let secret = b"the handler's own words".to_vec();
        let text = sealed(State::Own {
            round: 0,
            bytes: secret.clone(),
        });
        let raw = BASE64URL.decode(&text[PREFIX.len()..]).unwrap();
        assert_eq!(memchr::memmem::find(&raw, &secret), None);
    }

    fn any_state() -> impl Strategy<Value = State> {
        prop_oneof![
            (any::<u128>(), any::<u32>(), any::<Option<(u64, u32)>>()).prop_map(|(id, round, node)| State::Parked {
                id,
                round,
                node: node.map(|(n, random)| Incarnation::new(n, random)),
            }),
            (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..200))
                .prop_map(|(round, bytes)| State::Own { round, bytes }),
        ]
    }

    proptest! {
        #[test]
        fn mrtr_05_seal_and_open_round_trip_and_one_change_breaks_it(
            (key, nonce) in any::<([u8; 32], [u8; 24])>(),
            (issuer, subject, method) in any::<(String, String, String)>(),
            (digest, expires) in (any::<[u8; 32]>(), 1u64..),
            state in any_state(),
            (at, flip) in (any::<prop::sample::Index>(), 1u8..),
        ) {
            let principal = Principal::new(issuer, subject);
            let binding = Binding { principal: &principal, method: &method, digest };
            let claims = Claims { binding, expires: Wall::from_millis(expires), state: state.clone() };
            let (seal, now) = (Seal::new(key), Wall::from_millis(expires - 1));
            let text = seal.seal(nonce, &claims).unwrap();
            prop_assert_eq!(seal.open(&text, &binding, now), Ok(state));
            prop_assert_eq!(seal.open(&text, &binding, claims.expires), Err(Invalid::Expired));

            let mut raw = BASE64URL.decode(&text[PREFIX.len()..]).unwrap();
            let at = at.index(raw.len());
            raw[at] ^= flip;
            let forged = format!("{PREFIX}{}", BASE64URL.encode(&raw));
            prop_assert_eq!(seal.open(&forged, &binding, now), Err(Invalid::Malformed));

            let mut other = digest;
            other[at % 32] ^= flip;
            let other = Binding { digest: other, ..binding };
            prop_assert_eq!(seal.open(&text, &other, now), Err(Invalid::OtherRequest));
            let mut other = key;
            other[at % 32] ^= flip;
            prop_assert_eq!(Seal::new(other).open(&text, &binding, now), Err(Invalid::Malformed));
        }

        #[test]
        fn mrtr_05_any_text_is_refused_without_a_panic(text in "(v1\\.)?([A-Za-z0-9_-]{0,250}|\\PC{0,60})") {
            prop_assert_eq!(seal().open(&text, &binding(&alice()), NOW), Err(Invalid::Malformed));
        }

        /// States that only a holder of the key can make are validated too.
        #[test]
        fn mrtr_05_any_plain_text_is_read_without_a_panic(plain in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = PlainClaims::read(&plain);
        }
    }
}
