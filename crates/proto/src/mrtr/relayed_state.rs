//! The `requestState` of a server behind a relay, with the node whose process wrote it.
//!
//! The server may keep the waiting call in the memory of one process. So the node of that process adds its name, and a retry
//! finds it (GW-19). The server's own text stays readable behind the added head: its length grows by a constant.
//!
//! The head is bound to the text and to the principal, and to nothing else. The server itself decides for how long and for
//! which arguments its state is valid.

use super::claims::{Invalid, principal_digest};
use super::seal::{NONCE_BYTES, Seal};
use crate::cluster::Incarnation;
use crate::jsonrpc::{Fields, Params};
use crate::principal::Principal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use bytes::Bytes;
use chacha20poly1305::aead::{Aead as _, Payload};

/// The version of the format. It is authenticated, too.
const PREFIX: &str = "rethread-node-v1.";
/// Between the sealed name of the node, which is base64url, and the state of the server.
const SEPARATOR: char = '.';

/// A state of the server behind a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayedState {
    /// The node whose process wrote the state.
    pub node: Incarnation,
    /// The state, exactly as the server wrote it.
    pub text: String,
}

impl Seal {
    /// The state with the name of its node. The nonce must be random.
    pub fn add_node(&self, nonce: [u8; NONCE_BYTES], principal: &Principal, state: &RelayedState) -> String {
        let payload = Payload {
            msg: state.node.as_str().as_bytes(),
            aad: &bound(principal, &state.text),
        };
        let sealed = self.cipher.encrypt(&nonce.into(), payload);
        let sealed = sealed.expect("the name of a node is short");
        let head = BASE64URL.encode([&nonce, &sealed[..]].concat());
        format!("{PREFIX}{head}{SEPARATOR}{}", state.text)
    }

    /// Separates a state from the name of its node. `None` if `text` has no name of a node.
    pub fn remove_node(&self, text: &str, principal: &Principal) -> Option<Result<RelayedState, Invalid>> {
        let named = text.strip_prefix(PREFIX)?;
        Some(self.read_named(named, principal).ok_or(Invalid::Malformed))
    }

    fn read_named(&self, named: &str, principal: &Principal) -> Option<RelayedState> {
        let (head, text) = named.split_once(SEPARATOR)?;
        let bytes = BASE64URL.decode(head).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload {
            msg: sealed,
            aad: &bound(principal, text),
        };
        let node = self.cipher.decrypt(&(*nonce).into(), payload).ok()?;
        Some(RelayedState {
            node: Incarnation::parse(std::str::from_utf8(&node).ok()?)?,
            text: text.to_owned(),
        })
    }
}

/// The part of a state that is authenticated and not encrypted.
fn bound(principal: &Principal, text: &str) -> Vec<u8> {
    [PREFIX.as_bytes(), &principal_digest(principal), text.as_bytes()].concat()
}

/// The `requestState` of a result that asks for input. `None` for any other result, and for a state that is not a string.
pub fn state_of_result(result: &[u8]) -> Option<String> {
    let fields = Fields::read(std::str::from_utf8(result).ok()?)?;
    if fields.find("resultType")?.get() != "\"input_required\"" {
        return None;
    }
    serde_json::from_str(fields.find("requestState")?.get()).ok()
}

/// Whether `json` may have a `requestState`. A search for the letters is much cheaper than a parse. Also finds a key with escapes.
pub fn may_have_state(json: &[u8]) -> bool {
    let has = |letters: &[u8]| memchr::memmem::find(json, letters).is_some();
    has(b"requestState") || has(b"\\u")
}

/// The same object with another `requestState`. Every other byte stays. An object without one is returned as it is.
pub fn replace_state(object: &Bytes, state: &str) -> Bytes {
    let fields = std::str::from_utf8(object).ok().and_then(Fields::read);
    let Some(old) = fields.and_then(|fields| fields.find("requestState")) else {
        return object.clone();
    };
    let old = object.slice_ref(old.get().as_bytes());
    let start = old.as_ptr() as usize - object.as_ptr() as usize;
    let mut out = Vec::with_capacity(object.len() + state.len());
    out.extend_from_slice(&object[..start]);
    serde_json::to_writer(&mut out, state).expect("a text can be written to memory");
    out.extend_from_slice(&object[start + old.len()..]);
    out.into()
}

