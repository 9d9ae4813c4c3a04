//! The caller and the session id.

use crate::inline_str::InlineStr;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The caller, as an authentication layer identifies it: an issuer and a subject. It does not contain the bytes of a token,
/// so that a refreshed token continues to work (D12). Sessions, streams and questions belong to a principal. For other
/// principals they do not exist.
///
/// An auth layer puts a `Principal` into the request's extensions. Without one every caller is [`Principal::anonymous`].
///
/// Cheap to clone: every request does it. Clones of one principal are compared by address first.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "PrincipalName", into = "PrincipalName")]
pub struct Principal(Option<Arc<PrincipalName>>); // `None` if both names are empty, so that equal principals compare as equal

/// The form of a principal in stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename = "Principal")]
struct PrincipalName {
    issuer: Arc<str>,
    subject: Arc<str>,
}

impl From<PrincipalName> for Principal {
    fn from(name: PrincipalName) -> Self {
        let is_anonymous = name.issuer.is_empty() && name.subject.is_empty();
        Principal((!is_anonymous).then(|| Arc::new(name)))
    }
}

impl From<Principal> for PrincipalName {
    fn from(principal: Principal) -> Self {
        principal
            .0
            .map_or_else(PrincipalName::default, |name| PrincipalName::clone(&name))
    }
}

impl Principal {
    /// A caller with a name that the issuer chose.
    pub fn new(issuer: impl Into<Arc<str>>, subject: impl Into<Arc<str>>) -> Self {
        let (issuer, subject) = (issuer.into(), subject.into());
        PrincipalName { issuer, subject }.into()
    }

    /// The one principal of an endpoint without authentication.
    pub fn anonymous() -> Self {
        Principal::default()
    }

    /// Whether this is the anonymous principal, to which limits per principal do not apply.
    pub fn is_anonymous(&self) -> bool {
        self.0.is_none()
    }

    /// The issuer of the subject.
    pub fn issuer(&self) -> &str {
        self.0.as_ref().map_or("", |name| &name.issuer)
    }

    /// The name of the caller at the issuer.
    pub fn subject(&self) -> &str {
        self.0.as_ref().map_or("", |name| &name.subject)
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Principal {}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.issuer(), self.subject()).hash(state);
    }
}

impl PartialOrd for Principal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Principal {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.issuer(), self.subject()).cmp(&(other.issuer(), other.subject()))
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principal")
            .field("issuer", &self.issuer())
            .field("subject", &self.subject())
            .finish()
    }
}

/// The id of a session on the wire: a secret of at least 128 random bits.
///
/// `Debug` shows a short prefix only, so that a reader of the log cannot use the session (SEC-07).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct SessionId(InlineStr);

impl SessionId {
    /// The longest id that is looked up, in bytes. A longer one is unknown. Ours are shorter.
    pub const MAX_BYTES: usize = 128;

    /// Encodes 144 random bits as 24 characters (SES-02: visible ASCII, at least 128 bits).
    pub fn from_random(bits: [u8; 18]) -> Self {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = String::with_capacity(24);
        for chunk in bits.chunks_exact(3) {
            let word = u32::from(chunk[0]) << 16 | u32::from(chunk[1]) << 8 | u32::from(chunk[2]);
            for shift in [18, 12, 6, 0] {
                text.push(ALPHABET[(word >> shift) as usize & 63] as char);
            }
        }
        SessionId(text.as_str().into())
    }

    /// Parses the text of a header: visible ASCII of a bounded length.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_header(text.as_bytes())
    }

    /// Parses the bytes of a header.
    pub fn from_header(bytes: &[u8]) -> Option<Self> {
        let fits = !bytes.is_empty() && bytes.len() <= Self::MAX_BYTES;
        InlineStr::visible(bytes).filter(|_| fits).map(SessionId)
    }

    /// The id as it is in the header.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The bytes of the text. Unlike [`as_str`](Self::as_str) this checks nothing, so tables use it.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The first characters: enough to find a session in a log, too few to use it.
    pub fn short(&self) -> &str {
        self.as_str().get(..6).unwrap_or(self.as_str())
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({}…)", self.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ses_02_ids_are_visible_ascii_and_carry_all_their_bits() {
        let zero = SessionId::from_random([0; 18]);
        let ones = SessionId::from_random([0xff; 18]);
        assert_eq!(zero.as_str(), "A".repeat(24));
        assert_eq!(ones.as_str(), "_".repeat(24));
        for bit in 0..144 {
            let mut bits = [0u8; 18];
            bits[bit / 8] = 1 << (bit % 8);
            let id = SessionId::from_random(bits);
            assert_ne!(id, zero, "bit {bit} is lost");
            assert!(id.as_str().bytes().all(|b| (0x21..=0x7e).contains(&b)));
            assert_eq!(SessionId::parse(id.as_str()), Some(id));
        }
    }

    #[test]
    fn ses_02_text_that_cannot_be_an_id_is_none() {
        let long = "a".repeat(SessionId::MAX_BYTES + 1);
        for bad in ["", "a b", "a\tb", "ä", "a\u{7f}", &long] {
            assert_eq!(SessionId::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn sec_07_debug_output_does_not_reveal_the_id() {
        let id = SessionId::from_random([7; 18]);
        assert!(!format!("{id:?}").contains(id.as_str()));
    }
}
