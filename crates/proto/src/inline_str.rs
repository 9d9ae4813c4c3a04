//! Short strings that are stored inline, for ids and names that every request compares, hashes and copies.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The longest text without an allocation, in bytes. A longer text is shared on the heap.
const MAX_INLINE_BYTES: usize = 30;

/// A text without an allocation if it is short, and with one shared allocation otherwise.
#[derive(Clone)]
pub struct InlineStr(Form);

#[derive(Clone)]
enum Form {
    Inline { len: u8, bytes: [u8; MAX_INLINE_BYTES] },
    Heap(Arc<str>),
}

impl InlineStr {
    /// The concatenation of two texts.
    pub(crate) fn joined(head: &str, tail: &str) -> Self {
        let (mut bytes, len) = ([0; MAX_INLINE_BYTES], head.len() + tail.len());
        if len > MAX_INLINE_BYTES {
            return InlineStr(Form::Heap([head, tail].concat().into()));
        }
        bytes[..head.len()].copy_from_slice(head.as_bytes());
        bytes[head.len()..len].copy_from_slice(tail.as_bytes());
        let len = len as u8;
        InlineStr(Form::Inline { len, bytes })
    }

    /// A text of visible ASCII. `None` for anything else.
    pub(crate) fn visible(text: &[u8]) -> Option<Self> {
        if !text.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        let mut bytes = [0; MAX_INLINE_BYTES];
        if let Some(place) = bytes.get_mut(..text.len()) {
            place.copy_from_slice(text);
            let len = text.len() as u8;
            return Some(InlineStr(Form::Inline { len, bytes }));
        }
        std::str::from_utf8(text).ok().map(InlineStr::from)
    }

    /// The text, in UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Form::Heap(text) => text.as_bytes(),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Form::Inline { .. } => std::str::from_utf8(self.as_bytes()).expect("it was made of text"),
            Form::Heap(text) => text,
        }
    }
}

impl From<&str> for InlineStr {
    fn from(text: &str) -> Self {
        InlineStr::joined(text, "")
    }
}

impl PartialEq for InlineStr {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for InlineStr {}

impl PartialOrd for InlineStr {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InlineStr {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for InlineStr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for InlineStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl serde::Serialize for InlineStr {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> serde::Deserialize<'de> for InlineStr {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Ok(InlineStr::from(text.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn inline_str_is_as_small_as_bytes() {
        assert_eq!(size_of::<InlineStr>(), 32);
    }

    proptest! {
        #[test]
        fn inline_str_keeps_its_text(a in "\\PC{0,40}", b in "\\PC{0,40}") {
            let (short, other) = (InlineStr::from(a.as_str()), InlineStr::from(b.as_str()));
            prop_assert_eq!(short.as_str(), &a);
            prop_assert_eq!(short.as_bytes(), a.as_bytes());
            prop_assert_eq!(short == other, a == b);
            let joined = InlineStr::joined(&a, &b);
            prop_assert_eq!(joined.as_str(), format!("{a}{b}"));
            let visible = a.bytes().all(|byte| byte.is_ascii_graphic());
            prop_assert_eq!(InlineStr::visible(a.as_bytes()), visible.then_some(short.clone()));
            prop_assert_eq!(short.cmp(&other), a.as_bytes().cmp(b.as_bytes()));
        }
    }
}