/// The same params with another `requestState`.
pub fn with_state(params: &Params, state: &str) -> Params {
    Params::from_raw(replace_state(params.raw(), state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONGEST_HEAD: usize = PREFIX.len() + (NONCE_BYTES + 29 + 16) * 4 / 3 + 1;

    fn seal() -> Seal {
        Seal::for_relay([7; 32])
    }

    fn alice() -> Principal {
        Principal::new("https://issuer", "alice")
    }

    fn state(text: &str) -> RelayedState {
        RelayedState {
            node: Incarnation::new(3, 4),
            text: text.to_owned(),
        }
    }

    fn named(text: &str) -> String {
        seal().add_node([9; 24], &alice(), &state(text))
    }

    /// The state of another gateway, or of this one, is a text like any other.
    #[test]
    fn gw_19_state_of_a_server_comes_back_unchanged() {
        let nested = named("inner");
        for text in [
            "",
            ".",
            "a.b",
            "v1.Zm9v",
            "rethread-relay-v1.Zm9v",
            "é \" \n\u{0}",
            &nested,
        ] {
            let wrapped = named(text);
            assert!(wrapped.ends_with(text), "{wrapped}");
            assert_eq!(seal().remove_node(&wrapped, &alice()), Some(Ok(state(text))));
        }
        let longest = RelayedState {
            node: Incarnation::new(u64::MAX, u32::MAX),
            text: "x".repeat(1_000_000),
        };
        let wrapped = seal().add_node([9; 24], &alice(), &longest);
        assert!(
            wrapped.len() <= longest.text.len() + LONGEST_HEAD,
            "it grows by a constant"
        );
        assert_eq!(seal().remove_node(&wrapped, &alice()), Some(Ok(longest)));
    }

    #[test]
    fn gw_19_state_without_a_node_is_the_server_s_own() {
        for text in [
            "",
            "v1.Zm9v",
            "rethread-node-v2.a.b",
            "rethread-relay-v1.Zm9v",
            " rethread-node-v1.",
        ] {
            assert_eq!(seal().remove_node(text, &alice()), None, "{text}");
        }
    }

    #[test]
    fn gw_19_state_of_another_principal_or_key_is_refused() {
        let text = named("s");
        for other in [
            Principal::anonymous(),
            Principal::new("https://issuer", "bob"),
            Principal::new("https://issuera", "lice"),
        ] {
            assert_eq!(
                seal().remove_node(&text, &other),
                Some(Err(Invalid::Malformed)),
                "{other:?}"
            );
        }
        let other_key = Seal::for_relay([8; 32]);
        assert_eq!(other_key.remove_node(&text, &alice()), Some(Err(Invalid::Malformed)));
    }

    /// A changed text never reaches the server: neither with its prefix as a state of the server, nor with another content.
    #[test]
    fn gw_19_any_change_of_a_state_is_refused() {
        let text = named("state of the server");
        for at in PREFIX.len()..text.len() {
            for bit in 0..7 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let changed = String::from_utf8(bytes).unwrap();
                let opened = seal().remove_node(&changed, &alice());
                assert_eq!(opened, Some(Err(Invalid::Malformed)), "character {at}, bit {bit}");
            }
            let cut = seal().remove_node(&text[..at], &alice());
            assert_eq!(cut, Some(Err(Invalid::Malformed)), "cut at {at}");
        }
        let longer = seal().remove_node(&format!("{text}x"), &alice());
        assert_eq!(longer, Some(Err(Invalid::Malformed)));
    }

    /// A head is not a parked call, and the other way round: the prefixes are authenticated.
    #[test]
    fn gw_19_state_with_a_node_is_not_a_parked_call() {
        assert!(!seal().looks_sealed(&named("s")));
    }

    #[test]
    fn gw_19_only_results_that_ask_for_input_have_a_state() {
        for (result, expected) in [
            (
                r#"{"resultType":"input_required","requestState":"s\u0020t"}"#,
                Some("s t"),
            ),
            (r#"{"request\u0053tate":"s","resultType":"input_required"}"#, Some("s")),
            (r#"{"resultType":"input_required","requestState":7}"#, None),
            (r#"{"resultType":"input_required","inputRequests":{}}"#, None),
            (r#"{"resultType":"complete","requestState":"s"}"#, None),
            (
                r#"{"structuredContent":{"resultType":"input_required","requestState":"s"}}"#,
                None,
            ),
            (r#"{"requestState":"s"}"#, None),
            ("[]", None),
            ("", None),
        ] {
            assert_eq!(state_of_result(result.as_bytes()).as_deref(), expected, "{result}");
            assert!(expected.is_none() || may_have_state(result.as_bytes()), "{result}");
        }
    }

    #[test]
    fn gw_19_replacing_a_state_leaves_every_other_byte() {
        for (object, expected) in [
            (
                r#"{ "a": 1.50, "requestState" : "x" , "b":"\u0061"}"#,
                r#"{ "a": 1.50, "requestState" : "é\"" , "b":"\u0061"}"#,
            ),
            (r#"{"a":{"requestState":"x"}}"#, r#"{"a":{"requestState":"x"}}"#),
            ("[]", "[]"),
            ("", ""),
        ] {
            assert_eq!(
                replace_state(&Bytes::from(object), "é\""),
                expected.as_bytes(),
                "{object}"
            );
        }
    }

    proptest! {
        #[test]
        fn gw_19_any_text_round_trips_or_is_refused(text in ".{0,200}", n: u64, random: u32) {
            let state = RelayedState { node: Incarnation::new(n, random), text: text.clone() };
            let wrapped = seal().add_node([1; 24], &alice(), &state);
            prop_assert_eq!(seal().remove_node(&wrapped, &alice()), Some(Ok(state)));
            let forged = seal().remove_node(&format!("{PREFIX}{text}"), &alice());
            prop_assert_eq!(forged, Some(Err(Invalid::Malformed)));
        }
    }
}
